"""What Designs I to III say, inside Kafka's own consumer protocol messages.

A claim is a ConsumerProtocolSubscription, a verdict a ConsumerProtocolAssignment, both readable by
every Kafka tool. Their user data are a *frame*: four bytes of magic, a version int16, then compact
types and tagged fields at the end.

=======  ===========  =============================================================================
frame    magic        version 1
=======  ===========  =============================================================================
claim    f4 48 46 63  Nonce int64, Leaving int8, DelayMs int32, MemoryAgeMs int64,
                      GivenUp [](Topic, PartitionSet), Memory nullable bytes,
                      AssignorData nullable bytes
verdict  f4 48 46 76  Nonce int64, Revoked nullable [](Topic, PartitionSet), DelayMs int32,
                      Memory nullable bytes
memory   f4 48 46 6d  Generation int32, DelayMs int32, Topics []string, Members [](MemberId,
                      InstanceId nullable, Leaving int8, DelayMs int32, Owned [](topic index
                      uvarint, PartitionSet), tags), GivenUp [](topic index, PartitionSet)
=======  ===========  =============================================================================

A PartitionSet is a compact array of uvarints: the first partition, then each gap less one.

**Rules.**

* next = (owned - revoked) + assigned, as in :mod:`holdfast.wire.layouts.incremental`; so is null
  against empty ``revoked``.
* A time is what remains, in ms, 0 to 2**31 - 1; 0 is none. A negative one is refused.
* A frame version above the highest known is read as that one and what follows is ignored. Unknown
  tags are skipped.
* The magic has its first bit set: a foreign reader that takes the frame for a generation or a count
  finds a negative number, and so no claim.

**Strategy.** A leader may list as assigned only what is new; listing *all* that a member shall
hold obeys the rule above as well, and shows other tools the truth. Memory is bytes inside the other
frames: a leader writes it once for all, members echo it unread, and only the next leader reads it.

References
----------
Incremental Cooperative Rebalancing: Support and Policies; KIP-429; KIP-415, whose leader forgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from holdfast.errors import WireError
from holdfast.model.limits import INT32_MAX, NO_GENERATION
from holdfast.model.partitions import TopicPartitions, sort_partitions
from holdfast.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.wire.one.reader import Reader
from holdfast.wire.one.reasons import INT8, INT32, INT64, Reason, Row, within
from holdfast.wire.one.writer import Writer

T = TypeVar("T")

SUBSCRIPTION, ASSIGNMENT, MEMORY = "HoldfastClaim", "HoldfastVerdict", "HoldfastMemory"
SUBSCRIPTION_MAGIC, ASSIGNMENT_MAGIC, MEMORY_MAGIC = b"\xf4HFc", b"\xf4HFv", b"\xf4HFm"
FRAME_VERSION = 1


class Leaving(IntEnum):
    """What a member says about its own near future."""

    STAYS = 0
    RETURNS = 1  # it stops, and means to come back: its partitions should wait
    FOR_GOOD = 2  # it stops for good: its partitions need not wait


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """What a member tells the leader, in the container.

    Parameters
    ----------
    topics, owned, generation, rack
        As in :class:`Subscription`.
    nonce : int
        int64. A coordinator starts no round for a follower that joins again with the same bytes; a
        new nonce makes them differ.
    leaving : Leaving
        The member's announcement.
    delay_ms : int
        What remains of the delay it was told, by its own clock.
    memory_age_ms : int
        How long ago, by its own clock, the memory came.
    given_up : tuple of (topic, partitions)
        What it gave up on request since ``generation``; not lost, but on the way to somebody.
    memory : bytes or None
        The leader's memory as it came, unread (:func:`decode_memory`).
    assignor_data : bytes or None
        The assignor's own bytes.
    """

    topics: tuple[str, ...]
    owned: TopicPartitions = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    nonce: int = 0
    leaving: Leaving = Leaving.STAYS
    delay_ms: int = 0
    memory_age_ms: int = 0
    given_up: TopicPartitions = ()
    memory: bytes | None = None
    assignor_data: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAssignment:
    """What the leader tells a member, in the container.

    Parameters
    ----------
    assigned : tuple of (topic, partitions)
        What it is to hold besides what it keeps; listing all it shall hold is as good.
    revoked : tuple of (topic, partitions), or None
        What it gives up before it joins again. Empty, not null: another round is coming.
    delay_ms : int
        When to join again at the latest, in ms from now; 0 none.
    nonce : int
        int64, the leader's; two turns of a leader differ in it.
    memory : bytes or None
        For the next leader (:func:`encode_memory`); the member echoes it.
    """

    assigned: TopicPartitions = ()
    revoked: TopicPartitions | None = None
    delay_ms: int = 0
    nonce: int = 0
    memory: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedMember:
    """One member in the leader's memory.

    Parameters
    ----------
    member_id : str
        As the coordinator gave it.
    instance_id : str or None
        ``group.instance.id`` of a static member.
    leaving : Leaving
        Its last announcement.
    delay_ms : int
        For a member that is gone: how long its partitions still wait; 0 for one that is here.
    owned : tuple of (topic, partitions)
        What it held, as far as the leader needs it.
    """

    member_id: str
    instance_id: str | None = None
    leaving: Leaving = Leaving.STAYS
    delay_ms: int = 0
    owned: TopicPartitions = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a leader must know of the last round, so that the next leader may know it too.

    Parameters
    ----------
    generation : int
        Generation in which it was written.
    delay_ms : int
        What then remained of the deadline, 0 none; less ``MemberSubscription.memory_age_ms`` it is
        what remains. members : tuple of RememberedMember Members of that round, and departed ones
        whose partitions wait. given_up : tuple of (topic, partitions) What was revoked in that
        round: it will be missing from all claims, but is not lost.
    """

    generation: int
    delay_ms: int = 0
    members: tuple[RememberedMember, ...] = ()
    given_up: TopicPartitions = ()


