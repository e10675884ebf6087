"""Designs inside the consumer protocol: other tools read on, and bad frames are refused."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies as wire

from holdfast.errors import WireError
from holdfast.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.wire.layouts.container import (
    ASSIGNMENT_MAGIC,
    SUBSCRIPTION_MAGIC,
    MemberAssignment,
    MemberSubscription,
    decode_member_assignment,
    decode_member_subscription,
    encode_member_assignment,
    encode_member_subscription,
)
from holdfast.wire.layouts.frames import Leaving
from holdfast.wire.layouts.memory import (
    MEMORY_MAGIC,
    Memory,
    RememberedMember,
    decode_memory,
    encode_memory,
)
from holdfast.wire.layouts.sticky_user_data import read_claims

OWNED = (("clicks", (2,)), ("orders", (0, 1)))


def refused(call, *arguments) -> WireError:
    with pytest.raises(WireError) as caught:
        call(*arguments)
    return caught.value


# Every Kafka tool reads on


@given(wire.claims())
def test_a_claim_is_a_standard_subscription(value: MemberSubscription) -> None:
    message = decode_subscription(encode_member_subscription(value))
    assert message.version == 3
    assert (message.topics, message.owned) == (value.topics, value.owned)
    assert (message.generation, message.rack) == (value.generation, value.rack)


@given(wire.member_assignments())
def test_a_member_assignment_is_a_standard_assignment(value: MemberAssignment) -> None:
    assert decode_assignment(encode_member_assignment(value)).partitions == value.assigned


@pytest.mark.parametrize("magic", [SUBSCRIPTION_MAGIC, ASSIGNMENT_MAGIC, MEMORY_MAGIC])
def test_a_frame_looks_like_no_claim_to_kafkas_sticky_assignors(magic: bytes) -> None:
    assert struct.unpack(">i", magic)[0] < -1
    message = decode_subscription(
        encode_member_subscription(MemberSubscription(topics=("orders",), owned=OWNED))
    )
    assert read_claims(message, cooperative=True).generation == -1
    assert read_claims(message, cooperative=False).partitions == ()


def test_messages_of_others_are_read_without_a_frame() -> None:
    for user_data in (None, b""):
        message = Subscription(topics=("a",), owned=OWNED, generation=3, user_data=user_data)
        expected = MemberSubscription(topics=("a",), owned=OWNED, generation=3)
        assert decode_member_subscription(encode_subscription(message)) == expected
        assignment = AssignmentMessage(partitions=OWNED, user_data=user_data)
        assert decode_member_assignment(encode_assignment(assignment)) == MemberAssignment(
            assigned=OWNED
        )


# Bytes


def test_a_memory_byte_by_byte() -> None:
    here = RememberedMember(member_id="m", owned=(("b", (0, 1, 9)),))
    gone = RememberedMember(member_id="n", instance_id="i", leaving=Leaving.RETURNS, delay_ms=7)
    value = Memory(generation=4, delay_ms=9, members=(here, gone), given_up=(("a", (5,)),))
    assert (
        encode_memory(value).hex()
        == bytes.fromhex(
            "f448466d 0001 00000004 00000009"
            "03 0261 0262"
            "03 026d 00 00 00000000 02 01 04 00 00 07 00"
            "   026e 0269 01 00000007 01 00"
            "02 00 02 05 00"
        ).hex()
    )


def test_a_name_stands_once_in_a_memory() -> None:
    members = tuple(
        RememberedMember(member_id=f"m{i}", owned=(("a-rather-long-topic-name", (i,)),))
        for i in range(100)
    )
    data = encode_memory(Memory(generation=1, members=members))
    assert data.count(b"a-rather-long-topic-name") == 1
    assert len(data) < 100 * 16


def test_writing_sorts_partitions_and_drops_doubles() -> None:
    value = Memory(generation=1, given_up=(("b", (3, 1, 3)), ("a", (0,)), ("b", (2,))))
    assert decode_memory(encode_memory(value)).given_up == (("a", (0,)), ("b", (1, 2, 3)))


def test_null_and_empty_revocations_differ() -> None:
    for revoked in (None, ()):
        assert (
            decode_member_assignment(
                encode_member_assignment(MemberAssignment(revoked=revoked))
            ).revoked
            == revoked
        )


# What is refused


def test_frames_of_another_kind_are_refused() -> None:
    claim = encode_member_subscription(MemberSubscription(topics=()))
    frame = decode_subscription(claim).user_data
    assert frame is not None
    assert refused(decode_memory, frame).reason == "bad-magic"
    assert refused(decode_memory, b"").reason == "bad-magic"
    assignment = encode_assignment(AssignmentMessage(partitions=(), user_data=frame))
    error = refused(decode_member_assignment, assignment)
    assert (error.reason, error.schema, error.position) == ("bad-magic", "HoldfastVerdict", 0)


def test_a_lenient_reader_takes_a_bad_frame_for_none_but_not_a_bad_message() -> None:
    message = Subscription(topics=("a",), owned=OWNED, generation=3, user_data=b"whose?")
    data = encode_subscription(message)
    assert refused(decode_member_subscription, data).reason == "bad-magic"
    expected = MemberSubscription(topics=("a",), owned=OWNED, generation=3)
    assert decode_member_subscription(data, lenient=True) == expected
    with pytest.raises(WireError):
        decode_member_subscription(data[:-1], lenient=True)


@pytest.mark.parametrize("version", [2, 0x7FFF])
def test_a_newer_frame_is_read_as_version_1_and_what_follows_is_ignored(version: int) -> None:
    value = Memory(generation=4, delay_ms=9)
    data = encode_memory(value)
    newer = data[:4] + version.to_bytes(2, "big") + data[6:] + b"more"
    assert decode_memory(newer) == value


@pytest.mark.parametrize("version", ["0000", "ffff"])
def test_a_frame_version_below_1_is_refused(version: str) -> None:
    data = encode_memory(Memory(generation=4))
    error = refused(decode_memory, data[:4] + bytes.fromhex(version) + data[6:])
    assert (error.reason, error.position) == ("bad-version", 4)


@given(wire.memories(), st.integers(0, 999), wire.blobs)
def test_unknown_tags_are_skipped(value: Memory, tag: int, blob: bytes) -> None:
    data = encode_memory(value)
    assert data[-1] == 0
    tagged = data[:-1] + b"\x01" + _uvarint(tag) + _uvarint(len(blob)) + blob
    assert decode_memory(tagged) == value


def _uvarint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


@pytest.mark.parametrize("delay_ms", [-1, 2**31])
def test_a_delay_out_of_range_is_not_written(delay_ms: int) -> None:
    member = RememberedMember(member_id="m", delay_ms=delay_ms)
    for call in (
        lambda: encode_member_subscription(MemberSubscription(topics=(), delay_ms=delay_ms)),
        lambda: encode_member_assignment(MemberAssignment(delay_ms=delay_ms)),
        lambda: encode_memory(Memory(generation=1, delay_ms=delay_ms)),
        lambda: encode_memory(Memory(generation=1, members=(member,))),
    ):
        error = refused(call)
        assert error.reason == "out-of-range"
        assert error.field.endswith("delay_ms")


def test_a_negative_age_is_neither_written_nor_read() -> None:
    assert (
        refused(encode_member_subscription, MemberSubscription(topics=(), memory_age_ms=-1)).field
        == "memory_age_ms"
    )
    frame = bytearray(
        decode_subscription(encode_member_subscription(MemberSubscription(topics=()))).user_data
        or b""
    )
    frame[19] = 0xFF
    data = encode_subscription(Subscription(topics=(), user_data=bytes(frame)))
    error = refused(decode_member_subscription, data)
    assert (error.reason, error.field, error.position) == ("out-of-range", "memory_age_ms", 19)


@pytest.mark.parametrize(
    ("at", "byte", "field"),
    [(14, 9, "leaving"), (14, 0xFF, "leaving"), (15, 0x80, "delay_ms")],
)
def test_values_out_of_range_are_refused(at: int, byte: int, field: str) -> None:
    frame = bytearray(
        decode_subscription(encode_member_subscription(MemberSubscription(topics=()))).user_data
        or b""
    )
    frame[at] = byte
    data = encode_subscription(Subscription(topics=(), user_data=bytes(frame)))
    error = refused(decode_member_subscription, data)
    assert (error.reason, error.field, error.position) == ("out-of-range", field, at)


@pytest.mark.parametrize(
    ("size", "field", "at"),
    [(13, "nonce", 6), (14, "leaving", 14), (18, "delay_ms", 15), (26, "memory_age_ms", 19)],
)
def test_a_claim_that_ends_early_says_in_which_field(size: int, field: str, at: int) -> None:
    frame = (
        decode_subscription(encode_member_subscription(MemberSubscription(topics=()))).user_data
        or b""
    )
    data = encode_subscription(Subscription(topics=(), user_data=frame[:size]))
    error = refused(decode_member_subscription, data)
    assert (error.reason, error.field, error.position) == ("truncated", field, at)


@pytest.mark.parametrize("field", ["nonce", "delay_ms", "memory_age_ms"])
def test_what_exceeds_a_claims_field_is_not_written(field: str) -> None:
    error = refused(encode_member_subscription, MemberSubscription(topics=(), **{field: 2**63}))
    assert (error.reason, error.field) == ("out-of-range", field)


def test_a_topic_index_beyond_the_names_is_refused() -> None:
    data = bytearray(encode_memory(Memory(generation=1, given_up=(("a", (5,)),))))
    assert data[-5:] == bytes.fromhex("0200020500")
    data[-4] = 1
    error = refused(decode_memory, bytes(data))
    assert (error.reason, error.field) == ("out-of-range", "given_up[0].topic")
    assert error.position == len(data) - 4


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_partitions_out_of_range_are_not_written(partition: int) -> None:
    for partitions in ((partition,), (0, partition)):
        error = refused(encode_member_assignment, MemberAssignment(revoked=(("a", partitions),)))
        assert (error.reason, error.field) == ("out-of-range", "revoked[0].partitions")


def test_gaps_that_add_up_beyond_an_int32_are_refused() -> None:
    largest = encode_memory(Memory(generation=1, given_up=(("a", (2**31 - 1,)),)))
    assert decode_memory(largest).given_up == (("a", (2**31 - 1,)),)
    data = largest[:-7] + b"\x03" + largest[-6:-1] + b"\x00" + b"\x00"
    error = refused(decode_memory, data)
    assert (error.reason, error.field) == ("out-of-range", "given_up[0].partitions")


@pytest.mark.parametrize(
    "body",
    [
        "02 01 01 02 00 {n} " + "7f" * 9999 + " 00",  # gaps of one partition set
        "02 01 01 {n} " + "0001" * 9999 + " 00",  # empty sets
        "{n} " + "01" * 9999 + " 01 01 00",  # empty names
        "01 {n} " + "010000000000000100" * 9999 + " 01 00",  # members that own nothing
    ],
)
def test_memory_in_bytes_stays_within_a_multiple_of_the_input(body: str) -> None:
    """The cheapest elements that there are, each of which becomes an object."""
    count = "904e"  # 10000 as a varint: 9999 elements
    data = bytes.fromhex("f448466d 0001 00000001 00000000" + body.format(n=count))
    tracemalloc.start()
    decode_memory(data)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 60 * len(data)
