"""Many messages of one layout to columns: every message advances by one field at a time.

**Rules.**

* No Python loop per message. Loops run over the fields of a layout, over the elements of the
  longest array, and over the elements of the few messages that are much longer than the others.
* A message that is cut off, or whose sizes exceed it, is marked bad, and its sizes are cut at its
  end. What was read of a bad message means nothing; the caller reads the good ones again without
  it, so that no column is ever filtered.
* Nothing is allocated from a count before the bytes left were seen to hold that many elements.

**Strategy.** A layout becomes a plan: *runs* of fixed fields with the length of the next field of
variable size, read by one block gather, each followed by a *tail* that knows how to go on. The
elements of an array are first located, in lock step, by skipping through them; then all elements of
all messages are read as one flat batch of messages. Where only a few messages have elements left,
a plain walk locates the rest.

References
----------
KIP-482 (flexible versions and tagged fields).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.wire.columns import (
    ABSENT,
    NULL,
    Column,
    Columns,
    Ids,
    Items,
    Numbers,
    Optional,
    Slices,
    Text,
    spread,
)
from holdfast.wire.offsets_schemas import (
    SIZES,
    Default,
    Field,
    Kind,
    Layout,
    element_min_size,
    layout,
)
from holdfast.wire.ragged import I64, U8, Mask, gather, invalid_utf8, starts, windows

FEW: Final = 16  # messages with elements left, below which a plain walk is cheaper
_STRING_MAX: Final = 0x7FFF
_BYTE: Final = np.dtype(np.uint8)
_UINT32_MAX: Final = 0xFFFFFFFF

_DTYPES: Final = {
    Kind.INT8: ">i1",
    Kind.INT16: ">i2",
    Kind.UINT16: ">u2",
    Kind.INT32: ">i4",
    Kind.INT64: ">i8",
    Kind.UUID: "V16",
}


class Cursor:
    """A position in each of many messages.

    Parameters
    ----------
    data : uint8[n_bytes]
        Padded bytes of all messages.
    pos, end : int64[n]
        Where each message goes on, and where it ends. ``pos`` is the cursor's own. It may run past
        the end by a few fixed fields, which the padding allows; :meth:`skip` and
        :meth:`overrun` notice.
    """

    __slots__ = ("bad", "data", "end", "n_unknown_tags", "pos")

    def __init__(self, data: U8, pos: I64, end: I64):
        self.data = data
        self.pos = pos
        self.end = end
        self.bad: Mask = np.zeros(len(pos), np.bool_)
        self.n_unknown_tags: I64 | None = None

    def take(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Read one element of each message, and step over it."""
        raw = windows(self.data, dtype.itemsize)[self.pos]
        self.pos = self.pos + dtype.itemsize
        return raw.view(dtype)

    def skip(self, size: I64) -> I64:
        """Step over ``size`` bytes (not negative); return the sizes as far as there is room."""
        after = self.pos + size
        over = after > self.end
        if over.any():
            self.bad |= over
            size = np.clip(self.end - self.pos, 0, size)
            after = self.pos + size
        self.pos = after
        return size

    def overrun(self) -> Mask:
        """Messages that are bad, or whose fixed fields ran past the end."""
        return self.bad | (self.pos > self.end)

    def uvarint(self, first: NDArray[Any]) -> I64:
        """Go on with varints of at most 32 bits, of which the first byte is read already."""
        value = first.astype(np.int64)
        if not len(value) or value.max() <= 0x7F:
            return value
        rows = np.flatnonzero(value > 0x7F)
        value[rows] &= 0x7F
        for shift in (7, 14, 21, 28):
            if not len(rows):
                return value
            pos = self.pos[rows]
            over = pos >= self.end[rows]
            byte = self.data[pos].astype(np.int64)
            value[rows] |= (byte & 0x7F) << shift
            self.bad[rows] |= over | (value[rows] > _UINT32_MAX)
            self.pos[rows] = np.minimum(pos + 1, self.end[rows])
            rows = rows[(byte > 0x7F) & ~over]
        self.bad[rows] = True
        return value

    def absorb(self, child: Cursor, parent: I64) -> None:
        """Take over what was found in parts of the messages; ``parent`` is int64[n_parts]."""
        bad = child.overrun()
        if bad.any():
            self.bad[parent[bad]] = True
        if child.n_unknown_tags is not None:
            self.count_unknown(np.repeat(parent, child.n_unknown_tags))

    def count_unknown(self, rows: I64) -> None:
        """Count one unknown tag for each entry of ``rows``."""
        if len(rows):
            self.add_unknown_tags(np.bincount(rows, minlength=len(self.pos)))

    def add_unknown_tags(self, n_tags: I64 | None) -> None:
        """Count unknown tags, int64[n]; None: none at all."""
        if n_tags is not None:
            before = self.n_unknown_tags
            self.n_unknown_tags = n_tags if before is None else before + n_tags


