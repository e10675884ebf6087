"""The Delta log of one table: which files count in each version, by Delta Lake's protocol.

**Rules.** A version is decided when its entry ``_delta_log/<version>.json`` is created, which one
process can do. An entry names files of its own table only, by the names that
:func:`~holdfast.fleet.tables.folder.files.file_name` gives. Entry and checkpoint are flushed to
the disk before anything names them. This module needs of the log only the newest checkpoint and
the entries after it.

**Strategy.** An entry is a line of JSON for each action: ``add`` a file, with its rows and the
bounds of a few columns; ``remove`` a file; and the table's schema in the first one. A checkpoint
is the state of one version as Parquet. Delta's own libraries read all of this; appending by one of
them costs ten times as much (docs/adr/0031-tables-are-delta-tables.md).

References: Delta Lake, "Delta Transaction Log Protocol", reader version 1, writer version 2.
"""

from __future__ import annotations

import io
import json
import re
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import SourceError
from holdfast.fleet.tables.columns.definition import DType, Table
from holdfast.fleet.tables.columns.schemas import WORDS, to_us
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.files import (
    BOUNDED,
    fields_of,
    is_file_name,
    parsed,
    text_of,
    whole,
)
from holdfast.fleet.tables.storage.file_system import FileSystem
from holdfast.fleet.tables.storage.parquet import BoundedParquet

LOG: Final = "_delta_log"
READER_VERSION: Final = 1
WRITER_VERSION: Final = 2
CHECKPOINT_EVERY: Final = 100
"""Entries between two checkpoints."""
MOST_ENTRIES: Final = 10 * CHECKPOINT_EVERY
"""Entries that are read behind a checkpoint, at most."""
MOST_FILES: Final = 65_536
"""Rows of a checkpoint, at most: each is a file."""
KEPT_HOURS: Final = 1
"""Hours for which a removed file stays for readers of an older version."""

ENGINE: Final = "holdfast"

_VERSIONS: Final = {"minReaderVersion": READER_VERSION, "minWriterVersion": WRITER_VERSION}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file that counts."""

    name: str  # below the folder of the tables
    rows: int
    size: int
    written_ms: int  # when it was written, UTC; 0 before its commit
    # Bounds of columns of :data:`BOUNDED`, as JSON has them; a column that is not named has none.
    lowest: Mapping[str, Any] = field(default_factory=dict)
    highest: Mapping[str, Any] = field(default_factory=dict)

    def may_contain(self, column: str, values: Sequence[Any]) -> bool:
        """Return whether the file may contain one of a column's ``values``, which ascend."""
        if column not in self.lowest or column not in self.highest:
            return True
        low, high = self.lowest[column], self.highest[column]
        at = bisect_left(values, low)
        return at < len(values) and bool(values[at] <= high)

    def may_reach(self, column: str, low: Any, high: Any) -> bool:
        """Return whether the file may have a value of a column from ``low`` to ``high``."""
        if column not in self.lowest or column not in self.highest:
            return True
        return bool(self.lowest[column] <= high and self.highest[column] >= low)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshot:
    """One version of a table."""

    version: int = -1  # -1 if the table does not exist yet
    files: Mapping[str, DataFile] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)  # the table's ``metaData``
    # Files that left the table and that a readable older version names -> when, in milliseconds.
    removed: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows of all files."""
        return sum(file.rows for file in self.files.values())


def log_folder(table: str) -> str:
    """Return the folder of a table's log, relative to the folder of the tables."""
    return f"{table}/{LOG}"


def entry_name(table: str, version: int) -> str:
    """Return the name of an entry, relative to the folder of the tables."""
    return f"{table}/{LOG}/{version:020d}.json"


def checkpoint_name(table: str, version: int) -> str:
    """Return the name of a checkpoint, relative to the folder of the tables."""
    return f"{table}/{LOG}/{version:020d}.checkpoint.parquet"


def read_on(
    fs: FileSystem, table: str, snapshot: TableSnapshot, version: int | None = None
) -> TableSnapshot:
    """Read a version of a table (the newest one, of any writer) from an earlier one or from none.

    A version of which part of the log was deleted is a FileNotFoundError.
    """
    files, removed, about, at = (
        dict(snapshot.files),
        dict(snapshot.removed),
        snapshot.about,
        snapshot.version,
    )
    if version is not None and version - at > MOST_ENTRIES:
        raise _too_many_entries(fs, table, at)
    while version is None or at < version:
        if at - snapshot.version >= MOST_ENTRIES and fs.size(entry_name(table, at + 1)) >= 0:
            raise _too_many_entries(fs, table, snapshot.version)
        name = entry_name(table, at + 1)
        text = fs.read(name)
        if text is None and version is None:
            break
        if text is None:
            raise FileNotFoundError(fs.name_of(name))
        actions = map(parsed, text.splitlines())
        about = _apply(table, fs.name_of(name), actions, files, removed) or about
        at += 1
    return TableSnapshot(version=at, files=files, about=about, removed=removed)


