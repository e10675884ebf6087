"""The waiting checker's records of every round, and its reading of the leader state.

**Rules.**

- A record has the members of the round, the owner of each resource afterwards, and the absent
  members that resources wait for, with deadlines.
- Three things are read of the leader state: the round of a shard, the members that the shard names,
  and the remaining time in a list of what waits.
- A departed member is known if one of its three successors in the ring brings a shard of the last
  round, and what waits is known if the leader of that round or one of its three successors does.
  Only if the record came near its limit, so that shards may have been cut, the checker looks at the
  members that the shards name.

**Strategy.** Values and pure functions; :mod:`tests.proof.rules.waiting` keeps them over a run.

References: Incremental Cooperative Rebalancing, Design II.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.proof.rules.seen import Seen, SeenRound

from holdfast.core.machine.leader.subscriptions import hash_of_topic, identities_of, shown
from holdfast.core.machine.leader.successors import START_MS
from holdfast.core.machine.policy import Policy
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.state_shard import MemberEntry, StateShard, read_shard

EARLY_MS = 1_000  # so long before its deadline a resource may be assigned

ROOM = 4
"""A record, or the shards, of less than their limit by this factor are surely whole."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """The absent member that a resource waits for, and until when; no id: an unknown owner."""

    member_id: str
    instance_id: str | None
    identity: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class RecentChanges:
    """Members that joined recently and replaced none, vacancies, and the group's last growth.

    Recent joiners and vacancies count for the longest delay, by the checker's clock. A growth of
    None is so long ago that it does not count.
    """

    came: Mapping[str, int] = field(default_factory=dict)  # member -> when
    vacant_ms: tuple[int, ...] = ()  # since when
    grown_ms: int | None = None

    def at(self, now_ms: int, policy: Policy, slack_ms: int) -> RecentChanges:
        """Return what counts at ``now_ms``. A member's clock never exceeds the checker's ages."""
        lasts_ms = policy.longest_delay_ms
        grown_ms = self.grown_ms
        if grown_ms is not None and now_ms - grown_ms >= min(START_MS, lasts_ms) - EARLY_MS:
            grown_ms = None
        return RecentChanges(
            came={n: ms for n, ms in self.came.items() if now_ms - ms <= lasts_ms + slack_ms},
            vacant_ms=tuple(ms for ms in self.vacant_ms if now_ms - ms < lasts_ms - EARLY_MS),
            grown_ms=grown_ms,
        )


@dataclass(frozen=True, slots=True)
class PastRound:
    """A round as the checker saw it: its members, the owners after it, and what waited then."""

    generation: int
    present: frozenset[str]
    owner: Mapping[Resource, Awaited]  # with the deadline that the resource would have if lost now
    waiting: Mapping[Resource, Awaited]
    topics: frozenset[str]  # topics with an owned or waiting resource
    ring: tuple[tuple[str, str], ...]  # identities and ids, in order
    leader_id: str
    whole: bool  # whether there was room for all of the leader state
    promised_ms: Mapping[Resource, int]  # the list of what waits
    recent_changes: RecentChanges
    recent_joiners: tuple[str, ...]  # members that joined recently, as the leader state names them

    def holders(self, at: int) -> frozenset[str]:
        """Return members that carry the entry of the member at position ``at`` of the ring."""
        return frozenset(self.ring[(at + step) % len(self.ring)][1] for step in range(1, 4))

    def carriers(self) -> frozenset[str]:
        """Return members that carry the list of what waits."""
        ids = [name for _, name in self.ring]
        first = ids.index(self.leader_id) if self.leader_id in ids else 0
        return self.holders(first) | {ids[first]}


@dataclass(frozen=True, slots=True)
class Moment:
    """One round, beside the last round that its members can know."""

    seen: SeenRound
    policy: Policy
    past: PastRound | None
    owed: Mapping[Resource, Awaited]  # what waited after that round
    unknown: frozenset[Resource]  # owned by departed members that no shard names
    now_ms: int
    recent_changes: RecentChanges
    remains_ms: Mapping[Resource, int] | None = None  # of what waits, where no clock runs

    @property
    def there(self) -> frozenset[str]:
        """Return members of the last round that got something or know a generation.

        A member that got nothing and knows no generation is still a new member to the group.
        """
        if self.past is None:
            return frozenset()
        had = {w.member_id for w in self.past.owner.values()}
        new = {
            s.name
            for s in self.seen.members
            if not s.claims and s.subscription.generation < 0 and s.name not in had
        }
        return self.past.present - new

    def is_back(self, absent: Awaited) -> bool:
        """Return whether ``absent`` is in the round, by member id, instance id or location."""
        seen = self.seen
        known = absent.member_id in seen.present or absent.instance_id in seen.instances
        return known or absent.identity in seen.locations

    def left_ms(self, absent: Awaited) -> int:
        """Return how long the group continues to wait for an absent member, in ms."""
        return absent.deadline_ms - self.now_ms

    def without_clock(self) -> Moment:
        """Return the same round by the leader state alone: each promise less its age."""
        age_ms = max(s.subscription.state_age_ms for s in self.seen.members)
        promised_ms = {} if self.past is None else self.past.promised_ms
        return replace(self, remains_ms={r: ms - age_ms for r, ms in promised_ms.items()})


def brought_shards(past: PastRound, seen: SeenRound) -> dict[str, StateShard]:
    """Return shards of the last round that members bring into this one, by member."""
    held = {s.name: read_shard(s.subscription.leader_state) for s in seen.members}
    return {
        name: shard
        for name, shard in held.items()
        if shard is not None and shard.generation == past.generation
    }


def unknown_of(past: PastRound, seen: SeenRound) -> frozenset[Resource]:
    """Return resources of departed members, and waiting ones, that no shard names."""
    told = brought_shards(past, seen)
    locations = {identity: at for at, (identity, _) in enumerate(past.ring)}
    named = {n.identity for shard in told.values() for n in shard.neighbours if n.owned is not None}
    sizes = {len(identity) for identity in named}

    def known(identity: str) -> bool:
        if past.whole:
            return not told.keys().isdisjoint(past.holders(locations[identity]))
        return any(identity[:size] in named for size in sizes)

    known_of = {w.identity: known(w.identity) for w in past.owner.values()}
    # A member that is here under its old id says what it owned. A static member that was thrown out
    # and is back under a new id claims nothing, and its own shard names its neighbours alone.
    gone = {r: w.identity for r, w in past.owner.items() if w.member_id not in seen.present}
    lost = {r for r, identity in gone.items() if not known_of[identity]}
    if past.whole:
        lists = not told.keys().isdisjoint(past.carriers())
    else:
        lists = any(shard.waiting for shard in told.values())
    return frozenset(lost) | (frozenset() if lists else frozenset(past.waiting))


def had_room(at: Moment) -> bool:
    """Return whether a record is so small that nothing was left out of it."""
    shard_bytes = sum(len(s.assignment.leader_state or b"") for s in at.seen.members)
    n_listed = sum(64 + 32 * len(s.after) + s.member.size_bytes for s in at.seen.members)
    policy = at.policy
    return (
        shard_bytes * ROOM < policy.leader_state_limit_bytes
        and (n_listed + shard_bytes) * ROOM < policy.record_limit_bytes
    )


def new_members(at: Moment) -> list[Seen]:
    """Return members that joined with nothing an existing group; in later rounds, again."""
    if at.past is None:
        return []
    return [
        s
        for s in at.seen.members
        if not s.claims and s.subscription.generation < 0 and s.name not in at.there
    ]


def among(named: Iterable[str], identity: str) -> bool:
    """Return whether one of ``named``, which may be cut to any size, is ``identity``."""
    return any(identity.startswith(each) for each in named)


def _listed(seen: SeenRound) -> StateShard | None:
    """Return the first assigned shard with a list of what waits."""
    shards = (read_shard(s.assignment.leader_state) for s in seen.members)
    return next((shard for shard in shards if shard is not None and shard.waiting), None)


def recent_joiners(seen: SeenRound) -> tuple[str, ...]:
    """Return identities of members that joined recently."""
    shard = _listed(seen)
    waiting = () if shard is None else shard.waiting
    return tuple(m.identity for m in waiting if m.owned == () and m.identity)


def promised(seen: SeenRound) -> dict[Resource, int]:
    """Return the times in the list of what waits, in ms."""
    return {resource: m.delay_ms for m, resource in awaited_now(seen)}


def awaited_now(seen: SeenRound) -> list[tuple[MemberEntry, Resource]]:
    """Return what waits after a round."""
    shard = _listed(seen)
    if shard is None:
        return []
    return [(m, r) for m in shard.waiting for r in sorted(resources_of(m, shard, seen))]


def name_of(identity: str, at: Moment) -> str:
    """Return the member id of an identity in the leader state."""
    for s in at.seen.members:
        if identity and any(whole.startswith(identity) for whole in identities_of(s.member)):
            return s.name
    known = () if at.past is None else (*at.past.owner.values(), *at.past.waiting.values())
    found = (w.member_id for w in known if identity and w.identity.startswith(identity))
    return next(found, shown(identity))


def resources_of(member: MemberEntry, shard: StateShard, seen: SeenRound) -> frozenset[Resource]:
    """Return what a member owns by the leader state, topics by name."""
    size = shard.sizes.topic_bits
    names = {hash_of_topic(topic)[:size]: topic for topic in sorted(seen.subscribed)}
    owned = member.owned or ()
    return frozenset((names[t], p) for t, numbers in owned if t in names for p in numbers)
