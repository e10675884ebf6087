"""What the members of a design's round report: subscriptions, locations, counts of resources.

**Rules.** One member's odd bytes never stop the group: a subscription that cannot be read counts as
one without topics and without owned partitions.

*Locations*, by which a restarted process is recognised under its new member id (KIP-345's
``group.instance.id`` is a location that the coordinator knows):

1. A *location* is a digest of what stays the same when a process restarts: its host, client id
   and the name that a supervisor gives it, or the value of ``holdfast.location``.
2. A location counts only if one member of the round has it. Members with equal locations have
   none: they were configured alike. Example: six members with one client id run on one host. None
   of them has a location, and the leader identifies all of them by their member ids.
3. A static member has no location: its instance id has the same purpose.
4. A location gives its member only what the last member of that location had. The leader resolves
   locations once, when it reads a round. From then on a location is an identity
   (:func:`identity_of`), as an instance id is, and costs the leader state nothing.

*Counts*, which name topics by hashes of four bytes:

5. Only a static leader is sent the counts that it planned with: KIP-814 asks the process that
   replaces it to skip the assignment, and that process does not know what was planned.
6. A worker that has a version of its resources reports the version and the counts, as the
   assignor's data of its subscription. If a member reports a newer version than the leader has, the
   leader plans for what both versions have (:func:`~holdfast.core.machine.leader.leader.plan_round`
   assigns the rest). Resources that the newer version lacks stay where they are. Example: the
   leader knows 10 shards. If a newer version has 8, the owner of shard 8 or 9 keeps it.

**Strategy.** A :class:`SubscribedMember` is a member of the JoinGroup response with its decoded
message.

References: Incremental Cooperative Rebalancing, "Subscription"; ``onLeaderElected`` of Kafka's
ConsumerCoordinator; KIP-814; KIP-415 (the leader's configuration offset).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
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
from holdfast.core.wire.layouts.state_shard import HASH_BITS, StateShard, read_shard
from holdfast.core.wire.one.reader import Reader
from holdfast.core.wire.one.writer import Writer
from holdfast.errors import WireError

_NOBODY = -1
HASH_BYTES = 4
SCHEMA = "HoldfastPlannedCounts"
_VERSION = struct.Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribedMember:
    """One member of the round, with its subscription."""

    # As in the JoinGroup response.
    member_id: str
    instance_id: str | None = None
    # What the member reported; ``state_age_ms`` counts to the moment of planning.
    subscription: MemberSubscription
    size_bytes: int = 0  # of the message as it came; 0 if it is not known
    # Its location, if no other member of the round has the same (:func:`with_locations`), empty for
    # none.
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


@lru_cache(maxsize=16_384)
def _hashed(name: str) -> str:
    digest = blake2b(name.encode(errors="surrogatepass"), digest_size=HASH_BITS // 8).digest()
    return f"{int.from_bytes(digest, 'big'):0{HASH_BITS}b}"


def identity_of(member: SubscribedMember) -> str:
    """Return the whole identity of a member, of ``HASH_BITS`` bits."""
    if member.instance_id is not None:
        return _hashed(f"static {member.instance_id}")
    return identity_of_location(member.location) if member.location else identity_of_id(member)


def identity_of_location(location: bytes) -> str:
    """Return the whole identity of the one member with a location."""
    # The text is hashed, and members of older versions hash the same: it never changes.
    return _hashed(f"place {location.hex()}")


def identity_of_id(member: SubscribedMember) -> str:
    """Return the whole identity of a dynamic member without a location."""
    return _hashed(f"member {member.member_id}")


def identity_before(member: SubscribedMember, shard: StateShard) -> str:
    """Return the whole identity that a member had in the ring of a shard that it brings.

    Another member may have joined with the same location since, so that neither has it now.
    """
    said = member.subscription.location
    if member.instance_id is None:
        return identity_of_location(said) if shard.located and said else identity_of_id(member)
    return identity_of(member)


def identities_of(member: SubscribedMember) -> tuple[str, ...]:
    """Return the whole identities under which a leader state may name a member.

    A member has the present identity, the one before, and that of the member id.
    """
    if member.instance_id is not None:
        return (identity_of(member),)
    shard = read_shard(member.subscription.leader_state)
    before = identity_of(member) if shard is None else identity_before(member, shard)
    return tuple(dict.fromkeys((identity_of(member), before, identity_of_id(member))))


def shown(identity: str) -> str:
    """Return the beginning of an identity in hex, for people."""
    return f"{int(identity[:32] or '0', 2):x}"


def hash_of_topic(topic: str) -> str:
    """Return the whole hash of a topic, as long as a member's; a shard has its first bits."""
    return _hashed(f"topic {topic}")


