"""Write tables of very many groups: copies of the groups of some tables, under other names.

``python -m bench.many_groups TEMPLATE OUT --copies 100 [--files 32]`` with tables of
``bench.pipeline_fleet`` (10,000 groups) writes those of a million groups, with their findings. The
files are as the tasks of a batch write them: each has some of the groups, sorted by name. The same
arguments give the same rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.columnar import codes
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.files import BatchWriter, files_of
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables, open_tables

PREFIX = "group-"
NAMED = {"group": "", "command": PREFIX, "text": PREFIX}
"""Columns that contain a group's name, and what precedes its number in others than ``group``."""


def copied(rows: pa.Table, copy: int, digits: int) -> pa.Table:
    """Return rows whose groups have the number of a copy before their own."""
    with_number = f"{PREFIX}{copy:0{digits}d}"
    for name in NAMED:
        if name in rows.column_names and pa.types.is_string(rows.schema.field(name).type):
            at = rows.schema.get_field_index(name)
            values = pc.replace_substring(rows[name], PREFIX, with_number)
            rows = rows.set_column(at, rows.schema.field(at), values)
    return rows


def parts_of(rows: pa.Table, n_files: int) -> Iterator[pa.Table]:
    """Yield the rows of every n-th group, sorted by group."""
    rank, _ = codes(rows, "group")
    for i in range(n_files):
        own = np.flatnonzero(rank % n_files == i)
        yield rows.take(pa.array(own[np.argsort(rank[own], kind="stable")]))


def write(template: Tables, out: Path, copies: int, n_files: int) -> int:
    """Write copies of every group; return the number of rows."""
    made = Tables(out)
    digits = len(str(copies - 1))
    named = [name for name in TABLES if "group" in TABLES[name].names]
    stored = {name: list(parts_of(template.stored(name), n_files)) for name in named}
    files: dict[str, list[tuple[str, int]]] = {}
    with made.writing():
        for i in range(n_files):
            writer = BatchWriter(str(out), 0)
            for name in named:
                for copy in range(copies):
                    writer.write(name, copied(stored[name][i], copy, digits))
            for name, found in files_of(writer.close()).items():
                files.setdefault(name, []).extend(found)
        made.commit(Batch(id=0, files=files, notes=template.newest_notes()), replace=True)
    return sum(n for found in files.values() for _, n in found)


def main() -> None:
    """Write the tables, and print their number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("template", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--copies", type=int, default=100)
    parser.add_argument("--files", type=int, default=32)
    asked = parser.parse_args()
    begin, template = time.process_time(), open_tables(asked.template)
    n_rows = write(template, asked.out.absolute(), asked.copies, asked.files)
    n_groups = asked.copies * len(template.groups)
    print(f"{n_groups} groups, {n_rows} rows, {time.process_time() - begin:.1f} s of CPU")


if __name__ == "__main__":
    main()
