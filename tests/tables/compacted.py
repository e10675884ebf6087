"""A compacted folder of a made-up fleet, large beside what a reader reads anyway."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.files import BatchWriter, files_of
from holdfast.fleet.tables.folder.maintenance import merge
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables

ROWS = {
    "offset_commits": 100,
    "generations": 10,
    "members": 30,
    "assignments": 30,
    "movements": 30,
    "rebalances": 10,
    "ownership_gaps": 20,
    "lag": 20,
    "anomalies": 1,
}
"""Rows of a group in each table."""


def compacted_fleet(root: Path, n_groups: int, n_batches: int = 5) -> Tables:
    """Rows of no sense for many groups, in batches of groups that are far from each other."""
    names = [f"group-{i:05d}" for i in range(n_groups)]
    rng = np.random.default_rng(1)
    tables = Tables(root)
    with tables.writing():
        for batch in range(n_batches):
            out = BatchWriter(str(root), batch)
            for name, n_rows in ROWS.items():
                out.write(name, _rows(name, np.repeat(names[batch::n_batches], n_rows), rng))
            tables.commit(Batch(id=batch, files=files_of(out.close())))
        merge(tables.folder, everything=True)
    return tables


def _rows(name: str, groups: np.ndarray, rng: np.random.Generator) -> pa.Table:
    n, columns = len(groups), []
    for field in arrow_schema(name):
        kind = field.type
        values = pa.array(rng.integers(0, 1_000, n))
        if field.name == "group":
            values = pa.array(groups)
        elif pa.types.is_timestamp(kind):
            values = pa.array(1_700_000_000_000_000 + rng.integers(0, 86_400_000, n) * 1_000)
        elif pa.types.is_list(kind):
            start = pa.array((np.arange(n + 1) * 8).astype(np.int32))
            inner = np.resize(np.arange(8), n * 8)
            values = pa.ListArray.from_arrays(start, pa.array(inner).cast(kind.value_type))
        elif pa.types.is_string(kind):
            numbers = rng.integers(0, 1 << 40 if "member" in field.name else 20, n)
            values = pa.array([f"{field.name}-{number}" for number in numbers])
        elif pa.types.is_boolean(kind):
            values = pa.array(rng.integers(0, 2, n).astype(bool))
        columns.append(values.cast(kind))
    return pa.table(columns, schema=arrow_schema(name))


def folder_bytes(tables: Tables) -> int:
    """Bytes of all files that count."""
    return sum(file.size for name in TABLES for file in tables.data_files(name))


def bytes_read() -> int:
    """Bytes that this process has read from anything, by the system's own count."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])
