"""The batch decoder of the offsets topic: it says what the scalar one says, on every input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.peak import peak_bytes
from tests.suites import further
from tests.wire.records_twin import batch, binary, records, rows_of, scalar
from tests.wire.spoiling import uvarint

from holdfast.core.model.columns import starts
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.layouts.offsets_records import Record, encode_record
from holdfast.core.wire.layouts.offsets_schemas import RECORD_SCHEMAS, Kind, RecordType
from holdfast.core.wire.many import offsets_batch
from holdfast.core.wire.many.columns import Slices, take
from holdfast.core.wire.many.offsets_batch import decode_batch, read_assignments, read_subscriptions
from holdfast.core.wire.many.ragged import padded
from holdfast.errors import WireError


@given(st.lists(records(), max_size=12))
def test_valid_records(some):
    pairs = [encode_record(record) for record in some]
    assert scalar(pairs) == some
    assert batch(pairs) == some


@st.composite
def mutated(draw):
    pairs = [encode_record(r) for r in draw(st.lists(records(), min_size=1, max_size=8))]
    out = []
    for pair in pairs:
        sides = list(pair)
        for _ in range(draw(st.integers(0, 2))):
            side = draw(st.integers(0, 1))
            blob = bytearray(sides[side] or b"")
            how = draw(st.sampled_from(["cut", "flip", "insert", "append", "none", "null"]))
            at = draw(st.integers(0, max(0, len(blob) - 1)))
            byte = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xC3, 0xFF]) | st.integers(0, 255))
            if how == "cut":
                blob = blob[:at]
            elif how == "flip" and blob:
                blob[at] = byte
            elif how == "insert":
                blob.insert(at, byte)
            elif how == "append":
                blob.append(byte)
            sides[side] = None if how == "null" else bytes(blob)
        out.append(tuple(sides))
    return out


@given(mutated())
def test_mutated_records(pairs):
    assert batch(pairs) == scalar(pairs)


@given(st.lists(st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=60))))
def test_random_bytes(pairs):
    assert batch(pairs) == scalar(pairs)


# Versions and types of the future

INT16S = range(-(1 << 15), 1 << 15)
UNKNOWN, BAD_VERSION = ("unknown-type", 0, True), ("bad-version", 0, False)


def key_of(number: RecordType) -> bytes:
    fields = {
        field.name: "g" if field.kind is Kind.STRING else 0
        for field in RECORD_SCHEMAS[number].key.fields
    }
    return encode_record(Record(record_type=number, name="", key=fields))[0]


@pytest.mark.parametrize("number", further(RecordType))
def test_a_value_of_an_unknown_version_is_never_read_as_another(number, monkeypatch):
    key, last = key_of(number), RECORD_SCHEMAS[number].value.max_version
    versions = [version for version in INT16S if not 0 <= version <= last]
    values = [version.to_bytes(2, "big", signed=True) + bytes(32) for version in versions]
    sample = [(key, value) for value in (*values[::997], *values[1 << 15 :][:40])]
    assert set(scalar(sample)) == set(batch(sample)) == {BAD_VERSION}

    error = WireError("bad-version", schema="V", version=0, field="version", position=0, detail="")
    monkeypatch.setattr(offsets_batch, "_error_of", lambda *_: error)  # it is slow
    assert set(batch([(key, value) for value in values])) == {BAD_VERSION}


def test_a_key_of_an_unknown_type_is_never_read_as_another():
    tail = key_of(RecordType.OFFSET_COMMIT)[2:]
    pairs = [(number.to_bytes(2, "big", signed=True) + tail, None) for number in INT16S]
    said = scalar(pairs)
    assert batch(pairs) == said
    unknown = [number for number, one in zip(INT16S, said, strict=True) if one == UNKNOWN]
    assert unknown == sorted(set(INT16S) - set(RecordType))


# Records of very different length: lock step, the plain walk, and where one takes over


MEMBER_KEY = b"\x00\x05\x00\x01g\x00\x01m"
COMMIT_KEY = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"
GROUP_KEY = b"\x00\x02\x00\x01g"


def subscribed(names: bytes, count: int) -> bytes:
    """A member of KIP-848 with so many names."""
    return b"\x00\x00\x00\x00\x02c\x02h" + uvarint(count + 1) + names + b"\x00" + bytes(5) + b"\x00"


def classic(members: bytes, count: int, version: int = 3) -> bytes:
    """A classic group with the members given."""
    head = b"\x00" + bytes([version]) + b"\x00\x08consumer" + bytes(4) + bytes(4)
    return head + bytes(8) * (version > 1) + count.to_bytes(4, "big", signed=True) + members


def classic_member(name: bytes) -> bytes:
    texts = [name, b"client", b"/h"]
    blob = b"".join(len(t).to_bytes(2, "big") + t for t in texts)
    return blob + bytes(8) + b"\x00\x00\x00\x03sub" + b"\x00\x00\x00\x02as"


def member_v3(name: bytes) -> bytes:
    return len(name).to_bytes(2, "big") + name + b"\xff\xff" + classic_member(b"")[2:]


COUNTS = [[3], [0, 1, 40], [40] * 20, [1] * 30, [2] * 17 + [300], [7] * 40 + [0] * 3 + [90] * 2]


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_arrays_of_many_lengths(counts):
    pairs = [
        (GROUP_KEY, classic(b"".join(member_v3(b"m%d" % i) for i in range(n)), n)) for n in counts
    ]
    pairs += [
        (MEMBER_KEY, subscribed(b"".join(uvarint(i % 9 + 1) + b"x" * (i % 9) for i in range(n)), n))
        for n in counts
    ]
    assert batch(pairs) == scalar(pairs)
    assert all(isinstance(record, Record) for record in batch(pairs))


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("lie", [1, -1, 1000])
def test_counts_that_lie(counts, lie):
    pairs = [
        (
            GROUP_KEY,
            classic(b"".join(member_v3(b"m%d" % i) for i in range(n)), n + lie * (row % 3 == 0)),
        )
        for row, n in enumerate(counts)
    ]
    assert batch(pairs) == scalar(pairs)


@pytest.mark.parametrize("n_records", [3, 40])
def test_nested_arrays_tags_and_long_varints(n_records):
    tags = uvarint(3) + b"\x05\x00" + uvarint(300) + uvarint(200) + b"z" * 200 + b"\x06\x01y"
    topic = (
        b"\x02n" + bytes(4) + bytes(2) + b"\x03" + b"\x02k\x02v" + tags + b"\x02l\x02w\x00" + tags
    )
    part = (
        b"\x02s"
        + uvarint(201)
        + b"\x02t" * 200
        + b"\x01"
        + b"\x03"
        + topic * 2
        + b"\x01\x01"
        + (b"\x03" + (b"\x03\x00\x01\x00\x02" + b"\x01\x01" + tags) * 2)
    )
    key = b"\x00\x17\x00\x01g"
    pairs = []
    for row in range(n_records):
        count = row % 4
        pairs.append(
            (key, b"\x00\x00" + bytes(4) + uvarint(count + 1) + (part + tags) * count + tags)
        )
    found = batch(pairs)
    assert found == scalar(pairs)
    assert [record.n_unknown_tags for record in found[:4]] == [3, 24, 45, 66][: min(4, n_records)]
    cut = [(key, value[: len(value) * (row % 7 + 1) // 8]) for row, (_, value) in enumerate(pairs)]
    assert batch(cut) == scalar(cut)


@pytest.mark.parametrize("size", [15, 16, 17])
def test_a_known_tag_of_a_wrong_size(size):
    good = b"\x00\x04" + bytes(12) + b"\x01" + bytes(8) + b"\x01\x00\x10" + bytes(16)
    none = b"\x00\x04" + bytes(12) + b"\x01" + bytes(8) + b"\x00"
    odd = b"\x00\x04" + bytes(12) + b"\x01" + bytes(8) + bytes([1, 0, size]) + bytes(range(16))
    long = b"\x00\x04" + bytes(12) + b"\x01" + bytes(8) + b"\x01\x00\x90\x00" + bytes(16)
    for values in ([odd], [odd, odd], [good, odd], [none, odd], [long], [long, good, none], [none]):
        for cut in (0, 1, 17):
            pairs = [(COMMIT_KEY, value[: len(value) - cut]) for value in values]
            assert batch(pairs) == scalar(pairs)


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_values_of_one_length_that_part_on_the_way(cut):
    def group(protocol: bytes, leader: bytes) -> bytes:
        texts = b"".join(len(t).to_bytes(2, "big") + t for t in (protocol, leader))
        head = b"\x00\x03\x00\x08consumer" + bytes(4) + texts + bytes(8)
        blob = head + b"\x00\x00\x00\x01" + member_v3(b"m")
        return blob[: len(blob) - cut]

    alike = [(GROUP_KEY, group(b"ab", b"c"))] * 3
    parting = [(GROUP_KEY, group(b"ab", b"c")), (GROUP_KEY, group(b"a", b"bc"))]
    for pairs in (alike, parting, [(GROUP_KEY, group(b"x" * 1000, b""))] * 2):
        assert batch(pairs) == scalar(pairs)


@pytest.mark.parametrize("name", [b"", b"a", b"x" * 127, b"x" * 128])
def test_values_of_one_length_with_tags_and_varints(name):
    text = uvarint(len(name) + 1) + name
    head = b"\x00\x04" + bytes(12) + text + bytes(8)
    tails = [
        b"\x01\x00\x10" + bytes(range(16)),
        b"\x01\x07\x10" + bytes(range(16)),
        b"\x02\x07\x03abc\x00\x10"[:-2] + b"\x09\x0bhello-world"[:13],
        b"\x01\x00\x10" + bytes(15),
    ]
    for tail in tails:
        for other in tails:
            pairs = [
                (COMMIT_KEY, head + tail),
                (COMMIT_KEY, head + other),
                (COMMIT_KEY, head + tail),
            ]
            assert batch(pairs) == scalar(pairs)


@pytest.mark.parametrize("size", [0x7FFF, 0x8000])
def test_the_longest_string(size):
    value = b"\x00\x04" + bytes(12) + uvarint(size + 1) + b"m" * size + bytes(8) + b"\x00"
    assert batch([(COMMIT_KEY, value)] * 2) == scalar([(COMMIT_KEY, value)] * 2)
    assert isinstance(batch([(COMMIT_KEY, value)])[0], Record) is (size == 0x7FFF)


def test_elements_cut_off_inside_their_tags():
    topics = b"\x00\x00\x04" + (bytes(16) + b"\x01\x01\x2a\x02zz") * 3 + b"\x00"
    pairs = [(b"\x00\x07\x00\x01g\x00\x01m", topics[:cut]) for cut in range(len(topics) + 1)]
    assert batch(pairs) == scalar(pairs)
    assert [batch([pair]) for pair in pairs] == [scalar([pair]) for pair in pairs]


# Bounds


def test_memory_is_bounded_by_the_input():
    hostile = [
        (GROUP_KEY, classic(b"", 0x7FFFFFFF)),
        (MEMBER_KEY, subscribed(b"", 0xFFFFFFFE)),
        (b"\x00\x07\x00\x01g\x00\x01m", b"\x00\x00" + b"\xff\xff\xff\xff\x0f"),
        (b"\x00\x03\x00\x01g", b"\x00\x00" + bytes(4) + b"\xff\xff\xff\xff\x0f"),
        (MEMBER_KEY, subscribed(b"\x01" * 20_000, 20_000)),
    ]
    keys = binary([key for key, _ in hostile])
    values = binary([value for _, value in hostile])
    n_bytes = len(keys.data) + len(values.data)
    assert sum(len(chunk.bad) for chunk in decode_batch(keys, values)) == 4
    assert peak_bytes(lambda: list(decode_batch(keys, values))) < 64 * n_bytes + (1 << 20)


def test_chunks_cover_the_rows_in_order(monkeypatch):
    monkeypatch.setattr(offsets_batch, "CHUNK_RECORDS", 7)
    monkeypatch.setattr(offsets_batch, "CHUNK_BYTES", 300)
    pairs = [(GROUP_KEY, classic(b"", 0)) for _ in range(20)]
    pairs[3] = (GROUP_KEY, classic(member_v3(b"x" * 900), 1))
    pairs[4] = (b"\x00\x01", None)
    pairs[11] = (b"\x00\x09", None)
    keys, values = binary([k for k, _ in pairs]), binary([v for _, v in pairs])
    chunks = list(decode_batch(keys, values))
    assert [chunk.first for chunk in chunks[1:]] == [chunk.last for chunk in chunks[:-1]]
    assert (chunks[0].first, chunks[-1].last) == (0, 20)
    assert max(chunk.last - chunk.first for chunk in chunks) == 7
    assert (3, 4) in {(chunk.first, chunk.last) for chunk in chunks}
    assert batch(pairs) == scalar(pairs)
    assert batch(pairs, offset_dtype=np.int64) == scalar(pairs)


def test_no_rows():
    assert list(decode_batch(binary([]), binary([]))) == []


def test_types_not_asked_for_are_passed_over():
    pairs = [
        (COMMIT_KEY, None),
        (GROUP_KEY, classic(b"", 0)),
        (b"\x00\x01", b""),
        (GROUP_KEY, b""),
        (b"", b""),
    ]
    keys, values = binary([k for k, _ in pairs]), binary([v for _, v in pairs])
    (chunk,) = decode_batch(keys, values, (2, 9, 77))
    assert [(f.record_type, f.rows.tolist()) for f in chunk.families] == [(2, [1])]
    assert chunk.bad.rows.tolist() == [3, 4]
    assert chunk.unknown.tolist() == []


def test_the_scalar_form_must_agree_that_a_record_is_bad():
    with pytest.raises(AssertionError, match="scalar form"):
        offsets_batch._error_of(offsets_batch.decode_record, GROUP_KEY, classic(b"", 0))


# Columns


@given(st.lists(records((5, 17, 19, 8)), min_size=1, max_size=6), st.data())
def test_taking_rows(some, data):
    pairs = [encode_record(record) for record in some]
    keys, values = binary([k for k, _ in pairs]), binary([v for _, v in pairs])
    (chunk,) = decode_batch(keys, values)
    for family in chunk.families:
        picked = np.array(
            data.draw(st.lists(st.integers(0, len(family) - 1), max_size=5)), np.int64
        )
        for columns in (family.key, family.value):
            rows = rows_of(columns)
            assert rows_of(take(columns, picked)) == [rows[i] for i in picked if columns]


topic_partitions = st.lists(
    st.tuples(st.sampled_from(["t", "é", ""]), st.lists(st.integers(-5, 5), max_size=3).map(tuple)),
    max_size=3,
).map(tuple)
user_data = st.none() | st.binary(max_size=4)
subscriptions = st.builds(
    Subscription,
    version=st.integers(0, 3),
    topics=st.lists(st.sampled_from(["a", "漢", ""]), max_size=3).map(tuple),
    user_data=user_data,
    owned=topic_partitions,
    generation=st.integers(-1, 5),
    rack=st.none() | st.sampled_from(["", "r"]),
).map(encode_subscription)
assignments = st.builds(
    AssignmentMessage,
    version=st.integers(0, 3),
    partitions=topic_partitions,
    user_data=user_data,
).map(encode_assignment)


@st.composite
def damaged(draw, good):
    blob = draw(good)
    at = draw(st.integers(0, len(blob) - 1))
    byte = draw(st.sampled_from([0, 1, 4, 0x7F, 0x80, 0xFF]))
    match draw(st.integers(0, 7)):
        case 0:
            return blob[:at]
        case 1:
            return blob[:at] + bytes([byte]) + blob[at + 1 :]
        case 2:
            return blob + b"more"
        case 3:
            return bytes([byte, byte]) + blob[2:]  # a version of the future, or below 0
    return blob


def slices_of(blobs) -> Slices:
    start = starts(np.array([len(blob) for blob in blobs], np.int64))
    data = padded(np.frombuffer(b"".join(blobs), np.uint8))
    return Slices(data=data, begin=start[:-1].copy(), size=np.diff(start), valid=None)


def by_scalar(decode, blob, wanted):
    """The value, None where it is unreadable, () where it is not read."""
    if not wanted or not blob:
        return ()
    try:
        return decode(blob)
    except WireError:
        return None


some_wanted = st.lists(st.booleans() | st.just(True), min_size=8, max_size=8)


@given(st.lists(damaged(subscriptions), max_size=8), some_wanted)
def test_subscriptions(blobs, wanted):
    wanted = wanted[: len(blobs)]
    found = read_subscriptions(slices_of(blobs), np.array(wanted, np.bool_))
    expected = [by_scalar(decode_subscription, *pair) for pair in zip(blobs, wanted, strict=True)]
    assert found.unreadable.tolist() == [one is None for one in expected]
    rows = rows_of(found.columns)
    assert len(rows) == len(blobs)
    for row, version, one in zip(rows, found.version.tolist(), expected, strict=True):
        if not isinstance(one, Subscription):
            assert version == -1
            assert row["topics"] == row["ownedPartitions"] == ()
            continue
        assert min(version, 3) == one.version
        assert row["topics"] == one.topics
        assert row["userData"] == one.user_data
        assert tuple((o["topic"], o["partitions"]) for o in row["ownedPartitions"]) == one.owned
        assert (row["generationId"], row["rackId"]) == (one.generation, one.rack)


@given(st.lists(damaged(assignments), max_size=8), some_wanted)
def test_assignments(blobs, wanted):
    wanted = wanted[: len(blobs)]
    found = read_assignments(slices_of(blobs), np.array(wanted, np.bool_))
    expected = [by_scalar(decode_assignment, *pair) for pair in zip(blobs, wanted, strict=True)]
    assert found.unreadable.tolist() == [one is None for one in expected]
    for row, version, one in zip(
        rows_of(found.columns), found.version.tolist(), expected, strict=True
    ):
        told = tuple((o["topic"], o["partitions"]) for o in row["assignedPartitions"])
        if isinstance(one, AssignmentMessage):
            assert (min(version, 3), told) == (one.version, one.partitions)
            assert row["userData"] == one.user_data
        else:
            assert (version, told) == (-1, ())
