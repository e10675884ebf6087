"""``holdfast dump``: the offsets topic of a live cluster to a folder of Parquet files."""

from __future__ import annotations

from functools import partial

from holdfast.cli.histories import (
    count_readable,
    count_records,
    live_cluster,
    polled_feed,
    reading_cluster,
    report_open,
)
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
    from holdfast.fleet.pipeline.ingest.dump import write_dump
    from holdfast.fleet.pipeline.ingest.selection import Selection
    from holdfast.fleet.tables.storage.paths import storage_path

    note = notes(quiet)
    cluster = live_cluster(bootstrap, command_config, timeout)
    cluster.check()
    groups = group or []
    chosen = Selection(groups=groups, all_groups=True)
    held = count_readable(cluster, engine, lambda: count_records(cluster, chosen), note)
    if held is None:
        written = polled_feed(cluster, chosen).dump(storage_path(output).absolute())
    else:
        bar = partial(spark_bar, what="dump", n_records=held, quiet=quiet)
        with reading_cluster(cluster, engine, held, bar, note) as feed:
            written = write_dump(feed, output, groups=groups, note=note)
    report_open(written.open_transactions, written.taken_at, note)
    note(f"{written.n_records()} records, {written.topics().num_rows} topics in {written.path}")
