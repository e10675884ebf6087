"""Many messages of one layout to columns: every message advances by one field at a time.

**Rules.**

* No Python loop per message. Loops run over the fields of a layout, over the elements of the
  longest array, and over the elements of the few messages that are much longer than the others.
* A message is marked bad if it is cut off, or if a size in it goes beyond its end. The values read
  from a bad message are meaningless. The caller reads the good messages again without the bad ones,
  so no column is ever filtered.
* A count allocates nothing before the bytes left are known to hold that many elements.

**Strategy.** A layout becomes a :class:`Program`: *runs* of fixed fields, each with the length of
the variable field that follows, and after each run a *suffix*, which reads that variable field. A
run is read by one block gather. The elements of an array are first located, all messages one
element at a time, by skipping through them; values seen on the way are kept on a *tape*. Then all
elements of all messages are read as one flat batch. When only a few messages have elements left, a
plain loop locates the rest.

References: KIP-482 (flexible versions and tagged fields).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.core.model.columns import I64, Mask, starts
from holdfast.core.wire.many.columns import (
    NULL,
    Column,
    Columns,
    Ids,
    Items,
    Numbers,
    Optional,
    Slices,
    Text,
    join,
)
from holdfast.core.wire.many.ragged import Cursor, gather, invalid_utf8

# An element's columns and the memory to read them are some 60 bytes. Where the mean element is
# smaller than TINY_SIZE bytes they are read by blocks; from TAPE_MIN_SIZE on there may be a tape.
TINY_SIZE: Final = 8
TAPE_MIN_SIZE: Final = 32
BLOCK: Final = 4_096  # elements
FEW: Final = 16  # messages with elements left, below which a plain walk is cheaper
_STRING_MAX: Final = 0x7FFF


class Suffix(Protocol):
    """The reader behind a run, whose last field is given as ``prefix``."""

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """Advance; fill ``columns`` unless only skipping."""

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """Return the position behind the suffix in one message, at most ``end``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FixedRun:
    """Fixed fields behind each other, the prefix of a variable one last."""

    dtype: np.dtype[Any]
    names: tuple[str, ...]
    prefix: str  # dtype of the prefix, "" for none
    suffix: Suffix | None

    def read(self, cursor: Cursor, columns: Columns | None) -> None:
        """Read the run and its suffix."""
        self.go_on(cursor, cursor.take(self.dtype), columns)

    def go_on(self, cursor: Cursor, raw: NDArray[Any], columns: Columns | None) -> None:
        """Read the suffix of a run that was taken."""
        if not self.names and self.suffix is not None:
            self.suffix.read(cursor, raw, columns)
            return
        if columns is not None:
            for index, name in enumerate(self.names):
                columns[name] = _fixed_column(raw[str(index)])
        if self.suffix is not None:
            self.suffix.read(cursor, raw[str(len(self.names))], columns)

    def walk(self, data: memoryview, pos: int, end: int) -> int:
        """Return the position behind the run and its suffix in one message, at most ``end``."""
        after = pos + self.dtype.itemsize
        if after > end:
            return end
        if self.suffix is None:
            return after
        size = int(self.prefix[-1])
        prefix = int.from_bytes(data[after - size : after], "big", signed=self.prefix[1] == "i")
        return self.suffix.walk(data, prefix, after, end)


Program = tuple[FixedRun, ...]


def _fixed_column(raw: NDArray[Any]) -> Column:
    if raw.dtype.kind == "V":
        return Ids(values=np.ascontiguousarray(raw).view(np.uint8).reshape(len(raw), 16))
    return Numbers(values=raw.astype(raw.dtype.newbyteorder("=")))


def read(program: Program, cursor: Cursor) -> Columns:
    """Read one struct of every message, into columns with one row a message.

    The cursor ends behind the struct; its ``bad`` marks the messages that do not follow the layout.
    """
    columns: Columns = {}
    for run in program:
        run.read(cursor, columns)
    return columns