def decode_member_subscription(data: bytes, *, lenient: bool = False) -> MemberSubscription:
    """Read a member's claim out of a ConsumerProtocolSubscription.

    A subscription without user data is a claim with nothing but its standard fields.

    Parameters
    ----------
    data : bytes
        The whole message.
    lenient : bool
        True: user data that are no readable frame count as none, since a leader must not fail on
        the bytes of one member. A broken message still fails.

    Raises
    ------
    WireError
        If the message is broken, or its user data are not a claim frame.

    References
    ----------
    Incremental Cooperative Rebalancing, "General Approach"; KIP-429.
    """
    message = decode_subscription(data)
    if message.user_data:
        try:
            return _read_claim_frame(message, message.user_data)
        except WireError:
            if not lenient:
                raise
    return MemberSubscription(
        topics=message.topics,
        owned=message.owned,
        generation=message.generation,
        rack=message.rack,
    )


def encode_member_subscription(value: MemberSubscription) -> bytes:
    """Write a member's claim as a ConsumerProtocolSubscription v3.

    Raises
    ------
    WireError
        If a value does not fit its field.

    References
    ----------
    Incremental Cooperative Rebalancing, "General Approach"; KIP-429.
    """
    writer = _start_frame(SUBSCRIPTION, SUBSCRIPTION_MAGIC)
    delay_ms, age_ms = value.delay_ms, value.memory_age_ms
    if delay_ms < 0 or age_ms < 0:
        writer.delay_ms(delay_ms, "delay_ms")
        writer.age_ms(age_ms, "memory_age_ms")
    writer.row(_CLAIM_HEAD, value.nonce, value.leaving, delay_ms, age_ms)
    given_up = sort_partitions(value.given_up) if value.given_up else ()
    writer.compact_array(given_up, "given_up", _write_topic_set)
    writer.compact_bytes(value.memory, "memory", nullable=True)
    writer.compact_bytes(value.assignor_data, "assignor_data", nullable=True)
    writer.tagged()
    return encode_subscription(
        Subscription(
            topics=value.topics,
            user_data=writer.done(),
            owned=value.owned,
            generation=value.generation,
            rack=value.rack,
        )
    )


@lru_cache(maxsize=256)
def decode_member_assignment(data: bytes) -> MemberAssignment:
    """Read the leader's verdict out of a ConsumerProtocolAssignment.

    An assignment without user data is a verdict with nothing but its partitions. Who checks a plan
    reads the same bytes as their member, so the last ones are remembered.

    Raises
    ------
    WireError
        If the message is broken, or its user data are not a verdict frame.

    References
    ----------
    Incremental Cooperative Rebalancing, "General Approach"; KIP-429.
    """
    message = decode_assignment(data)
    if not message.user_data:
        return MemberAssignment(assigned=message.partitions)
    reader = _open_frame(message.user_data, ASSIGNMENT, ASSIGNMENT_MAGIC)
    return MemberAssignment(
        assigned=message.partitions,
        nonce=reader.int64("nonce"),
        revoked=reader.nullable_compact_array("revoked", _read_topic_set, _TOPIC_SET_MIN),
        delay_ms=reader.delay_ms("delay_ms"),
        memory=_close_frame(reader, reader.nullable_compact_bytes("memory")),
    )


