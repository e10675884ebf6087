"""The messages of Designs I to III, inside Kafka's own consumer protocol messages.

A member's subscription is a ConsumerProtocolSubscription, and its assignment is a
ConsumerProtocolAssignment, so every Kafka tool can read both. What the designs add stands in the
user data, as a frame (:mod:`holdfast.wire.layouts.frames`). The frames are called claim and verdict
on the wire; ``holdfast decode`` takes these names.

=======  ===========  =============================================================================
frame    magic        version 1
=======  ===========  =============================================================================
claim    f4 48 46 63  Nonce int64, Leaving int8, DelayMs int32, MemoryAgeMs int64,
                      GivenUp [](Topic, PartitionSet), Memory nullable bytes,
                      AssignorData nullable bytes
verdict  f4 48 46 76  Nonce int64, Revoked nullable [](Topic, PartitionSet), DelayMs int32,
                      Memory nullable bytes
=======  ===========  =============================================================================

**Rules.**

* A member then owns (owned - revoked) + assigned. Null ``revoked`` and empty ``revoked`` differ as
  in :mod:`holdfast.wire.layouts.incremental`: empty means that another round follows.
* A delay is the time that remains, in ms, 0 to 2**31 - 1; 0 means no delay. A negative delay is
  refused.

**Strategy.** A leader may list as assigned only the new partitions of a member. It may also list
*all* of them: the first rule gives the same result, and other tools then show what the member owns.
The leader's memory (:mod:`holdfast.wire.layouts.memory`) is bytes inside both frames.

References
----------
Incremental Cooperative Rebalancing: Support and Policies; KIP-429; KIP-415, whose leader forgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from holdfast.errors import WireError
from holdfast.model.limits import NO_GENERATION
from holdfast.model.partitions import TopicPartitions, sort_partitions
from holdfast.model.remembered import remembered
from holdfast.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.wire.layouts.frames import (
    LEAVING,
    Leaving,
    open_frame,
    read_leaving,
    read_set,
    start_frame,
    write_set,
)
from holdfast.wire.one.reader import Reader
from holdfast.wire.one.reasons import INT8, INT32, INT64, Row
from holdfast.wire.one.writer import Writer

SUBSCRIPTION, ASSIGNMENT = "HoldfastClaim", "HoldfastVerdict"
SUBSCRIPTION_MAGIC, ASSIGNMENT_MAGIC = b"\xf4HFc", b"\xf4HFv"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """What a member reports to the leader.

    Parameters
    ----------
    topics, owned, generation, rack
        As in :class:`Subscription`.
    nonce : int
        int64. A coordinator starts no round for a follower that joins again with the same bytes; a
        new nonce makes them differ.
    leaving : Leaving
        The announcement of the member.
    delay_ms : int
        Time left of the delay in the member's last assignment, by the member's clock.
    memory_age_ms : int
        Time since the memory came, by the member's clock.
    given_up : tuple of (topic, partitions)
        Partitions given up since ``generation`` because the leader revoked them; they are not lost.
    memory : bytes or None
        The leader's memory as it came, unread.
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
    """What the leader assigns to one member.

    Parameters
    ----------
    assigned : tuple of (topic, partitions)
        New partitions of the member, or all partitions that it is to own.
    revoked : tuple of (topic, partitions), or None
        Partitions to give up before joining again. Empty, not null: another round is coming.
    delay_ms : int
        When to join again at the latest, in ms from now; 0 for no such time.
    nonce : int
        int64, the leader's; it differs from round to round.
    memory : bytes or None
        The leader's memory; the member sends it back unread.
    """

    assigned: TopicPartitions = ()
    revoked: TopicPartitions | None = None
    delay_ms: int = 0
    nonce: int = 0
    memory: bytes | None = None


