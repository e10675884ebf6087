"""Successors: new members that joined before the members that they replace departed.

A Deployment of Kubernetes that surges starts the new process first and ends the old one when the
new one is ready. The group is then as strong as before, so it waits for no member. All examples are
a group of A, B and C with a delay of 60 s that has not changed for a long time.

**Rules.** The docstring of the function that a rule names has the whole rule and its example, and
``tests/machine/test_successors.py`` plays each example.

1. A new member in a group that has not grown recently is a *recent joiner* (:func:`_joined`).
2. A departed member has a *successor* if a recent joiner subscribes to all topics of what it owned
   (:func:`served_by`). A recent joiner with a location is a successor at once for a short time
   only; after that time the group first waits for the departed member (:func:`hurried`).
3. The group waits for a recent joiner that departs; who replaces it is a recent joiner, too
   (:func:`_remaining`).
4. A departed member whose wait ran out leaves a *vacancy*, which the next new member fills
   (:func:`_vacancies`).
5. A member that is back by identity or location is no successor, and static members have none
   (:func:`_left`; :mod:`~holdfast.core.machine.leader.delayed_rebalance` leaves them out).
6. Unknown owners have a successor if one is left when all others are served, in a group without
   static members (``_succeeded_topics`` of the same module).
7. The leader state keeps a bounded number of recent joiners and of times (:func:`_fitting`).

A leader cannot see how a member ended: a coordinator says neither that a member left nor that its
session expired. So a death soon after a scale-up costs what it costs without a delay, and an old
process that is killed in a surge has a successor too. The leader state does not name members
without partitions and without a location: if one of them bounces in a group of more members than
partitions, it counts as a recent joiner.

**Strategy.** Pure functions from the entries of the leader state to those of the next one. An
entry's age is the delay less what remains of it.

References: Incremental Cooperative Rebalancing, Design II, "Leader process": "if we detect a new
member, we want to utilize it immediately to resolve the imbalance".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.core.machine.leader.state_reconstruction import LeaderState
from holdfast.core.machine.leader.subscriptions import (
    SubscribedMember,
    alike,
    identities_of,
    identity_of,
)
from holdfast.core.machine.policy import TOLERANCE_MS, Policy
from holdfast.core.model.columns import I32, NO_OWNER
from holdfast.core.wire.layouts.state_shard import MemberEntry

START_MS = 30_000
"""Pauses between joins tell the start of a group from a surge.

The number is small beside a usual delay: a surge that is taken for a start costs the delay, a start
that is taken for a surge a few moves.
"""

TOGETHER_MS = 10_000
"""The processes of a surge start together, and one time for all of them is short."""

MOST = 512
"""The size of a surge of a quarter of 2,000 members.

The list of so many has 1.2 kB, and four members carry it; a longer list could be larger than an
honest subscription of a topic with few partitions.
"""

MOST_TIMES = 32
"""Distinct times that are kept: processes of a surge start together.