def read_checkpoint(fs: FileSystem, table: str, version: int) -> TableSnapshot:
    """Read a version of a table from its checkpoint; empty for -1. Raises as :func:`read_on`."""
    if version < 0:
        return TableSnapshot()
    name = checkpoint_name(table, version)
    data = fs.read(name)
    if data is None:
        raise FileNotFoundError(fs.name_of(name))
    path = fs.name_of(name)
    try:
        opened = BoundedParquet(path, file=pa.BufferReader(data))
        if opened.metadata.num_rows > MOST_FILES:
            raise SourceError(
                f"{path}: {opened.metadata.num_rows} rows, expected at most {MOST_FILES}"
            )
        rows = opened.read().to_pylist()
    except (OSError, ValueError, OverflowError, KeyError, pa.ArrowException) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise SourceError(f"{path}: not a checkpoint of a table: {reason}") from error
    files: dict[str, DataFile] = {}
    removed: dict[str, int] = {}
    about = _apply(table, path, rows, files, removed)
    return TableSnapshot(version=version, files=files, about=about, removed=removed)


def after(
    table: str,
    snapshot: TableSnapshot,
    added: Sequence[DataFile],
    removed: Sequence[str],
    now_ms: int,
    *,
    operation: str,
    batch: int,
) -> tuple[TableSnapshot, bytes]:
    """Return the version after a change, and the entry that makes it.

    ``operation`` is Delta's word for the change: ``OPTIMIZE`` changes files and no row.
    """
    info: dict[str, Any] = {"timestamp": now_ms, "operation": operation}
    info |= {"operationParameters": {}, "engineInfo": ENGINE, "batch": batch}
    lines: list[dict[str, Any]] = [{"commitInfo": info}]
    about = _about(TABLES[table], snapshot.about, now_ms)
    if not snapshot.about:
        lines.append({"protocol": _VERSIONS})
    if about is not snapshot.about:
        lines.append({"metaData": about})
    changed = operation != "OPTIMIZE"
    lines += [{"remove": _remove(table, name, now_ms, changed)} for name in removed]
    lines += [{"add": _add(table, file, changed)} for file in added]
    files = dict(snapshot.files)
    for name in removed:
        del files[name]
    files |= {file.name: file for file in added}
    left = {**snapshot.removed, **dict.fromkeys(removed, now_ms)}
    made = TableSnapshot(version=snapshot.version + 1, files=files, about=about, removed=left)
    return made, "".join(json.dumps(line) + "\n" for line in lines).encode()


def write_checkpoint(fs: FileSystem, table: str, snapshot: TableSnapshot) -> None:
    """Write the state of a version as Parquet."""
    about = {**snapshot.about, "format": {"provider": "parquet", "options": []}}
    about["configuration"] = list(snapshot.about["configuration"].items())
    rows: list[dict[str, Any]] = [{"protocol": _VERSIONS}, {"metaData": about}]
    rows += [
        {"remove": _remove(table, name, at, changed=True)} for name, at in snapshot.removed.items()
    ]
    rows += [
        {"add": {**_add(table, file, changed=False), "partitionValues": []}}
        for file in snapshot.files.values()
    ]
    sink = io.BytesIO()
    written = pa.Table.from_pylist(rows, schema=_CHECKPOINT)
    pq.write_table(written, sink, compression="zstd")
    fs.replace(checkpoint_name(table, snapshot.version), sink.getvalue())
    last = json.dumps({"version": snapshot.version, "size": len(rows)})
    fs.replace(f"{log_folder(table)}/_last_checkpoint", last.encode())


def entries_and_checkpoints(fs: FileSystem, table: str) -> tuple[list[int], list[int]]:
    """Return versions with an entry, and those with a checkpoint, ascending."""
    names = fs.names(log_folder(table))
    found = [_NAME.fullmatch(name) for name in names]
    entries = [int(m.group(1)) for m in found if m and not m.group(2)]
    return entries, [int(m.group(1)) for m in found if m and m.group(2)]


_NAME: Final = re.compile(r"(\d{20})(\.checkpoint)?\.(?:json|parquet)")
_TEXTS: Final = pa.map_(pa.string(), pa.string())
_CHECKPOINT: Final = pa.schema(
    {
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "remove": pa.struct(
            {"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}
        ),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
            }
        ),
    }
)


def _too_many_entries(fs: FileSystem, table: str, version: int) -> SourceError:
    return SourceError(
        f"{fs.name_of(log_folder(table))}: more than {MOST_ENTRIES} entries behind version "
        f"{version}, and no checkpoint; holdfast writes one every {CHECKPOINT_EVERY}"
    )


def _apply(
    table: str,
    path: str,
    actions: Iterable[Mapping[str, Any]],
    files: dict[str, DataFile],
    removed: dict[str, int],
) -> Mapping[str, Any]:
    """Apply actions to files and removed files; return the ``metaData`` that they name."""
    about: Mapping[str, Any] = {}
    try:
        for action in actions:
            if found := action.get("protocol"):
                _check_protocol(path, found)
            if found := action.get("metaData"):
                about = _checked_about(path, table, found)
            if found := action.get("remove"):
                name = f"{table}/{text_of(found['path'])}"
                files.pop(name, None)
                removed[name] = whole(found.get("deletionTimestamp") or 0)
            if found := action.get("add"):
                file = _file(path, table, found)
                files[file.name] = file
                removed.pop(file.name, None)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(f"{path}: not an entry of a table's log: {error!r}") from error
    return about