def skip(program: Program, cursor: Cursor) -> None:
    """Advance as :func:`read`, without reading; which messages are ``bad`` is then not known."""
    for run in program:
        run.read(cursor, None)


def walk(program: Program, data: memoryview, pos: int, end: int) -> int:
    """Return the position behind one struct of one message; ``end`` where it does not fit."""
    for run in program:
        pos = run.walk(data, pos, end)
    return pos


def packed(formats: list[str], n_fixed: int = 0) -> np.dtype[Any]:
    """Return fields behind each other, called "0", "1" and so on; a lone prefix has no name."""
    if not n_fixed:
        return np.dtype(formats[0])
    return np.dtype([(str(index), dtype) for index, dtype in enumerate(formats)])


# Prefixes


def _length(cursor: Cursor, prefix: NDArray[Any], flexible: bool) -> I64:
    """Return length or count, -1 for null."""
    return cursor.uvarint(prefix) - 1 if flexible else prefix.astype(np.int64)


def _present(cursor: Cursor, length: I64, nullable: bool) -> tuple[I64, Mask | None]:
    """Return lengths with null as 0, and which are not null (None: all)."""
    null = length < 0
    if not np.count_nonzero(null):
        return length, None
    cursor.bad |= length < (-1 if nullable else 0)
    return np.maximum(length, 0), ~null


def walk_uvarint(data: memoryview, first: int, pos: int, end: int) -> tuple[int, int]:
    """Return the value of a varint whose first byte is read, and the position behind it."""
    value, shift = first & 0x7F, 7
    while first > 0x7F and pos < end and shift < 35:
        first = data[pos]
        value |= (first & 0x7F) << shift
        pos, shift = pos + 1, shift + 7
    return value, pos


def _walk_length(
    data: memoryview, prefix: int, pos: int, end: int, *, flexible: bool
) -> tuple[int, int]:
    if not flexible:
        return max(prefix, 0), pos
    value, pos = walk_uvarint(data, prefix, pos, end)
    return max(value - 1, 0), pos


# Suffixes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizedSuffix:
    """A string or bytes."""

    name: str
    flexible: bool
    nullable: bool
    is_text: bool

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """Read the strings or bytes into their column, or skip them."""
        n_bytes = _length(cursor, prefix, self.flexible)
        if columns is None:
            cursor.hop(n_bytes)
            return
        size, valid = _present(cursor, n_bytes, self.nullable)
        if self.is_text and self.flexible and len(size) and size.max() > _STRING_MAX:
            cursor.bad |= size > _STRING_MAX
        begin = cursor.here()
        size = cursor.skip(size)
        if self.is_text:
            columns[self.name] = _text(cursor, begin, size, valid)
        else:
            columns[self.name] = Slices(data=cursor.data, begin=begin, size=size, valid=valid)

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """Return the position behind the length and its bytes in one message, at most ``end``."""
        size, pos = _walk_length(data, prefix, pos, end, flexible=self.flexible)
        return min(pos + size, end)


