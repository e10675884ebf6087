"""Tagged fields of many messages.

**Rules.** Unknown tags are stepped over and counted. A known tag must fill its size. Of a tag
that a message has twice the last one counts, as in Kafka.

**Strategy.** Tagged fields are an array of (tag, size, bytes). Most often every message has
the same single tag of the same size, or none: then they need no looking for.

References
----------
KIP-482 (tagged fields), KIP-915 (unknown ones are skipped).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.wire.columns import ABSENT, Column, Columns, Numbers, Slices, spread
from holdfast.wire.cursor import Cursor
from holdfast.wire.lockstep import (
    Plan,
    Run,
    holdable,
    locate,
    packed,
    parents,
    read,
    read_items,
    walk,
    walk_uvarint,
)
from holdfast.wire.offsets_schemas import Default
from holdfast.wire.ragged import I64, U8, windows

_BYTE: Final = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tag:
    """A tagged field that is known."""

    number: int
    name: str
    plan: Plan
    default: Default


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TagsTail:
    """The tagged fields at the end of a struct."""

    known: tuple[Tag, ...]

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """See :class:`Tail`."""
        count = holdable(cursor, cursor.uvarint(prefix), 2)
        if columns is None:
            if count.any():
                locate(_TAG_PLAN, cursor, count)
            return
        if self._read_alike(cursor, count, columns):
            return
        parent, number, data = _read_tags(cursor, count)
        n_known = 0
        for tag in self.known:
            column, n_here = _tag_column(tag, cursor, parent, number, data)
            columns[tag.name] = column
            n_known += n_here
        if n_known < len(parent):
            known = np.isin(number, [tag.number for tag in self.known])
            cursor.count_unknown(parent[~known])

    def _read_alike(self, cursor: Cursor, count: I64, columns: Columns) -> bool:
        """Read the tagged fields if all are one known tag of one size, at most once a message."""
        if not len(count) or count.max() != 1:
            return False
        rows: I64 | slice = slice(None) if count.all() else np.flatnonzero(count)
        pos = cursor.pos[rows]
        head = windows(cursor.data, 2)[pos].view(np.uint8).reshape(-1, 2)
        number, size = head[0].tolist()
        here = [tag for tag in self.known if tag.number == number]
        if not here or size > 0x7F or (head.view(np.uint16) != head[:1].view(np.uint16)).any():
            return False
        child = Cursor(cursor.data, pos + 2, pos + (2 + size))
        column = read(here[0].plan, child)[""]
        child.bad |= (child.pos != child.end) | (child.end > cursor.end[rows])
        parent = np.flatnonzero(count)
        cursor.absorb(child, parent)
        cursor.pos[rows] = child.end
        for tag in self.known:
            values = column if tag is here[0] else read(tag.plan, _no_messages(cursor.data))[""]
            columns[tag.name] = _at_messages(
                values, parent if tag is here[0] else parent[:0], len(count), tag.default
            )
        return True

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """See :class:`Tail`."""
        count, pos = walk_uvarint(data, prefix, pos, end)
        for _ in range(min(count, (end - pos) // 2)):
            pos = walk(_TAG_PLAN, data, pos, end)
        return pos


def _read_tags(cursor: Cursor, count: I64) -> tuple[I64, I64, Slices]:
    """Message, number and bytes of each tagged field."""
    items = read_items(_TAG_PLAN, cursor, count)
    number, data = items["tag"], items["data"]
    assert isinstance(number, Numbers) and isinstance(data, Slices)
    return parents(count), number.values, data


def _tag_column(
    tag: Tag, cursor: Cursor, parent: I64, number: I64, data: Slices
) -> tuple[Column, int]:
    """Column of a known tag, and how many fields have it."""
    here = number == tag.number
    if not here.all():
        entry = np.flatnonzero(here)
        parent, data = parent[entry], data.take(entry)
    child = Cursor(cursor.data, data.begin, data.begin + data.size)
    column = read(tag.plan, child)[""]
    child.bad |= child.pos != child.end
    cursor.absorb(child, parent)
    return _at_messages(column, parent, len(cursor.pos), tag.default), len(parent)


def _at_messages(column: Column, parent: I64, n_rows: int, default: Default) -> Column:
    """Spread a column over the messages; of two values of one message the last one wins."""
    if len(parent) == n_rows and (parent[1:] > parent[:-1]).all():
        return column
    index = np.full(n_rows, ABSENT, np.int64)
    index[parent] = np.arange(len(parent))
    return spread(column, index, default)


def _no_messages(data: U8) -> Cursor:
    none = np.zeros(0, np.int64)
    return Cursor(data, none, none)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TagTail:
    """One tagged field: its number (the prefix), its size, its bytes."""

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """See :class:`Tail`."""
        number = cursor.uvarint(prefix)
        size = cursor.uvarint(cursor.take(_BYTE))
        if columns is None:
            cursor.hop(size)
            return
        begin = cursor.pos
        size = cursor.skip(size)
        columns["tag"] = Numbers(values=number)
        columns["data"] = Slices(data=cursor.data, begin=begin, size=size, valid=None)

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """See :class:`Tail`."""
        _, pos = walk_uvarint(data, prefix, pos, end)
        if pos >= end:
            return end
        size, pos = walk_uvarint(data, data[pos], pos + 1, end)
        return min(pos + size, end)


_TAG_PLAN: Final[Plan] = (Run(dtype=packed([">u1"]), names=(), prefix=">u1", tail=TagTail()),)