_MAY_BE_NULL: Final = ("name", "description")


def _checked_about(path: str, table: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    texts = dict(found.get("configuration") or {})
    if texts.get("holdfast.table") != table:
        raise SourceError(f"{path}: a Delta table that holdfast did not write: name another folder")
    schema = parsed(text_of(found["schemaString"]).encode())
    for column in fields_of(schema)["fields"]:
        text_of(column["name"])
    raw = {name: found.get(name) for name in _MAY_BE_NULL}
    for text in (*texts, *texts.values(), *(one for one in raw.values() if one is not None)):
        text_of(text)
    return {
        **raw,
        "id": text_of(found["id"]),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": found["schemaString"],
        "partitionColumns": [text_of(one) for one in found.get("partitionColumns") or ()],
        "configuration": texts,
        "createdTime": whole(found.get("createdTime") or 0),
    }


def _check_protocol(path: str, versions: Mapping[str, Any]) -> None:
    if versions["minReaderVersion"] > READER_VERSION or (
        versions["minWriterVersion"] > WRITER_VERSION
    ):
        raise SourceError(
            f"{path}: the table needs version {versions['minReaderVersion']} of Delta's "
            f"readers and {versions['minWriterVersion']} of its writers, and this holdfast has "
            f"{READER_VERSION} and {WRITER_VERSION}: a newer program wrote it; use that, or name "
            "another folder"
        )


def _file(path: str, table: str, found: Mapping[str, Any]) -> DataFile:
    name = f"{table}/{text_of(found['path'])}"
    if not is_file_name(name, table):
        raise SourceError(
            f"{path}: names {found['path']!r}, which is not a file of ours and may be outside of "
            "the folder: a file of a table is batch-NUMBER/32 hexadecimal digits.parquet"
        )
    stats = fields_of(parsed(text_of(found.get("stats") or "{}").encode()))
    return DataFile(
        name=name,
        rows=whole(stats["numRecords"]),
        size=whole(found["size"]),
        written_ms=whole(found["modificationTime"]),
        lowest=_checked_bounds(stats.get("minValues")),
        highest=_checked_bounds(stats.get("maxValues")),
    )


def _checked_bounds(raw: object) -> Mapping[str, Any]:
    """Return the bounds of our columns, if their types are those of the columns."""
    found = fields_of(raw or {})
    for name, value in found.items():
        if name in ("generation", "resolution_seconds"):
            whole(value, least=-(2**63))
        elif name in BOUNDED:
            text_of(value)
        if name == "timestamp" and to_us(value) is None:
            raise ValueError(f"a bound {value!r}, expected a time")
    return {name: value for name, value in found.items() if name in BOUNDED}


def _remove(table: str, name: str, at_ms: int, changed: bool) -> dict[str, Any]:
    return {"path": _inside(table, name), "deletionTimestamp": at_ms, "dataChange": changed}


def _add(table: str, file: DataFile, changed: bool) -> dict[str, Any]:
    stats = {"numRecords": file.rows, "minValues": file.lowest, "maxValues": file.highest}
    return {
        "path": _inside(table, file.name),
        "partitionValues": {},
        "size": file.size,
        "modificationTime": file.written_ms,
        "dataChange": changed,
        "stats": json.dumps(stats),
    }


def _inside(table: str, name: str) -> str:
    return name.removeprefix(f"{table}/")


def _type(dtype: DType) -> str | dict[str, Any]:
    """Return a type in the form of Delta's schema."""
    kind, _, element = WORDS[dtype].rstrip(">").partition("<")
    return {"type": kind, "elementType": element, "containsNull": True} if element else kind


def _about(definition: Table, known: Mapping[str, Any], now_ms: int) -> Mapping[str, Any]:
    """Return the table's ``metaData``: the known part, with new columns."""
    schema: Any = json.loads(known["schemaString"]) if known else {"type": "struct", "fields": []}
    names = {one["name"] for one in schema["fields"]}
    fields = [
        {"name": c.name, "type": _type(c.dtype), "nullable": True, "metadata": {}}
        for c in definition.columns
        if c.name not in names
    ]
    if known and not fields:
        return known
    schema["fields"] += fields
    first = {
        "id": str(uuid.uuid4()),
        "name": definition.name,
        "description": definition.doc,
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": [],
        "configuration": {
            "holdfast.table": definition.name,
            "delta.checkpointInterval": str(CHECKPOINT_EVERY),
            "delta.enableExpiredLogCleanup": "false",
            "delta.deletedFileRetentionDuration": f"interval {KEPT_HOURS} hours",
        },
        "createdTime": now_ms,
    }
    return {**(known or first), "schemaString": json.dumps(schema)}
