"""The subscriptions of a round whose members use a design, and the locations of its members.

**Rules.** One member's odd bytes never stop the group: a subscription that cannot be read counts as
one without topics and without owned partitions.

**Strategy.** A :class:`SubscribedMember` is a member of the JoinGroup response with its decoded
message.

References: Incremental Cooperative Rebalancing, "Subscription"; ``onLeaderElected`` of Kafka's
ConsumerCoordinator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from holdfast.core.machine.events import JoinedMember
from holdfast.core.model.constants import NO_GENERATION
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.layouts.consumer_protocol import decode_subscription
from holdfast.core.wire.layouts.container import (
    LOCATION_BYTES,
    Leaving,
    MemberSubscription,
    decode_member_subscription,
)
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
    # (:func:`holdfast.core.machine.leader.subscriptions.with_locations`), empty for none.
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


# Locations of members, by which a restarted process is recognised under its new member id.
#
# 1. A *location* is a digest of what stays the same when a process restarts: its host, client id
#    and the name that a supervisor gives it, or the value of ``holdfast.location``. A member sends
#    the digest in its subscription.
# 2. A location counts only if one member of the round has it. Members with equal locations have
#    none: they were configured alike. Example: six members with one client id run on one host. None
#    of them has a location, and the leader identifies all of them by their member ids.
# 3. A static member has no location: its instance id has the same purpose.
# 4. A location gives its member only what the last member of that location had.
#
# The leader resolves locations once, when it reads a round. From then on a location is an identity
# (``identity_of``), as an instance id is, and costs the leader state nothing.
#
# References: KIP-345, whose ``group.instance.id`` is a location that the coordinator knows.


def digest_of(*parts: str) -> bytes:
    """Return the digest of a location that the texts name together."""
    text = "\0".join(parts)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=LOCATION_BYTES).digest()


def with_locations(members: Iterable[SubscribedMember]) -> tuple[SubscribedMember, ...]:
    """Return the members of a round, each with its location if no other has it (rule 2)."""
    every = tuple(members)
    said = Counter(m.subscription.location for m in every if m.instance_id is None)
    return tuple(replace(m, location=location) if (location := _own(m, said)) else m for m in every)


def shared_locations(members: Iterable[SubscribedMember]) -> tuple[tuple[str, ...], ...]:
    """Return the sorted ids of members that report one location, once per location (rule 2)."""
    found: dict[bytes, list[str]] = {}
    for member in members:
        if member.instance_id is None and member.subscription.location:
            found.setdefault(member.subscription.location, []).append(member.member_id)
    return tuple(sorted(tuple(sorted(ids)) for ids in found.values() if len(ids) > 1))


def _own(member: SubscribedMember, said: Counter[bytes]) -> bytes:
    location = member.subscription.location
    return location if member.instance_id is None and said[location] == 1 else b""
