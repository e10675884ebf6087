"""Designs inside the consumer protocol: other tools read on, and bad frames are refused."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace

import numpy as np
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
    OLD_ASSIGNMENT_MAGIC,
    OLD_SUBSCRIPTION_MAGIC,
    SUBSCRIPTION_MAGIC,
    MemberAssignment,
    MemberSubscription,
    decode_member_assignment,
    decode_member_subscription,
    encode_member_assignment,
    encode_member_subscription,
)
from holdfast.wire.layouts.memory import (
    RememberedMember,
    Share,
    decode_share,
    digest_of,
    encode_share,
    encode_waiting,
)
from holdfast.wire.layouts.packed_sets import read_packed, write_packed
from holdfast.wire.layouts.sticky_user_data import read_claims
from holdfast.wire.one.reader import Reader
from holdfast.wire.one.writer import Writer

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


@pytest.mark.parametrize(
    "begins",
    [
        SUBSCRIPTION_MAGIC + b"\2",
        ASSIGNMENT_MAGIC + b"\2",
        OLD_SUBSCRIPTION_MAGIC,
        OLD_ASSIGNMENT_MAGIC,
    ],
)
def test_a_frame_looks_like_no_claim_to_kafkas_sticky_assignors(begins: bytes) -> None:
    assert struct.unpack(">i", begins)[0] < -1
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


def test_a_share_byte_by_byte() -> None:
    here = RememberedMember(identity=b"here", owned=(("b5", (0, 1, 9)),))
    away = RememberedMember(identity=b"away", static=True, owned=(("a1", (5,)), ("b5", (7, 8))))
    gone = RememberedMember(identity=b"gone", delay_ms=300, owned=(("a1", (5,)),))
    left_out = RememberedMember(identity=b"hide", owned=None)
    value = Share(generation=4, pace_ms=9, neighbours=(left_out, here, away), waiting=(gone,))
    assert (
        encode_share(value).hex()
        == bytes.fromhex(
            "02 0b 04 09"
            "0d 00 01 04 676f6e65 ac02 06 a1 05"
            "68696465 00"
            "68657265 0a b5 09 00 00"
            "61776179 03 02 a1 01 05 b5 02 08 07"
        ).hex()
    )
    assert decode_share(encode_share(value)) == replace(value, digest=decoded_digest(value))


def decoded_digest(value: Share) -> bytes:
    return digest_of(encode_waiting(value.waiting, value.topic_bytes))


def test_a_share_without_the_list_has_its_digest() -> None:
    value = Share(generation=300, whole=True, digest=b"12345678")
    assert encode_share(value).hex() == "0104ac02" + b"12345678".hex()
    assert encode_share(Share(generation=0)).hex() == "000000"
    assert encode_share(Share(generation=0, after=b"four")).hex() == "001000" + b"four".hex()


@pytest.mark.parametrize(
    ("partitions", "code"),
    [
        ((5,), "05"),
        ((0, 2, 9), "09 00 01"),
        ((100, 200, 300), "ac02 64 63"),  # 301 // 3 is below 2**7: gaps as varints
        # 4 in 1000: k is 7, gaps 100, 199 and 299 are codes 0 1100100, 10 1000111, 110 0101011
        ((100, 300, 600, 999), "e707 " + f"{0b0110_0100_1010_0011_1110_0101_0110_0000:08x}"),
    ],
)
def test_a_packed_set_byte_by_byte(partitions: tuple[int, ...], code: str) -> None:
    writer = Writer("test")
    write_packed(writer, partitions)
    assert writer.done().hex() == bytes.fromhex(code).hex()
    assert read_packed(Reader(writer.done(), "test"), len(partitions)) == partitions


@given(
    st.sets(st.integers(0, 3000) | st.integers(0, 2**31 - 1), min_size=1, max_size=60),
    st.binary(max_size=4),
)
def test_a_packed_set_ends_where_it_ends(numbers: set[int], behind: bytes) -> None:
    partitions = tuple(sorted(numbers))
    writer = Writer("test")
    write_packed(writer, partitions)
    data = writer.done()
    reader = Reader(data + behind, "test")
    assert read_packed(reader, len(partitions)) == partitions
    assert reader.pos == len(data)
    assert len(data) <= 5 + 5 * len(partitions)


def test_a_packed_set_is_close_to_what_it_says() -> None:
    """2,000 members share 20,000 partitions: ten of 20,000 are log2(C(20000, 10)) = 121 bits."""
    rng = np.random.default_rng(5)
    sizes = []
    for _ in range(50):
        writer = Writer("test")
        write_packed(writer, sorted(rng.choice(20_000, 10, replace=False).tolist()))
        sizes.append(len(writer.done()))
    assert np.mean(sizes) < 121 / 8 * 1.25


def test_writing_sorts_partitions_and_drops_doubles() -> None:
    owned = (("b5", (3, 1, 3)), ("a1", (0,)), ("b5", (2,)))
    value = Share(generation=1, neighbours=(RememberedMember(identity=b"here", owned=owned),))
    (read,) = decode_share(encode_share(value)).neighbours
    assert read.owned == (("a1", (0,)), ("b5", (1, 2, 3)))


@pytest.mark.parametrize(
    "value",
    [
        Share(generation=-1),
        Share(generation=2**31),
        Share(generation=1, identity_bytes=9),
        Share(generation=1, topic_bytes=0),
        Share(generation=1, after=b"five5"),
        Share(generation=1, after=b"four", whole=True),
        Share(generation=1, neighbours=(RememberedMember(identity=b"same"),) * 4),
        Share(generation=1, neighbours=(RememberedMember(identity=b"t", owned=(("a", (1,)),)),)),
        Share(generation=1, neighbours=(RememberedMember(identity=b"t", owned=(("a1b2", (1,)),)),)),
        Share(generation=1, neighbours=(RememberedMember(identity=b"t", owned=(("a1", (-1,)),)),)),
        Share(generation=1, waiting=(RememberedMember(identity=b"t", delay_ms=0),)),
    ],
)
def test_what_no_share_can_say_is_not_written(value: Share) -> None:
    refused(encode_share, value)


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
    assert refused(decode_share, frame).reason == "bad-version"
    assert refused(decode_share, b"").reason == "truncated"
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


@pytest.mark.parametrize("version", [3, 0x7F])
def test_a_newer_frame_is_read_as_version_2_and_what_follows_is_ignored(version: int) -> None:
    value = MemberSubscription(topics=(), nonce=3, memory=b"share")
    frame = frame_of(value)
    newer = frame[:3] + bytes((version,)) + frame[4:] + b"more"
    assert decode_member_subscription(around(newer)) == value


def frame_of(value: MemberSubscription) -> bytes:
    return decode_subscription(encode_member_subscription(value)).user_data or b""


def around(frame: bytes) -> bytes:
    return encode_subscription(Subscription(topics=(), user_data=frame))


@pytest.mark.parametrize("frame", [1, 2])
@given(tag=st.integers(0, 999), blob=wire.blobs)
def test_unknown_tags_are_skipped(frame: int, tag: int, blob: bytes) -> None:
    value = MemberSubscription(topics=(), nonce=3, memory=b"share", frame=frame)
    data = frame_of(value)
    assert data[-1] == 0
    tagged = data[:-1] + b"\x01" + _uvarint(tag) + _uvarint(len(blob)) + blob
    assert decode_member_subscription(around(tagged)) == value


def test_an_old_member_takes_a_new_frame_for_none() -> None:
    """What version 1 knows are four bytes of magic and an int16."""
    frame = frame_of(MemberSubscription(topics=()))
    assert frame[:3] == SUBSCRIPTION_MAGIC
    assert not frame.startswith((OLD_SUBSCRIPTION_MAGIC, OLD_ASSIGNMENT_MAGIC))
    old = frame_of(MemberSubscription(topics=(), frame=1))
    assert old[:6] == OLD_SUBSCRIPTION_MAGIC + b"\0\1"


def _uvarint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


@pytest.mark.parametrize("delay_ms", [-1, 2**31])
def test_a_delay_out_of_range_is_not_written(delay_ms: int) -> None:
    member = RememberedMember(identity=b"m", delay_ms=delay_ms)
    for call in (
        *(
            lambda frame=frame: encode_member_subscription(
                MemberSubscription(topics=(), delay_ms=delay_ms, frame=frame)
            )
            for frame in (1, 2)
        ),
        *(
            lambda frame=frame: encode_member_assignment(
                MemberAssignment(delay_ms=delay_ms, frame=frame)
            )
            for frame in (1, 2)
        ),
        lambda: encode_share(Share(generation=1, pace_ms=delay_ms)),
        lambda: encode_share(Share(generation=1, waiting=(member,))),
    ):
        error = refused(call)
        assert error.reason == "out-of-range"
        assert error.field.endswith(("delay_ms", "pace_ms"))


def test_a_negative_age_is_neither_written_nor_read() -> None:
    for version in (1, 2):
        value = MemberSubscription(topics=(), memory_age_ms=-1, frame=version)
        assert refused(encode_member_subscription, value).field == "memory_age_ms"
    frame = bytearray(frame_of(MemberSubscription(topics=(), frame=1)))
    frame[19] = 0xFF
    data = encode_subscription(Subscription(topics=(), user_data=bytes(frame)))
    error = refused(decode_member_subscription, data)
    assert (error.reason, error.field, error.position) == ("out-of-range", "memory_age_ms", 19)


@pytest.mark.parametrize(
    ("at", "byte", "field"),
    [(14, 9, "leaving"), (14, 0xFF, "leaving"), (15, 0x80, "delay_ms")],
)
def test_values_out_of_range_are_refused(at: int, byte: int, field: str) -> None:
    frame = bytearray(frame_of(MemberSubscription(topics=(), frame=1)))
    frame[at] = byte
    data = encode_subscription(Subscription(topics=(), user_data=bytes(frame)))
    error = refused(decode_member_subscription, data)
    assert (error.reason, error.field, error.position) == ("out-of-range", field, at)


@pytest.mark.parametrize(
    ("size", "field", "at"),
    [(13, "nonce", 6), (14, "leaving", 14), (18, "delay_ms", 15), (26, "memory_age_ms", 19)],
)
def test_a_claim_that_ends_early_says_in_which_field(size: int, field: str, at: int) -> None:
    frame = frame_of(MemberSubscription(topics=(), frame=1))
    data = encode_subscription(Subscription(topics=(), user_data=frame[:size]))
    error = refused(decode_member_subscription, data)
    assert (error.reason, error.field, error.position) == ("truncated", field, at)


@pytest.mark.parametrize("frame", [1, 2])
@pytest.mark.parametrize("field", ["nonce", "delay_ms", "memory_age_ms"])
def test_what_exceeds_a_claims_field_is_not_written(field: str, frame: int) -> None:
    value = MemberSubscription(topics=(), frame=frame, **{field: 2**63})
    error = refused(encode_member_subscription, value)
    assert (error.reason, error.field) == ("out-of-range", field)


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_partitions_out_of_range_are_not_written(partition: int) -> None:
    for partitions in ((partition,), (0, partition)):
        error = refused(encode_member_assignment, MemberAssignment(revoked=(("a", partitions),)))
        assert (error.reason, error.field) == ("out-of-range", "revoked[0].partitions")


def test_gaps_that_add_up_beyond_an_int32_are_refused() -> None:
    value = MemberSubscription(topics=(), given_up=(("a", (2**31 - 1,)),))
    frame = frame_of(value)
    assert decode_member_subscription(around(frame)) == value
    error = refused(decode_member_subscription, around(frame[:-7] + b"\x03" + frame[-6:] + b"\0"))
    assert (error.reason, error.field) == ("out-of-range", "given_up[0].partitions")


def test_a_set_of_as_many_partitions_as_there_are_bytes_costs_little() -> None:
    """The cheapest partitions there are: a byte each, and each becomes an object."""
    owned = (("05", tuple(range(300, 10_300))),)
    value = Share(generation=1, neighbours=(RememberedMember(identity=b"here", owned=owned),))
    data = encode_share(value)
    tracemalloc.start()
    decode_share(data)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 60 * len(data)