def decode_member_subscription(data: bytes, *, lenient: bool = False) -> MemberSubscription:
    """Read a member's subscription from a ConsumerProtocolSubscription.

    Without user data, only the standard fields are filled.

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

    References: Incremental Cooperative Rebalancing, "General Approach"; KIP-429.
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
    """Write a member's subscription as a ConsumerProtocolSubscription v3.

    Raises
    ------
    WireError
        If a value does not fit its field.

    References: Incremental Cooperative Rebalancing, "General Approach"; KIP-429.
    """
    writer = start_frame(SUBSCRIPTION, SUBSCRIPTION_MAGIC)
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


@remembered(256, largest=16_384)
def decode_member_assignment(data: bytes) -> MemberAssignment:
    """Read a member's assignment from a ConsumerProtocolAssignment.

    Without user data, only the partitions are filled. The last assignments are remembered, since
    the checkers of a simulation read the same bytes as the member.

    Raises
    ------
    WireError
        If the message is broken, or its user data are not a verdict frame.

    References: Incremental Cooperative Rebalancing, "General Approach"; KIP-429.
    """
    message = decode_assignment(data)
    if not message.user_data:
        return MemberAssignment(assigned=message.partitions)
    reader = open_frame(message.user_data, ASSIGNMENT, ASSIGNMENT_MAGIC)
    assignment = MemberAssignment(
        assigned=message.partitions,
        nonce=reader.int64("nonce"),
        revoked=reader.nullable_compact_array("revoked", _read_topic_set, _TOPIC_SET_MIN),
        delay_ms=reader.delay_ms("delay_ms"),
        memory=reader.nullable_compact_bytes("memory"),
    )
    reader.tagged()
    return assignment


def encode_member_assignment(value: MemberAssignment) -> bytes:
    """Write a member's assignment as a ConsumerProtocolAssignment v3.

    Raises
    ------
    WireError
        If a value does not fit its field.

    References: Incremental Cooperative Rebalancing, "General Approach"; KIP-429.
    """
    revoked = None if value.revoked is None else sort_partitions(value.revoked)
    frame = _assignment_frame(value.nonce, revoked, value.delay_ms, value.memory)
    return encode_assignment(AssignmentMessage(partitions=value.assigned, user_data=frame))


@lru_cache(maxsize=2)
def _assignment_frame(
    nonce: int, revoked: TopicPartitions | None, delay_ms: int, memory: bytes | None
) -> bytes:
    """The frame, remembered: it is the same for most members of a round, and may be long."""
    writer = start_frame(ASSIGNMENT, ASSIGNMENT_MAGIC)
    writer.int64(nonce, "nonce")
    writer.compact_array(revoked, "revoked", _write_topic_set, nullable=True)
    writer.delay_ms(delay_ms, "delay_ms")
    writer.compact_bytes(memory, "memory", nullable=True)
    writer.tagged()
    return writer.done()


_CLAIM_HEAD = Row(("nonce", "leaving", "delay_ms", "memory_age_ms"), (INT64, INT8, INT32, INT64))
_TOPIC_SET_MIN = 2  # an empty name and an empty set


def _read_claim_frame(message: Subscription, data: bytes) -> MemberSubscription:
    reader = open_frame(data, SUBSCRIPTION, SUBSCRIPTION_MAGIC)
    start = reader.pos
    nonce, leaving, delay_ms, age_ms = reader.row(_CLAIM_HEAD)
    if leaving not in LEAVING or delay_ms < 0 or age_ms < 0:
        reader.pos = start + INT64.size
        read_leaving(reader)
        reader.delay_ms("delay_ms")
        reader.age_ms("memory_age_ms")
    subscription = MemberSubscription(
        topics=message.topics,
        owned=message.owned,
        generation=message.generation,
        rack=message.rack,
        nonce=nonce,
        leaving=LEAVING[leaving],
        delay_ms=delay_ms,
        memory_age_ms=age_ms,
        given_up=reader.compact_array("given_up", _read_topic_set, _TOPIC_SET_MIN),
        memory=reader.nullable_compact_bytes("memory"),
        assignor_data=reader.nullable_compact_bytes("assignor_data"),
    )
    reader.tagged()
    return subscription


def _read_topic_set(reader: Reader) -> tuple[str, tuple[int, ...]]:
    return reader.compact_string("topic"), read_set(reader)


def _write_topic_set(writer: Writer, entry: tuple[str, tuple[int, ...]]) -> None:
    writer.compact_string(entry[0], "topic")
    write_set(writer, entry[1])
