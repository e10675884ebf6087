"""Files of tables in a folder: their names, how a task writes them, which ones are deleted.

**Rules.** Names from a cluster never become part of a path: a file is
``<table>/batch-<id>/<random>.parquet``. A file whose name is not ours is neither read nor deleted,
and files outside of the folder are never touched. Links are refused where tables are written or
read, and stay where files are deleted. A file counts only when the manifest names it
(:mod:`holdfast.fleet.tables.folder.manifest`). A task returns the name of a file after the file
and the folders above it are flushed to the disk, so no manifest names a file that a power cut
takes. A sweep keeps files that a reader may still read, and files that were written after the
commit before: they may belong to a batch that is not committed yet.

A JSON document of another program is checked: a value of another kind is a ValueError.

**Strategy.** The tasks of a job write their files with Arrow and return the names
(:class:`BatchWriter`), which costs a quarter of returning rows through the JVM. A file of a failed
or repeated task is never named, and is swept after a later commit.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import SourceError
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.storage.file_system import FileSystem
from holdfast.fleet.tables.storage.paths import StoragePath, file_system_of, storage_path

_FILE: Final = re.compile(r"([a-z_]+)/(?:batch-\d{9,18}|merged)/[0-9a-f]{32}\.parquet")
_RUN: Final = 24
MERGED: Final = "merged"
"""Folder of files that contain rows of several batches."""
BOUNDED: Final = ("group", "generation", "timestamp", "resolution_seconds")
"""Columns whose bounds a footer and an entry of a log have."""
_PART: Final = re.compile(rf"batch-\d{{9,18}}|{MERGED}")
_OF_NOBODY: Final = ("lost+found",)
_MOST: Final = 2**63 - 1

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


def check_folder(root: StoragePath) -> None:
    """Refuse to write tables to a folder with anything else in it, or a link instead of our file.

    A table's name and a name that begins with ``_`` are ours. Hidden files are ignored.
    """
    for path in contents_of(root, "tables"):
        if path.name.startswith(".") or path.name in _OF_NOBODY:
            continue
        if path.name == "_delta_log":
            raise SourceError(
                f"cannot write tables to {root}: it is a Delta table; name an empty or a new folder"
            )
        if path.name not in TABLES and path.name[0] != "_":
            raise SourceError(
                f"cannot write tables to {root}: it holds {path.name!r}, which is not a table; "
                "name an empty or a new folder"
            )
        if path.is_symlink():
            raise SourceError(f"{path} is a link: tables are not written through links")
        if path.name in TABLES:  # the first commit writes to it, and deletes drafts in its log
            file_system_of(root).refuse_links_in(f"{path.name}/_delta_log")


def contents_of(root: StoragePath, what: str) -> list[StoragePath]:
    """Return the sorted entries of a folder to which ``what`` is to be written; refuse a file."""
    if not root.exists():
        return []
    if not root.is_dir():
        raise SourceError(f"cannot write {what} to {root}: it is not a folder")
    return [root / name for name in file_system_of(root).names("")]


def checked_files(root: StoragePath, names: Iterable[str]) -> list[StoragePath]:
    """Return paths of files below a folder; raise a SourceError if a link is on the way."""
    named = list(names)
    file_system_of(root).refuse_links(named)
    return [root / name for name in named]


def sweep(
    root: StoragePath,
    retained: Collection[str],
    until_ns: int,
    *,
    only: Collection[str] | None = None,
) -> None:
    """Delete unused files of tables (of tasks that died, of replaced batches).

    Files that were written after ``until_ns`` stay. ``only`` names the folders to search, such as
    ``lag/batch-000000017``.
    """
    for table in TABLES:
        parts = None if only is None else {name.removeprefix(f"{table}/") for name in only}
        if parts is None or any(map(_PART.fullmatch, parts)):
            _clear(root, table, parts, lambda name, at: name not in retained and at <= until_ns)


def remove_table(root: StoragePath, table: str, *, but: str = "") -> None:
    """Delete every file of a table, except those of one batch folder."""
    _clear(root, table, None, lambda name, _: not name.startswith(f"{table}/{but}/"))


def _clear(
    root: StoragePath, table: str, parts: Collection[str] | None, is_due: Callable[[str, int], bool]
) -> None:
    """Delete files of a table in some of its folders, by default in all of ours."""
    file_system_of(root).clear(
        table,
        lambda part: bool(_PART.fullmatch(part)) and (parts is None or part in parts),
        lambda name, written_ns: is_file_name(name, table) and is_due(name, written_ns),
    )


def batch_folder(batch: int) -> str:
    """Return the folder name of a batch."""
    return f"batch-{batch:09d}"


def file_name(table: str, batch: int, unique: str) -> str:
    """Return the name of a file of a table; ``unique`` is 32 hexadecimal digits."""
    return f"{table}/{batch_folder(batch)}/{unique}.parquet"


def merged_names(table: str, unique: str, n_files: int) -> list[str]:
    """Return the names of a merge's files; ``unique`` as in :func:`file_name`."""
    return [f"{table}/{MERGED}/{unique[:_RUN]}{i:08x}.parquet" for i in range(n_files)]


def run_of(name: str) -> str:
    """Return the common part of one merge's file names; another file's own name."""
    folder, _, file = name.rpartition("/")
    return f"{folder}/{file[:_RUN]}" if folder.endswith(MERGED) else name


def is_file_name(name: object, table: str) -> bool:
    """Return whether this module can have given a table's file the name."""
    match = _FILE.fullmatch(name) if isinstance(name, str) else None
    return match is not None and match.group(1) == table


def parsed(text: bytes) -> Any:
    """Parse a document; raise ValueError for wrong JSON, and for numbers that JSON lacks (NaN)."""
    return json.loads(text, parse_constant=_refused)


def whole(value: object, least: int = 0) -> int:
    """Check a whole number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise ValueError(f"{_shown(value)}, expected a whole number from {least} to 2**63 - 1")
    return value


def seconds(value: object) -> float:
    """Check seconds, whole or not, and finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise ValueError(f"{_shown(value)}, expected seconds from 0 to 2**63 - 1")
    return float(value)


def truth(value: object) -> bool:
    """Check a truth value."""
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)}, expected true or false")
    return value


def text_of(value: object) -> str:
    """Check a text that can be written again."""
    if not isinstance(value, str) or (not value.isascii() and _has_surrogates(value)):
        raise ValueError(f"{_shown(value)}, expected a text")
    return value


def fields_of(value: object) -> Mapping[str, Any]:
    """Check an object of JSON."""
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)}, expected an object")
    return value


def _has_surrogates(value: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in value)


def _refused(word: str) -> None:
    raise ValueError(f"{word} is not a number")


def _shown(value: object) -> str:
    return repr(value)[:60]
