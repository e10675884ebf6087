"""The user data that Kafka's sticky assignors write into a subscription.

==================  =====================================================  ======================
user data           layout                                                 written by
==================  =====================================================  ======================
sticky v0           previous_assignment [](topic string, partitions        2.2 and older
                    []int32)
sticky v1           + generation int32                                     2.3 on (KIP-341)
cooperative-sticky  generation int32                                       3.0 on (KAFKA-12984)
==================  =====================================================  ======================

**Rules.** There is no version field: a reader of ``sticky`` data tries v1, then v0, and ignores
bytes that follow. A generation below 0 means no generation. A member without user data, or with
unreadable user data, claims nothing.

**Strategy.** ``decode_*`` are strict and give what is written. :func:`read_claims` never fails,
because a leader must not fail on the bytes of one member.

References: KIP-54, KIP-341, KAFKA-12984.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from holdfast.core.model.limits import NO_GENERATION
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.layouts.consumer_protocol import Subscription
from holdfast.core.wire.one.reader import Reader
from holdfast.core.wire.one.reasons import Reason
from holdfast.core.wire.one.writer import Writer, write_topic_partitions
from holdfast.errors import WireError

T = TypeVar("T")

STICKY = "StickyAssignorUserData"
COOPERATIVE = "CooperativeStickyAssignorUserData"


@dataclass(frozen=True, slots=True, kw_only=True)
class StickyUserData:
    """A member's claim."""

    partitions: TopicPartitions  # partitions that the member owned
    # Generation in which the member owned them, -1 unknown (v0, or never in a group).
    generation: int = NO_GENERATION


NO_CLAIMS = StickyUserData(partitions=())


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