Times are the larger part of an entry.
"""

_VACANCY = MemberEntry(identity="", static=True)
_GROWTH = MemberEntry(identity="")
_LEFT = MemberEntry(identity="", owned=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentJoiner:
    """A new member that may be a successor."""

    who: MemberEntry  # its entry of the leader state
    member: int  # index in the round, -1 if it has departed
    age_ms: int  # since it joined
    early: bool = False  # whether it joined too early to be a successor at once (rule 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentJoiners:
    """Members that joined or left recently, oldest joiner first."""

    open: tuple[RecentJoiner, ...] = ()  # those that may be successors
    vacant_ms: tuple[int, ...] = ()  # the ages of vacancies
    grown_ms: int | None = None  # since the group grew; None if too long ago to count
    # Identities of members that left and that nothing waits for, and how long ago; newest first.
    left: tuple[tuple[str, int], ...] = ()

    @property
    def members(self) -> frozenset[int]:
        """Indices of the recent joiners that are in the round."""
        return frozenset(a.member for a in self.open if a.member >= 0)

    def entries(self, policy: Policy) -> tuple[MemberEntry, ...]:
        """Return the entries of the leader state for recent joiners, vacancies and growth."""
        left_ms = policy.recent_ms
        kept = [replace(_VACANCY, delay_ms=left_ms - ms) for ms in self.vacant_ms]
        kept += [replace(a.who, delay_ms=left_ms - a.age_ms) for a in self.open]
        if self.grown_ms is not None:
            kept.append(replace(_GROWTH, delay_ms=left_ms - self.grown_ms))
        kept += [replace(_LEFT, identity=who, delay_ms=left_ms - ms) for who, ms in self.left]
        return tuple(entry for entry in kept if entry.delay_ms > TOLERANCE_MS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Departures:
    """The departed members of a round."""

    # sequence of (str, int32[...]): identities, and what waited for each before new members were
    # served.
    waited: Sequence[tuple[str, I32]] = ()
    ran_out: int = 0  # how many have waited until their deadline
    at_once: Sequence[str] = ()  # identities of members that nothing waits for


def short_wait_ms(policy: Policy) -> int:
    """Return how long a member waits that an early joiner may succeed, in ms.

    Rule 2. A leader does not know how long a restart takes, but the delay is to be longer than the
    slowest one: a quarter of it, and no less than 30 s, is the default of
    ``Policy.successor_delay_ms``.
    """
    said_ms, longest_ms = policy.successor_delay_ms, policy.longest_delay_ms
    return min(max(START_MS, longest_ms // 4) if said_ms is None else said_ms, longest_ms)


def start_ms(policy: Policy) -> int:
    """Return how long a group must not have grown before a new member is a recent joiner, in ms.

    Rule 1. 30 s (:data:`START_MS`), or the delay if that is shorter.
    """
    return min(START_MS, policy.longest_delay_ms) - TOLERANCE_MS


def most_recent_changes(members: int) -> int:
    """Return how many recent joiners and vacancies the leader state keeps (rule 7)."""
    return min(MOST, max(1, members // 2))


def most_times(members: int) -> int:
    """Return how many distinct times recent joiners and vacancies have together (rule 7)."""
    return min(MOST_TIMES, max(1, members // 4))


def restored(
    policy: Policy, members: Sequence[SubscribedMember], leader_state: LeaderState | None
) -> RecentJoiners:
    """Return the recent joiners by the leader state; without one the group starts (rule 1)."""
    if leader_state is None:
        return RecentJoiners(grown_ms=0)
    most_ms = policy.recent_ms
    remains = [e for e in leader_state.recent_changes if e.delay_ms > TOLERANCE_MS]
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
    """Find the departed members with a successor, and the recent joiners that are left.

    Rule 2. A departed dynamic member that is not a recent joiner has a successor if a recent joiner
    in the round subscribes to all topics of what it owned. What it owned does not wait then: it is
    assigned like partitions that never had an owner, as in Design I. No member gets more than its
    fair quota, whatever it reports. The recent joiner is forgotten: each departure needs one of its
    own. The oldest is used first.

    Example: D joins and gets a fair part of what A, B and C have. 20 s later A leaves: what A owned
    goes to B, C and D at once. Then C dies, and what C owned waits.

    Parameters
    ----------
    subscribed : mapping of int to collection of int
        Topics of each recent joiner, by its index in the round.
    wanted : sequence of collection of int
        Topics of what each departed member owned.

    Returns
    -------
    frozenset of int, RecentJoiners
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
    """Return the departed members that an early joiner may succeed, by index.

    Rule 2. A recent joiner with a location is a successor at once for 30 s only: a roll-out ends an
    old process as soon as the new one is ready. The group waits for a member that departs later as
    long as a restart may take (:func:`short_wait_ms`), and the recent joiner succeeds it only if it
    is not back then.

    Example: D joins with a location, and two minutes later A is bounced. What A owned waits for A.

    Parameters are those of :func:`served_by`.
    """
    return frozenset(_paired([a for a in recent_joiners.open if a.early], subscribed, wanted))


def _paired(
    open_: Iterable[RecentJoiner],
    subscribed: Mapping[int, Collection[int]],
    wanted: Sequence[Collection[int]],
) -> dict[int, RecentJoiner]:
    """Return the successor of each departed member that has one, by index."""
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
    """Return the recent joiners after a round, in which new members replaced departed ones.

    Parameters
    ----------
    new_members : sequence of int
        Members that joined in this round and are not recent joiners yet.
    reserved : int32[n_tps]
        Members that get what waited, or NO_OWNER.
    """
    kept = _remaining(recent_joiners, members, new_members, departed, reserved)
    given = set(reserved.tolist())
    fresh, vacant = _vacancies(
        recent_joiners, [i for i in new_members if i not in given], departed.ran_out
    )
    kept += _joined(recent_joiners, kept, members, fresh)
    # New members of a start make the group grow again, so its start continues for START_MS more.
    grown_ms = 0 if fresh and recent_joiners.grown_ms is not None else recent_joiners.grown_ms
    most = most_times(len(members))
    vacant = vacant[:most]
    return RecentJoiners(
        open=_fitting(kept, most_recent_changes(len(members)) - len(vacant), most - len(vacant)),
        vacant_ms=tuple(vacant),
        grown_ms=grown_ms,
        left=_left(recent_joiners, members, departed, reserved)[:most],
    )


