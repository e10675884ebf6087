"""The columns into which many messages are read: one a field, in buffers that Arrow accepts.

==========  =====================================  ==============================================
column      of                                     buffers
==========  =====================================  ==============================================
Numbers     int8 to int64                          values, native byte order
Ids         uuid                                   uint8[n, 16]
Text        string                                 UTF-8 bytes and row starts
Slices      bytes                                  positions in the input; copied on request
Items       array                                  row starts, and the columns of the elements
Optional    struct that may be null or left out    row of each message in the struct's columns
==========  =====================================  ==============================================

**Rules.** ``valid`` is None where no row is null. A null row of :class:`Text`, :class:`Slices` and
:class:`Items` is empty as well. An array of plain values has one column, called "".

References: KIP-482 (a tagged field that was not written has its default).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.core.model.columns import I64, U8, Mask, row_sizes, starts
from holdfast.core.wire.layouts.offsets_schemas import Default
from holdfast.core.wire.many.ragged import PAD, gather

NULL: Final = -1
ABSENT: Final = -2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Numbers:
    """Integers, [n]."""

    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: I64) -> Numbers:
        """Select rows."""
        return Numbers(values=self.values[rows])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ids:
    """UUIDs, uint8[n, 16]."""

    values: U8

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: I64) -> Ids:
        """Select rows."""
        return Ids(values=self.values[rows])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Text:
    """Strings: ``data[start[i]:start[i + 1]]``, valid UTF-8, unless ``valid[i]`` is False."""

    data: U8
    start: I64
    valid: Mask | None

    def __len__(self) -> int:
        return len(self.start) - 1

    def take(self, rows: I64) -> Text:
        """Select rows."""
        size = row_sizes(self.start)[rows]
        data, start = gather_exact(self.data, self.start[rows], size)
        return Text(data=data, start=start, valid=_take_valid(self.valid, rows))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slices:
    """Bytes that still lie in the input: ``data[begin[i]:begin[i] + size[i]]``; data is padded."""

    data: U8
    begin: I64
    size: I64
    valid: Mask | None

    def __len__(self) -> int:
        return len(self.begin)

    def take(self, rows: I64) -> Slices:
        """Select rows."""
        return Slices(
            data=self.data,
            begin=self.begin[rows],
            size=self.size[rows],
            valid=_take_valid(self.valid, rows),
        )

    def gather(self) -> tuple[U8, I64]:
        """Return bytes behind each other, uint8, and row starts, int64[n + 1]."""
        return gather(self.data, self.begin, self.size)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Items:
    """Arrays: row ``i`` has the elements ``start[i]`` to ``start[i + 1]`` of ``columns``."""

    start: I64
    columns: Columns
    valid: Mask | None

    def __len__(self) -> int:
        return len(self.start) - 1

    def take(self, rows: I64) -> Items:
        """Select rows."""
        size = row_sizes(self.start)[rows]
        start = starts(size)
        element = np.repeat(self.start[rows] - start[:-1], size) + np.arange(start[-1])
        return Items(
            start=start,
            columns=take(self.columns, element),
            valid=_take_valid(self.valid, rows),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Optional:
    """Structs: ``index[i]`` is a row of ``columns``, or :data:`NULL`, or :data:`ABSENT`."""

    index: I64
    columns: Columns

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: I64) -> Optional:
        """Select rows; ``columns`` stays whole."""
        return Optional(index=self.index[rows], columns=self.columns)


_Runs = Text | Slices | Items
Column = Numbers | Ids | Optional | _Runs
Columns = dict[str, Column]


def take(columns: Columns, rows: I64) -> Columns:
    """Select rows, int64[n], of every column."""
    return {name: column.take(rows) for name, column in columns.items()}


def join(parts: list[Columns]) -> Columns:
    """Return the rows of all parts, one part behind the other.

    Parameters
    ----------
    parts : list of dict of name to Column
        At least one; all of the same layout, :class:`Slices` of the same bytes. The list is
        emptied, so that no part is kept beside the joined columns.
    """
    if len(parts) == 1:
        return parts.pop()
    names = list(parts[0])
    columns = {name: _join([part.pop(name) for part in parts]) for name in names}
    parts.clear()
    return columns


def _join(parts: list[Any]) -> Column:
    first = parts[0]
    match first:
        case Numbers():
            return Numbers(values=np.concatenate([part.values for part in parts]))
        case Ids():
            return Ids(values=np.concatenate([part.values for part in parts]))
        case Text():
            data = np.concatenate([part.data for part in parts])
            return Text(data=data, valid=_join_valid(parts), start=_join_starts(parts))
        case Slices():
            begin = np.concatenate([part.begin for part in parts])
            size = np.concatenate([part.size for part in parts])
            return replace(first, begin=begin, size=size, valid=_join_valid(parts))
        case Items():
            valid, start = _join_valid(parts), _join_starts(parts)
            return Items(start=start, valid=valid, columns=join([part.columns for part in parts]))
        case _:
            return _join_optional(parts)


def _join_valid(parts: list[_Runs]) -> Mask | None:
    if all(part.valid is None for part in parts):
        return None
    return np.concatenate(
        [np.ones(len(part), np.bool_) if part.valid is None else part.valid for part in parts]
    )


def _join_starts(parts: list[Text | Items]) -> I64:
    start = np.zeros(sum(map(len, parts)) + 1, np.int64)
    row, shift = 0, 0
    for part in parts:
        np.add(part.start, shift, out=start[row : row + len(part) + 1])
        row, shift = row + len(part), int(start[row + len(part)])
    return start


def _join_optional(parts: list[Optional]) -> Optional:
    index, shift = [], 0
    for part in parts:
        index.append(np.where(part.index >= 0, part.index + shift, part.index))
        shift += len(next(iter(part.columns.values())))
    return Optional(index=np.concatenate(index), columns=join([part.columns for part in parts]))


def gather_exact(data: U8, begin: I64, size: I64) -> tuple[U8, I64]:
    """Gather as :func:`holdfast.core.wire.many.ragged.gather`, for data without padding."""
    return gather(np.concatenate((data, np.zeros(PAD, np.uint8))), begin, size)


def spread(column: Column, index: I64, default: Default) -> Column:
    """Return the column of a tagged field, from the values of the messages that have it.

    Parameters
    ----------
    column : Column
        Values that were written.
    index : int64[n]
        Row of each message in ``column``, or :data:`ABSENT`.
    default : int, str, () or None
        Where absent: a number; None: null; anything else: an empty run, or the absent struct.

    Returns
    -------
    Column
        A column of n rows. An absent UUID is all zeros.
    """
    n_values = len(column)
    if n_values == len(index) and np.array_equal(index, np.arange(n_values)):
        return column
    there = index >= 0
    rows = index[there]
    match column:
        case Numbers():
            values = np.full(len(index), default, column.values.dtype)
            values[there] = column.values[rows]
            return Numbers(values=values)
        case Ids():
            ids = np.zeros((len(index), 16), np.uint8)
            ids[there] = column.values[rows]
            return Ids(values=ids)
        case Optional():
            inner = np.full(len(index), ABSENT, np.int64)
            inner[there] = column.index[rows]
            return Optional(index=inner, columns=column.columns)
        case _:
            return _spread_runs(column.take(rows), there, default is None)


def _spread_runs(column: _Runs, there: Mask, null: bool) -> _Runs:
    """Put empty rows, or nulls, between the rows."""
    valid = None
    if null or column.valid is not None:
        valid = np.full(len(there), not null)
        valid[there] = True if column.valid is None else column.valid
    if isinstance(column, Slices):
        begin, size = np.zeros((2, len(there)), np.int64)
        begin[there], size[there] = column.begin, column.size
        return replace(column, begin=begin, size=size, valid=valid)
    size = np.zeros(len(there), np.int64)
    size[there] = row_sizes(column.start)
    return replace(column, start=starts(size), valid=valid)


def _take_valid(valid: Mask | None, rows: I64) -> Mask | None:
    return None if valid is None else valid[rows]
