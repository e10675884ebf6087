"""``holdfast merge``: several dumps of one cluster as one."""

from __future__ import annotations

from holdfast.cli.options import DumpFolder, Dumps, Quiet
from holdfast.cli.output import notes
from holdfast.errors import ConfigError

EXAMPLES = """\b
Examples:
  holdfast merge monday tuesday wednesday -o days
  holdfast merge s3://bucket/09 s3://bucket/10 -o s3://bucket/morning
"""


def run(
    dumps: Dumps,
    output: DumpFolder,
    quiet: Quiet = False,
) -> None:
    """Merge dumps into one with all their records, to keep what compaction deletes.

    A record that several dumps hold counts once. Topics and offsets come from the newest dump.
    Dumps of different clusters are refused. Every command takes the result as --input.
    """
    from holdfast.fleet.pipeline.ingest.merge import merge_dumps

    if len(dumps) < 2:
        raise ConfigError(f"{dumps[0]} is one dump; name two or more to merge")
    merged = merge_dumps(dumps, output)
    note = notes(quiet)
    note(f"{merged.n_records()} records of {len(dumps)} dumps in {merged.path}")
