"""Columns of Arrow tables as NumPy arrays, Arrow lists as CSR pairs, and the rows of each group.

**Rules.** No function depends on the meaning of a column. Arrow's own types are not checked
(``pyproject.toml`` says why), so the names of types here are for readers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import F64, I32, I64, Mask, distinct, positions_in, starts

ArrowTable: TypeAlias = pa.Table
T = TypeVar("T")

ArrowColumn: TypeAlias = pa.Array | pa.ChunkedArray
"""An array, or a column of a table."""

Arrays: TypeAlias = dict[str, ArrowColumn]
"""Columns by name, all of one length."""

Batches: TypeAlias = Iterable[pa.RecordBatch]

BatchTask: TypeAlias = Callable[[Batches], Batches]
"""The argument of ``DataFrame.mapInArrow``: a function from record batches to record batches."""

MILLIS: Final = pa.timestamp("ms", tz="UTC")


def ints(table: ArrowTable, name: str, missing: int = -1) -> I64:
    """Return an integer column; null becomes ``missing``."""
    return np.asarray(pc.fill_null(table[name].cast(pa.int64()), missing), dtype=np.int64)


def floats(table: ArrowTable, name: str, missing: float = np.nan) -> F64:
    """Return a float column; null becomes ``missing``."""
    return np.asarray(pc.fill_null(table[name].cast(pa.float64()), missing), dtype=np.float64)


def times_ms(table: ArrowTable, name: str, missing: int = -1) -> I64:
    """Return a time column as whole UTC milliseconds; null becomes ``missing``."""
    column = table[name].cast(MILLIS, safe=False).cast(pa.int64())
    return np.asarray(pc.fill_null(column, missing), dtype=np.int64)


def codes(table: ArrowTable, name: str) -> tuple[I32, tuple[str, ...]]:
    """Return a string column as indices into its sorted distinct values; null is -1."""
    indices, distinct = _numbered(table[name])
    values = distinct.to_pylist()
    order = sorted(range(len(values)), key=values.__getitem__)
    rank = np.empty(len(values) + 1, dtype=np.int32)
    rank[order] = np.arange(len(values), dtype=np.int32)
    rank[-1] = -1
    return rank[indices], tuple(values[i] for i in order)


def numbered(column: ArrowTable) -> I64:
    """Return strings as dense integers in the order of their first appearance; null is -1."""
    return _numbered(column)[0]


def numbered_together(first: ArrowTable, second: ArrowTable, name: str) -> I64:
    """Number the strings of a column of two tables as :func:`numbered`, the second last."""
    return numbered(pa.chunked_array([*first[name].chunks, *second[name].chunks], pa.string()))


def _numbered(column: ArrowTable) -> tuple[I64, ArrowTable]:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    coded = array.dictionary_encode()
    indices = coded.indices if not array.null_count else pc.fill_null(coded.indices, -1)
    return indices.to_numpy().astype(np.int64), coded.dictionary


def words(table: ArrowTable, name: str) -> tuple[str, ...]:
    """Return a string column; null is empty."""
    return tuple(pc.fill_null(table[name], "").to_pylist())


def flags(table: ArrowTable, name: str, missing: bool = False) -> Mask:
    """Return a boolean column; null becomes ``missing``."""
    return np.asarray(pc.fill_null(table[name].cast(pa.bool_()), missing), dtype=np.bool_)


def _names(table: ArrowTable, name: str, missing: str | None) -> npt.NDArray[np.object_]:
    """Return the sorted values of a string column, with ``missing`` at -1."""
    return np.asarray([*codes(table, name)[1], missing], object)


def _string_lists(table: ArrowTable, name: str) -> tuple[I64, I32, tuple[str, ...]]:
    """Return a column of lists of strings as :func:`_list_column`, its elements as codes."""
    start = starts(np.asarray(pc.fill_null(pc.list_value_length(table[name]), 0), np.int64))
    return start, *codes(pa.table({name: pc.list_flatten(table[name])}), name)


def _list_column(table: ArrowTable, name: str) -> tuple[I64, I64]:
    """Return a list column as the first element of each row, int64[n + 1], and the elements."""
    lengths = pc.fill_null(pc.list_value_length(table[name]), 0)
    return starts(np.asarray(lengths, np.int64)), np.asarray(pc.list_flatten(table[name]), np.int64)


def replaced(table: ArrowTable, **columns: Any) -> ArrowTable:
    """Return the table with other values in some of its columns, in the columns' types."""
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        is_arrow = isinstance(values, pa.Array | pa.ChunkedArray)
        column = values.cast(field.type) if is_arrow else pa.array(values, field.type)
        table = table.set_column(at, field, column)
    return table