def planned_counts(
    partitions: Mapping[str, int], members: Sequence[SubscribedMember], leader_id: str
) -> bytes | None:
    """Return the counts of all subscribed topics; None if the leader is not static."""
    if not any(m.member_id == leader_id and m.instance_id is not None for m in members):
        return None
    named = {t for m in members for t in m.subscription.topics}
    return _written({t: count for t, count in partitions.items() if t in named})


def key_of(topic: str) -> bytes:
    """Return how the messages name a topic: four bytes of its hash."""
    return int(hash_of_topic(topic)[: 8 * HASH_BYTES], 2).to_bytes(HASH_BYTES, "big")


def _written(counts: Mapping[str, int]) -> bytes:
    writer = Writer(SCHEMA)
    for topic in sorted(counts):
        writer.raw(key_of(topic))
        writer.uvarint(counts[topic], "count")
    return writer.done()


def read_counts(data: bytes | None) -> tuple[tuple[bytes, int], ...]:
    """Read hashes of topics with their counts; nothing if nothing can be read."""
    reader = Reader(data or b"", SCHEMA)
    found = []
    try:
        while reader.n_left:
            start = reader.pos
            reader.skip(HASH_BYTES, "topic")
            found.append((reader.data[start : reader.pos], reader.uvarint("count")))
    except WireError:
        return ()
    return tuple(found)


def handed_out(planned: bytes | None) -> tuple[tuple[str, int], ...]:
    """Return the counts in a leader's assignment, each topic under its hash in hex."""
    return tuple((found.hex(), count) for found, count in read_counts(planned))


def with_names(
    planned: Sequence[tuple[str, int]], known: Sequence[tuple[str, int]]
) -> tuple[tuple[str, int], ...]:
    """Return the counts ``planned`` by topic; a hash becomes a name from ``known``.

    A topic that this process does not know keeps its hash.
    """
    if {topic for topic, _ in planned} <= {topic for topic, _ in known}:
        return tuple(planned)
    names = {key_of(topic).hex(): topic for topic, _ in known}
    return tuple(sorted((names.get(topic, topic), count) for topic, count in planned))


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedCounts:
    """The counts of one version of a worker's resources, by hash of the kind."""

    version: int
    counts: Mapping[bytes, int]

    def shared_with(self, own: Mapping[str, int]) -> dict[str, int]:
        """Return the counts of resources that are in this version and in ``own``."""
        counts = {kind: min(n, self.count_of(kind)) for kind, n in own.items()}
        return {kind: n for kind, n in counts.items() if n}

    def joined_with(self, own: Mapping[str, int]) -> dict[str, int]:
        """Return the counts of resources in this version or in ``own``, of the kinds in ``own``."""
        return {kind: max(n, self.count_of(kind)) for kind, n in own.items()}

    def count_of(self, kind: str) -> int:
        """Return how many resources of a kind this version has."""
        return self.counts.get(key_of(kind), 0)


def report_of(version: int, counts: Mapping[str, int]) -> bytes:
    """Return a version with its counts, for a subscription."""
    return _VERSION.pack(version) + _written(counts)


def version_of(member: SubscribedMember) -> int | None:
    """Return the version that a member reports, None if it reports none."""
    said = member.subscription.assignor_data or b""
    return _VERSION.unpack_from(said)[0] if len(said) >= _VERSION.size else None


def newest_reported(members: Sequence[SubscribedMember]) -> VersionedCounts | None:
    """Return the newest version that a member reports; None if no member reports one."""
    said = [m.subscription.assignor_data or b"" for m in members]
    reports = [
        (_VERSION.unpack_from(d)[0], d[_VERSION.size :]) for d in said if len(d) >= _VERSION.size
    ]
    if not reports:
        return None
    version, counts = max(reports)
    return VersionedCounts(version=version, counts=dict(read_counts(counts)))


def alike(one: str, other: str) -> bool:
    """Return whether two identities, cut to any size, are those of one member."""
    size = min(len(one), len(other))
    return size > 0 and one[:size] == other[:size]
