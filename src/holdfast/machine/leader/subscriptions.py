"""What members say in a design's container, read for a leader: claimants and their resources.

**Rules.** Leniently: bytes that do not parse are a member without topics or claims.

**Strategy.** One :class:`~holdfast.machine.leader.leader.SubscribedMember` a member; what was read
last is kept, because who checks a plan reads the same subscriptions again.

References: Incremental Cooperative Rebalancing, "Subscription".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from holdfast.errors import WireError
from holdfast.machine.events import JoinedMember
from holdfast.machine.leader.leader import SubscribedMember
from holdfast.model.partitions import Resource, TopicPartitions, grouped, resources_of
from holdfast.wire.layouts.container import decode_member_subscription


@lru_cache(maxsize=1)
def subscribed_members(
    members: tuple[JoinedMember, ...], leader_id: str, waited_ms: int
) -> tuple[SubscribedMember, ...]:
    """The subscriptions of a round, whose leader's own was written ``waited_ms`` ago.

    Bytes that do not parse are a member without topics or claims. The last round is remembered:
    who checks a plan reads the same subscriptions again.
    """
    return tuple(
        read_subscribed_member(
            m.member_id,
            m.instance_id,
            m.metadata,
            older_ms=waited_ms if m.member_id == leader_id else 0,
        )
        for m in members
    )


def read_subscribed_member(
    member_id: str, instance_id: str | None, metadata: bytes, *, older_ms: int = 0
) -> SubscribedMember:
    """Read one subscription for planning, leniently."""
    try:
        claim = decode_member_subscription(metadata, lenient=True)
    except WireError:
        return SubscribedMember(member_id=member_id, instance_id=instance_id, topics=())
    return SubscribedMember(
        member_id=member_id,
        instance_id=instance_id,
        topics=claim.topics,
        owned=claim.owned,
        generation=claim.generation,
        rack=claim.rack,
        leaving=claim.leaving,
        given_up=claim.given_up,
        memory=claim.memory,
        memory_age_ms=claim.memory_age_ms + older_ms,
    )


def undisputed(claimants: Sequence[SubscribedMember]) -> dict[str, TopicPartitions]:
    """Claims that nobody else makes at the same or a later generation, sorted by member."""
    best: dict[Resource, tuple[int, str | None]] = {}
    for c in sorted(claimants, key=lambda c: c.member_id):
        for resource in resources_of(c.owned):
            generation, _ = best.get(resource, (-2, None))
            if c.generation > generation:
                best[resource] = (c.generation, c.member_id)
            elif c.generation == generation:
                best[resource] = (generation, None)
    keeps: dict[str, list[Resource]] = {c.member_id: [] for c in claimants}
    for resource, (_, owner) in sorted(best.items()):
        if owner is not None and resource[0] in _topics(claimants, owner):
            keeps[owner].append(resource)
    return {member_id: grouped(own) for member_id, own in sorted(keeps.items())}


def _topics(claimants: Sequence[SubscribedMember], member_id: str) -> tuple[str, ...]:
    return next(c.topics for c in claimants if c.member_id == member_id)
