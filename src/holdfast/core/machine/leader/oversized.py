"""Subscriptions that are larger than an honest one can be, trimmed by the leader.

The largest record of a broker holds a million bytes, and any of them may be wrong. What a leader
builds from a subscription is therefore bounded by the topics and partitions that exist.

**Rules.**

1. Before a leader has looked up which topics exist, it reads the topics of messages and nothing
   else. A message of more than :data:`MODEST_BYTES`, and of more than four times the median of the
   round, that names :data:`MOST_MORE` topics more than the leader's own is ignored.
2. Then a message is larger than an honest one if it is longer than all that can be true: each topic
   that exists, and each partition once, as owned by the member, by its neighbours in the ring or as
   waiting. Of such a message the leader reads the topics and the claims of partitions that exist;
   user data only if they are no longer than that either.
3. Such a message that names :data:`MOST_MORE` topics more than exist counts as unreadable.

Example: a topic has 4 partitions, and a member claims 0 to 99,999 of it. Its leader reads 0 to 3.

**Strategy.** A message that is not too large stays as it is, so that an honest round costs one
comparison a member.

References: KIP-429, "Consumer protocol"; ``message.max.bytes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.core.machine.events import JoinedMember
from holdfast.core.wire.layouts.trimmed_subscription import trim_subscription

MODEST_BYTES = 4_096
"""Bytes of a message up to which it is read as it is."""

MOST_MORE = 10_000
"""Topics that a member may name beyond those that the leader names, or that exist."""

HEAD_BYTES = 2_048
"""Upper bound in bytes of the parts of a message that name no topic and no partition."""

PARTITION_BYTES = 28
"""Upper bound in bytes of a partition: of a departed member that owned it alone."""


def messages_with_topics(members: Sequence[JoinedMember], leader_id: str) -> list[bytes]:
    """Return the messages whose topics a leader looks up (rule 1)."""
    sizes = sorted(len(m.metadata) for m in members)
    # Four times the median: honest members of one group subscribe to similar lists of topics.
    most = max(MODEST_BYTES, 4 * sizes[(len(sizes) - 1) // 2]) if sizes else 0
    own = next((_n_topics(m.metadata) for m in members if m.member_id == leader_id), 0)
    return [
        m.metadata
        for m in members
        if len(m.metadata) <= most or _n_topics(m.metadata) <= MOST_MORE + own
    ]


def with_what_exists(
    members: tuple[JoinedMember, ...], partitions: Mapping[str, int]
) -> tuple[JoinedMember, ...]:
    """Return the members of a round with oversized messages trimmed (rule 2)."""
    most = most_bytes(partitions)
    if not partitions or all(len(m.metadata) <= most for m in members):
        return members
    most_topics = MOST_MORE + len(partitions)
    return tuple(_trimmed(m, partitions, most, most_topics) for m in members)


def most_bytes(partitions: Mapping[str, int]) -> int:
    """Return the bytes of the longest honest subscription if ``partitions`` are all that exist."""
    names = sum(8 + len(topic.encode()) for topic in partitions)
    return HEAD_BYTES + 3 * names + PARTITION_BYTES * sum(partitions.values())


def _trimmed(
    member: JoinedMember, partitions: Mapping[str, int], most: int, most_topics: int
) -> JoinedMember:
    if len(member.metadata) <= most:
        return member
    trimmed = trim_subscription(
        member.metadata, partitions, most_topics=most_topics, most_user_data=most
    )
    return replace(member, metadata=trimmed, sent_bytes=len(member.metadata))


def _n_topics(message: bytes) -> int:
    """Return the number of topics that a message declares: four bytes behind its version."""
    return int.from_bytes(message[2:6], "big")