def _text(cursor: Cursor, begin: I64, size: I64, valid: Mask | None) -> Text:
    data, start = gather(cursor.data, begin, size)
    invalid = invalid_utf8(data, start)
    if invalid is not None:
        cursor.bad |= invalid
    return Text(data=data, start=start, valid=valid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NumbersSuffix:
    """An array of numbers or ids."""

    name: str
    flexible: bool
    nullable: bool
    dtype: np.dtype[Any]

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """Read the numbers or ids into their column, or skip them."""
        width, n_numbers = self.dtype.itemsize, _length(cursor, prefix, self.flexible)
        if columns is None:
            cursor.hop(n_numbers * width)
            return
        count, valid = _present(cursor, n_numbers, self.nullable)
        begin = cursor.here()
        size = cursor.skip(count * width)
        size -= size % width  # of a message that is cut off
        data, start = gather(cursor.data, begin, size)
        items = {"": _fixed_column(data.view(self.dtype))}
        columns[self.name] = Items(start=start // width, columns=items, valid=valid)

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """Return the position behind the count and its numbers in one message, at most ``end``."""
        count, pos = _walk_length(data, prefix, pos, end, flexible=self.flexible)
        return min(pos + count * self.dtype.itemsize, end)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ItemsSuffix:
    """An array of strings or structs."""

    name: str
    flexible: bool
    nullable: bool
    program: Program
    min_size: int

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """Read the elements into their column, or skip them."""
        count, valid = _present(cursor, _length(cursor, prefix, self.flexible), self.nullable)
        count = holdable(cursor, count, self.min_size)
        if columns is None:
            locate(self.program, cursor, count)
            return
        items = read_items(self.program, cursor, count)
        columns[self.name] = Items(start=starts(count), columns=items, valid=valid)

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """Return the position behind the count and its elements in one message, at most ``end``."""
        count, pos = _walk_length(data, prefix, pos, end, flexible=self.flexible)
        for _ in range(min(count, (end - pos) // self.min_size)):
            pos = walk(self.program, data, pos, end)
        return pos


def holdable(cursor: Cursor, count: I64, min_size: int) -> I64:
    """Return counts, with 0 where the bytes left cannot hold so many."""
    over = count > cursor.n_left() // min_size
    if not over.any():
        return count
    cursor.bad |= over
    return np.where(over, 0, count)


def parents(count: I64) -> I64:
    """Return the message of each element."""
    if len(count) and count.max() == 1:
        return np.flatnonzero(count)
    return np.repeat(np.arange(len(count)), count)


def read_items(program: Program, cursor: Cursor, count: I64) -> Columns:
    """Read the elements of all messages as messages of their own; leave the cursor behind."""
    most = count.max() if len(count) else 0
    if most == 1 and count.all():
        child = Cursor(cursor.data, cursor.pos, cursor.end)
        items = read(program, child)
        cursor.pos = child.pos
        cursor.bad |= child.bad
        cursor.add_unknown_tags(child.n_unknown_tags)
        return items
    if most > 1:
        return _read_blocks(program, cursor, count)
    parent = parents(count)
    child = Cursor(cursor.data, cursor.pos[parent], cursor.end[parent])
    items = read(program, child)
    cursor.pos[parent] = child.pos
    cursor.absorb(child, parent)
    return items


def _read_blocks(program: Program, cursor: Cursor, count: I64) -> Columns:
    """Locate all elements, then read them together, or tiny ones block by block."""
    n_elements = int(count.sum())
    mean_size = int((cursor.end - cursor.pos)[count > 0].sum()) // max(n_elements, 1)
    if mean_size >= TAPE_MIN_SIZE:
        tape = Tape(program)
        begin = locate(program, cursor, count, tape)
        parent = parents(count)
        child = Cursor(cursor.data, begin, cursor.end[parent])
        items = tape.read(child)
        cursor.absorb(child, parent)
        return items
    begin, stop = locate(program, cursor, count), np.cumsum(count)
    block = n_elements if mean_size >= TINY_SIZE else BLOCK
    parts: list[Columns] = []
    for low in range(0, n_elements, block):
        high = min(low + block, n_elements)
        parent = _parents_within(stop, low, high)
        child = Cursor(cursor.data, begin[low:high], cursor.end[parent])
        parts.append(read(program, child))
        cursor.absorb(child, parent)
    del begin, child
    return join(parts)


class Tape:
    """Values of elements that were read in passing, so that they are not read again.

    Notes
    -----
    Memory: about twice 8 bytes and the fixed fields, for each run of each element.
    """

    __slots__ = ("_program", "_slots", "_taken")

    def __init__(self, program: Program):
        self._program = program
        self._slots: list[I64] = []
        self._taken: list[tuple[list[I64], list[NDArray[Any]]]] = [([], []) for _ in program]

    def skip(self, cursor: Cursor, slot: I64) -> None:
        """Advance as :func:`skip`; ``slot`` has the elements at the cursor."""
        self._slots.append(slot.copy())
        for run, (positions, raws) in zip(self._program, self._taken, strict=True):
            positions.append(cursor.pos)
            raws.append(cursor.take(run.dtype))
            run.go_on(cursor, raws[-1], None)

    def read(self, cursor: Cursor) -> Columns:
        """Read all elements as :func:`read`; elements not seen yet are read first."""
        order = np.full(len(cursor.bad), -1, np.int64)
        slot = np.concatenate([*self._slots, np.zeros(0, np.int64)])
        order[slot] = np.arange(len(slot))
        unseen = np.flatnonzero(order < 0)
        if len(unseen):
            self.skip(Cursor(cursor.data, cursor.pos[unseen], cursor.end[unseen]), unseen)
            order[unseen] = np.arange(len(slot), len(order))
        columns: Columns = {}
        for run, (positions, raws) in zip(self._program, self._taken, strict=True):
            cursor.pos = np.concatenate(positions).take(order) + run.dtype.itemsize
            run.go_on(cursor, np.concatenate(raws).take(order), columns)
        return columns


def _parents_within(stop: I64, low: int, high: int) -> I64:
    """Return the message of each element from ``low`` to ``high``; ``stop``: each message's end."""
    first, last = np.searchsorted(stop, (low, high - 1), side="right").tolist()
    n_here = np.diff(np.minimum(stop[first : last + 1], high), prepend=low)
    return np.repeat(np.arange(first, last + 1), n_here)


def locate(program: Program, cursor: Cursor, count: I64, tape: Tape | None = None) -> I64:
    """Find where each element of each message begins; leave the cursor behind the last.

    Parameters
    ----------
    tape : Tape, optional
        Receives the values that are read in passing.

    Returns
    -------
    int64[sum(count)]
        By message, then by element. Missing elements begin at the end.
    """
    begin = np.repeat(cursor.end, count)
    rows = np.flatnonzero(count)
    slot, last = (np.cumsum(count) - count)[rows], np.cumsum(count)[rows]
    child = Cursor(cursor.data, cursor.pos[rows], cursor.end[rows])
    while len(rows) > FEW:
        begin[slot] = child.pos
        if tape is None:
            skip(program, child)
        else:
            tape.skip(child, slot)
        slot += 1
        going = (slot < last) & (child.pos < child.end)
        if not going.all():
            cursor.pos[rows] = child.pos
            rows, slot, last = rows[going], slot[going], last[going]
            child = Cursor(child.data, child.pos[going], child.end[going])
    data, found = cursor.data.data, begin.data
    for row, pos, low, high in zip(
        rows.tolist(), child.pos.tolist(), slot.tolist(), last.tolist(), strict=True
    ):
        cursor.pos[row] = _locate_in_one(program, data, pos, int(cursor.end[row]), found[low:high])
    return begin


def _locate_in_one(
    program: Program, data: memoryview, pos: int, end: int, found: memoryview
) -> int:
    """Fill ``found`` as far as there are bytes; return the position behind."""
    for index in range(len(found)):
        if pos >= end:
            break
        found[index] = pos
        pos = walk(program, data, pos, end)
    return pos


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptionalSuffix:
    """A struct that may be null: an int8 below 0, or a varint 0 in a tagged field."""

    name: str
    tagged: bool
    program: Program

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """Read the structs that are not null into their columns, or skip them."""
        there = cursor.uvarint(prefix) > 0 if self.tagged else prefix >= 0
        rows = np.flatnonzero(there)
        child = Cursor(cursor.data, cursor.pos[rows], cursor.end[rows])
        if columns is None:
            skip(self.program, child)
        else:
            index = np.full(len(there), NULL, np.int64)
            index[rows] = np.arange(len(rows))
            columns[self.name] = Optional(index=index, columns=read(self.program, child))
        cursor.pos[rows] = child.pos
        cursor.absorb(child, rows)

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """Return the position behind the struct in one message; ``pos`` if ``prefix`` < 0."""
        return walk(self.program, data, pos, end) if prefix >= 0 else pos