class Tail(Protocol):
    """How to go on behind a run, whose last field is given as ``prefix``."""

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """Advance; fill ``columns`` unless only skipping."""

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """Position behind the tail in one message, at most ``end``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """Fixed fields behind each other, the prefix of a variable one last."""

    dtype: np.dtype[Any]
    names: tuple[str, ...]
    prefix: str  # dtype of the prefix, "" for none
    tail: Tail | None

    def read(self, cursor: Cursor, columns: Columns | None) -> None:
        """Read the run and its tail."""
        raw = cursor.take(self.dtype)
        if columns is not None:
            for index, name in enumerate(self.names):
                columns[name] = _fixed_column(raw[str(index)])
        if self.tail is not None:
            self.tail.read(cursor, raw[str(len(self.names))], columns)

    def walk(self, data: memoryview, pos: int, end: int) -> int:
        """Position behind the run and its tail in one message, at most ``end``."""
        after = pos + self.dtype.itemsize
        if after > end:
            return end
        if self.tail is None:
            return after
        size = int(self.prefix[-1])
        prefix = int.from_bytes(data[after - size : after], "big", signed=self.prefix[1] == "i")
        return self.tail.walk(data, prefix, after, end)


Plan = tuple[Run, ...]


def _fixed_column(raw: NDArray[Any]) -> Column:
    if raw.dtype.kind == "V":
        return Ids(values=np.ascontiguousarray(raw).view(np.uint8).reshape(len(raw), 16))
    return Numbers(values=raw.astype(raw.dtype.newbyteorder("=")))


def read(plan: Plan, cursor: Cursor) -> Columns:
    """Read one struct of every message.

    Parameters
    ----------
    plan : Plan
        Of the layout.
    cursor : Cursor
        Is left behind the struct; its ``bad`` says which messages do not follow the layout.

    Returns
    -------
    dict of name to Column
        With one row a message.
    """
    columns: Columns = {}
    for run in plan:
        run.read(cursor, columns)
    return columns


def skip(plan: Plan, cursor: Cursor) -> None:
    """As :func:`read`, for the positions alone."""
    for run in plan:
        run.read(cursor, None)


def walk(plan: Plan, data: memoryview, pos: int, end: int) -> int:
    """Position behind one struct of one message; ``end`` where it does not fit."""
    for run in plan:
        pos = run.walk(data, pos, end)
    return pos


# Prefixes


def _length(cursor: Cursor, prefix: NDArray[Any], flexible: bool) -> I64:
    """Length or count, -1 for null."""
    return cursor.uvarint(prefix) - 1 if flexible else prefix.astype(np.int64)


def _present(cursor: Cursor, length: I64, nullable: bool) -> tuple[I64, Mask | None]:
    """Lengths with null as 0, and which are not null (None: all)."""
    if not len(length) or length.min() >= 0:
        return length, None
    cursor.bad |= length < (-1 if nullable else 0)
    return np.maximum(length, 0), length >= 0


def _walk_uvarint(data: memoryview, first: int, pos: int, end: int) -> tuple[int, int]:
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
    value, pos = _walk_uvarint(data, prefix, pos, end)
    return max(value - 1, 0), pos


# Tails


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizedTail:
    """A string or bytes."""

    name: str
    flexible: bool
    nullable: bool
    is_text: bool

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """See :class:`Tail`."""
        length = _length(cursor, prefix, self.flexible)
        size, valid = _present(cursor, length, self.nullable)
        if self.is_text and self.flexible and len(size) and size.max() > _STRING_MAX:
            cursor.bad |= size > _STRING_MAX
        begin = cursor.pos
        size = cursor.skip(size)
        if columns is None:
            return
        if self.is_text:
            columns[self.name] = _text(cursor, begin, size, valid)
        else:
            columns[self.name] = Slices(data=cursor.data, begin=begin, size=size, valid=valid)

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """See :class:`Tail`."""
        size, pos = _walk_length(data, prefix, pos, end, flexible=self.flexible)
        return min(pos + size, end)


def _text(cursor: Cursor, begin: I64, size: I64, valid: Mask | None) -> Text:
    data, start = gather(cursor.data, begin, size)
    invalid = invalid_utf8(data, start)
    if invalid is not None:
        cursor.bad |= invalid
    return Text(data=data, start=start, valid=valid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NumbersTail:
    """An array of numbers."""

    name: str
    flexible: bool
    nullable: bool
    dtype: np.dtype[Any]

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """See :class:`Tail`."""
        count, valid = _present(cursor, _length(cursor, prefix, self.flexible), self.nullable)
        begin, width = cursor.pos, self.dtype.itemsize
        size = cursor.skip(count * width)
        if columns is None:
            return
        size -= size % width  # of a message that is cut off
        data, start = gather(cursor.data, begin, size)
        values = data.view(self.dtype).astype(self.dtype.newbyteorder("="))
        columns[self.name] = Items(
            start=start // width, columns={"": Numbers(values=values)}, valid=valid
        )

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """See :class:`Tail`."""
        count, pos = _walk_length(data, prefix, pos, end, flexible=self.flexible)
        return min(pos + count * self.dtype.itemsize, end)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ItemsTail:
    """An array of strings or structs."""

    name: str
    flexible: bool
    nullable: bool
    plan: Plan
    min_size: int

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """See :class:`Tail`."""
        count, valid = _present(cursor, _length(cursor, prefix, self.flexible), self.nullable)
        count = _holdable(cursor, count, self.min_size)
        if columns is None:
            locate(self.plan, cursor, count)
            return
        items = _read_items(self.plan, cursor, count)
        columns[self.name] = Items(start=starts(count), columns=items, valid=valid)

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """See :class:`Tail`."""
        count, pos = _walk_length(data, prefix, pos, end, flexible=self.flexible)
        for _ in range(min(count, (end - pos) // self.min_size)):
            pos = walk(self.plan, data, pos, end)
        return pos


def _holdable(cursor: Cursor, count: I64, min_size: int) -> I64:
    """Counts, with 0 where the bytes left cannot hold so many."""
    over = count > (cursor.end - cursor.pos) // min_size
    if not over.any():
        return count
    cursor.bad |= over
    return np.where(over, 0, count)


def _parents(count: I64) -> I64:
    """Message of each element."""
    if len(count) and count.max() == 1:
        return np.flatnonzero(count)
    return np.repeat(np.arange(len(count)), count)


def _read_items(plan: Plan, cursor: Cursor, count: I64) -> Columns:
    """Read the elements of all messages as messages of their own; leave the cursor behind."""
    most = count.max() if len(count) else 0
    if most == 1 and count.all():
        child = Cursor(cursor.data, cursor.pos, cursor.end)
        items = read(plan, child)
        cursor.pos = child.pos
        cursor.bad |= child.bad
        cursor.add_unknown_tags(child.n_unknown_tags)
        return items
    parent = _parents(count)
    if most > 1:
        begin = locate(plan, cursor, count)
        child = Cursor(cursor.data, begin, cursor.end[parent])
        items = read(plan, child)
    else:
        child = Cursor(cursor.data, cursor.pos[parent], cursor.end[parent])
        items = read(plan, child)
        cursor.pos[parent] = child.pos
    cursor.absorb(child, parent)
    return items


def locate(plan: Plan, cursor: Cursor, count: I64) -> I64:
    """Find where each element of each message begins; leave the cursor behind the last.

    Parameters
    ----------
    plan : Plan
        Of one element.
    cursor : Cursor
        At the first element.
    count : int64[n]
        Elements of each message.

    Returns
    -------
    int64[sum(count)]
        By message, then by element. Elements that are not there begin at the end.
    """
    begin = np.repeat(cursor.end, count)
    rows = np.flatnonzero(count)
    slot, last = (np.cumsum(count) - count)[rows], np.cumsum(count)[rows]
    child = Cursor(cursor.data, cursor.pos[rows], cursor.end[rows])
    while len(rows) > FEW:
        begin[slot] = child.pos
        skip(plan, child)
        slot += 1
        going = (slot < last) & (child.pos < child.end)
        if not going.all():
            cursor.pos[rows] = child.pos
            rows, slot, last = rows[going], slot[going], last[going]
            child = Cursor(child.data, child.pos[going], child.end[going])
    data = cursor.data.data
    for row, pos, low, high in zip(
        rows.tolist(), child.pos.tolist(), slot.tolist(), last.tolist(), strict=True
    ):
        found, cursor.pos[row] = _locate_in_one(plan, data, pos, int(cursor.end[row]), high - low)
        begin[low : low + len(found)] = found
    return begin


def _locate_in_one(
    plan: Plan, data: memoryview, pos: int, end: int, count: int
) -> tuple[list[int], int]:
    found: list[int] = []
    while count > len(found) and pos < end:
        found.append(pos)
        pos = walk(plan, data, pos, end)
    return found, pos


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptionalTail:
    """A struct that may be null: an int8 below 0, or a varint 0 in a tagged field."""

    name: str
    tagged: bool
    plan: Plan

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """See :class:`Tail`."""
        there = cursor.uvarint(prefix) > 0 if self.tagged else prefix >= 0
        rows = np.flatnonzero(there)
        child = Cursor(cursor.data, cursor.pos[rows], cursor.end[rows])
        if columns is None:
            skip(self.plan, child)
        else:
            index = np.full(len(there), NULL, np.int64)
            index[rows] = np.arange(len(rows))
            columns[self.name] = Optional(index=index, columns=read(self.plan, child))
        cursor.pos[rows] = child.pos
        cursor.absorb(child, rows)

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """See :class:`Tail`."""
        return walk(self.plan, data, pos, end) if prefix >= 0 else pos


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
        count = _holdable(cursor, cursor.uvarint(prefix), 2)
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
        count, pos = _walk_uvarint(data, prefix, pos, end)
        for _ in range(min(count, (end - pos) // 2)):
            pos = walk(_TAG_PLAN, data, pos, end)
        return pos


def _read_tags(cursor: Cursor, count: I64) -> tuple[I64, I64, Slices]:
    """Message, number and bytes of each tagged field."""
    items = _read_items(_TAG_PLAN, cursor, count)
    number, data = items["tag"], items["data"]
    assert isinstance(number, Numbers) and isinstance(data, Slices)
    return _parents(count), number.values, data


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
        begin = cursor.pos
        size = cursor.skip(size)
        if columns is not None:
            columns["tag"] = Numbers(values=number)
            columns["data"] = Slices(data=cursor.data, begin=begin, size=size, valid=None)

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """See :class:`Tail`."""
        _, pos = _walk_uvarint(data, prefix, pos, end)
        if pos >= end:
            return end
        size, pos = _walk_uvarint(data, data[pos], pos + 1, end)
        return min(pos + size, end)


# Plans


@cache
def plan_of(struct: Layout, version: int) -> Plan:
    """Plan of a layout.

    Parameters
    ----------
    struct : Layout
        Of a schema in one version, or of a struct in it.
    version : int
        That version.

    Returns
    -------
    Plan
        Its columns are the plain fields, then the tagged ones.
    """
    builder = _Builder()
    for field in struct.plain:
        builder.add(field, version, struct.flexible)
    if struct.flexible:
        known = tuple(
            Tag(
                number=field.tag,
                name=field.name,
                plan=_value_plan(field, version, struct.flexible),
                default=field.default,
            )
            for field in struct.tagged
            if field.tag is not None
        )
        builder.close(">u1", TagsTail(known=known))
    return builder.done()


def _value_plan(field: Field, version: int, flexible: bool) -> Plan:
    """Plan of a value that stands alone; its column is called ""."""
    builder = _Builder()
    builder.add(field, version, flexible, name="")
    return builder.done()


class _Builder:
    """Collects fixed fields until one of variable size closes the run."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.fixed: list[tuple[str, str]] = []

    def done(self) -> Plan:
        if self.fixed:
            self.close("", None)
        return tuple(self.runs)

    def close(self, prefix: str, tail: Tail | None) -> None:
        formats = [dtype for _, dtype in self.fixed] + [prefix] * bool(prefix)
        run = Run(
            dtype=_packed(formats),
            names=tuple(name for name, _ in self.fixed),
            prefix=prefix,
            tail=tail,
        )
        self.runs.append(run)
        self.fixed = []

    def add(self, field: Field, version: int, flexible: bool, name: str | None = None) -> None:
        name = field.name if name is None else name
        prefix = ">u1" if flexible else ">i4"
        if field.is_array:
            self.close(prefix, _array_tail(field, version, flexible, name))
        elif field.kind in SIZES:
            self.fixed.append((name, _DTYPES[field.kind]))
        elif field.kind is Kind.STRUCT:
            plan = plan_of(layout(field.fields, version, flexible), version)
            tagged = field.tag is not None
            self.close(
                ">u1" if tagged else ">i1", OptionalTail(name=name, tagged=tagged, plan=plan)
            )
        else:
            self.close(_size_prefix(field.kind, flexible), _sized_tail(field, flexible, name))


