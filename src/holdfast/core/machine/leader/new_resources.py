"""Resources of workers that the leader does not know yet: they run on workers that know them.

**Rules.** If a worker reports a newer version of the resources than the leader has, the leader
plans the counts that both have (:mod:`holdfast.core.machine.leader.counts`). The additional
resources of the newest version are assigned afterwards: a resource that no member claims goes to
the worker of that version that has the fewest of its kind, and of several to the one that has the
fewest in all. A claim stays where it is; no additional resource waits for a departed worker or
moves for balance until a leader knows that version. Kinds unknown to the leader are named by the
subscriptions of those workers. No more than :data:`MOST` resources are assigned in one round: a
report may be false. Example: the leader knows 10 shards, B and C report a version with 12. Shard 10
goes to B and shard 11 to C. B leaves: shard 10 goes to C, in the next round.

**Strategy.** A pure function of a plan, applied after the plan of what both have.

References: KIP-415 (a leader whose configuration offset is behind).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from holdfast.core.machine.leader.counts import VersionedCounts, version_of
from holdfast.core.machine.leader.leader import PlannedRound
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.model.partitions import Resource, grouped, merge_topics, resources_of

MOST = 10_000
"""Upper bound of resources: far more than a deployment adds, and quick to list."""


def with_new_resources(
    plan: PlannedRound,
    members: Sequence[SubscribedMember],
    newest: VersionedCounts,
    known: Mapping[str, int],
) -> PlannedRound:
    """Return the plan of a round, extended by the resources of the newest version alone.

    Parameters
    ----------
    newest : VersionedCounts
        The newest version that a member reports.
    known : mapping of str to int
        The leader's own counts, by kind.
    """
    able = sorted(
        (m for m in members if m.stays and version_of(m) == newest.version),
        key=lambda m: m.member_id,
    )
    claimed = frozenset[Resource]().union(*(resources_of(m.subscription.owned) for m in members))
    new = tuple(islice(_unclaimed(able, newest, known, claimed), MOST))
    if not new:
        return plan
    has = {m.member_id: _next_of(plan, m) for m in able}
    gained: dict[str, list[Resource]] = {}
    for kind, number in new:
        name = min(has, key=lambda each: (has[each][kind], has[each].total(), each))
        has[name][kind] += 1
        gained.setdefault(name, []).append((kind, number))
    assignments = dict(plan.assignments)
    for name, resources in gained.items():
        own = assignments[name]
        assignments[name] = replace(own, gained=merge_topics((*own.gained, *grouped(resources))))
    return replace(plan, assignments=assignments)


def _unclaimed(
    able: Sequence[SubscribedMember],
    newest: VersionedCounts,
    known: Mapping[str, int],
    claimed: frozenset[Resource],
) -> Iterator[Resource]:
    """Yield the resources of the newest version alone that no member claims, by kind and number."""
    for kind in sorted({kind for m in able for kind in m.subscription.topics}):
        for number in range(known.get(kind, 0), newest.count_of(kind)):
            if (kind, number) not in claimed:
                yield kind, number


def _next_of(plan: PlannedRound, member: SubscribedMember) -> Counter[str]:
    """Count the resources of each kind that a member is to own by a plan."""
    own = plan.assignments[member.member_id]
    after = resources_of(member.subscription.owned) - resources_of(own.revoked)
    return Counter(kind for kind, _ in after | resources_of(own.gained))