def _joined(
    recent_joiners: RecentJoiners,
    kept: Sequence[RecentJoiner],
    members: Sequence[SubscribedMember],
    fresh: Sequence[int],
) -> list[RecentJoiner]:
    """Return the new members that are recent joiners from this round on.

    Rule 1. A recent joiner is a new member that replaced no departed member, in a group that had
    not grown for 30 s, or for the delay if that is shorter. New members in a group that grew more
    recently belong to its start, and count as growth. The leader state keeps a recent joiner for
    the delay.

    Example: A, B and C start within 2 s: none of them is a recent joiner. D comes a minute later
    and is one.
    """
    if recent_joiners.grown_ms is not None:
        return []
    # Rule 7: the processes of one surge have one time, which costs the leader state one entry.
    latest_ms = min((a.age_ms for a in kept), default=TOGETHER_MS)
    age_ms = latest_ms if latest_ms < TOGETHER_MS else 0
    return [_recent_joiner(members, i, age_ms) for i in fresh]


def _remaining(
    recent_joiners: RecentJoiners,
    members: Sequence[SubscribedMember],
    new_members: Sequence[int],
    departed: Departures,
    reserved: I32,
) -> list[RecentJoiner]:
    """Return the recent joiners that still are ones after a round.

    Rule 3. The group waits for a recent joiner that departs, as for any member. The new member that
    replaces it becomes the recent joiner, with the time that is left.

    Example: D joins, dies, and D2 replaces it. Then A leaves, and D2 is its successor.
    """
    given = set(reserved.tolist())
    kept: list[RecentJoiner] = []
    # A departed member that was not back in time has taken its early joiner (rule 2).
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
    return kept


def _vacancies(
    recent_joiners: RecentJoiners, fresh: Sequence[int], ran_out: int
) -> tuple[list[int], list[int]]:
    """Return the new members that fill no vacancy, and the ages of the vacancies that are left.

    Rule 4. A departed member whose wait ran out leaves a vacancy for another delay. A new member
    that replaces no member fills a vacancy, and is not a recent joiner then: it is the member that
    is back late.

    Example: A leaves, and 60 s later what A owned goes to B and C. A returns as D. Then B leaves,
    and the group waits for B as it did for A.
    """
    vacant = [*recent_joiners.vacant_ms, *[0] * ran_out]
    filled = min(len(fresh), len(vacant))
    return list(fresh[filled:]), vacant[filled:]


def joined_recently(
    policy: Policy,
    recent_joiners: RecentJoiners,
    came: Sequence[int],
    members: Sequence[SubscribedMember],
) -> RecentJoiners:
    """Return every member of the round that joined recently, for ``Policy.needs_ages``.

    A member counts whatever it took over.

    Parameters
    ----------
    came : sequence of int
        The new members of this round.

    Notes
    -----
    So that no more than :data:`MOST_TIMES` times are kept, new members that join shortly after the
    latest one have its age. Of more than :data:`MOST` the last ones are dropped.
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
    """Return the first recent joiners, with as many distinct times as are kept.

    Rule 7. The leader state keeps no more recent joiners and vacancies than half of the members,
    and no more than :data:`MOST`: after a surge of all, one half of the members is new. Together
    they have no more distinct times than a quarter of the members, and no more than
    :data:`MOST_TIMES`. New members within 10 s of the latest recent joiner (:data:`TOGETHER_MS`)
    have its time. A member that is not kept is not a successor.

    Example: G to K come together in a group of six. A to E leave, and each has a successor; then F
    leaves, and the group waits for F.
    """
    known = sorted({a.age_ms for a in recent_joiners}, reverse=True)[:times]
    return tuple(a for a in recent_joiners if a.age_ms in known)[:most]


def _left(
    recent_joiners: RecentJoiners,
    members: Sequence[SubscribedMember],
    departed: Departures,
    reserved: I32,
) -> tuple[tuple[str, int], ...]:
    """Return the members that left, are not waited for and may be back, newest first.

    Rule 5. A member of the last round that owns nothing is not a recent joiner. Nor is a member
    that is back by identity, that replaces a departed member, or whose location the leader state
    knows. Static members have no successors: only they come back. Where members have locations, the
    leader state keeps for the delay the identities of members that left and that the group does not
    wait for: they have a successor, new members took all they had, or they owned nothing. It keeps
    no more of them than of recent joiners, the newest first.

    Example: D has been in the group for an hour and owns nothing. A leaves, and the group waits.
    """
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


def _recent_joiner(members: Sequence[SubscribedMember], member: int, age_ms: int) -> RecentJoiner:
    who = MemberEntry(
        identity=identity_of(members[member]), static=members[member].instance_id is not None
    )
    return RecentJoiner(who=who, member=member, age_ms=age_ms)