def _packed(formats: list[str]) -> np.dtype[Any]:
    """Fields behind each other, called "0", "1" and so on."""
    return np.dtype([(str(index), dtype) for index, dtype in enumerate(formats)])


def _size_prefix(kind: Kind, flexible: bool) -> str:
    return ">u1" if flexible else ">i2" if kind is Kind.STRING else ">i4"


def _sized_tail(field: Field, flexible: bool, name: str) -> SizedTail:
    return SizedTail(
        name=name,
        flexible=flexible,
        nullable=field.nullable and not field.is_array,
        is_text=field.kind is Kind.STRING,
    )


def _array_tail(field: Field, version: int, flexible: bool, name: str) -> Tail:
    if field.kind in SIZES:
        return NumbersTail(
            name=name,
            flexible=flexible,
            nullable=field.nullable,
            dtype=np.dtype(_DTYPES[field.kind]),
        )
    if field.kind is Kind.STRUCT:
        plan = plan_of(layout(field.fields, version, flexible), version)
    else:
        builder = _Builder()
        builder.close(_size_prefix(field.kind, flexible), _sized_tail(field, flexible, ""))
        plan = builder.done()
    return ItemsTail(
        name=name,
        flexible=flexible,
        nullable=field.nullable,
        plan=plan,
        min_size=element_min_size(field, version, flexible),
    )


_TAG_PLAN: Final[Plan] = (Run(dtype=_packed([">u1"]), names=(), prefix=">u1", tail=TagTail()),)
