"""``holdfast dump``: the offsets topic of a live cluster to a folder of Parquet files."""

from __future__ import annotations

from functools import partial

from holdfast.cli.histories import live_cluster, open_feed, report_open
from holdfast.cli.options import (
    TIMEOUT,
    CommandConfig,
    DumpFolder,
    Engine,
    EngineOption,
    Groups,
    NeededBootstrap,
    Quiet,
    Timeout,
)
from holdfast.cli.output import notes
from holdfast.cli.spark_progress import spark_bar

EXAMPLES = """\b
Examples:
  holdfast dump -b localhost:9092 -o dump
  holdfast dump -b broker:9093 --command-config client.properties -o dump
  holdfast dump -b localhost:9092 -o s3://bucket/dumps/monday
  holdfast dump -b localhost:9092 --group 'etl-*' -o dump
"""


def run(  # noqa: PLR0917 (every option is passed by name)
    bootstrap: NeededBootstrap,
    output: DumpFolder,
    group: Groups = None,
    command_config: CommandConfig = None,
    timeout: Timeout = TIMEOUT,
    engine: EngineOption = Engine.AUTO,
    quiet: Quiet = False,
) -> None:
    """Write records, topic ids, begin and end offsets of a cluster to a folder.

    Reads without joining a group. `history`, `lag` and other commands take the folder as --input.
    The folder may be on remote storage: s3://, gs://, abfss://, hdfs://.
    """
    from holdfast.fleet.pipeline.batches.history import dump_of
    from holdfast.fleet.pipeline.ingest.decode import Selection

    note = notes(quiet)
    cluster = live_cluster(bootstrap, command_config, timeout)
    cluster.check()
    groups = group or []
    chosen = Selection(groups=groups, all_groups=True)
    with open_feed(
        cluster,
        engine,
        chosen,
        bar=lambda n_records: partial(spark_bar, what="dump", n_records=n_records, quiet=quiet),
        note=note,
    ) as feed:
        written = dump_of(feed, output, groups=groups, note=note)
    report_open(written.open_transactions, written.taken_at, note)
    note(f"{written.n_records()} records, {written.topics().num_rows} topics in {written.path}")
