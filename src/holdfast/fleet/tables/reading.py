"""Tables as Arrow, from a folder or from columns in memory: whole, flat, or one group's rows.

**Rules.** Needs no Spark. Columns and types are those of
:mod:`holdfast.fleet.tables.columns.stored`. A missing table is empty, and a missing nullable column
holds nulls. Any other missing column is an error that names the column.

**Strategy.** :class:`Tables` is one interface for three readers. ``Tables(root)`` reads the newest
snapshot of a :class:`~holdfast.fleet.tables.folder.commits.Folder` whenever a table is read, so it
shows the newest batch; a job commits its batches through it. :meth:`Tables.at_snapshot` keeps
reading one :class:`~holdfast.fleet.tables.folder.snapshot.FolderSnapshot`. :meth:`Tables.load` and
:func:`read_tables` read at once into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from operator import eq
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.command_lines import FOLDER, SERVERS, holdfast_line
from holdfast.core.model.columns import I64
from holdfast.core.names import is_pattern, means
from holdfast.errors import ConfigError, SourceError, suggest
from holdfast.fleet.columnar import MILLIS, DecodedRows, GroupedTable
from holdfast.fleet.tables.columns.definition import DType, Table
from holdfast.fleet.tables.columns.schemas import ARROW
from holdfast.fleet.tables.columns.stored import NOT_LOADED, TABLES
from holdfast.fleet.tables.folder.commits import Folder
from holdfast.fleet.tables.folder.delta_log import DataFile
from holdfast.fleet.tables.folder.manifest import (
    MANIFEST,
    POLLED,
    REFUSED,
    Batch,
    Manifest,
    has_manifest,
    nothing_committed,
)
from holdfast.fleet.tables.folder.snapshot import (
    Chosen,
    FolderSnapshot,
    InMemoryTables,
    SnapshotCache,
    conform,
    once_more,
)
from holdfast.fleet.tables.storage.paths import StoragePath, storage_path

Source = str | StoragePath | Mapping[str, Any]
T = TypeVar("T")

GROUPS_AT_ONCE: Final = 2_000
"""Groups whose columns are decoded together: more would only take more memory."""
ROWS_AT_ONCE: Final = 2_000_000
"""Rows that are read together from files, at most, if these groups have no more: 0.4 GB."""

_NEXT: Final = (
    'tables.table("rebalances") is an Arrow table; docs/tables.md has keys, joins and queries'
)

_WITH_GROUPS: Final = ("generations", "lag", "members", "rebalances")
_BY_GROUP: Final = [
    name for name, table in TABLES.items() if "group" in table.names and name not in NOT_LOADED
]


@dataclass(frozen=True, slots=True)
class GroupTables:
    """The rows of one group in every table."""

    group: str
    table: Callable[[str], GroupedTable]

    def __getitem__(self, name: str) -> DecodedRows:
        return self.table(name).decoded_rows(self.group)


@dataclass(frozen=True, slots=True)
class SomeGroups:
    """The rows of some groups in every table, decoded together."""

    groups: Sequence[str]
    table: Callable[[str], GroupedTable]

    def rows(self, name: str) -> tuple[DecodedRows, I64]:
        """Return the rows of a table, and the index of each row's group."""
        grouped = self.table(name)
        bounds = [grouped.bounds.get(group, (0, 0)) for group in self.groups]
        group = np.repeat(np.arange(len(bounds)), [high - low for low, high in bounds])
        return DecodedRows(grouped.rows, 0, grouped.rows.num_rows, grouped.decoded), group

    def each(self) -> Iterator[GroupTables]:
        """Yield the rows of each group."""
        for group in self.groups:
            yield GroupTables(group, self.table)


