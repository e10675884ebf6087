"""What the checker of waiting writes down of every round, and what it reads of the memory.

**Rules.**

- A record has the members that were there, the owner of each resource afterwards, and the absent
  members that are waited for until when.
- Three things are read of the memory: the round of a share, the members that the share names, and
  the remaining time in a list of what waits.
- A departed member is known if one of its three successors in the ring brings a share of the last
  round, and what waits is known if the leader of that round or one of its three successors does.
  Only if the record came near its limit, so that shares may have been cut, the checker looks at the
  members that the shares name.

**Strategy.** Values and pure functions; :mod:`tests.proof.rules.waiting` keeps them over a run.

References: Incremental Cooperative Rebalancing, Design II.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.proof.rules.seen import Seen, SeenTurn

from holdfast.core.machine.leader.ring import hash_of_topic, identities_of, shown
from holdfast.core.machine.leader.successors import START_MS
from holdfast.core.machine.policy import Policy
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.memory import RememberedMember, Share, read_share

EARLY_MS = 1_000  # so long before its deadline a resource may be handed out

ROOM = 4
"""A record, or the shares, of less than their limit by this factor are surely whole."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """The absent member that a resource waits for, and until when; no id: an unknown owner."""

    member_id: str
    instance_id: str | None
    identity: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Lately:
    """Members that came lately and took no place, places that are vacant, when the group grew.

    Arrivals and vacancies count for the longest delay, by the checker's clock. A growth of None is
    so long ago that it does not count.
    """

    came: Mapping[str, int] = field(default_factory=dict)  # member -> when
    vacant_ms: tuple[int, ...] = ()  # since when
    grown_ms: int | None = None

    def at(self, now_ms: int, policy: Policy, slack_ms: int) -> Lately:
        """What counts at ``now_ms``. Ages by a member's clock are never more than the checker's."""
        lasts_ms = policy.longest_delay_ms
        grown_ms = self.grown_ms
        if grown_ms is not None and now_ms - grown_ms >= min(START_MS, lasts_ms) - EARLY_MS:
            grown_ms = None
        return Lately(
            came={n: ms for n, ms in self.came.items() if now_ms - ms <= lasts_ms + slack_ms},
            vacant_ms=tuple(ms for ms in self.vacant_ms if now_ms - ms < lasts_ms - EARLY_MS),
            grown_ms=grown_ms,
        )


@dataclass(frozen=True, slots=True)
class SeenRound:
    """A round as the checker saw it: its members, the owners after it, and what waited then."""

    generation: int
    present: frozenset[str]
    owner: Mapping[Resource, Awaited]  # with the deadline that the resource would have if lost now
    waiting: Mapping[Resource, Awaited]
    topics: frozenset[str]  # of which something was owned or waited
    ring: tuple[tuple[str, str], ...]  # identities and ids, in order
    leader_id: str
    whole: bool  # whether there was room for all of the memory
    promised_ms: Mapping[Resource, int]  # what the list of what waits says
    lately: Lately
    arrived: tuple[str, ...]  # members that came lately, as the memory names them

    def holders(self, at: int) -> frozenset[str]:
        """Members that carry the facts about the member at the place ``at`` of the ring."""
        return frozenset(self.ring[(at + step) % len(self.ring)][1] for step in range(1, 4))

    def carriers(self) -> frozenset[str]:
        """Members that carry the list of what waits."""
        ids = [name for _, name in self.ring]
        first = ids.index(self.leader_id) if self.leader_id in ids else 0
        return self.holders(first) | {ids[first]}


@dataclass(frozen=True, slots=True)
class Moment:
    """One round, beside the last round of which its members can know."""

    turn: SeenTurn
    policy: Policy
    past: SeenRound | None
    owed: Mapping[Resource, Awaited]  # what waited after that round
    unknown: frozenset[Resource]  # owned by departed members that no share names
    now_ms: int
    lately: Lately
    remains_ms: Mapping[Resource, int] | None = None  # of what waits, where no clock runs

    @property
    def there(self) -> frozenset[str]:
        """Members of the last round, but for members that got nothing and know no generation.

        A member that got nothing and knows no generation is still a newcomer to the group.
        """
        if self.past is None:
            return frozenset()
        had = {w.member_id for w in self.past.owner.values()}
        new = {
            s.name
            for s in self.turn.members
            if not s.claims and s.subscription.generation < 0 and s.name not in had
        }
        return self.past.present - new

    def is_back(self, absent: Awaited) -> bool:
        """Whether ``absent`` is in the round, by its member id, instance id or place."""
        turn = self.turn
        known = absent.member_id in turn.present or absent.instance_id in turn.instances
        return known or absent.identity in turn.places

    def left_ms(self, absent: Awaited) -> int:
        """How long the group goes on waiting for an absent member."""
        return absent.deadline_ms - self.now_ms

    def without_clock(self) -> Moment:
        """The same round by the memory alone: what was promised, less the age of the promise."""
        age_ms = max(s.subscription.memory_age_ms for s in self.turn.members)
        promised_ms = {} if self.past is None else self.past.promised_ms
        return replace(self, remains_ms={r: ms - age_ms for r, ms in promised_ms.items()})


def told_shares(past: SeenRound, turn: SeenTurn) -> dict[str, Share]:
    """The shares of the last round that members bring into this one, by member."""
    held = {s.name: read_share(s.subscription.memory) for s in turn.members}
    return {
        name: share
        for name, share in held.items()
        if share is not None and share.generation == past.generation
    }


def unknown_of(past: SeenRound, turn: SeenTurn) -> frozenset[Resource]:
    """What departed members owned, and what waited, where no share of that round says so."""
    told = told_shares(past, turn)
    places = {identity: at for at, (identity, _) in enumerate(past.ring)}
    named = {n.identity for share in told.values() for n in share.neighbours if n.owned is not None}
    sizes = {len(identity) for identity in named}

    def known(identity: str) -> bool:
        if past.whole:
            return not told.keys().isdisjoint(past.holders(places[identity]))
        return any(identity[:size] in named for size in sizes)

    known_of = {w.identity: known(w.identity) for w in past.owner.values()}
    # A member that is here under its old id says what it owned. A static member that was thrown out
    # and is back under a new id claims nothing, and its own share names its neighbours alone.
    gone = {r: w.identity for r, w in past.owner.items() if w.member_id not in turn.present}
    lost = {r for r, identity in gone.items() if not known_of[identity]}
    if past.whole:
        lists = not told.keys().isdisjoint(past.carriers())
    else:
        lists = any(share.waiting for share in told.values())
    return frozenset(lost) | (frozenset() if lists else frozenset(past.waiting))


def had_room(at: Moment) -> bool:
    """Whether a record is so small that nothing was left out of it."""
    n_shares = sum(len(s.assignment.memory or b"") for s in at.turn.members)
    n_listed = sum(64 + 32 * len(s.after) + s.member.size_bytes for s in at.turn.members)
    policy = at.policy
    return (
        n_shares * ROOM < policy.memory_limit_bytes
        and (n_listed + n_shares) * ROOM < policy.record_limit_bytes
    )


def new_members(at: Moment) -> list[Seen]:
    """Members that came with nothing into a group that was there; in later rounds, again."""
    if at.past is None:
        return []
    return [
        s
        for s in at.turn.members
        if not s.claims and s.subscription.generation < 0 and s.name not in at.there
    ]


def among(named: Iterable[str], identity: str) -> bool:
    """Whether one of ``named``, which may be cut to any size, is ``identity``."""
    return any(identity.startswith(each) for each in named)


def _listed(turn: SeenTurn) -> Share | None:
    """The first share with a list of what waits that was assigned."""
    shares = (read_share(s.assignment.memory) for s in turn.members)
    return next((share for share in shares if share is not None and share.waiting), None)


def arrived(turn: SeenTurn) -> tuple[str, ...]:
    """Identities of members that came lately."""
    share = _listed(turn)
    waiting = () if share is None else share.waiting
    return tuple(m.identity for m in waiting if m.owned == () and m.identity)


def promised(turn: SeenTurn) -> dict[Resource, int]:
    """What the list of what waits says, in ms."""
    return {resource: m.delay_ms for m, resource in awaited_now(turn)}


def awaited_now(turn: SeenTurn) -> list[tuple[RememberedMember, Resource]]:
    """What waits after a round."""
    share = _listed(turn)
    if share is None:
        return []
    return [(m, r) for m in share.waiting for r in sorted(resources_of(m, share, turn))]


def name_of(identity: str, at: Moment) -> str:
    """The member id of an identity in the memory."""
    for s in at.turn.members:
        if identity and any(whole.startswith(identity) for whole in identities_of(s.member)):
            return s.name
    known = () if at.past is None else (*at.past.owner.values(), *at.past.waiting.values())
    found = (w.member_id for w in known if identity and w.identity.startswith(identity))
    return next(found, shown(identity))


def resources_of(member: RememberedMember, share: Share, turn: SeenTurn) -> frozenset[Resource]:
    """What a member owns by the memory, topics by name."""
    size = share.topic_bits
    names = {hash_of_topic(topic)[:size]: topic for topic in sorted(turn.subscribed)}
    owned = member.owned or ()
    return frozenset((names[t], p) for t, numbers in owned if t in names for p in numbers)
