"""Designs inside the consumer protocol: other tools read on, and bad frames are refused."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies as wire
from tests.peak import peak_bytes

from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    read_claims,
)
from holdfast.core.wire.layouts.container import (
    ASSIGNMENT_MAGIC,
    SUBSCRIPTION_MAGIC,
    MemberAssignment,
    MemberSubscription,
    decode_member_assignment,
    decode_member_subscription,
    encode_member_assignment,
    encode_member_subscription,
)
from holdfast.core.wire.layouts.state_shard import (
    MemberEntry,
    Sizes,
    StateShard,
    decode_shard,
    digest_of,
    encode_shard,
    holds_times,
)
from holdfast.core.wire.one.bits import Bits, packed, read_packed, to_bytes
from holdfast.core.wire.one.reader import Reader
from holdfast.errors import WireError

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
        SUBSCRIPTION_MAGIC + bytes(2),
        ASSIGNMENT_MAGIC + bytes(2),
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


T1, T5 = f"{1:020b}", f"{5:020b}"
HERE, AWAY = f"{0x40000:021b}", f"{0xA0001:021b}"
HEAD = "0000 00000 010 1 1"  # one member, two topics, no bits more
ONE, BARE = "1 00 01 0 0 0 0000", f"010 {T1} {'0' * 20}"  # one neighbour; its name, not static


def of_bits(*fields: str) -> str:
    """Bytes in hex of a text of bits; spaces are for the reader."""
    return to_bytes("".join(fields).replace(" ", "")).hex()


def test_a_shard_bit_by_bit() -> None:
    """Of four members, so an identity has 21 bits; of two topics, and partitions below 16."""
    here = MemberEntry(identity=HERE, owned=((T5, (0, 1, 9)),))
    away = MemberEntry(identity=AWAY, static=True, owned=((T1, (5,)), (T5, (7, 8))))
    gone = MemberEntry(identity=AWAY, delay_ms=300, owned=((T1, (5,)),), away_ms=7)
    also = MemberEntry(identity="01" * 8, static=True, delay_ms=300, owned=())
    some = MemberEntry(identity="", delay_ms=1, owned=((T5, (5,)),))
    long = MemberEntry(identity="1" * 24, delay_ms=1, owned=None)
    hidden = MemberEntry(identity=f"{3:021b}", owned=None)
    value = StateShard(
        generation=4,
        pace_ms=9,
        neighbours=(hidden, here, away),
        waiting=(gone, also, some, long),
        sizes=Sizes(crowd=2, partition_bits=4, usual_count=2),
    )
    waiting = (
        f"011 {T1} 0{3:018b}  00100"  # names, and how many members
        f"0 10101100 00000010 0 1 {AWAY} 1 00 010 00101 0 00000111"
        f"1 1 01 {'01' * 8} 011"
        f"0 00000001 0 001 1 01 010 00101 1"
        f"1 0 000 010111 {'1' * 24} 010"
    )
    assert encode_shard(value).hex() == of_bits(
        "1 10 11 0 1 0  0010 00100 010 1 010  00000100 00001001",
        waiting,
        f"011 {T1} 0{3:018b}",
        f"{3:021b} 0 010",
        f"0{0x3FFFD:019b} 0 1 01 011 00000 00000 00111",
        f"0{0x60001:019b} 1 00100 0 010 00101 0 1 00111 00000",
    )
    digest = digest_of(waiting.replace(" ", ""))
    assert decode_shard(encode_shard(value)) == replace(value, digest=digest)


def test_a_shard_without_the_list_has_its_digest() -> None:
    value = StateShard(
        generation=300, whole=True, digest=b"123", sizes=Sizes(topics=0, partition_bits=0)
    )
    head = "0000 00000 1 1 1"
    assert encode_shard(value).hex() == of_bits(
        "1 01 00 1 0 0", head, "10101100 00000010", f"{int.from_bytes(b'123', 'big'):024b}"
    )
    nothing = replace(value, generation=0, whole=False, digest=b"")
    assert encode_shard(nothing).hex() == of_bits("1 00 00 0 0 0", head, "00000000")
    after = replace(nothing, after="01" * 9 + "0")
    assert encode_shard(after).hex() == of_bits("1 00 00 0 0 1", head, "00000000", after.after)


def test_the_only_topic_is_once_in_a_shard() -> None:
    near = MemberEntry(identity="1" * 19, owned=((T1[1:], (0,)),))
    value = StateShard(
        generation=1,
        whole=True,
        neighbours=(near, near),
        sizes=Sizes(topics=0, partition_bits=0, only_topic=T1[1:]),
    )
    same = f"0{0:019b} 0 1 1 0"
    assert encode_shard(value).hex() == of_bits(
        "1 00 10 1 0 0  0000 00000 1 1 1  00000001", T1[1:], f"{'1' * 19} 0 1 1 0", same
    )
    assert decode_shard(encode_shard(value)) == value


@given(wire.state_shards())
def test_a_shard_says_whether_its_age_counts(value: StateShard) -> None:
    counts = bool(value.digest or value.waiting or value.pace_ms)
    assert holds_times(encode_shard(value)) == counts
    assert not holds_times(b"")


@pytest.mark.parametrize(
    ("bits", "reason", "field"),
    [
        (f"1 11 00 0 0 0 {HEAD} 00000000", "bad-version", "head"),
        (f"1 00 00 1 0 1 {HEAD} 00000000", "out-of-range", "head"),
        ("1 00 00 0 0 0 0000 00000 000010001 1 1 00000000", "out-of-range", "head"),
        ("1 00 00 0 0 0 0000 00000 010 00000100000 1 00000000", "out-of-range", "head"),
        (f"1 00 00 0 0 0 {HEAD}" + " 11111111" * 5, "bad-varint", "generation"),
        (f"1 00 00 0 0 0 {HEAD}" + " 10000000" * 4 + " 00001000", "out-of-range", "generation"),
        (f"1 00 00 0 1 0 {HEAD} 00000000 00000000", "out-of-range", "pace_ms"),
        (f"1 10 00 0 0 0 {HEAD} 00000000 1 0000000", "truncated", "waiting"),
        (f"1 10 00 0 0 0 {HEAD} 00000000 1" + " 0" * 60, "bad-varint", "waiting"),
        (f"1 10 00 0 0 0 {HEAD} 00000000 1 00101 1", "bad-count", "waiting"),
        (f"1 10 00 0 0 0 {HEAD} 00000000 1 1 1" + " 0" * 60, "out-of-range", "delay_ms"),
        # names: more than can be there; one beyond the last one
        (f"1 10 00 0 0 0 {HEAD} 00000000 0001000 11", "bad-count", "names"),
        (
            f"1 10 00 0 0 0 {HEAD} 00000000 011 {'1' * 20} 0 {'0' * 18}",
            "out-of-range",
            "names",
        ),
        # one neighbour that owns: of more topics than have names, of none that has a name
        (f"{ONE} 00000 010 1 1 00000000 {BARE} 00101 1 1 1 1", "bad-count", "owned"),
        (
            f"{ONE} 00000 010 1 1 00000000 011 {T1} 0{0:018b} {'0' * 20} 1 10 1 1 1",
            "out-of-range",
            "topic",
        ),
        # a count above the highest; a gap
        (f"{ONE} 00001 010 1 1 00000000 {BARE} 1 00101", "bad-count", "partitions"),
        (f"{ONE} 00010 010 1 1 00000000 {BARE} 1 1 1000", "out-of-range", "partitions"),
        # a second identity more than once around
        (
            f"1 00 10 0 0 0 1111 00000 010 1 1 00000000 1 {'0' * 35} 010"
            + "1" * 32768
            + "0" * 40,
            "out-of-range",
            "identity",
        ),
    ],
)  # fmt: skip
def test_bits_that_are_no_shard(bits: str, reason: str, field: str) -> None:
    error = refused(decode_shard, bytes.fromhex(of_bits(bits)))
    assert (error.reason, error.field) == (reason, field)
    assert error.version == (None if reason == "bad-version" else 1)


@pytest.mark.parametrize(
    ("partitions", "width", "code"),
    [
        ((5,), 3, "0101"),
        ((0,), 0, "0"),
        ((0, 2, 9), 4, "00000 00001 00110"),
        ((300,), 9, "10 00101100"),  # k is 8
        ((100, 300, 600, 999), 10, "0 1100100 10 1000111 110 0101011 1110 0001110"),  # k is 7
        ((5, 70_000), 17, "0 000000000000101 110 001000101101010"),  # k is 15
    ],
)
def test_a_packed_set_bit_by_bit(partitions: tuple[int, ...], width: int, code: str) -> None:
    assert packed(partitions, width) == code.replace(" ", "")
    bits = Bits(Reader(bytes.fromhex(of_bits(code)), "test"))
    assert read_packed(bits, len(partitions), width, "p") == partitions


@given(
    st.sets(st.integers(0, 3000) | st.integers(0, 2**31 - 1), min_size=1, max_size=60),
    st.text("01", max_size=40),
)
def test_a_packed_set_ends_where_it_ends(numbers: set[int], behind: str) -> None:
    partitions = tuple(sorted(numbers))
    width = partitions[-1].bit_length()
    code = packed(partitions, width)
    bits = Bits(Reader(to_bytes(code + behind), "test"))
    assert read_packed(bits, len(partitions), width, "p") == partitions
    assert bits.at == len(code)
    k = min(width, max(7, width - len(partitions).bit_length()))
    assert len(code) <= (k + 3) * len(partitions) + 1


@pytest.mark.parametrize("last", [0x80, 0x81, 0xFF])
def test_a_number_in_bits_that_does_not_end_is_refused(last: int) -> None:
    with pytest.raises(WireError) as caught:
        Bits(Reader(bytes([0x80] * 4 + [last]), "test")).uvarint("count")
    assert (caught.value.reason, caught.value.field) == ("bad-varint", "count")


def test_a_packed_set_is_close_to_what_it_says() -> None:
    """2,000 members share 20,000 partitions: ten of 20,000 are log2(C(20000, 10)) = 121 bits."""
    rng = np.random.default_rng(5)
    sizes = [
        len(packed(sorted(rng.choice(20_000, 10, replace=False).tolist()), 15)) for _ in range(50)
    ]
    assert np.mean(sizes) < 121 * 1.1


def test_a_shard_of_the_greatest_sizes_is_read() -> None:
    value = StateShard(generation=1, sizes=Sizes(15, 15, 30, 31))
    assert decode_shard(encode_shard(value)) == value


def test_writing_sorts_partitions_and_drops_doubles() -> None:
    owned = ((T5, (3, 1, 3)), (T1, (0,)), (T5, (2,)))
    value = StateShard(generation=1, neighbours=(MemberEntry(identity="1" * 19, owned=owned),))
    (read,) = decode_shard(encode_shard(value)).neighbours
    assert read.owned == ((T1, (0,)), (T5, (1, 2, 3)))


def neighbour(**fields) -> StateShard:
    return StateShard(generation=1, neighbours=(MemberEntry(**{"identity": "1" * 19, **fields}),))


@pytest.mark.parametrize(
    "value",
    [
        StateShard(generation=-1),
        StateShard(generation=2**31),
        StateShard(generation=1, sizes=Sizes(longer=31)),
        StateShard(generation=1, sizes=Sizes(topics=16)),
        StateShard(generation=1, sizes=Sizes(partition_bits=32)),
        StateShard(generation=1, sizes=Sizes(crowd=16)),
        StateShard(generation=1, digest=b"four"),
        StateShard(generation=1, after="1" * 20),
        StateShard(generation=1, after="1" * 19, whole=True),
        StateShard(generation=1, neighbours=(MemberEntry(identity="1" * 19),) * 4),
        neighbour(identity="1"),
        neighbour(identity="2" * 19),
        replace(neighbour(owned=((T1[1:], (1,)),)), sizes=Sizes(topics=0)),
        replace(neighbour(owned=((T1, (1,)),)), sizes=Sizes(topics=0, only_topic=T1[1:])),
        neighbour(owned=(("0", (1,)),)),
        neighbour(owned=((T1 + T5, (1,)),)),
        neighbour(owned=(("topic-of", (1,)),)),
        neighbour(owned=((T1, (-1,)),)),
        replace(neighbour(owned=((T1, (256,)),)), sizes=Sizes(partition_bits=8)),
        StateShard(generation=1, waiting=(MemberEntry(identity="1", delay_ms=0),)),
        StateShard(generation=1, waiting=(MemberEntry(identity="1" * 65, delay_ms=1),)),
    ],
)
def test_what_no_shard_can_say_is_not_written(value: StateShard) -> None:
    refused(encode_shard, value)


# What is refused


def test_frames_of_another_kind_are_refused() -> None:
    claim = encode_member_subscription(MemberSubscription(topics=()))
    frame = decode_subscription(claim).user_data
    assert refused(decode_shard, frame).reason == "bad-version"
    assert refused(decode_shard, b"").reason == "truncated"
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


@pytest.mark.parametrize("version", [0, 2, 15])
def test_a_frame_of_another_version_is_refused(version: int) -> None:
    claim = bytearray(frame_of(MemberSubscription(topics=(), nonce=3)))
    claim[1] = 0xC0 | version
    error = refused(decode_member_subscription, around(bytes(claim)))
    assert (error.reason, error.field, error.position) == ("bad-version", "version", 1)
    assert f"{version} is not 1" in str(error)
    verdict = encode_assignment(
        AssignmentMessage(partitions=(), user_data=bytes((0xF4, 0xD0 | version, 0)))
    )
    assert refused(decode_member_assignment, verdict).reason == "bad-version"


def frame_of(value: MemberSubscription) -> bytes:
    return decode_subscription(encode_member_subscription(value)).user_data or b""


def around(frame: bytes) -> bytes:
    return encode_subscription(Subscription(topics=(), user_data=frame))


def test_a_frame_says_nothing_that_is_nothing() -> None:
    assert frame_of(MemberSubscription(topics=(), nonce=5)).hex() == "f4c10005"
    assignment = decode_assignment(encode_member_assignment(MemberAssignment()))
    assert (assignment.user_data or b"").hex() == "f4d100"


@pytest.mark.parametrize("delay_ms", [-1, 2**31])
def test_a_delay_out_of_range_is_not_written(delay_ms: int) -> None:
    member = MemberEntry(identity="1", delay_ms=delay_ms)
    for call in (
        lambda: encode_member_subscription(MemberSubscription(topics=(), state_age_ms=delay_ms)),
        lambda: encode_member_assignment(MemberAssignment(delay_ms=delay_ms)),
        lambda: encode_shard(StateShard(generation=1, pace_ms=delay_ms)),
        lambda: encode_shard(StateShard(generation=1, waiting=(member,))),
    ):
        error = refused(call)
        assert error.reason == "out-of-range"
        assert error.field.endswith(("delay_ms", "age_ms", "pace_ms"))


@pytest.mark.parametrize(
    ("frame", "reason", "field", "at"),
    [
        ("03 01", "out-of-range", "flags", 2),
        ("80 01", "out-of-range", "flags", 2),
        ("10 01", "truncated", "failed", 4),
        ("20 01 ffffffff0f", "out-of-range", "state_age_ms", 4),
        ("", "truncated", "flags", 2),
        ("00", "truncated", "nonce", 3),
        ("20 01", "truncated", "state_age_ms", 4),
        ("40 01 686572", "truncated", "location", 4),
    ],
)
def test_a_bad_claim_says_in_which_field(frame: str, reason: str, field: str, at: int) -> None:
    data = around(SUBSCRIPTION_MAGIC + bytes.fromhex(frame))
    error = refused(decode_member_subscription, data)
    assert (error.reason, error.field, error.position) == (reason, field, at)


@pytest.mark.parametrize("location", [b"the", b"there"])
def test_a_location_of_another_length_is_not_written(location: bytes) -> None:
    error = refused(encode_member_subscription, MemberSubscription(topics=(), location=location))
    assert (error.reason, error.field) == ("bad-length", "location")


@pytest.mark.parametrize("value", [-1, 2**63])
@pytest.mark.parametrize("field", ["nonce", "state_age_ms"])
def test_what_exceeds_a_claims_field_is_not_written(field: str, value: int) -> None:
    error = refused(encode_member_subscription, MemberSubscription(topics=(), **{field: value}))
    assert (error.reason, error.field) == ("out-of-range", field)


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_partitions_out_of_range_are_not_written(partition: int) -> None:
    for partitions in ((partition,), (0, partition)):
        error = refused(encode_member_assignment, MemberAssignment(revoked=(("a", partitions),)))
        assert (error.reason, error.field) == ("out-of-range", "revoked[0].partitions")


def test_gaps_that_add_up_beyond_an_int32_are_refused() -> None:
    value = MemberSubscription(topics=(), already_revoked=(("a", (2**31 - 1,)),))
    frame = frame_of(value)
    assert decode_member_subscription(around(frame)) == value
    assert frame.endswith(b"\x02a\x02\xff\xff\xff\xff\x07")
    error = refused(decode_member_subscription, around(frame[:-6] + b"\x03" + frame[-5:] + b"\0"))
    assert (error.reason, error.field) == ("out-of-range", "already_revoked[0].partitions")


def test_a_set_of_as_many_partitions_as_there_are_bytes_costs_little() -> None:
    """The cheapest partitions there are: a byte each, and each becomes an object."""
    owned = ((T5, tuple(range(300, 10_300))),)
    value = StateShard(generation=1, neighbours=(MemberEntry(identity="1" * 19, owned=owned),))
    data = encode_shard(value)
    assert peak_bytes(lambda: decode_shard(data)) < 72 * len(data)
