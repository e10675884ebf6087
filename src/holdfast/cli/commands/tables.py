"""``holdfast tables``: maintenance of a folder of tables that a command has written."""

from __future__ import annotations

import time

from holdfast.cli import options
from holdfast.cli.declared import group_of
from holdfast.cli.option_values import parse_retention
from holdfast.cli.output import notes

EXAMPLES = """\b
Examples:
  holdfast tables compact tables --keep 90d
"""


def compact(
    folder: options.FolderOfTables,
    keep: options.Keep = "all",
    quiet: options.Quiet = False,
) -> None:
    """Merge small files into large ones, sorted by group; --keep drops old rows.

    `watch` does both by itself. Readers see the snapshot before or after, never a mix.
    """
    from holdfast.fleet.tables.folder.maintenance import drop_before, merge
    from holdfast.fleet.tables.reading import open_tables

    days = parse_retention(keep)
    tables = open_tables(folder)
    note = notes(quiet)
    with tables.writing():
        if days is not None:
            horizon_us = round((time.time() - days * 86_400) * 1_000_000)
            dropped = drop_before(tables.folder, horizon_us).dropped
            counts = ", ".join(f"{n} of {name}" for name, n in dropped.items())
            note(f"{folder}: dropped rows: {counts or 'none'}")
        done = merge(tables.folder, everything=True)
    note(f"{folder}: merged {done.merged} files into {done.written}")


group = group_of(
    "tables",
    {"compact": compact},
    "Maintain a folder of tables that `history` or `watch` has written.",
    EXAMPLES,
)
