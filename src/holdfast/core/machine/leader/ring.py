"""The leader state of a round, divided among its members, and cut to the group's record.

**Rules.**

1. The *identity* of a member (:mod:`holdfast.core.machine.leader.subscriptions`) is a hash of its
   instance id if it is static, else of its location, or of its member id if it has no location.
   Members in the order of their identities are a *ring*: the first one follows the last one. A
   topic is named by a hash, too. Hashes are cut to so many bits that a member, or a topic, that
   comes later is unlikely to have the hash of one of the round
   (:data:`~holdfast.core.wire.layouts.state_shard.CHANCE_BITS`), and to more where two are equal.
   Example: the only topic is t, and C owns all of it. C dies, and A subscribes to u as well. The
   hash of u differs from that of t, so C owned nothing of u, although no member is left that claims
   anything of t.
2. The shard of a member names its three predecessors in the ring: their identities, and what they
   own after the round. So three members know what a member owned, and the member's own claim says
   it too. Any three members may die at once: of a dead member and its three holders one is alive.
   Example: a ring of A, B, C, D and E. C carries A, B and E; what A owned is known to B, C and D.
3. A shard describes the ring completely from behind its fourth predecessor, whose identity it has,
   to its own member. A member in that arc that owns nothing is named only if it has a location:
   when it comes back, it is recognised and is not a new member. Example: A, B and E die. C names
   them and says that no member is between D and E.
4. The leader and three other members carry the list of what waits: if the leader did not join
   recently (:mod:`holdfast.core.machine.leader.successors`), members that did, else members that
   did not. The next ones in the ring are taken; if they are fewer than three, the rest is of the
   other kind. So the list survives if all old members leave at once, or all new ones. All other
   members carry its digest, which says which list is true. A list without partitions only names
   members that joined recently; it has no digest. Example: A leads A, B and C, and D, E and F join
   recently. A, D, E and F carry the list.
5. The pace of Design III is in every shard.
6. Parts of shards that are too large are left out in the order of :class:`LeftOut`.
7. A coordinator writes one record a generation, with the subscription and the assignment of every
   member. The record contains the shards twice: as members brought them, and as the leader sends
   them now. No more parts are left out than necessary, until the shards fit
   ``Policy.leader_state_limit_bytes``, and the records of this round and, if nothing happens, of
   the next fit ``Policy.record_limit_bytes``. A leader sees neither client ids nor client hosts nor
   the group's name. Their lengths are estimated, and the configured limit leaves room for longer
   ones.

**Strategy.** Each member's entry is written once; a shard is a few entries joined. The work is
linear in the members and in the partitions that they own. Sizes of a record are sums of known
sizes; only the shards are encoded to be measured.

References: Incremental Cooperative Rebalancing, Design II, "Leader exits"; Stoica et al., "Chord",
whose successor lists hold copies in the same way; ``message.max.bytes``;
:mod:`holdfast.core.wire.layouts.record_size`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from holdfast.core.machine.leader.subscriptions import SubscribedMember, hash_of_topic, identity_of
from holdfast.core.machine.policy import Policy
from holdfast.core.model.partitions import TopicPartitions, merge_topics
from holdfast.core.wire.layouts.record_size import estimate_group_bytes
from holdfast.core.wire.layouts.state_shard import (
    COPIES,
    CROWDS,
    HASH_BITS,
    LONGER,
    SHORT_BITS,
    TOPICS,
    MemberBits,
    MemberEntry,
    Sizes,
    digest_of,
    encode_neighbour,
    encode_waiting,
    join_shard,
)

GROUP_BYTES = 300
"""Bytes of the group's name, which a leader does not see, and of lengths that may grow."""

FRAME_BYTES = 30
"""Upper bound in bytes of an assignment's frame and message, without lists and shard."""

CHANGE_BYTES = 12
"""Bytes by which times and numbers in a subscription may grow until the next round."""


class LeftOut(IntEnum):
    """Parts that are left out for size; each step leaves out what the steps before it do, too."""

    NOTHING = 0
    THIRD_COPIES = 1
    SECOND_COPIES = 2
    OWNED = 3  # shards name members, and not what they owned
    SHARDS = 4  # only what waits is carried
    LISTS = 5  # only the leader carries the list of what waits
    UNCHANGED = 6  # assignments list what is new, and not what a member keeps
    STATE = 7  # no member carries anything


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundState:
    """The state of a round that the next leader needs."""

    generation: int
    # The member that leads it; if it is not in the round, the first member of the ring.
    leader_id: str
    members: tuple[SubscribedMember, ...]
    # What a member owns after the round, by member id; a member without an entry owns nothing.
    owned: Mapping[str, TopicPartitions]
    # Departed members with the time and the partitions that wait; topics by name.
    waiting: tuple[MemberEntry, ...] = ()
    pace_ms: int = 0  # Design III: how long until the next batch


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAssignment:
    """The planned assignment of one member in one round: next = (owned - revoked) + gained.

    ``kept`` are the member's claims that it keeps.
    """

    kept: TopicPartitions
    gained: TopicPartitions
    revoked: TopicPartitions

    @property
    def listed(self) -> TopicPartitions:
        """All that the member is to own, by topic."""
        return merge_topics((*self.kept, *self.gained)) if self.gained else self.kept


