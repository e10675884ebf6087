"""Every schema, spoiled at every length, count, text, tag and version, and cut at every byte.

What fails says why, where, in which schema and version; the batch form says the same of each row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.wire.codecs import CODECS
from tests.wire.records_twin import batch, scalar
from tests.wire.spoiling import (
    Piece,
    Pieces,
    binary,
    count,
    key_pieces,
    render,
    spoiled,
    text,
    value_pieces,
    version_of,
)
from tests.wire.test_bad_bytes import MAY_END_EARLY
from tests.wire.test_offsets_batch import slices_of

from holdfast.core.wire.layouts.offsets_records import decode_record
from holdfast.core.wire.layouts.offsets_schemas import RECORD_SCHEMAS
from holdfast.core.wire.many.columns import Slices
from holdfast.core.wire.many.offsets_batch import (
    REASONS,
    Messages,
    read_assignments,
    read_subscriptions,
)
from holdfast.errors import WireError

# Records of the offsets topic

VERSIONS = [
    pytest.param(number, version, id=f"{number}-{kind.name}-v{version}")
    for number, kind in RECORD_SCHEMAS.items()
    for version in range(kind.value.max_version + 1)
]


@pytest.mark.parametrize(("number", "version"), VERSIONS)
def test_records_spoiled(number: int, version: int) -> None:
    key, value = key_pieces(number), value_pieces(number, version)
    good = (render(key)[0], render(value)[0])
    assert decode_record(*good).value_version == version
    pairs, expected = [], []
    for _, data, reason, position in spoiled(key):
        pairs.append((data, good[1]))
        expected.append((reason, position, True))
    for _, data, reason, position in spoiled(value):
        pairs.append((good[0], data))
        expected.append((reason, position, False))
    assert scalar(pairs) == expected
    assert batch([good, *pairs]) == [decode_record(*good), *expected]
    assert len({how for pieces in (key, value) for how, *_ in spoiled(pieces)}) >= 6


@pytest.mark.parametrize(("number", "version"), VERSIONS)
def test_records_cut_at_every_byte_or_with_a_byte_too_many(number: int, version: int) -> None:
    key, value = render(key_pieces(number))[0], render(value_pieces(number, version))[0]
    pairs = [(key[:size], value) for size in range(len(key))]
    pairs += [(key, value[:size]) for size in range(len(value))]
    errors_of = scalar(pairs)
    assert {answer[0] for answer in errors_of if isinstance(answer, tuple)} <= {
        "truncated",
        "bad-count",
        "unknown-type",
    }
    assert all(isinstance(one, tuple) for one in errors_of)
    assert batch(pairs) == errors_of
    more = [(key + b"\0", value), (key, value + b"\0"), (key + b"\0", None)]
    assert (
        batch(more)
        == scalar(more)
        == [
            ("trailing-bytes", len(key), True),
            ("trailing-bytes", len(value), False),
            ("trailing-bytes", len(key), True),
        ]
    )


@pytest.mark.parametrize(("number", "version"), VERSIONS)
def test_records_name_schema_version_and_field(number: int, version: int) -> None:
    key = render(key_pieces(number))[0]
    for _, data, reason, position in spoiled(value_pieces(number, version)):
        with pytest.raises(WireError) as error:
            decode_record(key, data)
        assert error.value.schema == f"{RECORD_SCHEMAS[number].name}Value"
        assert error.value.version == (None if reason == "bad-version" else version)
        assert error.value.field
        assert error.value.position == position


# Messages of groups


def classic(value: str, *, nullable: bool = False) -> Pieces:
    return text(value, flexible=False, nullable=nullable)


def partitions(*, nullable: bool = False) -> Pieces:
    """Two topics, the first with two partitions."""
    none = Piece(count(0, flexible=False, nullable=False).data)
    return [
        count(2, flexible=False, nullable=nullable),
        *classic("é"),
        count(2, flexible=False, nullable=False),
        Piece(b"\0\0\0\5\0\0\0\2"),
        *classic("b"),
        none,
    ]


def data(*, nullable: bool = True) -> Pieces:
    return binary(b"xy", flexible=False, nullable=nullable)


def topics() -> Pieces:
    return [count(2, flexible=False, nullable=False), *classic("é"), *classic("b")]


def sets(*, nullable: bool = False) -> Pieces:
    """One topic with a set of two partitions, in our own frames."""
    return [
        count(1, flexible=True, nullable=nullable),
        *text("é", flexible=True, nullable=False),
        *gaps(),
    ]


def gaps() -> Pieces:
    return [
        count(2, flexible=True, nullable=False),
        Piece(b"\3", [("endless varint", b"\xff" * 6, "bad-varint")]),
        Piece(b"\4", [("endless varint", b"\xff" * 6, "bad-varint")]),
    ]


def delay() -> Piece:
    return Piece(b"\0\0\0\7", [("negative", b"\xff\xff\xff\xff", "out-of-range")])


def number(value: bytes, *, limit: bytes = b"") -> Piece:
    """A varint, with a value above its limit."""
    above = [("above the limit", limit, "out-of-range")] if limit else []
    return Piece(value, [("endless varint", b"\xff" * 6, "bad-varint"), *above])


ABOVE_INT32 = b"\x80\x80\x80\x80\x08"


def time(*, from_1: bool = False) -> Piece:
    piece = number(b"\7", limit=ABOVE_INT32)
    if from_1:
        piece.spoilers.append(("no time", b"\0", "out-of-range"))
    return piece


STATE_SHARD: Pieces = [
    Piece(
        b"\xa3",  # a digest, paced, behind an identity
        [
            ("another version", b"\x63", "bad-version"),
            ("another version, without a place", b"\xe3", "bad-version"),
            ("whole and not", b"\xa7", "out-of-range"),
        ],
    ),
    Piece(b"\x12"),
    Piece(b"\x2a", [("topics of 16 digits", b"\x04\x40", "out-of-range")]),
    number(b"\1", limit=ABOVE_INT32),
    time(from_1=True),
    Piece(b"has"),
    Piece(b"ide"),
]
CLAIM: Pieces = [
    Piece(b"\xf4", [("magic", b"n", "bad-magic")]),
    Piece(b"\xc1", [("later", b"\xc2", "bad-version"), ("none", b"\xc0", "bad-version")]),
    Piece(b"\x7d", [("leaving", b"\x7f", "out-of-range"), ("bits", b"\xfd", "out-of-range")]),
    number(b"\1"),
    Piece(b"here"),
    time(),
    *sets(),
    count(1, flexible=True, nullable=False),
    *text("é", flexible=True, nullable=False),
    *text("OSError", flexible=True, nullable=False),
    *gaps(),
    *binary(b"xy", flexible=True, nullable=False),
]
MEMBER_ASSIGNMENT: Pieces = [
    Piece(b"\xf4", [("magic", b"n", "bad-magic")]),
    Piece(b"\xd1", [("later", b"\xd2", "bad-version"), ("none", b"\xd0", "bad-version")]),
    Piece(b"\x0e", [("bits", b"\x0f", "out-of-range"), ("more", b"\x1e", "out-of-range")]),
    *sets(),
    time(),
    *binary(b"xy", flexible=True, nullable=False),
]
CONNECT_HEAD: Pieces = [Piece(b"\0\0"), *classic("l"), *classic("u"), Piece(bytes(8))]


def subscription(version: int) -> Pieces:
    out = [version_of(version), *topics(), *data()]
    out += partitions() if version >= 1 else []
    out += [Piece(b"\0\0\0\4")] if version >= 2 else []
    return out + (classic("r", nullable=True) if version >= 3 else [])


def design_subscription(version: int) -> Pieces:
    return [version_of(version, lowest=1), *topics(), *data(), *partitions(nullable=True)]


def design_assignment(version: int) -> Pieces:
    lists = [*partitions(nullable=True), *partitions(nullable=True)]
    return [version_of(version, lowest=1), *lists, *([delay()] if version > 1 else [])]


def connect_assignment(version: int) -> Pieces:
    if version == 0:
        return [version_of(0), *CONNECT_HEAD, *partitions()]
    lists = [*partitions(nullable=True), *partitions(nullable=True)]
    return [version_of(version), *CONNECT_HEAD, *lists, delay()]


def connect_metadata(version: int) -> Pieces:
    return [version_of(version), *classic("u"), Piece(bytes(8)), *(data() if version else [])]


def streams_head(version: int) -> Pieces:
    below = [("version below the lowest", bytes(4), "bad-version")]
    latest = [Piece(b"\0\0\0\x0b")] if version >= 3 else []
    return [Piece(version.to_bytes(4, "big"), below), *latest]


def one() -> Piece:
    """One element follows."""
    return count(1, flexible=False, nullable=False)


def streams_subscription(version: int) -> Pieces:
    out = [*streams_head(version), Piece(bytes(16))]
    end_point = binary(b"h:80", flexible=False, nullable=False)
    if version < 7:
        tasks = [one(), Piece(bytes(8)), one(), Piece(bytes(8))]
        return [*out, *tasks, *(end_point if version >= 2 else [])]
    out += end_point
    if version < 10:
        out += [one(), Piece(bytes(4)), one(), Piece(bytes(12))]
    else:
        out += [one(), Piece(bytes(16)), *classic("é", nullable=True)]
    out += [Piece(b"\3")] if version >= 8 else []
    out += [Piece(bytes(4))] if version >= 9 else []
    return out + ([one(), *data(nullable=False), *data(nullable=False)] if version >= 11 else [])


def streams_task(version: int) -> Pieces:
    """A task id; from version 10 on with a name in UTF-16, its length in characters."""
    if version < 10:
        return [Piece(bytes(8))]
    how = [
        ("negative length", b"\xff\xff\xff\xff", "bad-length"),
        ("giant length", b"\x7f\xff\xff\xff", "truncated"),
    ]
    return [Piece(bytes(8)), Piece(b"\0\0\0\1", how), Piece(b"\0n")]


def named_partition() -> Pieces:
    """One partition, with the name of its topic."""
    return [one(), *classic("é"), Piece(bytes(4))]


def streams_assignment(version: int) -> Pieces:
    out = [*streams_head(version), one(), *streams_task(version)]
    out += [one(), *streams_task(version), *named_partition()]
    if 2 <= version < 5:
        out += [one(), *classic("h"), Piece(bytes(4)), *named_partition()]
    elif version >= 5:
        out += [one(), Piece(bytes(4)), *classic("é")]
        for _ in range(2 if version >= 6 else 1):
            out += [one(), *classic("h"), Piece(bytes(4)), one(), Piece(bytes(8))]
    return [*out, Piece(bytes(4 * (version >= 4) + 8 * (version >= 7)))]


MESSAGES: dict[tuple[str, int], Pieces] = {
    **{("subscription", version): subscription(version) for version in range(4)},
    **{
        ("assignment", version): [version_of(version), *partitions(), *data()]
        for version in range(4)
    },
    ("sticky", 0): partitions(),
    ("sticky", 1): [*partitions(), Piece(b"\0\0\0\1")],
    ("cooperative", 0): [Piece(b"\0\0\0\1")],
    **{("design-subscription", design): design_subscription(design) for design in (1, 2, 3)},
    **{("design-assignment", design): design_assignment(design) for design in (1, 2, 3)},
    ("state-shard", 1): STATE_SHARD,
    **{("connect-metadata", version): connect_metadata(version) for version in range(3)},
    **{("connect-assignment", version): connect_assignment(version) for version in range(3)},
    **{("streams-subscription", v): streams_subscription(v) for v in range(1, 12)},
    **{("streams-assignment", v): streams_assignment(v) for v in range(1, 12)},
}
# The frames stand in the user data of a standard message; positions are those within the frame.
FRAMES: dict[tuple[str, int], Pieces] = {
    ("claim", 1): CLAIM,
    ("verdict", 1): MEMBER_ASSIGNMENT,
}
AROUND = {
    "claim": (b"\0\3" + bytes(4), bytes(4) + b"\xff\xff\xff\xff\xff\xff"),
    "verdict": (b"\0\3" + bytes(4), b""),
}


def test_every_decoder_is_here() -> None:
    assert {schema for schema, _ in (*MESSAGES, *FRAMES)} == set(CODECS)


@pytest.mark.parametrize(("schema", "version"), MESSAGES)
def test_messages_spoiled(schema: str, version: int) -> None:
    pieces, decode = MESSAGES[schema, version], CODECS[schema].decode
    decode(render(pieces)[0])
    for how, bad, reason, position in spoiled(pieces):
        with pytest.raises(WireError) as error:
            decode(bad)
        assert (error.value.reason, error.value.position) == (reason, position), how
        # Sticky user data do not say their version: the last one tried is the older.
        shown_version = 0 if schema == "sticky" else version
        unread = reason in ("bad-version", "bad-magic")
        assert error.value.version == (None if unread else shown_version)
        assert error.value.field


@pytest.mark.parametrize(("schema", "version"), FRAMES)
def test_frames_spoiled(schema: str, version: int) -> None:
    pieces, (head, tail) = FRAMES[schema, version], AROUND[schema]
    decode = CODECS[schema].decode

    def message(inner: bytes) -> bytes:
        return head + len(inner).to_bytes(4, "big") + inner + tail

    whole = render(pieces)[0]
    decode(message(whole))
    more = decode(message(whole + b"more"))
    assert more == replace(decode(message(whole)), leader_state=b"more")
    for how, bad, reason, position in spoiled(pieces):
        with pytest.raises(WireError) as error:
            decode(message(bad))
        assert (error.value.reason, error.value.position) == (reason, position), how
    for size in range(1, len(whole)):
        with pytest.raises(WireError):
            decode(message(whole[:size]))


@pytest.mark.parametrize(("schema", "version"), MESSAGES)
def test_messages_cut_at_every_byte_or_with_bytes_to_spare(schema: str, version: int) -> None:
    whole, decode = render(MESSAGES[schema, version])[0], CODECS[schema].decode
    n_read = 0
    for size in range(len(whole)):
        try:
            decode(whole[:size])
        except WireError as error:
            assert error.reason in ("truncated", "bad-count", "bad-magic")
            assert error.position <= size
        else:
            n_read += 1
    assert n_read == 0 or schema in MAY_END_EARLY
    if schema != "sticky":
        assert decode(whole + b"more") == decode(whole)


# The same messages inside records, many at once


def errors_of(messages: Messages) -> list[tuple[str, int] | None]:
    """Reason and position of each message that cannot be read."""
    return [
        (str(REASONS[reason]), position) if bad else None
        for bad, reason, position in zip(
            messages.unreadable.tolist(),
            messages.reason.tolist(),
            messages.position.tolist(),
            strict=True,
        )
    ]


@pytest.mark.parametrize("schema", ["subscription", "assignment"])
def test_messages_in_records_say_why_they_are_not_read(schema: str) -> None:
    blobs: list[bytes] = []
    expected: list[tuple[str, int] | None] = []
    for (name, _), pieces in MESSAGES.items():
        if name != schema:
            continue
        blobs.append(render(pieces)[0])
        expected.append(None)
        for _, bad, reason, position in spoiled(pieces):
            blobs.append(bad)
            expected.append((reason, position))
    read = read_subscriptions if schema == "subscription" else read_assignments
    column: Slices = slices_of(blobs)
    assert errors_of(read(column, np.ones(len(blobs), np.bool_))) == expected
    one_by_one = [read(slices_of([blob]), np.ones(1, np.bool_)) for blob in blobs]
    assert [errors_of(one)[0] for one in one_by_one] == expected
