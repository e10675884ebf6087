"""Hostile bytes: the cheapest elements that a schema has, as many as fit.

The factors here are those that docs/wire.md states. A scalar value of the cheapest element is a
Python object of its own; in columns it is eight bytes of a row start.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from tests.peak import peak_bytes
from tests.suites import further
from tests.wire.codecs import CODECS
from tests.wire.records_twin import binary
from tests.wire.spoiling import Piece, Pieces, Tagged, count, render, tags, uvarint

from holdfast.core.wire.layouts.container import (
    MemberAssignment,
    MemberSubscription,
    encode_member_assignment,
    encode_member_subscription,
)
from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.core.wire.layouts.offsets_schemas import (
    RECORD_SCHEMAS,
    SIZES,
    Field,
    Kind,
    layout,
    min_size,
    schema_layout,
)
from holdfast.core.wire.layouts.state_shard import MemberEntry, Sizes, StateShard, encode_shard
from holdfast.core.wire.many import columnar
from holdfast.core.wire.many.offsets_batch import decode_batch
from holdfast.errors import WireError

SCALAR_FACTOR = 32
FRAME_FACTOR = 48  # a partition of a set in our own frames may be one byte
SHARD_FACTOR = 128  # a member or a topic in a share may be little more than one byte
BATCH_FACTOR = 32
N_SCALAR, N_BATCH = 1000, 4000
N_BYTES = 16_000
SLACK_BYTES = 20_000
BATCH_SLACK_BYTES = 60_000

# Texts of three bytes that Python keeps in an object of 76, of two that share one, of none.
TEXTS = ("Ā", "ab", "")


def cheapest(one: Field, version: int, flexible: bool, text: str) -> bytes:
    """A value with nothing in it that need not be, but for its texts and lone elements."""
    if one.kind in SIZES:
        return b"\x30" * SIZES[one.kind]
    if one.kind is Kind.STRUCT:
        if one.nullable and not one.is_array:
            return b"\xff"
        return struct_of(one.fields, version, flexible, text)
    blob = text.encode()
    if flexible:
        return uvarint(len(blob) + 1) + blob
    return len(blob).to_bytes(2 if one.kind is Kind.STRING else 4, "big") + blob


def struct_of(fields: tuple[Field, ...], version: int, flexible: bool, text: str) -> bytes:
    """Arrays within have one element where there are texts, else none."""
    out = b""
    for one in layout(fields, version, flexible).plain:
        if one.is_array:
            n = int(bool(text))
            out += count(n, flexible=flexible, nullable=False).data
            out += n * cheapest(one, version, flexible, text)
        else:
            out += cheapest(one, version, flexible, text)
    return out + b"\0" * flexible


def values(
    number: int, version: int, n: int, texts: tuple[str, ...] = TEXTS
) -> list[tuple[str, bytes]]:
    """Values of a record type: each kind of array that it has made of ``n`` cheapest elements."""
    here = schema_layout(RECORD_SCHEMAS[number].value, version)
    arrays = {
        replace(field, name=""): field for field in (*here.plain, *here.tagged) if field.is_array
    }
    found = []
    for field in arrays.values():
        for text in texts:
            one = cheapest(field, version, here.flexible, text)
            n_fit = min(n, N_BYTES // len(one))
            array = [count(n_fit, flexible=here.flexible, nullable=False), Piece(n_fit * one)]
            found.append((f"{field.name} of {text!r}", whole(number, version, field, array)))
    if here.flexible:
        unknown = Piece(uvarint(n) + b"\x2a\0" * n)
        found.append(("unknown tags", whole(number, version, None, [unknown])))
    return found


def whole(number: int, version: int, large: Field | None, pieces: Pieces) -> bytes:
    here = schema_layout(RECORD_SCHEMAS[number].value, version)
    out: Pieces = [Piece(version.to_bytes(2, "big"))]
    for one in here.plain:
        if one is large:
            out += pieces
        elif one.is_array:
            out.append(count(0, flexible=here.flexible, nullable=False))
        else:
            least = cheapest(one, version, here.flexible, "")
            assert len(least) == min_size(one, version, here.flexible)
            out.append(Piece(least))
    if here.flexible and large is None:
        out += pieces
    elif here.flexible:
        out += tags([Tagged(large.tag, pieces)] if large and large.tag is not None else [])
    return render(out)[0]


def key_of(number: int) -> bytes:
    return number.to_bytes(2, "big") + struct_of(RECORD_SCHEMAS[number].key.fields, 0, False, "")


WITH_ARRAYS = [
    pytest.param(number, version, id=f"{number}-{kind.name}-v{version}")
    for number, kind in RECORD_SCHEMAS.items()
    for version in {min(3, kind.value.max_version), kind.value.max_version}
    if values(number, version, 1)
]


@pytest.mark.parametrize(("number", "version"), WITH_ARRAYS)
def test_one_record(number: int, version: int) -> None:
    key = key_of(number)
    for name, value in values(number, version, N_SCALAR):
        peak = peak_bytes(lambda value=value: decode_record(key, value))
        assert peak < SCALAR_FACTOR * len(value) + SLACK_BYTES, name


@pytest.mark.parametrize("n_records", further([40, 1]))
@pytest.mark.parametrize(("number", "version"), WITH_ARRAYS)
def test_columns_of_records(
    number: int, version: int, n_records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = key_of(number)
    monkeypatch.setattr(columnar, "BLOCK", 256)  # as small against the input as it is when large
    for name, value in values(number, version, N_BATCH // n_records, TEXTS[::2]):
        columns = binary([key] * n_records), binary([value] * n_records)

        def decode(columns=columns) -> object:
            (chunk,) = decode_batch(*columns)
            assert len(chunk.bad) == 0
            return chunk

        n_bytes = n_records * (len(key) + len(value))
        assert peak_bytes(decode) < BATCH_FACTOR * n_bytes + BATCH_SLACK_BYTES, name


# Messages of groups


def classic_texts(text: str) -> bytes:
    blob = text.encode()
    return N_SCALAR.to_bytes(4, "big") + (len(blob).to_bytes(2, "big") + blob) * N_SCALAR


def classic_partitions(text: str, n_partitions: int) -> bytes:
    blob = text.encode()
    one = len(blob).to_bytes(2, "big") + blob + n_partitions.to_bytes(4, "big")
    return N_SCALAR.to_bytes(4, "big") + (one + b"\x30" * 4 * n_partitions) * N_SCALAR


def large(text: str, n_partitions: int) -> dict[str, bytes]:
    """A message of each schema, full of cheap elements."""
    none, null = bytes(4), b"\xff" * 4
    names, owned = classic_texts(text), classic_partitions(text, n_partitions)
    head = bytes(8)
    return {
        "subscription": b"\0\1" + names + null + owned,
        "assignment": b"\0\1" + owned + null,
        "sticky": owned + none,
        "design-subscription": b"\0\1" + names + null + owned,
        "design-assignment": b"\0\2" + owned + owned + none,
        "connect-assignment": b"\0\1" + bytes(6) + head + owned + owned + none,
    }


@pytest.mark.parametrize("n_partitions", [0, 1, 2])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("schema", large("", 0))
def test_messages(schema: str, text: str, n_partitions: int) -> None:
    data = large(text, n_partitions)[schema]
    peak = peak_bytes(lambda: CODECS[schema].decode(data))
    assert peak < SCALAR_FACTOR * len(data) + SLACK_BYTES


def frames() -> dict[str, tuple[str, bytes]]:
    """Our own frames: large sets, many small ones, many members."""
    near, far = tuple(range(1000, 1000 + N_SCALAR)), tuple(range(0, 300 * N_SCALAR, 300))
    found = {}
    for name, numbers in (("near", near), ("far", far)):
        given = (("a", numbers),)
        found[f"claim, {name}"] = (
            "claim",
            encode_member_subscription(MemberSubscription(topics=(), already_revoked=given)),
        )
        found[f"verdict, {name}"] = (
            "verdict",
            encode_member_assignment(MemberAssignment(revoked=given)),
        )
        neighbour = MemberEntry(identity="01" * 9 + "0", owned=((f"{5:020b}", numbers),))
        found[f"memory, {name}"] = (
            "state-shard",
            encode_shard(StateShard(generation=1, neighbours=(neighbour,))),
        )
    topics = tuple((f"{t:020b}", (0,)) for t in range(N_SCALAR))
    waiting = MemberEntry(identity="", delay_ms=1)
    found |= {
        name: (
            "state-shard",
            encode_shard(StateShard(generation=1, waiting=members, sizes=Sizes(partition_bits=0))),
        )
        for name, members in (
            ("members", (waiting,) * N_SCALAR),
            ("topics", (replace(waiting, owned=topics),)),
        )
    }
    return found


@pytest.mark.parametrize("name", frames())
def test_frames(name: str) -> None:
    schema, data = frames()[name]
    peak = peak_bytes(lambda: CODECS[schema].decode(data))
    factor = SHARD_FACTOR if schema == "state-shard" else FRAME_FACTOR
    assert peak < factor * len(data) + SLACK_BYTES


@pytest.mark.parametrize("schema", CODECS)
def test_a_count_of_two_billion(schema: str) -> None:
    def decode(data: bytes) -> None:
        with suppress(WireError):
            CODECS[schema].decode(data)

    for head in (b"\0\1", b"\0\2" + bytes(4), b"\0\1" + bytes(14), b""):
        data = head + b"\x7f\xff\xff\xff" + bytes(2000)
        assert peak_bytes(lambda data=data: decode(data)) < SCALAR_FACTOR * len(data) + SLACK_BYTES