def shards(leader_state: RoundState, left_out: LeftOut = LeftOut.NOTHING) -> dict[str, bytes]:
    """Return the shard of each member, by member id; empty bytes for no shard.

    Notes
    -----
    Cost: linear in the members and in the partitions that they own.
    """
    ring = sorted(leader_state.members, key=lambda m: (identity_of(m), m.member_id))
    if not ring or left_out >= LeftOut.STATE:
        return dict.fromkeys((m.member_id for m in ring), b"")
    sizes, short = _sizes(ring, leader_state)
    copies = 0 if left_out >= LeftOut.SHARDS else max(1, COPIES - left_out)
    identities = [identity_of(m)[: sizes.identity_bits] for m in ring]
    entries: list[tuple[str, MemberBits]] = []
    if copies:
        names_owned = left_out < LeftOut.OWNED
        entries = [
            (identity, encode_neighbour(_entry(m, leader_state.owned, short, names_owned), sizes))
            for identity, m in zip(identities, ring, strict=True)
        ]
    waiting = _list_of(leader_state.waiting, ring, short, sizes) if leader_state.waiting else None
    digest = digest_of(waiting) if waiting and any(w.owned for w in leader_state.waiting) else b""
    carriers = _carriers(ring, leader_state, 1 if left_out >= LeftOut.LISTS else 1 + COPIES)
    result = {}
    for at, member in enumerate(ring):
        carries = waiting is not None and at in carriers
        if not copies and not carries:
            result[member.member_id] = b""
            continue
        before = min(copies, len(ring) - 1)
        positions = [(at - back) % len(ring) for back in range(before, 0, -1)]
        whole = bool(copies) and before == len(ring) - 1
        result[member.member_id] = join_shard(
            sizes,
            generation=leader_state.generation,
            pace_ms=leader_state.pace_ms,
            whole=whole,
            after="" if whole or not copies else identities[(at - before - 1) % len(ring)],
            neighbours=[entries[p] for p in positions if _is_named(ring[p], leader_state)],
            waiting=waiting if carries else None,
            digest=digest,
            located=member.location != b"",
        )
    return result


def _is_named(member: SubscribedMember, leader_state: RoundState) -> bool:
    """Return whether the shards of others name a member (rule 3)."""
    return member.member_id in leader_state.owned or member.location != b""


