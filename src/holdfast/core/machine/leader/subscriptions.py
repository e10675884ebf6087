"""The subscriptions of a round whose members use a design, as their leader reads them.

**Rules.** One member's odd bytes never stop the group: a subscription that cannot be read counts as
one without topics and without owned partitions.

**Strategy.** A :class:`SubscribedMember` is a member of the JoinGroup response with its decoded
message.

References: Incremental Cooperative Rebalancing, "Subscription"; ``onLeaderElected`` of Kafka's
ConsumerCoordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from holdfast.core.machine.events import JoinedMember
from holdfast.core.model.limits import NO_GENERATION
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.layouts.consumer_protocol import decode_subscription
from holdfast.core.wire.layouts.container import MemberSubscription, decode_member_subscription
from holdfast.core.wire.layouts.frames import Leaving
from holdfast.errors import WireError


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribedMember:
    """One member of the round, with its subscription."""

    # As in the JoinGroup response.
    member_id: str
    instance_id: str | None = None
    # What the member reported; ``state_age_ms`` counts to the moment of planning.
    subscription: MemberSubscription
    size_bytes: int = 0  # of the message as it came; 0 if it is not known
    # Its location, if no other member of the round has the same
    # (:func:`holdfast.core.machine.leader.locations.with_locations`), empty for none.
    location: bytes = b""

    @property
    def leaves_for_good(self) -> bool:
        """Whether the member announced that it will not come back."""
        return self.subscription.leaving is Leaving.FOR_GOOD

    @property
    def stays(self) -> bool:
        """Whether the member announced nothing."""
        return self.subscription.leaving is Leaving.STAYS


def subscribed_members(
    members: tuple[JoinedMember, ...], leader_id: str, waited_ms: int
) -> tuple[SubscribedMember, ...]:
    """Read the subscriptions of a round; the leader's own was written ``waited_ms`` ago."""
    return tuple(
        read_subscribed_member(
            m.member_id,
            m.instance_id,
            m.metadata,
            older_ms=waited_ms if m.member_id == leader_id else 0,
            size_bytes=m.sent_bytes,
        )
        for m in members
    )


def read_subscribed_member(
    member_id: str,
    instance_id: str | None,
    metadata: bytes,
    *,
    older_ms: int = 0,
    size_bytes: int | None = None,
) -> SubscribedMember:
    """Read one subscription of ``size_bytes`` that was written ``older_ms`` ago, leniently."""
    try:
        read = decode_member_subscription(metadata, lenient=True)
    except WireError:
        read = MemberSubscription(topics=())
    if older_ms:
        read = replace(read, state_age_ms=read.state_age_ms + older_ms)
    return SubscribedMember(
        member_id=member_id,
        instance_id=instance_id,
        subscription=read,
        size_bytes=len(metadata) if size_bytes is None else size_bytes,
    )


def without_claims(member: SubscribedMember) -> SubscribedMember:
    """Return the member as one that has been in no generation and owns nothing."""
    said = replace(member.subscription, owned=(), generation=NO_GENERATION)
    return replace(member, subscription=said)


def subscribers_of(
    members: Sequence[JoinedMember], topics: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return the sorted ids of the members that subscribe to each topic, under any protocol."""
    found: dict[str, list[str]] = {topic: [] for topic in topics}
    for m in sorted(members, key=lambda m: m.member_id):
        try:
            said = decode_subscription(m.metadata).topics
        except WireError:
            continue
        for topic in dict.fromkeys(said):
            if topic in found:
                found[topic].append(m.member_id)
    return {topic: tuple(ids) for topic, ids in found.items()}


def undisputed(
    members: Sequence[SubscribedMember], generation: int | None = None
) -> dict[str, TopicPartitions]:
    """Return each member's claims that no other member makes at the same or a later generation.

    A claim of a topic that the member does not subscribe to is left out. Claims of ``generation``,
    that of the round, or of a later one are ignored.
    """
    ordered = sorted(members, key=lambda m: m.member_id)
    best: dict[str, dict[int, tuple[int, int]]] = {}  # topic -> partition -> generation, member
    for i, m in enumerate(ordered):
        claimed = m.subscription.generation
        if generation is not None and claimed >= generation:
            continue
        for topic, numbers in m.subscription.owned:
            of_topic = best.setdefault(topic, {})
            for number in numbers:
                newest, owner = of_topic.get(number, (-2, _NOBODY))
                if claimed > newest:
                    of_topic[number] = (claimed, i)
                elif claimed == newest and owner != i:
                    of_topic[number] = (newest, _NOBODY)
    topics = [frozenset(m.subscription.topics) for m in ordered]
    keeps: list[dict[str, list[int]]] = [{} for _ in ordered]
    for topic, of_topic in sorted(best.items()):
        for number, (_, owner) in sorted(of_topic.items()):
            if owner != _NOBODY and topic in topics[owner]:
                keeps[owner].setdefault(topic, []).append(number)
    return {
        m.member_id: tuple((topic, tuple(numbers)) for topic, numbers in own.items())
        for m, own in zip(ordered, keeps, strict=True)
    }


_NOBODY = -1
