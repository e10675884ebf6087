"""``holdfast dump``: the offsets topic of a live cluster to a folder of Parquet files."""

from __future__ import annotations

from holdfast.cli.histories import SMALL_RECORDS, count_records, live_cluster, report_open
from holdfast.cli.options import (
    TIMEOUT,
    CommandConfig,
    DumpFolder,
    Groups,
    NeededBootstrap,
    Quiet,
    Timeout,
)
from holdfast.cli.output import notes
from holdfast.cli.spark_progress import spark_when_needed

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
    quiet: Quiet = False,
) -> None:
    """Write records, topic ids, begin and end offsets of a cluster to a folder.

    Reads without joining a group. `history`, `lag` and other commands take the folder as --input.
    The folder may be on remote storage: s3://, gs://, abfss://, hdfs://.
    """
    from holdfast.fleet.pipeline.ingest.dump import write_dump
    from holdfast.fleet.pipeline.ingest.selection import Selection

    note = notes(quiet)
    cluster = live_cluster(bootstrap, command_config, timeout)
    cluster.check()
    groups = group or []
    held = count_records(cluster, Selection(groups=groups, all_groups=True))
    note(f"reading the offsets topic of {bootstrap}")
    with spark_when_needed(
        "dump", held, note=note, quiet=quiet, kafka=True, quick=held < SMALL_RECORDS
    ) as session:
        written = write_dump(session(), cluster, output, groups=groups, note=note)
    report_open(written.open_transactions, written.taken_at, note)
    note(f"{written.n_records()} records, {written.topics().num_rows} topics in {written.path}")
