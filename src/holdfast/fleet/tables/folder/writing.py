"""Write the files of a batch: Parquet, one file for each table of a task.

**Rules.** Names from a cluster never become part of a path: a file is
``<table>/batch-<id>/<random>.parquet``. A file counts only when the manifest names it
(:mod:`holdfast.fleet.tables.folder.manifest`). A task returns the name of a file after the file
and the folders above it are flushed to the disk, so no manifest names a file that a power cut
takes. No file is written through a link.

**Strategy.** The tasks of a job write their files with Arrow and return the names
(:class:`BatchWriter`), which costs a quarter of returning rows through the JVM. A file of a failed
or repeated task is never named, and is swept after a later commit
(:mod:`holdfast.fleet.tables.folder.contents`).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import SourceError
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.folder.contents import file_name, is_file_name, merged_names
from holdfast.fleet.tables.folder.delta_log import BOUNDED
from holdfast.fleet.tables.storage.file_system import FileSystem
from holdfast.fleet.tables.storage.paths import StoragePath, file_system_of, storage_path

FILES_SCHEMA: Final = arrow_schema("files")
"""Columns: :data:`holdfast.fleet.tables.columns.steps.FILES`."""

BUFFER_ROWS: Final = 250_000
"""Rows of a table that a task writes together."""
TASK_GROUP_ROWS: Final = 10_000
"""Rows of a row group that a task writes: whoever reads some groups reads whole row groups."""
ROW_GROUPS: Final = 256
"""Row groups of a merge, at most; one is what the rows of a group are read with."""
FILE_ROW_GROUPS: Final = 16
"""Row groups of a file of a merge: its footer is read whole, and at least 64 kB of the file are."""
_DELTAS: Final = "DELTA_BINARY_PACKED"
"""Of Parquet's encodings of numbers, one that every reader of Delta tables has."""
LEAST_ROWS: Final = 2_000
"""Rows of a row group, at least: a smaller one costs more in the footer than it spares."""


@dataclass(slots=True)
class BatchWriter:
    """Writes the tables of one task, each to one file of its own."""

    root: str  # folder of the tables; every worker must reach it under this name
    batch: int
    # Records of an unknown type that the task met: they are in no table.
    unknown: Counter[int] = field(default_factory=Counter)
    _parts: dict[str, list[pa.Table]] = field(default_factory=dict)
    _open: dict[str, _OpenFile] = field(default_factory=dict)

    def write(self, table: str, rows: pa.Table) -> None:
        """Take rows of a table; they reach the file in large row groups."""
        if rows.num_rows == 0:
            return
        parts = self._parts.setdefault(table, [])
        parts.append(rows)
        if sum(part.num_rows for part in parts) >= BUFFER_ROWS:
            self._flush(table)

    def _flush(self, table: str) -> None:
        rows = pa.concat_tables(self._parts.pop(table))
        if table not in self._open:
            name = file_name(table, self.batch, uuid.uuid4().hex)
            self._open[table] = _OpenFile.of(storage_path(self.root), name, rows)
        self._open[table].write(rows, row_group_size=TASK_GROUP_ROWS)

    def close(self) -> pa.Table:
        """Close every file; return the task's result, as rows of :data:`FILES_SCHEMA`."""
        for table in list(self._parts):
            self._flush(table)
        names: list[dict[str, str | int]] = []
        for table, file in self._open.items():
            file.close()
            names.append({"table": table, "file": file.name, "rows": file.n_rows})
        file_system_of(self.root).sync([file.name for file in self._open.values()])
        self._open.clear()
        for record_type, n_records in sorted(self.unknown.items()):
            names.append({"n_unknown": n_records, "record_type": record_type})
        return pa.Table.from_pylist(names, schema=FILES_SCHEMA)


@dataclass(slots=True)
class _OpenFile:
    """A file of a table that is being written."""

    name: str
    fs: FileSystem
    writer: pq.ParquetWriter
    ends: ExitStack
    n_rows: int = 0

    @classmethod
    def of(cls, root: StoragePath, name: str, rows: pa.Table) -> _OpenFile:
        """Create a file with the columns of some rows.

        Bounds of the columns for lookups suffice: the others are a third of a footer and a sixth
        of the time. Times ascend, so their differences are small: a quarter of the time. A
        dictionary pays for strings, which repeat; numbers would cost double.
        """
        path = root / name
        file_system_of(path.parent).make_folder()
        file_system_of(root).refuse_links([name])
        ends, fs = ExitStack(), file_system_of(path)
        with fs.translated_errors("written"):
            sink = ends.enter_context(fs.writable(once=True))
            writer = pq.ParquetWriter(
                sink,
                rows.schema,
                compression="zstd",
                use_dictionary=_columns_of(rows, pa.types.is_string),
                column_encoding=dict.fromkeys(_columns_of(rows, pa.types.is_timestamp), _DELTAS),
                write_statistics=[name for name in BOUNDED if name in rows.column_names],
            )
        return cls(name, fs, writer, ends)

    def write(self, rows: pa.Table, **options: int) -> None:
        """Write rows; a file that cannot be written is abandoned."""
        try:
            with self.fs.translated_errors("written"):
                self.writer.write_table(rows, **options)
            self.n_rows += rows.num_rows
        except BaseException as error:
            self.ends.__exit__(type(error), error, error.__traceback__)
            raise

    def close(self) -> None:
        """Write the footer; the file is whole then."""
        with self.ends, self.fs.translated_errors("written"):
            self.writer.close()


def write_merged(root: StoragePath, table: str, parts: Sequence[pa.Table]) -> list[tuple[str, int]]:
    """Write rows of several batches to new files, sorted by group; no file without rows.

    Files and their row groups are small compared with the whole, so that the log and one footer
    locate the rows of a group, which are read without most of the others.
    """
    rows = pa.concat_tables(parts)
    if not rows.num_rows:
        return []
    keys = [k for k in ("group", "generation", "timestamp") if k in rows.column_names]
    rows = rows.sort_by([(key, "ascending") for key in keys])
    size = max(LEAST_ROWS, -(-rows.num_rows // ROW_GROUPS))
    step = size * FILE_ROW_GROUPS
    names = merged_names(table, uuid.uuid4().hex, -(-rows.num_rows // step))
    files = []
    for i, name in enumerate(names):
        part = rows.slice(i * step, step)
        file = _OpenFile.of(root, name, part)
        file.write(part, row_group_size=size)
        file.close()
        files.append((name, part.num_rows))
    file_system_of(root).sync(names)
    return files


def _columns_of(rows: pa.Table, is_kind: Callable[[pa.DataType], bool]) -> list[str]:
    return [field.name for field in rows.schema if is_kind(field.type)]


def files_of(rows: pa.Table) -> dict[str, list[tuple[str, int]]]:
    """Return the files that rows of FILES_SCHEMA name, by table; refuse another name than ours."""
    files: dict[str, list[tuple[str, int]]] = {}
    named = rows.filter(rows["table"].is_valid())
    for row in named.sort_by([("table", "ascending"), ("file", "ascending")]).to_pylist():
        if not is_file_name(row["file"], row["table"]):
            raise SourceError(f"a task names {row['file']!r} as a file of {row['table']!r}")
        files.setdefault(row["table"], []).append((row["file"], row["rows"]))
    return files
