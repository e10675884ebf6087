"""Layouts compiled for the columnar reader, and the suffix that reads tagged fields.

**Rules.** Fixed fields behind each other are one run; the length of the next field of variable size
belongs to it. Unknown tags are skipped and counted. The value of a known tag must be as long as the
size before it. If a message has a tag twice, the last one counts, as in Kafka.

**Strategy.** Tagged fields are an array of (tag, size, bytes). Usually every message has the same
single tag of the same size, or no tag; then the position of the value is known without a search.

References: KIP-482 (flexible versions, tagged fields), KIP-915 (unknown ones are skipped).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.core.model.columns import I64, U8
from holdfast.core.wire.layouts.offsets_schemas import (
    SIZES,
    Default,
    Field,
    Kind,
    Layout,
    Schema,
    element_min_size,
    layout,
    schema_layout,
)
from holdfast.core.wire.many.columnar import (
    FixedRun,
    ItemsSuffix,
    NumbersSuffix,
    OptionalSuffix,
    Program,
    SizedSuffix,
    Suffix,
    holdable,
    locate,
    packed,
    parents,
    read,
    read_items,
    walk,
    walk_uvarint,
)
from holdfast.core.wire.many.columns import ABSENT, Column, Columns, Numbers, Slices, spread
from holdfast.core.wire.many.ragged import Cursor, read_at

_DTYPES: Final = {
    Kind.INT8: ">i1",
    Kind.INT16: ">i2",
    Kind.UINT16: ">u2",
    Kind.INT32: ">i4",
    Kind.INT64: ">i8",
    Kind.UUID: "V16",
}
_VERSION: Final = Field(name="version", kind=Kind.INT16)
_BYTE: Final = np.dtype(np.uint8)
_TAG_AND_SIZE: Final = np.dtype([("tag", np.uint8), ("size", np.uint8)])


@cache
def program_of(struct: Layout, version: int) -> Program:
    """Return the program of a schema, or of a struct in it, in one version.

    Its columns are the plain fields, then the tagged ones.
    """
    builder = _Builder()
    for field in struct.plain:
        builder.add(field, version, struct.flexible)
    if struct.flexible:
        known = {
            field.tag: (field, _value_program(field, version, struct.flexible))
            for field in struct.tagged
            if field.tag is not None
        }
        builder.close(">u1", TagsSuffix(known=known))
    return builder.done()


@cache
def message_program(schema: Schema, version: int) -> Program:
    """Return the program of a whole message, which begins with its ``version``, in one version."""
    struct = schema_layout(schema, version)
    return program_of(replace(struct, plain=(_VERSION, *struct.plain)), version)


def _value_program(field: Field, version: int, flexible: bool) -> Program:
    """Return the program of a single value; its column is called ""."""
    builder = _Builder()
    builder.add(field, version, flexible, name="")
    return builder.done()


class _Builder:
    """Collects fixed fields until one of variable size closes the run."""

    def __init__(self) -> None:
        self.runs: list[FixedRun] = []
        self.fixed: list[tuple[str, str]] = []

    def done(self) -> Program:
        if self.fixed:
            self.close("", None)
        return tuple(self.runs)

    def close(self, prefix: str, suffix: Suffix | None) -> None:
        formats = [dtype for _, dtype in self.fixed] + [prefix] * bool(prefix)
        run = FixedRun(
            dtype=packed(formats, len(self.fixed)),
            names=tuple(name for name, _ in self.fixed),
            prefix=prefix,
            suffix=suffix,
        )
        self.runs.append(run)
        self.fixed = []

    def add(self, field: Field, version: int, flexible: bool, name: str | None = None) -> None:
        name = field.name if name is None else name
        prefix = ">u1" if flexible else ">i4"
        if field.is_array:
            self.close(prefix, _array_suffix(field, version, flexible, name))
        elif field.kind in SIZES:
            self.fixed.append((name, _DTYPES[field.kind]))
        elif field.kind is Kind.STRUCT:
            assert field.nullable, "no schema has a lone struct that is always there"
            program = program_of(layout(field.fields, version, flexible), version)
            tagged = field.tag is not None
            self.close(
                ">u1" if tagged else ">i1",
                OptionalSuffix(name=name, tagged=tagged, program=program),
            )
        else:
            self.close(_size_prefix(field.kind, flexible), _sized_suffix(field, flexible, name))


def _size_prefix(kind: Kind, flexible: bool) -> str:
    return ">u1" if flexible else ">i2" if kind is Kind.STRING else ">i4"


def _sized_suffix(field: Field, flexible: bool, name: str) -> SizedSuffix:
    return SizedSuffix(
        name=name,
        flexible=flexible,
        nullable=field.nullable and not field.is_array,
        is_text=field.kind is Kind.STRING,
    )


def _array_suffix(field: Field, version: int, flexible: bool, name: str) -> Suffix:
    if field.kind in SIZES:
        return NumbersSuffix(
            name=name,
            flexible=flexible,
            nullable=field.nullable,
            dtype=np.dtype(_DTYPES[field.kind]),
        )
    if field.kind is Kind.STRUCT:
        program = program_of(layout(field.fields, version, flexible), version)
    else:
        builder = _Builder()
        builder.close(_size_prefix(field.kind, flexible), _sized_suffix(field, flexible, ""))
        program = builder.done()
    return ItemsSuffix(
        name=name,
        flexible=flexible,
        nullable=field.nullable,
        program=program,
        min_size=element_min_size(field, version, flexible),
    )


# Tagged fields


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TagsSuffix:
    """The tagged fields at the end of a struct."""

    known: Mapping[int, tuple[Field, Program]]  # the tagged fields of the layout, by their tag

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """Read the known tags into their columns and count the others, or skip all tags."""
        count = holdable(cursor, cursor.uvarint(prefix), 2)
        if columns is None:
            if count.any():
                locate(_TAG_PROGRAM, cursor, count)
            return
        if self._read_alike(cursor, count, columns):
            return
        parent, number, data = _read_tags(cursor, count)
        n_known = 0
        for tag, (field, program) in self.known.items():
            here = np.flatnonzero(number == tag)
            n_known += len(here)
            found = (parent, data)
            if len(here) < len(parent):
                found = (parent[here], data.take(here))
            columns[field.name] = _tag_column(field, program, cursor, *found)
        if n_known < len(parent):
            known = np.isin(number, list(self.known))
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
        known, size = self.known.get(int(head["tag"][0])), int(head["size"][0])
        if size > 0x7F or known is None or not _is_constant(head["tag"], head["size"]):
            return False
        if everywhere and _fixed_size(known[1]) == size:
            cursor.take(_TAG_AND_SIZE)
            column = read(known[1], cursor)[""]
        else:
            column = _read_one_size(known[1], size, cursor, parent)
        for field, program in self.known.values():
            columns[field.name] = (
                _at_messages(column, parent, len(count), field.default)
                if field is known[0]
                else _absent_column(field, program, cursor.data, len(count))
            )
        return True

    def walk(self, data: memoryview, prefix: int, pos: int, end: int) -> int:
        """Return the position behind the tagged fields of one message, at most ``end``."""
        count, pos = walk_uvarint(data, prefix, pos, end)
        for _ in range(min(count, (end - pos) // 2)):
            pos = walk(_TAG_PROGRAM, data, pos, end)
        return pos


def _read_tags(cursor: Cursor, count: I64) -> tuple[I64, I64, Slices]:
    """Return message, number and bytes of each tagged field."""
    items = read_items(_TAG_PROGRAM, cursor, count)
    number, data = items["tag"], items["data"]
    assert isinstance(number, Numbers) and isinstance(data, Slices)
    return parents(count), number.values, data


def _tag_column(
    field: Field, program: Program, cursor: Cursor, parent: I64, data: Slices
) -> Column:
    """Return the column of a known tag, from the messages and the bytes of those that have it."""
    child = Cursor(cursor.data, data.begin, data.begin + data.size)
    column = read(program, child)[""]
    child.bad |= child.unfinished()
    cursor.absorb(child, parent)
    return _at_messages(column, parent, len(cursor.pos), field.default)


def _at_messages(column: Column, parent: I64, n_rows: int, default: Default) -> Column:
    """Spread a column over the messages; of two values of one message the last one wins."""
    if len(parent) == n_rows and (parent[1:] > parent[:-1]).all():
        return column
    index = np.full(n_rows, ABSENT, np.int64)
    index[parent] = np.arange(len(parent))
    return spread(column, index, default)


def _absent_column(field: Field, program: Program, data: U8, n_rows: int) -> Column:
    none = np.zeros(0, np.int64)
    return _at_messages(read(program, Cursor(data, none, none))[""], none, n_rows, field.default)


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
    """Return the bytes of a program without anything of variable size."""
    return program[0].dtype.itemsize if len(program) == 1 and program[0].suffix is None else None


def _is_constant(*columns: NDArray[Any]) -> bool:
    return not any(np.count_nonzero(column != column[0]) for column in columns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TagSuffix:
    """One tagged field: its number (the prefix), its size, its bytes."""

    def read(self, cursor: Cursor, prefix: NDArray[Any], columns: Columns | None) -> None:
        """Read the number and the bytes of the tag into their columns, or skip both."""
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
        """Return the position behind the tag in one message, at most ``end``."""
        _, pos = walk_uvarint(data, prefix, pos, end)
        if pos >= end:
            return end
        size, pos = walk_uvarint(data, data[pos], pos + 1, end)
        return min(pos + size, end)


_TAG_PROGRAM: Final[Program] = (
    FixedRun(dtype=packed([">u1"]), names=(), prefix=">u1", suffix=TagSuffix()),
)
