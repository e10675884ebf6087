"""Layouts compiled for the lock-step reader.

**Rules.** Fixed fields that stand behind each other are one run; the length of the next field
of variable size belongs to it.

References: KIP-482 (flexible versions).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np

from holdfast.core.wire.layouts.offsets_schemas import (
    SIZES,
    Field,
    Kind,
    Layout,
    Schema,
    element_min_size,
    layout,
    schema_layout,
)
from holdfast.core.wire.many.lockstep import (
    FixedRun,
    ItemsTail,
    NumbersTail,
    OptionalTail,
    Program,
    SizedTail,
    Tail,
    packed,
)
from holdfast.core.wire.many.tags import Tag, TagsTail

_DTYPES: Final = {
    Kind.INT8: ">i1",
    Kind.INT16: ">i2",
    Kind.UINT16: ">u2",
    Kind.INT32: ">i4",
    Kind.INT64: ">i8",
    Kind.UUID: "V16",
}
_VERSION: Final = Field(name="version", kind=Kind.INT16)


@cache
def program_of(struct: Layout, version: int) -> Program:
    """Program of a schema, or of a struct in it, in one version.

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
                program=_value_program(field, version, struct.flexible),
                default=field.default,
            )
            for field in struct.tagged
            if field.tag is not None
        )
        builder.close(">u1", TagsTail(known=known))
    return builder.done()


@cache
def message_program(schema: Schema, version: int) -> Program:
    """Program of a whole message in one version, which it begins with (column ``version``)."""
    struct = schema_layout(schema, version)
    return program_of(replace(struct, plain=(_VERSION, *struct.plain)), version)


def _value_program(field: Field, version: int, flexible: bool) -> Program:
    """Program of a value that stands alone; its column is called ""."""
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

    def close(self, prefix: str, tail: Tail | None) -> None:
        formats = [dtype for _, dtype in self.fixed] + [prefix] * bool(prefix)
        run = FixedRun(
            dtype=packed(formats, len(self.fixed)),
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
            assert field.nullable, "no schema has a lone struct that is always there"
            program = program_of(layout(field.fields, version, flexible), version)
            tagged = field.tag is not None
            self.close(
                ">u1" if tagged else ">i1", OptionalTail(name=name, tagged=tagged, program=program)
            )
        else:
            self.close(_size_prefix(field.kind, flexible), _sized_tail(field, flexible, name))


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
        program = program_of(layout(field.fields, version, flexible), version)
    else:
        builder = _Builder()
        builder.close(_size_prefix(field.kind, flexible), _sized_tail(field, flexible, ""))
        program = builder.done()
    return ItemsTail(
        name=name,
        flexible=flexible,
        nullable=field.nullable,
        program=program,
        min_size=element_min_size(field, version, flexible),
    )
