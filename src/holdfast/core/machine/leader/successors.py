"""Successors: newcomers that came before the members whose places they take.

A Deployment of Kubernetes that surges starts the new process first and ends the old one when the
new one is ready. The group is then as strong as it was, so nobody is waited for. All examples are
a group of A, B and C with a delay of 60 s that has been as it is for a long time.

**Rules.**

1. An *arrival* is a newcomer that took no departed member's place, in a group that had not grown
   for 30 s (:data:`START_MS`), or for the delay if that is shorter. Newcomers in a group that grew
   more lately are its start, and make it grow. The memory keeps an arrival for the delay. Example:
   A, B and C start within 2 s: none of them is an arrival. D comes a minute later and is one.
2. A departed dynamic member that is no arrival has a *successor* if an arrival is here that
   subscribes to all it owned. What it owned does not wait then: it is dealt like partitions that
   nobody ever owned, as in Design I. Nobody gets more than its share, whatever it says. The arrival
   is forgotten: each departure needs one of its own. Oldest first. Example: D comes and takes its
   share of A's, B's and C's. 20 s later A leaves: what A owned goes to B, C and D at once. Then C
   dies, and what C owned waits. An arrival with a place
   (:mod:`holdfast.core.machine.leader.locations`) is a successor at once for 30 s only: a roll-out
   ends an old process as soon as the new one is ready. A member that departs later is waited for as
   long as a restart may take (:func:`short_wait_ms`), and only if it is not back then is it
   succeeded. Nobody tells a leader how long a restart takes, but the delay is to be longer than the
   slowest one: a quarter of it, and no less than 30 s, is the default of
   ``Policy.successor_delay_ms``. Example: D comes with a place, and two minutes later A is bounced.
   What A owned waits for A.
3. An arrival that departs is itself waited for, as anybody is. The newcomer that takes its place
   becomes the arrival, with the time that is left.
4. A departed member whose wait ran out leaves a *vacancy* for another delay. A newcomer that takes
   nobody's place fills one, and is no arrival then: it is the member that is back late. Example: A
   leaves, and 60 s later what A owned goes to B and C. A returns as D. Then B leaves, and is waited
   for as A was.
5. A member that was there and owns nothing is no arrival. Nor is one that is back, by identity or
   in the place of a departed one. Static members have no successors: only they come back. Nor is
   one whose place the memory knows. Where members have places, the memory keeps for the delay the
   identities of those that left and are not waited for: they have a successor, newcomers took all
   they had, or they owned nothing. No more of them than of arrivals; the newest count.
6. Unknown owners, if more than three neighbours of a member have gone with it, have a successor if
   one is left when all others are served, in a group without static members.
7. No more arrivals and vacancies are remembered than half of the members, and no more than
   :data:`MOST`: after a surge of all, one half of the members is new. Together they have no
   more times than a quarter of the members, and no more than :data:`MOST_TIMES`. Newcomers
   within 10 s of the latest arrival (:data:`TOGETHER_MS`) have its time. Who is not
   remembered is no successor.

How a member ended cannot be seen: a coordinator says neither that a member left nor that its
session ran out. So a death soon after a scale-up costs what it costs without a delay, and an old
process that is killed in a surge has a successor too. The memory does not name members without
partitions and without a place: if one of them bounces, where members are more than partitions, it
counts as an arrival.

**Strategy.** Pure functions from the entries of the memory to those of the next one. An entry's
age is the delay less what remains of it.

References: Incremental Cooperative Rebalancing, Design II, "Leader process": "if we detect a new
member, we want to utilize it immediately to resolve the imbalance".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.core.machine.leader.ring import identities_of, identity_of
from holdfast.core.machine.leader.state_reconstruction import LeaderState
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.machine.policy import Policy
from holdfast.core.model.columns import I32, NO_OWNER
from holdfast.core.wire.layouts.state_shard import MemberEntry

START_MS = 30_000
"""A group that starts is told from a surge by its pauses. The number is small beside a usual delay:
a surge that is taken for a start costs the delay, a start that is taken for a surge a few moves."""

TOGETHER_MS = 10_000
"""The processes of a surge start together, and one time for all of them is short."""

MOST = 512
"""A surge of a quarter of 2,000 members. The list of so many has 1.2 kB, and four members carry it;
a longer one could be larger than an honest subscription of a topic with few partitions."""

MOST_TIMES = 32
"""Times are the larger part of an entry, and the processes of a surge start together."""

_VACANCY = MemberEntry(identity="", static=True)
_GROWTH = MemberEntry(identity="")
_LEFT = MemberEntry(identity="", owned=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentJoiner:
    """A newcomer that may be a successor."""

    who: MemberEntry  # its entry of the memory
    member: int  # its index in the round, -1 if it has departed
    age_ms: int  # since it came
    early: bool = False  # whether it came too early to be a successor at once (rule 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentJoiners:
    """Who came lately, oldest first."""

    open: tuple[RecentJoiner, ...] = ()  # those that may be successors
    vacant_ms: tuple[int, ...] = ()  # the ages of vacancies
    grown_ms: int | None = None  # since the group grew; None if that is longer ago than counts
    # Identities of those that left and are not waited for, and how long ago; the newest first.
    left: tuple[tuple[str, int], ...] = ()

    @property
    def members(self) -> frozenset[int]:
        """Indices of the arrivals that are here."""
        return frozenset(a.member for a in self.open if a.member >= 0)

    def entries(self, policy: Policy) -> tuple[MemberEntry, ...]:
        """As they stand in the memory."""
        left_ms = policy.recent_ms
        kept = [replace(_VACANCY, delay_ms=left_ms - ms) for ms in self.vacant_ms]
        kept += [replace(a.who, delay_ms=left_ms - a.age_ms) for a in self.open]
        if self.grown_ms is not None:
            kept.append(replace(_GROWTH, delay_ms=left_ms - self.grown_ms))
        kept += [replace(_LEFT, identity=who, delay_ms=left_ms - ms) for who, ms in self.left]
        return tuple(entry for entry in kept if entry.delay_ms > policy.tolerance_ms)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Departures:
    """The departed members of a round."""

    # sequence of (str, int32[...]): identities, and what waited of each before the newcomers were
    # served.
    waited: Sequence[tuple[str, I32]] = ()
    ran_out: int = 0  # how many are waited for no longer, because their time is over
    at_once: Sequence[str] = ()  # identities of those that are not waited for at all


def short_wait_ms(policy: Policy) -> int:
    """How long a member is waited for that an early arrival may succeed (rule 2)."""
    said_ms, longest_ms = policy.successor_delay_ms, policy.longest_delay_ms
    return min(max(START_MS, longest_ms // 4) if said_ms is None else said_ms, longest_ms)


def start_ms(policy: Policy) -> int:
    """How long a group must not have grown before a newcomer is an arrival."""
    return min(START_MS, policy.longest_delay_ms) - policy.tolerance_ms


def most_recent_changes(members: int) -> int:
    """How many arrivals and vacancies a group of so many members remembers (rule 7)."""
    return min(MOST, max(1, members // 2))


def most_times(members: int) -> int:
    """How many times these have together (rule 7)."""
    return min(MOST_TIMES, max(1, members // 4))


def restored(
    policy: Policy, members: Sequence[SubscribedMember], leader_state: LeaderState | None
) -> RecentJoiners:
    """The arrivals of a round by the memory; without any the group starts (rule 1)."""
    if leader_state is None:
        return RecentJoiners(grown_ms=0)
    most_ms = policy.recent_ms
    remains = [e for e in leader_state.recent_changes if e.delay_ms > policy.tolerance_ms]
    entries = [e for e in remains if e.owned is not None]
    sizes = {len(e.identity) for e in remains}
    found = {w[:n]: i for i, m in enumerate(members) for w in identities_of(m) for n in sizes}
    came = [
        RecentJoiner(
            who=e,
            member=(at := found.get(e.identity, -1)),
            age_ms=(ms := most_ms - e.delay_ms),
            early=at >= 0 and members[at].location != b"" and ms >= start_ms(policy),
        )
        for e in entries
        if e.identity
    ]
    left = [(e.identity, most_ms - e.delay_ms) for e in remains if e.owned is None]
    grown = [most_ms - e.delay_ms for e in entries if not e.identity and not e.static]
    grown = [ms for ms in grown if ms < start_ms(policy)]
    return RecentJoiners(
        open=tuple(
            sorted(
                (a for a in came if a.member < 0 or members[a.member].stays),
                key=lambda a: (-a.age_ms, a.who.identity),
            )
        ),
        vacant_ms=tuple(most_ms - e.delay_ms for e in entries if e.static and not e.identity),
        grown_ms=min(grown, default=None),
        left=tuple(sorted(left, key=lambda each: (each[1], each[0]))),
    )


def served_by(
    recent_joiners: RecentJoiners,
    subscribed: Mapping[int, Collection[int]],
    wanted: Sequence[Collection[int]],
) -> tuple[frozenset[int], RecentJoiners]:
    """Which departed members have a successor, and the arrivals that are left (rule 2).

    Parameters
    ----------
    subscribed : mapping of int to collection of int
        Topics of each arrival, by its index in the round.
    wanted : sequence of collection of int
        Topics of what each departed member owned.

    Returns
    -------
    frozenset of int, Arrivals
        Indices into ``wanted``.
    """
    pairs = _paired([a for a in recent_joiners.open if not a.early], subscribed, wanted)
    used = list(pairs.values())
    return frozenset(pairs), replace(
        recent_joiners,
        open=tuple(a for a in recent_joiners.open if not any(a is each for each in used)),
    )


def hurried(
    recent_joiners: RecentJoiners,
    subscribed: Mapping[int, Collection[int]],
    wanted: Sequence[Collection[int]],
) -> frozenset[int]:
    """Which departed members an early arrival may succeed (rule 2); as for :func:`served_by`."""
    return frozenset(_paired([a for a in recent_joiners.open if a.early], subscribed, wanted))


def _paired(
    open_: Iterable[RecentJoiner],
    subscribed: Mapping[int, Collection[int]],
    wanted: Sequence[Collection[int]],
) -> dict[int, RecentJoiner]:
    """The successor of each departed member that has one."""
    left, pairs = list(open_), {}
    for at, topics in enumerate(wanted):
        fits = (a for a in left if a.member >= 0 and set(topics) <= set(subscribed[a.member]))
        if (successor := next(fits, None)) is not None:
            left.remove(successor)
            pairs[at] = successor
    return pairs


def after_round(
    policy: Policy,
    recent_joiners: RecentJoiners,
    new_members: Sequence[int],
    members: Sequence[SubscribedMember],
    *,
    departed: Departures,
    reserved: I32,
) -> RecentJoiners:
    """The arrivals with those of this round, in which departed ones were replaced (rules 1 to 4).

    Parameters
    ----------
    newcomers : sequence of int
        Members that came in this round and are no arrivals yet.
    pinned : int32[n_tps]
        What members were given of what waited.
    """
    given = set(reserved.tolist())
    kept: list[RecentJoiner] = []
    used_up = [a for a in recent_joiners.open if a.early][: departed.ran_out]
    for a in recent_joiners.open:
        if a.member >= 0:
            kept += [a] if a.member not in given and a not in used_up else []
            continue
        waited = [tps for who, tps in departed.waited if alike(who, a.who.identity)]
        takers = [i for tps in waited for i in reserved[tps].tolist() if i in new_members]
        if takers:
            kept.append(_recent_joiner(members, takers[0], a.age_ms))
        elif any(map(len, waited)):
            kept.append(a)
    vacant = [*recent_joiners.vacant_ms, *[0] * departed.ran_out]
    fresh = [i for i in new_members if i not in given]
    filled = min(len(fresh), len(vacant))
    fresh, vacant = fresh[filled:], vacant[filled:]
    grown_ms = recent_joiners.grown_ms
    if grown_ms is None:
        latest_ms = min((a.age_ms for a in kept), default=TOGETHER_MS)
        age_ms = latest_ms if latest_ms < TOGETHER_MS else 0
        kept += [_recent_joiner(members, i, age_ms) for i in fresh]
    elif fresh:
        grown_ms = 0
    most = most_times(len(members))
    vacant = vacant[:most]
    return RecentJoiners(
        open=_fitting(kept, most_recent_changes(len(members)) - len(vacant), most - len(vacant)),
        vacant_ms=tuple(vacant),
        grown_ms=grown_ms,
        left=_left(recent_joiners, members, departed, reserved)[:most],
    )


def joined_recently(
    policy: Policy,
    recent_joiners: RecentJoiners,
    came: Sequence[int],
    members: Sequence[SubscribedMember],
) -> RecentJoiners:
    """Every member that joined recently and is here, whatever it took, for ``Policy.needs_ages``.

    Parameters
    ----------
    came : sequence of int
        The newcomers of this round.

    Notes
    -----
    So that no more than :data:`MOST_TIMES` times are remembered, newcomers that come close to the
    latest one have its age. Of more than :data:`MOST` those that came last are not remembered.
    """
    here = [a for a in recent_joiners.open if a.member >= 0]
    step_ms = policy.recent_ms // MOST_TIMES
    latest_ms = min((a.age_ms for a in here), default=step_ms)
    age_ms = latest_ms if latest_ms < step_ms else 0
    known = recent_joiners.members
    here += [_recent_joiner(members, i, age_ms) for i in came if i not in known]
    return RecentJoiners(open=tuple(here[:MOST]))


def _fitting(
    recent_joiners: Sequence[RecentJoiner], most: int, times: int
) -> tuple[RecentJoiner, ...]:
    """The first arrivals, as many as are remembered and with as many times (rule 7)."""
    known = sorted({a.age_ms for a in recent_joiners}, reverse=True)[:times]
    return tuple(a for a in recent_joiners if a.age_ms in known)[:most]


def _left(
    recent_joiners: RecentJoiners,
    members: Sequence[SubscribedMember],
    departed: Departures,
    reserved: I32,
) -> tuple[tuple[str, int], ...]:
    """Who left, is not waited for and may be back (rule 5), the newest first."""
    if not any(m.location for m in members):
        return ()
    taken = [who for who, tps in departed.waited if (reserved[tps] != NO_OWNER).all()]
    new = sorted({who for who in (*departed.at_once, *taken) if who})
    here = [whole for m in members for whole in identities_of(m)]
    old = [
        (who, ms)
        for who, ms in recent_joiners.left
        if who not in new and not any(alike(who, whole) for whole in here)
    ]
    return (*((who, 0) for who in new), *old)


def alike(one: str, other: str) -> bool:
    """Whether two identities, cut to any size, are of one member."""
    size = min(len(one), len(other))
    return size > 0 and one[:size] == other[:size]


def _recent_joiner(members: Sequence[SubscribedMember], member: int, age_ms: int) -> RecentJoiner:
    who = MemberEntry(
        identity=identity_of(members[member]), static=members[member].instance_id is not None
    )
    return RecentJoiner(who=who, member=member, age_ms=age_ms)
