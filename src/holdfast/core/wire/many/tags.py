"""Tagged fields of many messages.

**Rules.** Unknown tags are skipped and counted. The value of a known tag must be as long as the
size before it. If a message has a tag twice, the last one counts, as in Kafka.

**Strategy.** Tagged fields are an array of (tag, size, bytes). Usually every message has the same
single tag of the same size, or no tag; then the position of the value is known without a search.

References: KIP-482 (tagged fields), KIP-915 (unknown ones are skipped).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.core.model.columns import I64, U8
from holdfast.core.wire.layouts.offsets_schemas import Default
from holdfast.core.wire.many.columns import ABSENT, Column, Columns, Numbers, Slices, spread
from holdfast.core.wire.many.cursor import Cursor
from holdfast.core.wire.many.lockstep import (
    FixedRun,
    Program,
    holdable,
    locate,
    packed,
    parents,
    read,
    read_items,
    walk,
    walk_uvarint,
)
from holdfast.core.wire.many.ragged import read_at

_BYTE: Final = np.dtype(np.uint8)
_TAG_AND_SIZE: Final = np.dtype([("tag", np.uint8), ("size", np.uint8)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tag:
    """A tagged field that is known."""

    number: int
    name: str
    program: Program
    default: Default


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TagsTail:
    """The tagged fields at the end of a struct."""

    known: tuple[Tag, ...]

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """Read the known tags into their columns and count the others, or step over all tags."""
        count = holdable(cursor, cursor.uvarint(prefix), 2)
        if columns is None:
            if count.any():
                locate(_TAG_PROGRAM, cursor, count)
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
        everywhere = bool(count.all())
        parent = np.flatnonzero(count)
        if everywhere:
            head = cursor.peek(_TAG_AND_SIZE)
        else:
            head = read_at(cursor.data, cursor.pos[parent], _TAG_AND_SIZE)
        known = [tag for tag in self.known if tag.number == head["tag"][0]]
        size = int(head["size"][0])
        if size > 0x7F or not known or not _is_constant(head["tag"], head["size"]):
            return False
        if everywhere and _fixed_size(known[0].program) == size:
            cursor.take(_TAG_AND_SIZE)
            column = read(known[0].program, cursor)[""]
        else:
            column = _read_one_size(known[0].program, size, cursor, parent)
        for tag in self.known:
            columns[tag.name] = (
                _at_messages(column, parent, len(count), tag.default)
                if tag is known[0]
                else _absent_column(tag, cursor.data, len(count))
            )
        return True

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """Position behind the tagged fields of one message, at most ``end``."""
        count, pos = walk_uvarint(data, prefix, pos, end)
        for _ in range(min(count, (end - pos) // 2)):
            pos = walk(_TAG_PROGRAM, data, pos, end)
        return pos


def _read_tags(cursor: Cursor, count: I64) -> tuple[I64, I64, Slices]:
    """Message, number and bytes of each tagged field."""
    items = read_items(_TAG_PROGRAM, cursor, count)
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
    column = read(tag.program, child)[""]
    child.bad |= child.unfinished()
    cursor.absorb(child, parent)
    return _at_messages(column, parent, len(cursor.pos), tag.default), len(parent)


def _at_messages(column: Column, parent: I64, n_rows: int, default: Default) -> Column:
    """Spread a column over the messages; of two values of one message the last one wins."""
    if len(parent) == n_rows and (parent[1:] > parent[:-1]).all():
        return column
    index = np.full(n_rows, ABSENT, np.int64)
    index[parent] = np.arange(len(parent))
    return spread(column, index, default)


def _absent_column(tag: Tag, data: U8, n_rows: int) -> Column:
    none = np.zeros(0, np.int64)
    return _at_messages(read(tag.program, Cursor(data, none, none))[""], none, n_rows, tag.default)


def _read_one_size(program: Program, size: int, cursor: Cursor, parent: I64) -> Column:
    """Read a tag of one size behind its number and size, in some of the messages."""
    pos = cursor.pos[parent] + 2
    child = Cursor(cursor.data, pos, pos + size)
    column = read(program, child)[""]
    child.bad |= child.unfinished() | (child.end > cursor.end[parent])
    cursor.absorb(child, parent)
    cursor.pos[parent] = child.end
    return column


def _fixed_size(program: Program) -> int | None:
    """Bytes of a program without anything of variable size."""
    return program[0].dtype.itemsize if len(program) == 1 and program[0].tail is None else None


def _is_constant(*columns: NDArray[Any]) -> bool:
    return not any(np.count_nonzero(column != column[0]) for column in columns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TagTail:
    """One tagged field: its number (the prefix), its size, its bytes."""

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """Read the number and the bytes of the tag into their columns, or step over both."""
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
        """Position behind the tag in one message, at most ``end``."""
        _, pos = walk_uvarint(data, prefix, pos, end)
        if pos >= end:
            return end
        size, pos = walk_uvarint(data, data[pos], pos + 1, end)
        return min(pos + size, end)


_TAG_PROGRAM: Final[Program] = (
    FixedRun(dtype=packed([">u1"]), names=(), prefix=">u1", tail=TagTail()),
)
