"""The consumer's embedded protocol: subscriptions, assignments, and Kafka's sticky user data.

=======  ===========================================  ==================================  =========
version  ConsumerProtocolSubscription                 ConsumerProtocolAssignment          written by
=======  ===========================================  ==================================  =========
0        Topics []string, UserData nullable bytes     AssignedPartitions [](Topic         up to 2.3
                                                      string, Partitions []int32),
                                                      UserData nullable bytes
1        + OwnedPartitions [](Topic, Partitions)      same                                2.4 - 3.3
2        + GenerationId int32                         same                                nobody
3        + RackId nullable string                     same                                3.4 on
=======  ===========================================  ==================================  =========

==================  =====================================================  ======================
user data           layout                                                 written by
==================  =====================================================  ======================
sticky v0           previous_assignment [](topic string, partitions        2.2 and older
                    []int32)
sticky v1           + generation int32                                     2.3 on (KIP-341)
cooperative-sticky  generation int32                                       3.0 on (KAFKA-12984)
==================  =====================================================  ======================

**Rules.** A version above 3 is read as 3, and a version below 0 is refused. Bytes after the last
known field are ignored. Null user data and empty user data are different values. A writer leaves
out the fields that the requested version does not have, as Kafka does.

The user data of ``sticky`` has no version field: a reader tries v1, then v0, and ignores bytes that
follow. A generation below 0 means no generation. A member without user data, or with unreadable
user data, claims nothing.

**Strategy.** Reading keeps the order of the wire. Writing gives the bytes that Kafka's own client
writes: topics sorted, owned partitions sorted by topic and partition, and assigned partitions
grouped by topic in the order met. ``decode_*`` are strict. :func:`read_claims` never fails, because
a leader must not fail on the bytes of one member.

References: KIP-54 and KIP-341 (sticky user data); KIP-429 (v1), KAFKA-13715 (v2), KIP-881 (v3);
KAFKA-12984.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from holdfast.core.model.constants import NO_GENERATION
from holdfast.core.model.partitions import (
    SMALL,
    TopicPartitions,
    memoized,
    merge_topics,
    sort_partitions,
    weight_of,
)
from holdfast.core.wire.one.reader import Reader
from holdfast.core.wire.one.writer import Writer, write_string, write_topic_partitions
from holdfast.errors import Reason, WireError

HIGHEST_VERSION = 3
SUBSCRIPTION = "ConsumerProtocolSubscription"
ASSIGNMENT = "ConsumerProtocolAssignment"
STICKY = "StickyAssignorUserData"
COOPERATIVE = "CooperativeStickyAssignorUserData"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The message that a member sends to the leader when it joins."""

    # 0 to 3: the layout it was read with, or is written in by default.
    version: int = HIGHEST_VERSION
    topics: tuple[str, ...]  # topics subscribed
    user_data: bytes | None = None  # the assignor's own bytes; null and empty differ
    owned: TopicPartitions = ()  # partitions that the member claims (v1 and above)
    generation: int = NO_GENERATION  # generation of the claim, -1 none (v2 and above)
    rack: str | None = None  # the member's rack (v3)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentMessage:
    """The message that the leader sends to a member."""

    version: int = HIGHEST_VERSION  # 0 to 3; the layouts are the same
    partitions: TopicPartitions  # partitions assigned
    user_data: bytes | None = None  # the assignor's own bytes; null and empty differ


@dataclass(frozen=True, slots=True, kw_only=True)
class StickyUserData:
    """The claim of a member in the user data of a sticky assignor."""

    partitions: TopicPartitions  # partitions that the member owned
    # Generation in which the member owned them, -1 unknown (v0, or never in a group).
    generation: int = NO_GENERATION


NO_CLAIMS = StickyUserData(partitions=())


def decode_subscription(data: bytes) -> Subscription:
    """Read a ConsumerProtocolSubscription."""
    reader = Reader(data, SUBSCRIPTION)
    version = reader.leading_version(HIGHEST_VERSION)
    return Subscription(
        version=version,
        topics=reader.strings("topics"),
        user_data=reader.nullable_bytes("user_data"),
        owned=reader.topic_partitions("owned_partitions") if version >= 1 else (),
        generation=reader.int32("generation_id") if version >= 2 else NO_GENERATION,
        rack=reader.nullable_string("rack_id") if version >= 3 else None,
    )


def decode_assignment(data: bytes) -> AssignmentMessage:
    """Read a ConsumerProtocolAssignment."""
    reader = Reader(data, ASSIGNMENT)
    return AssignmentMessage(
        version=reader.leading_version(HIGHEST_VERSION),
        partitions=reader.topic_partitions("assigned_partitions"),
        user_data=reader.nullable_bytes("user_data"),
    )


