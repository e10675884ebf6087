"""Columns of Arrow tables as NumPy arrays, Arrow lists as CSR pairs, and the rows of each group.

**Rules.** No function depends on the meaning of a column. Arrow's own types are not checked
(``pyproject.toml`` says why), so the names of types here are for readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import F64, I32, I64, Mask, places_in

ArrowTable: TypeAlias = pa.Table

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


def lists(table: ArrowTable, name: str) -> tuple[I64, I64]:
    """Return a list column as the row of each element, and the elements."""
    column = table[name]
    if not table.num_rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    rows = np.repeat(
        np.arange(table.num_rows), np.asarray(pc.fill_null(pc.list_value_length(column), 0))
    )
    return rows, np.asarray(pc.list_flatten(column), dtype=np.int64)


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


def new_runs(*keys: I32 | I64) -> Mask:
    """Return where a run of equal rows begins, bool[n]: some key differs from the row before."""
    found = np.ones(len(keys[0]), np.bool_)
    found[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return found


def row_starts(row: I64, n_rows: int) -> I64:
    """Return CSR starts of an ascending pointer column, int64[n_rows + 1]."""
    return np.searchsorted(row, np.arange(n_rows + 1)).astype(np.int64)


def gather(start: I64, rows: I64) -> tuple[I64, I64]:
    """Return positions of all entries of ``rows`` in a CSR, and the new row of each."""
    counts, places = places_in(start, rows)
    return places, np.repeat(np.arange(len(rows), dtype=np.int64), counts)


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupedTable:
    """A table with the row range of each group.

    Parameters
    ----------
    rows : Table
        Sorted by group; within a group, rows keep the order that they had.
    bounds : mapping of str to (int, int)
        First row of each group and the row behind its last one; groups are sorted.
    """

    rows: pa.Table
    bounds: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, rows: pa.Table) -> GroupedTable:
        """Cut a table that has a column ``group``; rows without a group are left out."""
        rank, names = codes(rows, "group")
        order = np.argsort(rank, kind="stable")
        edges = np.searchsorted(rank[order], np.arange(len(names) + 1)).tolist()
        in_order = bool((rank[1:] >= rank[:-1]).all())
        bounds = {name: (edges[i], edges[i + 1]) for i, name in enumerate(names)}
        return cls(rows=rows if in_order else rows.take(pa.array(order)), bounds=bounds)

    def of_group(self, group: str) -> pa.Table:
        """Return the rows of one group; none if the group is unknown."""
        low, high = self.bounds.get(group, (0, 0))
        return self.rows.slice(low, high - low)