class Tables:
    """The tables of one folder, or in-memory tables.

    Parameters
    ----------
    root : path or URL
        Folder of the tables; "." for in-memory tables.
    only : FolderSnapshot, optional
        Snapshot to read, whatever is committed meanwhile; by default the newest one.

    References: the folder follows the Delta Lake protocol.
    """

    def __init__(self, root: StoragePath, only: FolderSnapshot | None = None):
        self.root = root
        self.folder = Folder(root)
        self.writing, self.commit = self.folder.writing, self.folder.commit
        self._only = only
        self._cuts: dict[str, GroupedTable] = {}

    def __repr__(self) -> str:
        """Name the folder, its span of time and the rows of each table; only the logs are read."""
        if not self.committed():
            return f"Tables({str(self.root)!r}): nothing committed"
        files = [file for name in TABLES for file in self.data_files(name)]
        starts = [one for file in files if (one := file.lowest.get("timestamp"))]
        ends = [one for file in files if (one := file.highest.get("timestamp"))]
        span = f", {min(starts)[:19]} to {max(ends)[:19]} UTC" if starts else ""
        rows = (f"  {name:<15} {self.rows(name):>12,} rows" for name in TABLES)
        return "\n".join((f"Tables in {self.root}{span}", *rows, _NEXT))

    def __contains__(self, name: str) -> bool:
        return self._query(lambda now: name in now)

    def stored(
        self,
        name: str,
        *,
        groups: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        only: Chosen | None = None,
    ) -> pa.Table:
        """Read a table as it is stored: nested if so defined, in no defined order.

        Parameters
        ----------
        name : str
            The table.
        groups : sequence of str, optional
            Groups to read; then ``group`` must be one of the columns.
        columns : sequence of str, optional
            Columns to read; those of a table that :meth:`load` skipped are read now.
        only : callable, optional
            Chooses the files to read; of rows in memory all are returned.

        Raises
        ------
        SourceError
            The table is unknown, nothing was committed, or a file cannot be read.
        """
        _known(name)
        return self._query(lambda now: now.read(name, groups, columns, only))

    def each_file(
        self, name: str, columns: Sequence[str], only: Chosen | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of a table file by file, as :meth:`stored`; rows in memory all at once."""
        held = isinstance(self._only, InMemoryTables) and name in self._only
        now = self if held else self.at_snapshot()
        if held:
            yield now.stored(name, columns=columns)
            return
        for file in now.data_files(name):
            if only is None or only(file):
                yield now.stored(name, columns=columns, only=partial(eq, file))

    def table(
        self, name: str, *, flat: bool = True, groups: Sequence[str] | None = None
    ) -> pa.Table:
        """Read a table in the order of its definition.

        Parameters
        ----------
        name : str
            A table of docs/tables.md.
        flat : bool
            Open the nested list into one row per element.
        groups : sequence of str, optional
            Only these groups.

        Raises
        ------
        SourceError
            As of :meth:`stored`.
        """
        rows, definition = self.stored(name, groups=groups), TABLES[name]
        return sort_rows(flatten(rows, definition) if flat else rows, definition)

    def of_group(self, group: str, name: str) -> pa.Table:
        """Return rows of a ``group`` in the table ``name`` as stored, which is read once."""
        return self._grouped(name).of_group(group)

    def _grouped(self, name: str) -> GroupedTable:
        if name not in self._cuts:
            self._cuts[name] = GroupedTable.of(self.stored(name))
        return self._cuts[name]

    def each_group(
        self, groups: Sequence[str], columns: Mapping[str, Sequence[str]] | None = None
    ) -> Iterator[GroupTables]:
        """Yield the rows of each of some groups, as :meth:`parts` reads them."""
        for some in self.parts(groups, columns):
            yield from some.each()

    def parts(
        self, groups: Sequence[str], columns: Mapping[str, Sequence[str]] | None = None
    ) -> Iterator[SomeGroups]:
        """Yield the rows of some groups, GROUPS_AT_ONCE at a time.

        Of a folder about ROWS_AT_ONCE are read together, each table when it is first used; of a
        table in ``columns`` only those named there. The memory does not depend on the number of
        groups.
        """
        step = len(groups)
        if not self.is_held:
            step = step * ROWS_AT_ONCE // max(self._n_rows(), 1)
        step = max(step, GROUPS_AT_ONCE)
        for first in range(0, len(groups), step):
            read = cache(partial(self._read, groups[first : first + step], columns or {}))
            for at in range(first, min(first + step, len(groups)), GROUPS_AT_ONCE):
                some = groups[at : min(at + GROUPS_AT_ONCE, first + step)]
                yield SomeGroups(some, cache(partial(_cut, read, some)))

    def _n_rows(self) -> int:
        """Return the rows in files of tables with groups that are loaded together."""
        return sum(file.rows for name in _BY_GROUP for file in self.data_files(name))

    def _read(
        self, groups: Sequence[str], columns: Mapping[str, Sequence[str]], name: str
    ) -> GroupedTable:
        if self.is_held:
            return self._grouped(name)
        return GroupedTable.of(self.stored(name, groups=groups, columns=columns.get(name)))

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Names of all groups, sorted, as of the first use."""
        names: set[str] = set()
        for name in _WITH_GROUPS:
            for rows in self.each_file(name, ["group"]):
                names.update(pc.unique(rows["group"]).to_pylist())
        return tuple(sorted(names))

    def choose(self, groups: Sequence[str] | None) -> tuple[str, ...] | None:
        """Find groups by name or pattern, in the order given; None for all.

        A group whose only records wait for the end of a transaction is omitted if others exist.
        Another name is a ConfigError with the nearest names.
        """
        waiting = self._waiting() if groups else []
        chosen: dict[str, None] = {}
        for name in groups or ():
            if not is_pattern(name) and self._has_group(name):
                chosen[name] = None
                continue
            hits = [g for g in self.groups if means(name, g)]
            chosen |= dict.fromkeys(hits)
            if not hits and not any(means(name, group) for group in waiting):
                hint = suggest(name, self.groups, 3)
                if reason := self.newest_notes().get(REFUSED, {}).get(name):
                    hint = f"polls could not read it ({reason})"
                raise ConfigError(f"no group {name!r} in these tables; {hint}")
        if groups and not chosen:
            raise ConfigError(
                f"no record of group {groups[0]!r} counts yet: they wait for the end of a "
                "transaction"
            )
        return tuple(chosen) if groups else None

    def _waiting(self) -> list[str]:
        """Return groups with records in open transactions, as the newest batch names them."""
        found = self.newest_notes().get("open_transactions", ())
        return [str(group) for one in found for group in one["groups"]]

    def _has_group(self, group: str) -> bool:
        found = (self.stored(name, groups=[group], columns=["group"]) for name in _WITH_GROUPS)
        return any(rows.num_rows for rows in found)

    def at_snapshot(self) -> Tables:
        """Return the tables at their present snapshot; later commits are not seen.

        A file that a later commit removes stays for an hour, or for 1,000 commits if these are
        sooner; until then it can be read.
        """
        return self if self._only is not None else Tables(self.root, Folder(self.root).newest())

    def load(self, groups: Sequence[str] | None = None, *, without: Collection[str] = ()) -> Tables:
        """Read the tables now; the rows belong to one snapshot.

        Parameters
        ----------
        groups : sequence of str, optional
            Read rows of these groups only; a table without groups is read whole.
        without : collection of str
            Tables to skip: of them only :meth:`newest_ms` is known, and :meth:`stored` reads some
            columns.

        Raises
        ------
        SourceError
            Nothing was committed, or a file cannot be read.
        """
        if isinstance(self._only, InMemoryTables) and groups is None and not without:
            return self
        return Tables(self.root, self._query(lambda now: now.load(groups, without)))

    @property
    def is_held(self) -> bool:
        """Whether the rows are in memory, except those of skipped tables (:meth:`load`)."""
        return isinstance(self._only, InMemoryTables)

    def load_few(
        self, groups: Sequence[str] | None = None, *, without: Collection[str] = ()
    ) -> Tables:
        """Read the tables now, as :meth:`load`, if they have few rows (ROWS_AT_ONCE).

        Others are returned at their present snapshot, and read in parts when they are used. Rows in
        memory stay as they are.
        """
        if self.is_held:
            return self
        is_few = groups is not None and len(groups) <= GROUPS_AT_ONCE
        return (
            self.load(groups, without=without)
            if is_few or self._n_rows() <= ROWS_AT_ONCE
            else self.at_snapshot()
        )

    def replacing(self, rows: Mapping[str, pa.Table]) -> Tables:
        """Return in-memory tables with ``rows``, as they would be stored, instead of theirs."""
        held = self.load()._only
        assert isinstance(held, InMemoryTables)
        return Tables(self.root, held.with_rows(rows))

    def newest_ms(self, name: str) -> int | None:
        """Return the latest ``timestamp`` of a table, UTC, rounded up to ms; None without one.

        For a folder the logs have it, and no row is read.
        """
        if "timestamp" not in _known(name).names:
            return None
        return self._query(lambda now: now.newest_ms(name))

    def span_ms(self, name: str) -> tuple[int, int] | None:
        """Return the earliest and latest ``timestamp`` of a table, as :meth:`newest_ms`."""
        last = self.newest_ms(name)
        first = None if last is None else self._query(lambda now: now.oldest_ms(name))
        return None if last is None else (last if first is None else first, last)

    def manifest(self) -> Manifest:
        """Return the manifest of the snapshot that is read."""
        return self._now().manifest

    def batches(self) -> list[Batch]:
        """Return the newest batches, oldest first; raise a SourceError if none was committed."""
        return list(self._committed().batches)

    def committed(self) -> list[Batch]:
        """Return the newest batches; none without a manifest."""
        return list(self.manifest().batches)

    def newest_notes(self) -> Mapping[str, Any]:
        """Return the notes of the newest batch; none for in-memory tables without a folder."""
        kept = self.committed()
        return kept[-1].notes if kept else {}

    @property
    def is_polled(self) -> bool:
        """Whether the rows come from polls of coordinators, not from the offsets topic."""
        return bool(self.newest_notes().get(POLLED))

    def next_batch(self) -> int:
        """Return the smallest id above all committed ones."""
        return max((batch.id for batch in self.committed()), default=-1) + 1

    def rows(self, name: str) -> int:
        """Return the number of stored rows of a table, by the manifest."""
        _known(name)
        found = self._committed().tables.get(name)
        return found.rows if found else 0

    def data_files(self, name: str) -> list[DataFile]:
        """Return a table's committed files, with bounds of columns; none without a manifest."""
        _known(name)
        return self._query(lambda now: now.data_files(name))

    def files(self, name: str, groups: Sequence[str] | None = None) -> list[StoragePath]:
        """Return the committed files of a table.

        Parameters
        ----------
        groups : sequence of str, optional
            Omit files that contain none of the groups.
        """
        _known(name)
        return self._query(lambda now: now.files(name, groups))

    def _now(self) -> FolderSnapshot:
        return self.folder.newest() if self._only is None else self._only

    def _query(self, question: Callable[[FolderSnapshot], T]) -> T:
        """Query the snapshot; if its files were swept, query a newer one."""
        return once_more(lambda: question(self._now()))

    def _committed(self) -> Manifest:
        found = self.manifest()
        if not found.version:
            raise nothing_committed(self.root)
        return found


def read_tables(source: Source) -> Tables:
    """Read tables from a folder or from a mapping, all at once.

    Parameters
    ----------
    source : path or mapping
        A folder as the pipeline writes it; or table name -> Arrow table, mapping of columns
        (sequences or arrays; times as UTC milliseconds or datetimes) or list of row mappings.

    Raises
    ------
    The folder does not exist, nothing was committed to it, a file is unreadable or a column is
    missing.
    """
    if isinstance(source, Mapping):
        rows = {name: from_memory(name, source[name]) for name in TABLES if name in source}
        return Tables(Path(), InMemoryTables(SnapshotCache(Path()), rows=rows))
    return open_tables(source).load()


def open_tables(path: StoragePath | str) -> Tables:
    """Open tables that an earlier run wrote; a table is read when it is used.

    Parameters
    ----------
    path : path or URL
        The folder, or ``s3://``, ``gs://``, ``abfs://``, ``hdfs://`` (docs/stores.md).

    Returns
    -------
    Tables
        They show the newest snapshot at each read.

    Raises
    ------
    ConfigError
        The URL has an unknown scheme.
    SourceError
        The folder does not exist, or no batch was committed to it.
    """
    root = storage_path(path).absolute()
    if not root.is_dir():
        if root.exists():
            raise SourceError(f"{root} is a file; a folder of tables or a dump is expected")
        line = holdfast_line("history", "-b", SERVERS, "-o", str(root))
        raise SourceError(f"{root}: no such folder; expected one with tables (`{line}`)")
    if not has_manifest(root):
        line = holdfast_line("history", "-b", SERVERS, "-o", FOLDER)
        raise SourceError(
            f"{root}: no tables here, and not a dump; expected a folder with {MANIFEST} (write one "
            f"with `{line}`)"
        )
    return Tables(root)


def _cut(read: Callable[[str], GroupedTable], groups: Sequence[str], name: str) -> GroupedTable:
    return read(name).of_groups(groups)


def _known(name: str) -> Table:
    if name not in TABLES:
        raise SourceError(f"no table {name!r}; known: {', '.join(TABLES)}")
    return TABLES[name]


def flatten(rows: pa.Table, definition: Table) -> pa.Table:
    """Return the flat view of a nested table."""
    if not definition.explode:
        return rows
    at = definition.names.index(definition.explode)
    nested = rows.column(at).combine_chunks()
    parents = pc.list_parent_indices(nested)
    opened = rows.take(parents)
    return opened.set_column(at, definition.flat_name, nested.flatten())


def sort_rows(rows: pa.Table, definition: Table) -> pa.Table:
    """Sort rows by the definition's order (list columns are skipped)."""
    keys = [
        definition.flat_name if k == definition.explode else k
        for k in definition.order
        if k != definition.explode or definition.flat_name in rows.column_names
    ]
    return rows.sort_by([(key, "ascending") for key in keys])


def from_memory(name: str, value: Any) -> pa.Table:
    """Convert Arrow, columns or a list of row mappings to a table; raises as :func:`conform`."""
    definition = TABLES[name]
    if isinstance(value, pa.Table):
        return conform(value, definition, "the table given")
    if not isinstance(value, Mapping):
        value = {c.name: [row.get(c.name) for row in value] for c in definition.columns}
    arrays = {c.name: _array(value[c.name], c.dtype) for c in definition.columns if c.name in value}
    return conform(pa.table(arrays), definition, "the columns given")


def _array(values: Any, dtype: DType) -> Any:
    if dtype is not DType.TIMESTAMP:
        return pa.array(values, type=ARROW[dtype])
    array = pa.array(values)
    if pa.types.is_null(array.type) or pa.types.is_integer(array.type):
        array = array.cast(pa.int64()).cast(MILLIS)
    return array.cast(ARROW[dtype])