def encode_member_assignment(value: MemberAssignment) -> bytes:
    """Write the leader's verdict as a ConsumerProtocolAssignment v3.

    Raises
    ------
    WireError
        If a value does not fit its field.

    References
    ----------
    Incremental Cooperative Rebalancing, "General Approach"; KIP-429.
    """
    revoked = None if value.revoked is None else sort_partitions(value.revoked)
    frame = _assignment_frame(value.nonce, revoked, value.delay_ms, value.memory)
    return encode_assignment(AssignmentMessage(partitions=value.assigned, user_data=frame))


@lru_cache(maxsize=2)
def _assignment_frame(
    nonce: int, revoked: TopicPartitions | None, delay_ms: int, memory: bytes | None
) -> bytes:
    """Most members of a round are told the same, and a memory may be long."""
    writer = _start_frame(ASSIGNMENT, ASSIGNMENT_MAGIC)
    writer.int64(nonce, "nonce")
    writer.compact_array(revoked, "revoked", _write_topic_set, nullable=True)
    writer.delay_ms(delay_ms, "delay_ms")
    writer.compact_bytes(memory, "memory", nullable=True)
    writer.tagged()
    return writer.done()


@lru_cache(maxsize=8)
def read_memory(data: bytes | None) -> Memory | None:
    """A leader's memory, or None where there is nothing that can be read.

    All members carry the same copy, so the last ones are remembered.
    """
    try:
        return None if data is None else decode_memory(data)
    except WireError:
        return None


@lru_cache(maxsize=8)
def decode_memory(data: bytes) -> Memory:
    """Read a leader's memory; the last ones are remembered, since all members carry the same.

    Raises
    ------
    WireError
        If the bytes are not a memory frame.

    References
    ----------
    KIP-415, whose leader forgets; Incremental Cooperative Rebalancing, Design II, "Leader exits".
    """
    reader = _open_frame(data, MEMORY, MEMORY_MAGIC)
    generation = reader.int32("generation")
    delay_ms = reader.delay_ms("delay_ms")
    topics = reader.compact_array("topics", _read_name, 1)

    def read_indexed(inner: Reader) -> tuple[str, tuple[int, ...]]:
        start = inner.pos
        index = inner.uvarint("topic")
        if index >= len(topics):
            inner.fail(Reason.OUT_OF_RANGE, "topic", start, f"{index} of {len(topics)} topics")
        return topics[index], _read_set(inner)

    def read_member(inner: Reader) -> RememberedMember:
        member = RememberedMember(
            member_id=inner.compact_string("member_id"),
            instance_id=inner.nullable_compact_string("instance_id"),
            leaving=_read_leaving(inner),
            delay_ms=inner.delay_ms("delay_ms"),
            owned=inner.compact_array("owned", read_indexed, _INDEXED_SET_MIN),
        )
        inner.tagged()
        return member

    members = reader.compact_array("members", read_member, _MEMBER_MIN)
    given_up = reader.compact_array("given_up", read_indexed, _INDEXED_SET_MIN)
    reader.tagged()
    return Memory(generation=generation, delay_ms=delay_ms, members=members, given_up=given_up)


def encode_memory(value: Memory) -> bytes:
    """Write a leader's memory; partitions come out sorted, members in the order given.

    Raises
    ------
    WireError
        If a value does not fit its field.

    References
    ----------
    As :func:`decode_memory`.
    """
    owned = [sort_partitions(member.owned) for member in value.members]
    given_up = sort_partitions(value.given_up)
    topics = sorted({topic for entries in (*owned, given_up) for topic, _ in entries})
    index_of = {topic: index for index, topic in enumerate(topics)}

    def write_indexed(inner: Writer, entry: tuple[str, tuple[int, ...]]) -> None:
        inner.uvarint(index_of[entry[0]], "topic")
        _write_set(inner, entry[1])

    def write_member(inner: Writer, pair: tuple[RememberedMember, TopicPartitions]) -> None:
        member, partitions = pair
        inner.compact_string(member.member_id, "member_id")
        inner.compact_string(member.instance_id, "instance_id", nullable=True)
        inner.int8(member.leaving, "leaving")
        inner.delay_ms(member.delay_ms, "delay_ms")
        inner.compact_array(partitions, "owned", write_indexed)
        inner.tagged()

    writer = _start_frame(MEMORY, MEMORY_MAGIC)
    writer.int32(value.generation, "generation")
    writer.delay_ms(value.delay_ms, "delay_ms")
    writer.compact_array(topics, "topics", _write_name)
    writer.compact_array(list(zip(value.members, owned, strict=True)), "members", write_member)
    writer.compact_array(given_up, "given_up", write_indexed)
    writer.tagged()
    return writer.done()


