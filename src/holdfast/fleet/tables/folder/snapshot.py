"""The tables of one snapshot of a folder, read from its files or from memory.

**Rules.** Rows read from one snapshot belong together. Only the files that its manifest names are
read, and none of them through a link. A missing file was swept after the manifest was read: that
is a FileNotFoundError, and :func:`once_more` reads a newer snapshot. Rows have the columns and
types of :mod:`holdfast.fleet.tables.columns.stored`: a missing nullable column becomes nulls, and
any other missing column is an error that names it.

**Strategy.** If groups are named, only files and row groups are read whose bounds, in the log and
in the footer, may contain one of them. States of logs and footers are read once
(:class:`SnapshotCache`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import SourceError
from holdfast.fleet.tables.columns.definition import DType, Table
from holdfast.fleet.tables.columns.schemas import ARROW, arrow_schema, refuse_values, to_us
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.delta_log import (
    DataFile,
    TableSnapshot,
    log_folder,
    read_checkpoint,
    read_on,
)
from holdfast.fleet.tables.folder.files import checked_files
from holdfast.fleet.tables.folder.manifest import Manifest, nothing_committed
from holdfast.fleet.tables.storage.parquet import BoundedParquet, row_groups_of
from holdfast.fleet.tables.storage.paths import StoragePath, file_system_of

T = TypeVar("T")
Chosen = Callable[[DataFile], bool]
"""Returns whether a file is read."""


@dataclass(slots=True)
class SnapshotCache:
    """States of logs and footers that are not read again for the next snapshot of a folder."""

    root: StoragePath
    folder: str = ""  # unique id of the folder; see :class:`Manifest`
    snapshots: dict[str, TableSnapshot] = field(default_factory=dict)
    footers: dict[StoragePath, Any] = field(default_factory=dict)

    def snapshot(self, table: str, manifest: Manifest) -> TableSnapshot:
        """Return the state of a table that a manifest names; an empty one if it is missing.

        It is a FileNotFoundError if the manifest is older than what is left of the log.
        """
        wanted = manifest.tables.get(table)
        if wanted is None:
            return TableSnapshot()
        if manifest.folder != self.folder:
            self.folder, self.snapshots = manifest.folder, {}
        known = self.snapshots.get(table)
        if known is not None and known.version == wanted.version:
            return known
        fs = file_system_of(self.root)
        fs.refuse_links([f"{log_folder(table)}/_last_checkpoint"])
        if known is None or not wanted.checkpoint <= known.version < wanted.version:
            known = read_checkpoint(fs, table, wanted.checkpoint)
        self.snapshots[table] = read_on(fs, table, known, wanted.version)
        return self.snapshots[table]


@dataclass(frozen=True, eq=False)
class FolderSnapshot:
    """One snapshot of a folder, read on demand."""

    known: SnapshotCache
    manifest: Manifest = field(default_factory=Manifest)  # empty if nothing was committed

    def __contains__(self, name: str) -> bool:
        return bool(self._committed(name))

    def data_files(self, name: str) -> list[DataFile]:
        """Return the committed files of a table, with the bounds of their columns."""
        return list(self.known.snapshot(name, self.manifest).files.values())

    def files(
        self, name: str, groups: Sequence[str] | None = None, only: Chosen | None = None
    ) -> list[StoragePath]:
        """Return the files of a table that ``only`` chooses, and that may contain ``groups``."""
        wanted = None if groups is None else sorted(groups)
        listed = [f for f in self._committed(name) if only is None or only(f)]
        names = [f.name for f in listed if wanted is None or f.may_contain("group", wanted)]
        return checked_files(self.known.root, names)

    def _committed(self, name: str) -> list[DataFile]:
        if not self.manifest.version:
            raise nothing_committed(self.known.root)
        return self.data_files(name)

    def read(
        self,
        name: str,
        groups: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        only: Chosen | None = None,
    ) -> pa.Table:
        """Read rows of a table as they are stored, in all or some of its columns.

        Of some groups, ``group`` must be one of the columns; ``only`` chooses among files.
        """
        definition = TABLES[name]
        if columns is not None:
            definition = Table(name=name, doc="", columns=definition.pick(*columns))
        is_part = groups is not None or columns is not None
        footers = self.known.footers if is_part else {}
        wanted = None if groups is None else sorted(set(groups))

        def read(file: StoragePath) -> pa.Table:
            opened = BoundedParquet(file, metadata=footers.get(file))
            footers[file] = opened.metadata  # it is not small, and is read once
            rows = opened.read_row_groups(row_groups(opened, wanted), columns)
            return of_groups(conform(rows, definition, str(file)), wanted)

        parts = file_system_of(self.known.root).each(read, self.files(name, wanted, only))
        empty = arrow_schema(name).empty_table().select(definition.names)
        return pa.concat_tables([empty, *parts])

    def newest_ms(self, name: str) -> int | None:
        """Return the latest time of a table that has times, from the logs alone."""
        files = self.data_files(name)
        ends = [text for file in files if (text := file.highest.get("timestamp")) is not None]
        found = [us // 1_000 for text in ends if (us := to_us(text)) is not None]
        rest = [file.name for file in files if "timestamp" not in file.highest]
        for path in checked_files(self.known.root, rest):
            rows = BoundedParquet(path).read(columns=["timestamp"])
            definition = Table(name=name, doc="", columns=TABLES[name].pick("timestamp"))
            latest = latest_ms(conform(rows, definition, str(path))["timestamp"])
            found += [] if latest is None else [latest]
        return max(found, default=None)

    def oldest_ms(self, name: str) -> int | None:
        """Return the earliest known time of a table that has times, from the logs alone."""
        starts = [file.lowest.get("timestamp") for file in self.data_files(name)]
        return min((us // 1_000 for text in starts if (us := to_us(str(text)))), default=None)

    def load(
        self, groups: Sequence[str] | None = None, without: Collection[str] = ()
    ) -> InMemoryTables:
        """Read rows of all tables now, but of those in ``without`` only :meth:`newest_ms` is known.

        A table without groups is read whole.
        """
        there = [name for name in TABLES if name in self]
        rows = {name: self.read(name, groups) for name in there if name not in without}
        is_part = groups is not None or without
        timed = [name for name in there if is_part and "timestamp" in TABLES[name].names]
        newest = {name: self.newest_ms(name) for name in timed}
        return InMemoryTables(self.known, self.manifest, rows, newest)


@dataclass(frozen=True, eq=False)
class ListedFiles(FolderSnapshot):
    """Files of a folder that belong together, before a commit makes them visible."""

    listed: Mapping[str, Sequence[DataFile]] = field(default_factory=dict)

    def data_files(self, name: str) -> list[DataFile]:
        """Return the files of a table."""
        return list(self.listed.get(name, ()))

    def _committed(self, name: str) -> list[DataFile]:
        return self.data_files(name)


@dataclass(frozen=True, eq=False)
class InMemoryTables(FolderSnapshot):
    """Rows in memory; a missing table is empty."""

    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    # Latest time of tables whose rows are not all in memory.
    newest: Mapping[str, int | None] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    def _committed(self, name: str) -> list[DataFile]:
        return self.data_files(name)  # none where the rows never were in a folder

    def read(
        self,
        name: str,
        groups: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        only: Chosen | None = None,
    ) -> pa.Table:
        """Read rows from memory; columns of a skipped table are read from its files."""
        if name not in self.rows and name in self.newest and columns is not None:
            return super().read(name, groups, columns, only)
        wanted = None if groups is None else sorted(set(groups))
        rows = of_groups(self.rows.get(name, arrow_schema(name).empty_table()), wanted)
        return rows if columns is None else rows.select(columns)

    def newest_ms(self, name: str) -> int | None:
        """Return the latest time of a table that has times."""
        if name in self.newest or name not in self.rows:
            return self.newest.get(name)
        return latest_ms(self.rows[name]["timestamp"])

    def oldest_ms(self, name: str) -> int | None:
        """Return the earliest time of a table that has times."""
        if name not in self.rows:
            return super().oldest_ms(name)
        us = pc.min(self.rows[name]["timestamp"]).cast(pa.int64()).as_py()
        return None if us is None else us // 1_000

    def with_rows(self, rows: Mapping[str, pa.Table]) -> InMemoryTables:
        """Return the tables with ``rows`` instead of theirs."""
        newest = {name: time for name, time in self.newest.items() if name not in rows}
        return InMemoryTables(self.known, self.manifest, {**self.rows, **rows}, newest)


def conform(found: pa.Table, definition: Table, source: str) -> pa.Table:
    """Bring a table to the columns and types of its definition; absent nullable columns are null.

    Another column that is missing, has another type, or has values that it cannot have
    (:mod:`holdfast.fleet.tables.columns.schemas`) is a SourceError that names ``source``.
    """
    schema = pa.schema([(column.name, ARROW[column.dtype]) for column in definition.columns])
    arrays = []
    for column in definition.columns:
        dtype = ARROW[column.dtype]
        if column.name in found.column_names:
            where = f"{definition.name}.{column.name}"
            arrays.append(_cast(found[column.name], dtype, where))
        elif column.nullable:
            arrays.append(pa.nulls(found.num_rows, dtype))
        else:
            raise SourceError(
                f"{source}: table {definition.name} has no column {column.name}; "
                f"was it written by another version of holdfast?"
            )
    made = pa.table(arrays, schema=schema)
    refuse_values(made, definition, source)
    return made


def _cast(column: Any, dtype: pa.DataType, source: str) -> Any:
    if column.type == dtype:
        return column
    try:
        return column.cast(dtype, safe=not pa.types.is_timestamp(dtype))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(f"{source}: found {column.type}, expected {dtype}: {error}") from error


def latest_ms(times: Any) -> int | None:
    """Return the latest of some times, rounded up to milliseconds since 1970."""
    us = pc.max(times.cast(ARROW[DType.TIMESTAMP])).cast(pa.int64()).as_py()
    return None if us is None else -(-us // 1_000)


def of_groups(rows: pa.Table, groups: Sequence[str] | None) -> pa.Table:
    """Return rows of ``groups``; all rows without them, or of a table without groups."""
    if groups is None or "group" not in rows.column_names or not rows.num_rows:
        return rows
    low, high = (one.as_py() or "" for one in pc.min_max(rows["group"]).values())
    some = [group for group in groups if low <= group <= high]
    return rows.filter(pc.is_in(rows["group"], pa.array(some, pa.string())))


def row_groups(opened: Any, groups: Sequence[str] | None) -> list[int]:
    """Return row groups that may contain one of ``groups``, which ascend; all without them."""
    if groups is None:
        return list(range(opened.num_row_groups))
    return row_groups_of(opened.metadata, "group", groups)


def once_more(read: Callable[[], T]) -> T:
    """Read; if a file is missing, because another process's commit swept it, read once more."""
    try:
        return read()
    except FileNotFoundError:
        try:
            return read()
        except FileNotFoundError as error:
            raise SourceError(
                f"{error.filename or error}: the manifest names a missing file"
            ) from error