def _sizes(
    ring: Sequence[SubscribedMember], leader_state: RoundState
) -> tuple[Sizes, Mapping[str, str]]:
    """Return the sizes of the fields in the shards, and the hash of each topic cut to its size."""
    owned = [*leader_state.owned.values(), *(w.owned or () for w in leader_state.waiting)]
    named = {topic for own in owned for topic, _ in own}
    subscribed = {m.subscription.topics for m in ring}
    topics = named.union(*subscribed)
    numbers = [numbers for own in owned for _, numbers in own if numbers]
    counts = sorted(map(len, numbers))
    sizes = Sizes(
        crowd=_logarithm(len(ring), CROWDS),
        topics=_logarithm(len(topics), TOPICS),
        partition_bits=max(map(max, numbers), default=0).bit_length(),
        usual_count=counts[len(counts) // 2] if counts else 1,
    )
    hashes = [hash_of_topic(topic) for topic in topics]
    identities = [identity_of(m) for m in ring]
    identities += [w.identity for w in leader_state.waiting if w.owned and w.identity]
    longer = _fewest(hashes, sizes.topic_bits)
    sizes = sizes._replace(longer=max(longer, _fewest(identities, sizes.identity_bits)))
    if not sizes.topics:
        only = hashes[0] if hashes else "0" * HASH_BITS
        sizes = sizes._replace(only_topic=only[: sizes.topic_bits])
    return sizes, {topic: hash_of_topic(topic)[: sizes.topic_bits] for topic in named}


def _logarithm(count: int, values: range) -> int:
    """Return the logarithm to base 2, rounded up, within ``values``."""
    return min(max(0, count - 1).bit_length(), values[-1])


def _entry(
    member: SubscribedMember,
    owned: Mapping[str, TopicPartitions],
    short: Mapping[str, str],
    names_owned: bool,
) -> MemberEntry:
    """Return the entry of a member for the shards of others."""
    own: TopicPartitions | None = _hashed_topics(owned.get(member.member_id, ()), short)
    if own and not names_owned:
        own = None
    return MemberEntry(
        identity=identity_of(member), static=member.instance_id is not None, owned=own
    )


def _list_of(
    waiting: Sequence[MemberEntry],
    ring: Sequence[SubscribedMember],
    short: Mapping[str, str],
    sizes: Sizes,
) -> str:
    """Return the list of what waits as bits.

    Identities of members that joined or left recently have as few bits as tell them from others.
    """
    # Entries without partitions come in hundreds after a surge, so their identities are as short as
    # can be told apart; where a short one is ambiguous, it is sent in full size.
    whole = [identity_of(m) for m in ring] if any(not w.owned for w in waiting) else []
    begins = Counter(identity[:SHORT_BITS] for identity in whole)
    alone = {w[:SHORT_BITS]: w for w in whole if begins[w[:SHORT_BITS]] == 1}

    def cut(identity: str) -> str:
        begin = identity[:SHORT_BITS]
        known = alone.get(begin, "").startswith(identity) or not begins[begin]
        return begin if known else identity[: sizes.identity_bits]

    return encode_waiting(
        [
            replace(
                w,
                identity=w.identity[: sizes.identity_bits],
                owned=_hashed_topics(w.owned, short),
            )
            if w.owned
            else replace(w, identity=cut(w.identity))
            for w in waiting
        ],
        sizes,
    )


def _hashed_topics(owned: TopicPartitions, short: Mapping[str, str]) -> TopicPartitions:
    return merge_topics((short[topic], numbers) for topic, numbers in owned if numbers)


def _carriers(
    ring: Sequence[SubscribedMember], leader_state: RoundState, count: int
) -> frozenset[int]:
    """Return the positions in the ring of the members that carry the list (rule 4)."""
    first = next((at for at, m in enumerate(ring) if m.member_id == leader_state.leader_id), 0)
    came = {w.identity for w in leader_state.waiting if not w.owned and w.owned is not None}
    sizes = {len(identity) for identity in came} - {0}
    recent = [any(identity_of(m)[:n] in came for n in sizes) for m in ring]
    others = [(first + step) % len(ring) for step in range(1, len(ring))]
    others.sort(key=lambda at: recent[at] == recent[first])
    return frozenset([first, *others][:count])


def _fewest(hashes: Iterable[str], size: int) -> int:
    """Return by how many more bits than ``size`` all hashes differ, else the most there may be."""
    found = set(hashes)  # a member that waits by kinds is there more than once
    for longer in LONGER:
        if len({h[: size + longer] for h in found}) == len(found):
            return longer
    return LONGER[-1]


def fitting_shards(
    policy: Policy,
    members: Sequence[SubscribedMember],
    assignments: Mapping[str, PlannedAssignment],
    leader_state: RoundState | None,
    *,
    planned_bytes: int,
) -> tuple[LeftOut, dict[str, bytes]]:
    """Return the shards that fit (rule 7), by member id, and the parts left out for that.

    References: ``message.max.bytes``; Incremental Cooperative Rebalancing, "Leader exits".
    """
    ids = GROUP_BYTES + estimate_group_bytes((m.member_id, m.instance_id, 0) for m in members)
    now = ids + sum(m.size_bytes for m in members)
    later = ids + sum(_later_bytes(m, assignments[m.member_id]) for m in members)
    shorter = full = planned_bytes
    for m in members:
        planned = assignments[m.member_id]
        gained = FRAME_BYTES + _listed_bytes(planned.gained) + _listed_bytes(planned.revoked)
        kept = _listed_bytes(planned.kept)
        full += gained + kept
        shorter += gained + (kept if m.instance_id is not None else 0)
    if policy.omit_unchanged:
        full = shorter
    for left_out in LeftOut:
        given = {} if leader_state is None else shards(leader_state, left_out)
        size = sum(map(len, given.values()))
        assigned = full if left_out < LeftOut.UNCHANGED else shorter
        # Two records have to fit: that of this round, with the old shards as members brought them,
        # and that of the next one, in which the new shards are sent in both directions.
        record = max(now + assigned + size, later + assigned + 2 * size)
        if size <= policy.leader_state_limit_bytes and record <= policy.record_limit_bytes:
            return left_out, given
    return LeftOut.STATE, {}


def _later_bytes(member: SubscribedMember, planned: PlannedAssignment) -> int:
    """Return the size of the member's next subscription without its shard, if nothing happens."""
    said = member.subscription
    before = len(said.leader_state or b"") + _listed_bytes(said.owned)
    after = _listed_bytes(planned.kept) + _listed_bytes(planned.gained)
    return (
        max(0, member.size_bytes - before) + after + _listed_bytes(planned.revoked) + CHANGE_BYTES
    )


def _listed_bytes(partitions: TopicPartitions) -> int:
    """Return the bytes of a list of partitions in Kafka's messages."""
    return sum(6 + len(topic.encode()) + 4 * len(numbers) for topic, numbers in partitions)