_CLAIM_HEAD = Row(("nonce", "leaving", "delay_ms", "memory_age_ms"), (INT64, INT8, INT32, INT64))
_TOPIC_SET_MIN = 2  # an empty name and an empty set
_INDEXED_SET_MIN = 2
_MEMBER_MIN = 9


def _read_claim_frame(message: Subscription, data: bytes) -> MemberSubscription:
    reader = _open_frame(data, SUBSCRIPTION, SUBSCRIPTION_MAGIC)
    start = reader.pos
    nonce, leaving, delay_ms, age_ms = reader.row(_CLAIM_HEAD)
    if leaving not in _LEAVING or delay_ms < 0 or age_ms < 0:
        reader.pos = start + INT64.size
        _read_leaving(reader)
        reader.delay_ms("delay_ms")
        reader.age_ms("memory_age_ms")
    return MemberSubscription(
        topics=message.topics,
        owned=message.owned,
        generation=message.generation,
        rack=message.rack,
        nonce=nonce,
        leaving=_LEAVING[leaving],
        delay_ms=delay_ms,
        memory_age_ms=age_ms,
        given_up=reader.compact_array("given_up", _read_topic_set, _TOPIC_SET_MIN),
        memory=reader.nullable_compact_bytes("memory"),
        assignor_data=_close_frame(reader, reader.nullable_compact_bytes("assignor_data")),
    )


# Frames


def _open_frame(data: bytes, schema: str, magic: bytes) -> Reader:
    reader = Reader(data, schema)
    if not data.startswith(magic):
        reader.fail(Reason.BAD_MAGIC, "magic", 0, f"{data[:4].hex()} is not {magic.hex()}")
    reader.pos = len(magic)
    reader.leading_version(FRAME_VERSION, lowest=1)
    return reader


def _close_frame(reader: Reader, last: T) -> T:
    reader.tagged()
    return last


def _start_frame(schema: str, magic: bytes) -> Writer:
    writer = Writer(schema, FRAME_VERSION)
    writer.raw(magic)
    writer.int16(FRAME_VERSION, "version")
    return writer


def _read_leaving(reader: Reader) -> Leaving:
    start = reader.pos
    value = reader.int8("leaving")
    if value not in _LEAVING:
        reader.fail(Reason.OUT_OF_RANGE, "leaving", start, f"{value} is not 0 to 2")
    return _LEAVING[value]


_LEAVING = {int(value): value for value in Leaving}


def _read_set(reader: Reader) -> tuple[int, ...]:
    start = reader.pos
    count = reader.compact_count("partitions", 1)
    if count is None:
        reader.fail(Reason.UNEXPECTED_NULL, "partitions", start)
    partitions = tuple(_partitions(reader, count))
    if partitions and partitions[-1] > INT32_MAX:
        reader.fail(Reason.OUT_OF_RANGE, "partitions", start, f"partition {partitions[-1]}")
    return partitions


def _partitions(reader: Reader, count: int) -> Iterator[int]:
    """One by one: a gap may be one byte, so a second copy of them would be dear."""
    index, last = 0, -1
    try:
        for index in range(count):  # noqa: B007 - the index names the failing one
            last += reader.uvarint("") + 1
            yield last
    except WireError as error:
        raise within(f"partitions[{index}]", error) from None


def _write_set(writer: Writer, partitions: tuple[int, ...]) -> None:
    if partitions and not 0 <= partitions[0] <= partitions[-1] <= INT32_MAX:
        writer.fail(Reason.OUT_OF_RANGE, "partitions", f"{partitions[0]} to {partitions[-1]}")
    distinct = sorted(set(partitions))
    gaps = [after - before - 1 for before, after in pairwise((-1, *distinct))]
    writer.compact_array(gaps, "partitions", _write_gap)


def _read_topic_set(reader: Reader) -> tuple[str, tuple[int, ...]]:
    return reader.compact_string("topic"), _read_set(reader)


def _write_topic_set(writer: Writer, entry: tuple[str, tuple[int, ...]]) -> None:
    writer.compact_string(entry[0], "topic")
    _write_set(writer, entry[1])


def _write_gap(writer: Writer, gap: int) -> None:
    writer.uvarint(gap, "")


def _read_name(reader: Reader) -> str:
    return reader.compact_string("")


def _write_name(writer: Writer, name: str) -> None:
    writer.compact_string(name, "")