def encode_subscription(value: Subscription, version: int | None = None) -> bytes:
    """Write a ConsumerProtocolSubscription as Kafka's own client does.

    Parameters
    ----------
    value : Subscription
        Topics and owned partitions may be in any order; they are written sorted.
    version : int, optional
        0 to 3, by default ``value.version``. Fields that it lacks are left out.
    """
    version = value.version if version is None else version
    writer = _start(SUBSCRIPTION, version)
    writer.raw(_topics_block(value.topics, version))
    writer.bytes_(value.user_data, "user_data", nullable=True)
    if version >= 1:
        writer.raw(_owned_block(value.owned, version))
    if version >= 2:
        writer.int32(max(value.generation, NO_GENERATION), "generation_id")
    if version >= 3:
        writer.string(value.rack, "rack_id", nullable=True)
    return writer.done()


def encode_assignment(value: AssignmentMessage, version: int | None = None) -> bytes:
    """Write a ConsumerProtocolAssignment as Kafka's own client does.

    Parameters
    ----------
    value : AssignmentMessage
        Partitions are grouped by topic in the order met, and not sorted.
    version : int, optional
        0 to 3, by default ``value.version``.
    """
    version = value.version if version is None else version
    writer = _start(ASSIGNMENT, version)
    writer.raw(_assigned_block(value.partitions, version))
    writer.bytes_(value.user_data, "user_data", nullable=True)
    return writer.done()


def decode_sticky_user_data(data: bytes) -> StickyUserData:
    """Read the user data of the ``sticky`` assignor: v1, else v0."""
    reader = Reader(data, STICKY, 0)
    partitions = reader.topic_partitions("previous_assignment")
    if reader.n_left < 4:
        return StickyUserData(partitions=partitions)
    return StickyUserData(partitions=partitions, generation=reader.int32("generation"))


def encode_sticky_user_data(value: StickyUserData, version: int = 1) -> bytes:
    """Write the user data of the ``sticky`` assignor; v0 has no generation.

    Kafka writes topics in the order of a hash table; holdfast writes them in the order given.
    """
    writer = Writer(STICKY, version)
    if version not in (0, 1):
        writer.fail(Reason.BAD_VERSION, "version", f"{version} is not 0 or 1")
    writer.array(value.partitions, "previous_assignment", write_topic_partitions)
    if version:
        writer.int32(value.generation, "generation")
    return writer.done()


def decode_cooperative_user_data(data: bytes) -> int:
    """Read the user data of ``cooperative-sticky``: the generation, -1 for none."""
    return Reader(data, COOPERATIVE, 0).int32("generation")


def encode_cooperative_user_data(generation: int) -> bytes:
    """Write the user data of ``cooperative-sticky``."""
    writer = Writer(COOPERATIVE, 0)
    writer.int32(generation, "generation")
    return writer.done()


def read_claims(subscription: Subscription, *, cooperative: bool) -> StickyUserData:
    """Return a member's claims as Kafka's sticky assignors read them; never fails on user data.

    Parameters
    ----------
    subscription : Subscription
        The member's subscription.
    cooperative : bool
        True: the owned partitions of the subscription, at its generation or else at the one in the
        user data. False: the user data alone, since an eager member reports nothing as owned.

    References: KIP-341, KIP-429, KAFKA-12984, KAFKA-13715.
    """
    if not cooperative:
        claim = _or_else(decode_sticky_user_data, subscription.user_data, NO_CLAIMS)
        return replace(claim, generation=max(claim.generation, NO_GENERATION))
    generation = subscription.generation
    if generation < 0:
        generation = _or_else(decode_cooperative_user_data, subscription.user_data, NO_GENERATION)
    return StickyUserData(partitions=subscription.owned, generation=max(generation, NO_GENERATION))


def _or_else(decode: Callable[[bytes], T], user_data: bytes | None, otherwise: T) -> T:
    try:
        return decode(user_data or b"")
    except WireError:
        return otherwise


# Members mostly have the same topics and partitions as in the last round: blocks are cached.


@memoized(256, largest=SMALL)
def _topics_block(topics: tuple[str, ...], version: int) -> bytes:
    writer = Writer(SUBSCRIPTION, version)
    writer.array(sorted(topics), "topics", write_string)
    return writer.done()


@memoized(256, largest=SMALL, size=weight_of)
def _owned_block(owned: TopicPartitions, version: int) -> bytes:
    writer = Writer(SUBSCRIPTION, version)
    writer.array(sort_partitions(owned), "owned_partitions", write_topic_partitions)
    return writer.done()


@memoized(256, largest=SMALL, size=weight_of)
def _assigned_block(partitions: TopicPartitions, version: int) -> bytes:
    writer = Writer(ASSIGNMENT, version)
    writer.array(merge_topics(partitions), "assigned_partitions", write_topic_partitions)
    return writer.done()


def _start(schema: str, version: int) -> Writer:
    writer = Writer(schema, version)
    if not 0 <= version <= HIGHEST_VERSION:
        writer.fail(Reason.BAD_VERSION, "version", f"{version} is not 0 to {HIGHEST_VERSION}")
    writer.int16(version, "version")
    return writer
