"""Writing the files of a batch: Parquet, one file for each table of a task.

**Rules.** Names from a cluster never become part of a path: a file is
``<table>/batch-<id>/<random>.parquet``. A file counts only when the manifest names it
(:mod:`holdfast.tables.manifest`). A task hands back the name of a file when the file and the
folders that lead to it are on the disk, so no manifest names a file that a power cut takes. Nothing
is written through a link.

**Strategy.** The tasks of a job write their files with Arrow and hand back the names
(:class:`BatchWriter`), which costs a quarter of going back through the JVM. A file of a failed or
repeated task is never named, and is swept after a later commit (:mod:`holdfast.tables.folder`).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import SourceError
from holdfast.tables.names import file_name, is_file_name, merged_name
from holdfast.tables.private import create_private, make_private_folder
from holdfast.tables.schemas import arrow_schema
from holdfast.tables.store import sync_all, sync_folder

FILES_SCHEMA: Final = arrow_schema("files")
"""Columns: :data:`holdfast.tables.steps.FILES`."""


ROW_GROUPS: Final = 200
"""Row groups of a large file; one is what the rows of a group are read with."""
LEAST_ROWS: Final = 2_000
"""Rows of a row group, at least: a smaller one costs more in the footer than it spares."""


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
    unknown : Counter of int
        Records of an unknown type that the task met: they are in no table.
    """

    root: str
    batch: int
    buffer_rows: int = 250_000
    unknown: Counter[int] = field(default_factory=Counter)
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
            name = file_name(table, self.batch, uuid.uuid4().hex)
            path = Path(self.root) / name
            make_private_folder(path.parent)
            _refuse_links(path)
            strings = _texts(rows)
            create_private(path)
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
        self._sync(Path(self.root) / name for name, _ in self._open.values())
        self._open.clear()
        for record_type, n_records in sorted(self.unknown.items()):
            names.append({"n_unknown": n_records, "record_type": record_type})
        return pa.Table.from_pylist(names, schema=FILES_SCHEMA)

    def _sync(self, files: Iterable[Path]) -> None:
        """Bring files to the disk, then the folders on the way to them, the root last."""
        listed = list(files)
        sync_all(listed)
        for folder in dict.fromkeys(file.parent.parent for file in listed):
            sync_folder(folder)
        if listed:
            sync_folder(Path(self.root))


def write_merged(root: Path, table: str, parts: Sequence[pa.Table]) -> list[tuple[str, int]]:
    """Write rows of several batches to one file, sorted by group; nothing where there are none.

    Its row groups are small beside it, so that one group is read without most of the others.
    """
    rows = pa.concat_tables(parts)
    if not rows.num_rows:
        return []
    keys = [k for k in ("group", "generation", "timestamp") if k in rows.column_names]
    rows = rows.sort_by([(key, "ascending") for key in keys])
    name = merged_name(table, uuid.uuid4().hex)
    path = root / name
    make_private_folder(path.parent)
    _refuse_links(path)
    create_private(path)
    size = max(LEAST_ROWS, -(-rows.num_rows // ROW_GROUPS))
    with pq.ParquetWriter(path, rows.schema, compression="zstd", use_dictionary=_texts(rows)) as to:
        to.write_table(rows, row_group_size=size)
    sync_all([path])
    sync_folder(path.parent.parent)
    return [(name, rows.num_rows)]


def _refuse_links(path: Path) -> None:
    for folder in (path.parent, path.parent.parent):
        if folder.is_symlink():
            raise SourceError(f"{folder} is a link: tables are not written through links")


def _texts(rows: pa.Table) -> list[str]:
    """Columns with a dictionary: it pays for strings, which repeat; numbers would cost double."""
    return [field.name for field in rows.schema if pa.types.is_string(field.type)]


def files_of(rows: pa.Table) -> dict[str, list[tuple[str, int]]]:
    """The files that rows of :data:`FILES_SCHEMA` name, by table.

    Raises
    ------
    SourceError
        A name is not one that a :class:`BatchWriter` gives.
    """
    files: dict[str, list[tuple[str, int]]] = {}
    named = rows.filter(rows["table"].is_valid())
    for row in named.sort_by([("table", "ascending"), ("file", "ascending")]).to_pylist():
        if not is_file_name(row["file"], row["table"]):
            raise SourceError(f"a task names {row['file']!r} as a file of {row['table']!r}")
        files.setdefault(row["table"], []).append((row["file"], row["rows"]))
    return files
