"""Writing the files of a batch: Parquet, one file for each table of a task.

**Rules.** Names from a cluster never become part of a path: a file is
``<table>/batch-<id>/<random>.parquet``. A file counts only when the manifest names it
(:mod:`holdfast.tables.manifest`).

**Strategy.** The tasks of a job write their files with Arrow and hand back the names
(:class:`BatchWriter`), which costs a quarter of going back through the JVM. A file of a failed or
repeated task is never named, and is swept after the next commit.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.tables.schemas import arrow_schema

FILES_SCHEMA: Final = arrow_schema("files")
"""Columns: :data:`holdfast.tables.steps.FILES`."""


@dataclass(slots=True)
class BatchWriter:
    """Writes the tables of one task, each to one file of its own.

    Parameters
    ----------
    root : str
        Folder of the tables; every worker must reach it under this path.
    batch : int
        Batch that the files belong to.
    buffer_rows : int
        Rows of a table that are written together, as one row group.
    n_unknown : int
        Records of an unknown type that the task met: they are in no table.
    """

    root: str
    batch: int
    buffer_rows: int = 250_000
    n_unknown: int = 0
    _parts: dict[str, list[pa.Table]] = field(default_factory=dict)
    _open: dict[str, tuple[str, pq.ParquetWriter]] = field(default_factory=dict)
    _rows: dict[str, int] = field(default_factory=dict)

    def write(self, table: str, rows: pa.Table) -> None:
        """Take rows of a table; they reach the file in large row groups."""
        if rows.num_rows == 0:
            return
        parts = self._parts.setdefault(table, [])
        parts.append(rows)
        if sum(part.num_rows for part in parts) >= self.buffer_rows:
            self._flush(table)

    def _flush(self, table: str) -> None:
        rows = pa.concat_tables(self._parts.pop(table))
        if table not in self._open:
            name = f"{table}/{batch_folder(self.batch)}/{uuid.uuid4().hex}.parquet"
            path = Path(self.root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # Dictionaries pay for strings, which repeat, and cost double for numbers.
            strings = [f.name for f in rows.schema if pa.types.is_string(f.type)]
            writer = pq.ParquetWriter(path, rows.schema, compression="zstd", use_dictionary=strings)
            self._open[table] = (name, writer)
        self._open[table][1].write_table(rows)
        self._rows[table] = self._rows.get(table, 0) + rows.num_rows

    def close(self) -> pa.Table:
        """Close every file; return what the task hands back, as rows of :data:`FILES_SCHEMA`."""
        for table in list(self._parts):
            self._flush(table)
        names: list[dict[str, str | int]] = []
        for table, (name, writer) in self._open.items():
            writer.close()
            names.append({"table": table, "file": name, "rows": self._rows[table]})
        self._open.clear()
        if self.n_unknown:
            names.append({"n_unknown": self.n_unknown})
        return pa.Table.from_pylist(names, schema=FILES_SCHEMA)


def batch_folder(batch: int) -> str:
    """Folder name of a batch."""
    return f"batch-{batch:09d}"


def files_of(rows: pa.Table) -> dict[str, list[tuple[str, int]]]:
    """The files that rows of :data:`FILES_SCHEMA` name, by table."""
    files: dict[str, list[tuple[str, int]]] = {}
    named = rows.filter(rows["table"].is_valid())
    for row in named.sort_by([("table", "ascending"), ("file", "ascending")]).to_pylist():
        files.setdefault(row["table"], []).append((row["file"], row["rows"]))
    return files


def remove_tree(path: Path) -> None:
    """Delete a folder of ours if it is there."""
    shutil.rmtree(path, ignore_errors=True)