def take(column: ArrowColumn, index: I64) -> ArrowColumn:
    """Return values at ``index``; -1 gives null."""
    if len(column) == 0:
        return pa.nulls(len(index), column.type)
    return column.take(pa.array(index, mask=index < 0))


def new_runs(*keys: I32 | I64 | Mask) -> Mask:
    """Return where a run of equal rows begins, bool[n]: some key differs from the row before."""
    found = np.ones(len(keys[0]), np.bool_)
    found[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return found


def row_starts(row: I64, n_rows: int) -> I64:
    """Return CSR starts of an ascending pointer column, int64[n_rows + 1]."""
    return np.searchsorted(row, np.arange(n_rows + 1)).astype(np.int64)


def gather(start: I64, rows: I64) -> tuple[I64, I64]:
    """Return positions of all entries of ``rows`` in a CSR, and the new row of each."""
    counts, positions = positions_in(start, rows)
    return positions, np.repeat(np.arange(len(rows), dtype=np.int64), counts)


def list_parts(column: ArrowColumn) -> tuple[I64, I32]:
    """Return starts and values of a list<int32> column without null lists."""
    lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    starts = lists.offsets.to_numpy().astype(np.int64)
    return starts - starts[0], lists.flatten().to_numpy()


def make_lists(
    start: I32 | I64, values: ArrowColumn | I32 | I64, valid: Mask | None = None
) -> pa.ListArray:
    """Make a list array of CSR starts, with the end, and values; null where not ``valid``."""
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    null = None if valid is None else pa.array(~valid)
    return pa.ListArray.from_arrays(pa.array(start.astype(np.int32)), array, mask=null)


@dataclass(frozen=True, slots=True, eq=False)
class DecodedRows:
    """Successive rows of a table, whose columns are decoded once for all of its rows."""

    table: pa.Table  # the whole table
    # ``low``, ``high``: first of the rows, and the row behind the last one.
    low: int
    high: int
    decoded: dict[tuple[object, ...], Any]  # columns of the whole table that were decoded before

    @classmethod
    def of(cls, table: pa.Table) -> DecodedRows:
        """Return all rows of a table."""
        return cls(table, 0, table.num_rows, {})

    def __len__(self) -> int:
        return self.high - self.low

    @property
    def arrow(self) -> pa.Table:
        """The rows as they are stored."""
        return self.table.slice(self.low, len(self))

    def _whole(self, decode: Callable[..., T], name: str, *options: object) -> T:
        """Return a column of the whole table, decoded at the first use."""
        key = (decode, name, *options)
        found: T | None = self.decoded.get(key)
        if found is None:
            found = self.decoded[key] = decode(self.table, name, *options)
        return found

    def ints(self, name: str, missing: int = -1) -> I64:
        """Return an integer column, as :func:`ints`."""
        return self._whole(ints, name, missing)[self.low : self.high]

    def floats(self, name: str, missing: float = np.nan) -> F64:
        """Return a float column, as :func:`floats`."""
        return self._whole(floats, name, missing)[self.low : self.high]

    def times_ms(self, name: str, missing: int = -1) -> I64:
        """Return a time column, as :func:`times_ms`."""
        return self._whole(times_ms, name, missing)[self.low : self.high]

    def flags(self, name: str, missing: bool = False) -> Mask:
        """Return a boolean column; null becomes ``missing``."""
        return self._whole(flags, name, missing)[self.low : self.high]

    def codes(self, name: str) -> tuple[I32, tuple[str, ...]]:
        """Return a string column as indices into the sorted values of these rows; null is -1."""
        rank, names = self._whole(codes, name)
        own = rank[self.low : self.high]
        kept = distinct(own.copy())
        kept = kept[kept >= 0]
        local = np.searchsorted(kept, own).astype(np.int32)
        local[own < 0] = -1
        return local, tuple([names[i] for i in kept.tolist()])

    def texts(self, name: str, missing: str | None = None, order: I64 | None = None) -> list[Any]:
        """Return a string column, or the given rows of it; null becomes ``missing``."""
        rank, _ = self._whole(codes, name)
        own = rank[self.low : self.high]
        found: list[Any] = self._whole(_names, name, missing)[
            own if order is None else own[order]
        ].tolist()
        return found

    def text(self, name: str, row: int) -> str | None:
        """Return the value of a row in a string column."""
        rank, names = self._whole(codes, name)
        at = int(rank[self.low + row])
        return names[at] if at >= 0 else None

    def equal(self, name: str, text: str) -> Mask:
        """Return which rows of a string column have a value."""
        rank, names = self._whole(codes, name)
        at = bisect_left(names, text)
        if at == len(names) or names[at] != text:
            return np.zeros(len(self), np.bool_)
        found: Mask = rank[self.low : self.high] == at
        return found

    def lists(self, name: str) -> tuple[I64, I64]:
        """Return a list column as the row of each element, and the elements."""
        start, values = self._whole(_list_column, name)
        own = start[self.low : self.high + 1]
        rows = np.repeat(np.arange(len(self)), own[1:] - own[:-1])
        return rows, values[own[0] : own[-1]]

    def each_list(self, name: str, order: I64) -> tuple[I64, ...]:
        """Return the lists of the given rows in a list column of integers; empty without one."""
        start, values = self._whole(_list_column, name)
        sizes, at = positions_in(start, order + self.low)
        return tuple(np.split(values[at], np.cumsum(sizes)[:-1]))[: len(order)]

    def text_list(self, name: str, row: int) -> list[str]:
        """Return the list of a row in a column of lists of strings; empty without one."""
        start, rank, names = self._whole(_string_lists, name)
        own = rank[start[self.low + row] : start[self.low + row + 1]]
        return [names[i] for i in own.tolist()]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupedTable:
    """A table with the row range of each group."""

    rows: pa.Table  # sorted by group; within a group, rows keep the order that they had
    # First row of each group and the row behind its last one; groups are sorted.
    bounds: Mapping[str, tuple[int, int]]
    decoded: dict[tuple[object, ...], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: pa.Table) -> GroupedTable:
        """Cut a table that has a column ``group``; rows without a group are left out."""
        rank, names = codes(rows, "group")
        in_order = bool((rank[1:] >= rank[:-1]).all())
        order = np.arange(len(rank)) if in_order else np.argsort(rank, kind="stable")
        edges = np.searchsorted(rank[order], np.arange(len(names) + 1)).tolist()
        bounds = {name: (edges[i], edges[i + 1]) for i, name in enumerate(names)}
        return cls(rows=rows if in_order else rows.take(pa.array(order)), bounds=bounds)

    def of_group(self, group: str) -> pa.Table:
        """Return the rows of one group; none if the group is unknown."""
        low, high = self.bounds.get(group, (0, 0))
        return self.rows.slice(low, high - low)

    def of_groups(self, groups: Sequence[str]) -> GroupedTable:
        """Return the rows of some groups, in their order."""
        spans = [self.bounds.get(group, (0, 0)) for group in groups]
        sizes = np.asarray([high - low for low, high in spans], np.int64)
        edges = starts(sizes)
        at = np.repeat([low for low, _ in spans], sizes) - np.repeat(edges[:-1], sizes)
        at += np.arange(edges[-1])
        follow = len(at) and at[-1] - at[0] == len(at) - 1 and bool((np.diff(at) == 1).all())
        rows = self.rows.slice(int(at[0]), len(at)) if follow else self.rows.take(pa.array(at))
        ends = zip(groups, edges.tolist(), edges[1:].tolist(), strict=False)
        return GroupedTable(rows=rows, bounds={name: (low, high) for name, low, high in ends})

    def decoded_rows(self, group: str) -> DecodedRows:
        """Return the rows of one group, decoded together with all others."""
        return DecodedRows(self.rows, *self.bounds.get(group, (0, 0)), self.decoded)
