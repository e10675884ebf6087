"""Members that joined recently and replaced none: successors by the checker's own clock.

**Rules.** The rules of :mod:`holdfast.core.machine.leader.successors`, written independently: if
the successor of a departed dynamic member joined before that member departed, the group need not
wait for the departed member. A search has no clock: there, members count that the leader state
names, if each of them came as a new member once. The checker is more lenient about members with a
location: they may be successors for all of the delay, and while one of them is here, the group may
wait for a departed member for the short time alone.

**Strategy.** Pure functions of one moment.

References: Incremental Cooperative Rebalancing, Design II.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.proof.rules.records import Awaited, Moment, RecentChanges, among, new_members

from holdfast.core.machine.leader.subscriptions import identities_of, identity_of
from holdfast.core.machine.leader.successors import short_wait_ms
from holdfast.core.model.partitions import Resource


def recent_changes_after(at: Moment, waiting: Mapping[Resource, Awaited]) -> RecentChanges:
    """Return the recent joiners and the vacancies after a round."""
    if at.past is None or not at.policy.defers:
        return at.recent_changes
    served = with_successors(at)
    came = {name: ms for name, ms in at.recent_changes.came.items() if name not in served.values()}
    left = {r: w for r, w in {**at.past.owner, **at.owed}.items() if w.member_id not in served}
    left = {
        r: w for r, w in left.items() if r not in at.unknown and w.member_id and not at.is_back(w)
    }
    new = {s.name: s for s in new_members(at) if s.name not in at.recent_changes.came and s.stays}
    taken: dict[str, str] = {}  # new member -> the member that it replaced
    for name, s in new.items():
        for resource in s.after & left.keys():
            taken[name] = left[resource].member_id
    came |= {name: came[absent] for name, absent in taken.items() if absent in came}
    over = {w.member_id for r, w in left.items() if r in at.owed and r in at.seen.after}
    over -= {w.member_id for w in waiting.values()} | set(taken.values())
    vacant_ms = (*at.recent_changes.vacant_ms, *[at.now_ms] * len(over))
    spare = sorted(new.keys() - taken.keys())
    filled = min(len(spare), len(vacant_ms))
    spare, vacant_ms = spare[filled:], vacant_ms[filled:]
    grown_ms = at.recent_changes.grown_ms
    if grown_ms is None:
        came |= dict.fromkeys(spare, at.now_ms)
    elif spare:
        grown_ms = at.now_ms
    return RecentChanges(came, vacant_ms, grown_ms)


def shortest_wait_ms(at: Moment, absent: Awaited | None) -> int:
    """Return the shortest wait for a member that departed just now, beside its delay, in ms."""
    early = [s for s in at.seen.members if s.member.location and s.name in at.recent_changes.came]
    has_none = absent is None or absent.instance_id is not None or not early
    return at.policy.longest_delay_ms if has_none else short_wait_ms(at.policy)


def with_successors(at: Moment) -> dict[str, str]:
    """Return absent members that nothing need wait for, each with its own successor.

    A static member has no successor, and a member that the leader state named as a recent joiner
    has none. A member that resources still wait for uses no successor up.
    """
    past, seen = at.past, at.seen
    if past is None:
        return {}
    topics: dict[str, set[str]] = {}
    for r, w in past.owner.items():
        lost = r not in seen.claimed and r not in at.unknown and seen.exists(r)
        new = among(past.recent_joiners, w.identity)
        alone = w.instance_id is None and not new and not at.is_back(w)
        if lost and alone:
            topics.setdefault(w.member_id, set()).add(r[0])
    for r, w in past.owner.items():
        if w.member_id in topics and r not in seen.claimed | seen.after and seen.exists(r):
            del topics[w.member_id]
    if not topics:
        return {}
    came = at.recent_changes.came
    if at.remains_ms is not None:  # without a clock, members count that the leader state names
        named = (
            s
            for s in seen.members
            if any(among(past.recent_joiners, whole) for whole in identities_of(s.member))
        )
        came = {s.name: 0 for s in named}
    here = {s.name: s for s in seen.members if s.stays and s.name in came}
    order = sorted(here, key=lambda name: (came[name], identity_of(here[name].member)))
    served: dict[str, str] = {}
    for absent in sorted(topics):
        fits = [n for n in order if topics[absent] <= set(here[n].subscription.topics)]
        if fits:
            served[absent] = fits[0]
            order.remove(fits[0])
    return served
