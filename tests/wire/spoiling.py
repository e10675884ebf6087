"""Messages in pieces, so that each length, count, string and tag can be spoiled by name.

A message is a list of pieces: bytes that are what they are, prefixes that say how long something is
or how many there are, texts, and tagged fields, whose size follows what is in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.core.wire.layouts.offsets_schemas import (
    RECORD_SCHEMAS,
    SIZES,
    Field,
    Kind,
    layout,
    schema_layout,
)

ENDLESS = b"\xff" * 6
GIANT = b"\xff\xff\xff\xff\x07"  # 2**31 - 1 as a varint
MOST, BELOW = b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe"  # as int32: 2**31 - 1, -2
BEYOND = "length beyond the end"


@dataclass(eq=False)
class Piece:
    """Bytes; ``spoilers`` are (how, other bytes, reason of the failure)."""

    data: bytes
    spoilers: list[tuple[str, bytes, str]] = field(default_factory=list)


@dataclass(eq=False)
class Tagged:
    """A tagged field."""

    number: int
    pieces: list[Piece | Tagged]


Pieces = list[Piece | Tagged]


def uvarint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def prefixed(
    size: int, n_bytes: int, how: list[tuple[str, bytes, str]], *, flexible: bool, nullable: bool
) -> tuple[bytes, list[tuple[str, bytes, str]]]:
    """How many follow, a varint or ``n_bytes`` long, and how to spoil that; -1 would be null."""
    if flexible:
        how, null = [("endless varint", ENDLESS, "bad-varint"), *how], b"\x00"
    else:
        null = b"\xff" * n_bytes
    if not nullable:
        how = [*how, ("null", null, "unexpected-null")]
    return uvarint(size + 1) if flexible else size.to_bytes(n_bytes, "big"), how


def text(value: str, *, flexible: bool, nullable: bool) -> Pieces:
    """A string; the content of one that is not empty may be no UTF-8."""
    blob = value.encode()
    how = [("length below -1", b"\xff\xfe", "bad-length"), (BEYOND, b"\x7f\xff", "truncated")]
    if flexible:
        how = [("giant length", GIANT, "bad-length"), (BEYOND, uvarint(0x7001), "truncated")]
    prefix, how = prefixed(len(blob), 2, how, flexible=flexible, nullable=nullable)
    # The text fails where its length stands, so both are one piece when it is spoiled.
    spoilers = [(name, other + blob, reason) for name, other, reason in how]
    spoilers.append(("no UTF-8", prefix + b"\xff" * len(blob), "bad-utf8"))
    return [Piece(prefix + blob, spoilers)]


def binary(value: bytes, *, flexible: bool, nullable: bool) -> Pieces:
    """Bytes."""
    how = [("length below -1", BELOW, "bad-length"), ("giant length", MOST, "truncated")]
    if flexible:
        how = [("giant length", GIANT, "truncated")]
    return [
        Piece(*prefixed(len(value), 4, how, flexible=flexible, nullable=nullable)),
        Piece(value),
    ]


def count(number: int, *, flexible: bool, nullable: bool) -> Piece:
    """How many elements follow."""
    how = [("count below -1", BELOW, "bad-count"), ("giant count", MOST, "bad-count")]
    if flexible:
        how = [("giant count", GIANT, "bad-count")]
    return Piece(*prefixed(number, 4, how, flexible=flexible, nullable=nullable))


def tags(fields: list[Tagged]) -> Pieces:
    """Tagged fields."""
    return [Piece(uvarint(len(fields)), [("endless varint", ENDLESS, "bad-varint")]), *fields]


def version_of(number: int, lowest: int = 0) -> Piece:
    """A leading version, of which one below the lowest is refused."""
    low = (lowest - 1).to_bytes(2, "big", signed=True)
    return Piece(number.to_bytes(2, "big"), [("version below the lowest", low, "bad-version")])


def render(pieces: Pieces, spoiled: Piece | None = None, by: bytes = b"") -> tuple[bytes, int]:
    """The bytes, and where the spoiled piece begins (-1: nowhere)."""
    out, position = bytearray(), -1
    for piece in pieces:
        if isinstance(piece, Tagged):
            inner, within = render(piece.pieces, spoiled, by)
            out += uvarint(piece.number) + uvarint(len(inner))
            if within >= 0:
                position = len(out) + within
            out += inner
        elif piece is spoiled:
            position = len(out)
            out += by
        else:
            out += piece.data
    return bytes(out), position


def spoiled(pieces: Pieces) -> Iterator[tuple[str, bytes, str, int]]:
    """Every way to spoil a message: how, its bytes, the reason and the position of the failure."""
    for piece in _all(pieces):
        for how, other, reason in piece.spoilers:
            data, position = render(pieces, piece, other)
            yield how, data, reason, position


def _all(pieces: Pieces) -> Iterator[Piece]:
    for piece in pieces:
        if isinstance(piece, Tagged):
            yield from _all(piece.pieces)
        else:
            yield piece


# Records, by the table of their schemas: one element in every array, every tag written


def key_pieces(number: int) -> Pieces:
    """The key of a record."""
    key = RECORD_SCHEMAS[number].key
    return [Piece(number.to_bytes(2, "big")), *_struct(key.fields, 0, flexible=False)]


def value_pieces(number: int, version: int) -> Pieces:
    """Its value in one version."""
    schema = RECORD_SCHEMAS[number].value
    flexible = schema_layout(schema, version).flexible
    head = Piece(
        version.to_bytes(2, "big"),
        [
            ("version below 0", b"\xff\xff", "bad-version"),
            ("unknown version", (schema.max_version + 1).to_bytes(2, "big"), "bad-version"),
        ],
    )
    return [head, *_struct(schema.fields, version, flexible=flexible)]


def _struct(fields: tuple[Field, ...], version: int, *, flexible: bool) -> Pieces:
    here = layout(fields, version, flexible)
    out: Pieces = []
    for one in here.plain:
        out += _field(one, version, flexible=flexible)
    if flexible:
        out += tags(
            [
                Tagged(one.tag or 0, _field(one, version, flexible=True))
                for one in sorted(here.tagged, key=lambda one: one.tag or 0)
            ]
        )
    return out


def _field(one: Field, version: int, *, flexible: bool) -> Pieces:
    if not one.is_array:
        return _value(one, version, flexible=flexible, nullable=one.nullable)
    element = _value(one, version, flexible=flexible, nullable=False)
    return [count(1, flexible=flexible, nullable=one.nullable), *element]


def _value(one: Field, version: int, *, flexible: bool, nullable: bool) -> Pieces:
    if one.kind in SIZES:
        return [Piece(b"\x01" * SIZES[one.kind])]
    if one.kind is Kind.STRING:
        return text("é", flexible=flexible, nullable=nullable)
    if one.kind is Kind.BYTES:
        return binary(b"xy", flexible=flexible, nullable=nullable)
    inner = _struct(one.fields, version, flexible=flexible)
    return [Piece(b"\x01"), *inner] if one.nullable and not one.is_array else inner
