"""The primitives: what comes back, what is refused, and where the error points."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import INT32, INT64, any_topic_partitions, blobs, texts

from holdfast.core.wire.one.reader import Reader, read_string, read_topic_partitions
from holdfast.core.wire.one.writer import Writer, write_string, write_topic_partitions
from holdfast.errors import Reason, WireError


def reader(data: bytes) -> Reader:
    return Reader(data, "Schema", 3)


def refused(call, *arguments) -> WireError:
    with pytest.raises(WireError) as caught:
        call(*arguments)
    return caught.value


# Round trips of one primitive each

FIXED = [("int8", 8), ("int16", 16), ("int32", 32), ("int64", 64)]


@pytest.mark.parametrize(("name", "n_bits"), FIXED)
@given(data=st.data())
def test_integers(name: str, n_bits: int, data) -> None:
    value = data.draw(st.integers(-(2 ** (n_bits - 1)), 2 ** (n_bits - 1) - 1))
    writer = Writer("Schema")
    getattr(writer, name)(value, "f")
    assert writer.done() == value.to_bytes(n_bits // 8, "big", signed=True)
    assert getattr(reader(writer.done()), name)("f") == value


@pytest.mark.parametrize(("name", "n_bits"), FIXED)
def test_integers_too_large_or_no_integers_are_not_written(name: str, n_bits: int) -> None:
    for value in (2 ** (n_bits - 1), -(2 ** (n_bits - 1)) - 1, "1", 1.5):
        error = refused(getattr(Writer("Schema", 3), name), value, "f")
        assert (error.reason, error.field, error.version) == (Reason.OUT_OF_RANGE, "f", 3)
        assert error.position == -1


@given(st.uuids())
def test_ids(identity: UUID) -> None:
    writer = Writer("Schema")
    writer.uuid(identity)
    read = reader(writer.done())
    assert read.uuid("f") == identity
    read.finish()


@given(st.integers(0, 2**32 - 1))
def test_varints(value: int) -> None:
    writer = Writer("Schema")
    writer.uvarint(value, "f")
    assert len(writer.done()) == max(1, -(-value.bit_length() // 7))
    read = reader(writer.done())
    assert read.uvarint("f") == value
    read.finish()


@pytest.mark.parametrize("value", [-1, 2**32])
def test_varints_out_of_range_are_not_written(value: int) -> None:
    assert refused(Writer("Schema").uvarint, value, "f").reason == Reason.OUT_OF_RANGE


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", Reason.TRUNCATED),
        ("80", Reason.TRUNCATED),
        ("ffffffff", Reason.TRUNCATED),
        ("ffffffff10", Reason.BAD_VARINT),  # bit 33
        ("8080808080", Reason.BAD_VARINT),  # a fifth byte that goes on
        ("ff" * 50, Reason.BAD_VARINT),
    ],
)
def test_varints_that_do_not_end(data: str, reason: Reason) -> None:
    read = reader(b"\x00" + bytes.fromhex(data))
    read.pos = 1
    error = refused(read.uvarint, "f")
    assert (error.reason, error.position, error.field) == (reason, 1, "f")


def test_a_varint_may_be_longer_than_it_need_be() -> None:
    assert reader(bytes.fromhex("8000")).uvarint("f") == 0


# Strings and bytes, classic and compact, nullable and not

TEXT = [("string", "nullable_string"), ("compact_string", "nullable_compact_string")]
BLOB = [("bytes_", "nullable_bytes"), ("compact_bytes", "nullable_compact_bytes")]
NULLS = {"string": "ffff", "compact_string": "00", "bytes_": "ffffffff", "compact_bytes": "00"}


@pytest.mark.parametrize(
    ("name", "nullable", "values"), [*((*t, texts) for t in TEXT), *((*b, blobs) for b in BLOB)]
)
@given(data=st.data())
def test_strings_and_bytes(name: str, nullable: str, values, data) -> None:
    value = data.draw(values)
    writer = Writer("Schema")
    getattr(writer, name)(value, "f")
    assert getattr(reader(writer.done()), name)("f") == value
    assert getattr(reader(writer.done()), nullable)("f") == value


@pytest.mark.parametrize(("name", "nullable"), [*TEXT, *BLOB])
def test_null(name: str, nullable: str) -> None:
    writer = Writer("Schema")
    getattr(writer, name)(None, "f", nullable=True)
    assert writer.done().hex() == NULLS[name]
    assert getattr(reader(writer.done()), nullable)("f") is None
    read = reader(b"\x00" + writer.done())
    read.pos = 1
    error = refused(getattr(read, name), "f")
    assert (error.reason, error.position) == (Reason.UNEXPECTED_NULL, 1)
    assert refused(getattr(Writer("Schema"), name), None, "f").reason == Reason.UNEXPECTED_NULL


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("string", "", Reason.TRUNCATED),
        ("string", "00", Reason.TRUNCATED),
        ("string", "000261", Reason.TRUNCATED),
        ("string", "fffe", Reason.BAD_LENGTH),
        ("string", "8000", Reason.BAD_LENGTH),
        ("string", "0001ff", Reason.BAD_UTF8),
        ("string", "0003eda080", Reason.BAD_UTF8),  # half a surrogate pair
        ("string", "0002c080", Reason.BAD_UTF8),  # Java's modified zero
        ("bytes_", "7fffffff", Reason.TRUNCATED),
        ("bytes_", "fffffffe", Reason.BAD_LENGTH),
        ("compact_string", "0361", Reason.TRUNCATED),
        ("compact_string", "818002" + "61" * 10, Reason.BAD_LENGTH),  # 32768 bytes
        ("compact_string", "02ff", Reason.BAD_UTF8),
        ("compact_bytes", "ffffffff0f", Reason.TRUNCATED),
    ],
)
def test_bad_strings_and_bytes_point_at_their_length(name: str, data: str, reason: Reason) -> None:
    read = reader(b"\x00\x00" + bytes.fromhex(data))
    read.pos = 2
    error = refused(getattr(read, name), "f")
    assert (error.reason, error.position) == (reason, 2)
    assert (error.schema, error.version, error.field) == ("Schema", 3, "f")


@pytest.mark.parametrize("name", ["string", "compact_string"])
def test_strings_that_cannot_be_written(name: str) -> None:
    longest = Writer("Schema")
    getattr(longest, name)("x" * 32767, "f")
    assert getattr(reader(longest.done()), name)("f") == "x" * 32767
    error = refused(getattr(Writer("Schema"), name), "x" * 32768, "f")
    assert error.reason == Reason.BAD_LENGTH
    assert refused(getattr(Writer("Schema"), name), "\ud800", "f").reason == Reason.BAD_UTF8


# Arrays

ARRAY = [("array", "nullable_array", 4), ("compact_array", "nullable_compact_array", 1)]


@pytest.mark.parametrize(("name", "nullable", "null_size"), ARRAY)
@given(values=st.lists(texts, max_size=5).map(tuple))
def test_arrays(name: str, nullable: str, null_size: int, values: tuple[str, ...]) -> None:
    writer = Writer("Schema")
    getattr(writer, name)(values, "f", write_string)
    assert getattr(reader(writer.done()), name)("f", read_string, 2) == values
    assert getattr(reader(writer.done()), nullable)("f", read_string, 2) == values
    null = Writer("Schema")
    getattr(null, name)(None, "f", write_string, nullable=True)
    assert len(null.done()) == null_size
    assert getattr(reader(null.done()), nullable)("f", read_string, 2) is None
    error = refused(getattr(reader(null.done()), name), "f", read_string, 2)
    assert (error.reason, error.position) == (Reason.UNEXPECTED_NULL, 0)
    error = refused(getattr(Writer("Schema"), name), None, "f", write_string)
    assert error.reason == Reason.UNEXPECTED_NULL


def written_int32s(name: str, values: tuple[int, ...]) -> bytes:
    writer = Writer("Schema")
    if name == "int32s":
        writer.int32s(values, "f")
    else:
        writer.compact_array(values, "f", lambda inner, value: inner.int32(value, ""))
    return writer.done()


@pytest.mark.parametrize("name", ["int32s", "compact_int32s"])
@given(values=st.lists(INT32, max_size=120).map(tuple))
def test_int32_arrays(name: str, values: tuple[int, ...]) -> None:
    read = reader(written_int32s(name, values))
    assert getattr(read, name)("f") == values
    read.finish()


@pytest.mark.parametrize("name", ["int32s", "compact_int32s"])
def test_an_int32_that_does_not_fit_is_named(name: str) -> None:
    error = refused(written_int32s, name, (1, 2, 2**31))
    assert (error.reason, error.field) == (Reason.OUT_OF_RANGE, "f[2]")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("ffffffff", Reason.UNEXPECTED_NULL),
        ("fffffffe", Reason.BAD_COUNT),
        ("80000000", Reason.BAD_COUNT),
        ("7fffffff", Reason.BAD_COUNT),
        ("00000002000000", Reason.BAD_COUNT),
        ("000000", Reason.TRUNCATED),
    ],
)
def test_bad_counts(data: str, reason: Reason) -> None:
    assert refused(reader(bytes.fromhex(data)).int32s, "f").reason == reason
    error = refused(reader(bytes.fromhex(data)).array, "f", read_string, 2)
    assert (error.reason, error.position, error.field) == (reason, 0, "f")


def test_compact_null_and_huge_counts() -> None:
    assert refused(reader(b"\x00").compact_int32s, "f").reason == Reason.UNEXPECTED_NULL
    assert refused(reader(b"\x03abc").compact_int32s, "f").reason == Reason.BAD_COUNT


def test_an_error_inside_arrays_names_the_path_to_it() -> None:
    def row(inner: Reader) -> tuple[str, ...]:
        return inner.array("names", read_string, 2)

    data = bytes.fromhex("00000002 00000000 00000002 0000 0005")
    error = refused(reader(data).array, "rows", row, 4)
    assert (error.field, error.position) == ("rows[1].names[1]", 14)
    writer = Writer("Schema")
    error = refused(writer.array, (("a",), ("b", None)), "rows", _write_row)
    assert (error.field, error.reason) == ("rows[1].names[1]", Reason.UNEXPECTED_NULL)


def _write_row(writer: Writer, row: tuple[str, ...]) -> None:
    writer.array(row, "names", write_string)


# The two arrays with a fast way must agree with the plain way, on good bytes and on bad ones

FAST = [
    ("strings", read_string, 2),
    ("topic_partitions", read_topic_partitions, 6),
]


def outcome(call, *arguments) -> object:
    try:
        return call(*arguments)
    except WireError as error:
        return (error.reason, error.field, error.position)


def agree(name: str, element, min_size: int, data: bytes) -> object:
    fast, plain = reader(data), reader(data)
    found = outcome(getattr(fast, name), "f")
    assert found == outcome(plain.array, "f", element, min_size)
    if not isinstance(found, tuple) or not found or not isinstance(found[0], Reason):
        assert fast.pos == plain.pos
    return found


@pytest.mark.parametrize(("name", "element", "min_size"), FAST)
@given(value=any_topic_partitions(), cut=st.integers(0, 60), extra=blobs)
def test_fast_ways_agree_with_the_plain_one(name, element, min_size, value, cut, extra) -> None:
    writer = Writer("Schema")
    if name == "strings":
        writer.array([topic for topic, _ in value], "f", write_string)
    else:
        writer.array(value, "f", write_topic_partitions)
    data = writer.done()
    agree(name, element, min_size, data + extra)
    agree(name, element, min_size, data[:cut])
    agree(name, element, min_size, data[:cut] + b"\xff" + data[cut + 1 :])


@pytest.mark.parametrize(("name", "element", "min_size"), FAST)
@pytest.mark.parametrize(
    "data",
    [
        "",
        "ffffffff",
        "00000001",
        "00000001 0001 ff 00000000",  # no UTF-8
        "00000001 ffff 00000000",  # null
        "00000001 8000 00000000",
        "00000001 0009 61 00000000",  # beyond the end
        "00000002 0001 61 00000000 0001",
        "00000001 0001 61 ffffffff",
        "00000001 0001 61 80000000 00",
        "00000001 0001 61 3fffffff 00",
        "00000002 0005 6162636465 000000",
        "00000002 0000 00000000 000a",
    ],
)
def test_fast_ways_fail_as_the_plain_one(name, element, min_size, data) -> None:
    agree(name, element, min_size, bytes.fromhex(data))


def test_fast_ways_stop_at_the_end_of_a_bounded_reader() -> None:
    """As inside a tagged field: bytes beyond the end are there, but belong to others."""
    data = bytes.fromhex("00000001 0001 61 00000001 00000005") + b"\x00" * 20
    for name, end in (("strings", 6), ("topic_partitions", 10), ("topic_partitions", 14)):
        read = reader(data)
        read.end = end
        assert outcome(getattr(read, name), "f")[0] in (Reason.TRUNCATED, Reason.BAD_COUNT)


def test_many_partitions_of_one_topic() -> None:
    value = (("t", tuple(range(200))), ("u", ()))
    writer = Writer("Schema")
    writer.array(value, "f", write_topic_partitions)
    assert agree("topic_partitions", read_topic_partitions, 6, writer.done()) == value


# Tagged fields


def _read_int64(inner: Reader) -> int:
    return inner.int64("value")


KNOWN = {1: ("stamp", _read_int64)}


@given(st.none() | INT64, st.lists(st.tuples(st.integers(2, 999), blobs), max_size=3))
def test_tagged_fields(stamp: int | None, unknown: list[tuple[int, bytes]]) -> None:
    fields = [(tag, "other", lambda inner, blob=blob: inner.raw(blob)) for tag, blob in unknown]
    if stamp is not None:
        fields.append((1, "stamp", lambda inner: inner.int64(stamp, "value")))
    writer = Writer("Schema")
    writer.tagged(fields)
    read = reader(writer.done())
    assert read.tagged(KNOWN) == ({} if stamp is None else {1: stamp})
    assert read.n_unknown_tags == len(unknown)
    read.finish()
    skipping = reader(writer.done())
    assert skipping.tagged() == {}
    assert skipping.n_unknown_tags == len(fields)


@pytest.mark.parametrize(
    ("data", "reason", "field", "position"),
    [
        ("", Reason.TRUNCATED, "tagged_fields", 0),
        ("01", Reason.TRUNCATED, "tagged_fields", 1),
        ("0105", Reason.TRUNCATED, "tagged_fields", 2),
        ("01050100"[:6], Reason.TRUNCATED, "tagged_fields", 2),
        ("010108", Reason.TRUNCATED, "stamp", 2),
        ("01010400000000", Reason.TRUNCATED, "stamp.value", 3),
        ("010109000000000000000000", Reason.BAD_LENGTH, "stamp", 3),
        ("ffffffff0f", Reason.TRUNCATED, "tagged_fields", 5),
    ],
)
def test_bad_tagged_fields(data: str, reason: Reason, field: str, position: int) -> None:
    error = refused(reader(bytes.fromhex(data)).tagged, KNOWN)
    assert (error.reason, error.field, error.position) == (reason, field, position)


def test_a_tagged_field_that_cannot_be_written_is_named() -> None:
    fields = [(1, "stamp", lambda inner: inner.int64(2**63, "value"))]
    assert refused(Writer("Schema").tagged, fields).field == "stamp.value"


# The ends


def test_bytes_left_over() -> None:
    read = reader(b"\x01\x02\x03")
    assert (read.int8("f"), read.n_left) == (1, 2)
    error = refused(read.finish)
    assert (error.reason, error.position) == (Reason.TRAILING_BYTES, 1)
    read.skip(2, "f")
    read.finish()
    assert refused(read.skip, 1, "f").reason == Reason.TRUNCATED
    for name in ("int8", "int64", "uuid"):
        assert refused(getattr(read, name), "f").position == 3


def test_the_text_of_an_error_says_what_where_and_which_version() -> None:
    error = WireError(Reason.TRUNCATED, schema="S", version=2, field="a", position=7)
    assert str(error.within("rows[1]")) == "S v2: truncated in rows[1].a at byte 7"
