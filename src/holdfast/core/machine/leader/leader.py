"""A round of a design: from subscriptions to what each member keeps, gains and revokes.

**Rules.**

- A plan is a pure function of the set of subscriptions, the partition counts and the policy. Time
  enters only as the remaining time of deadlines (S13).
- A partition that some member claims is assigned to no other member in the same round (S3, S4). A
  partition is revoked only from a member that claims it in this round (S8).
- Only lost partitions wait. All others are balanced as if lost ones did not exist, so new members
  are served at once, and a departure alone moves nothing. Example: A, B and C own ten each, C
  departs, D, E and F join: they get four each of A's and B's, and C's ten wait.
- All members are given the same delay, and a round that revokes carries none (S9): the deadlines
  are in the leader state, and the next round has a delay again.
- Revoking an invalid claim (claimed twice, of an old generation, not subscribed) is not a move: no
  policy holds it back.

**Which module decides.** Each question has one answer. No later module changes an earlier answer,
except for the reservations that question 4 releases:

1. *Which claims count?* A claim of a generation that cannot exist yet is ignored (here). Of several
   claims the one of the newest generation counts, and two of that generation cancel
   (:mod:`holdfast.core.assignors.claims`).
2. *What was before?* :mod:`~holdfast.core.machine.leader.state_reconstruction` alone: the members
   of the last round, what they owned, what waits or is temporarily reassigned, and the times left.
3. *What may wait, and for whom?* :mod:`~holdfast.core.machine.leader.delayed_rebalance`. It asks
   :mod:`~holdfast.core.machine.leader.successors` which departed members the group does not wait
   for. It reserves partitions for members that are back and for new members that replace others.
   Under ``failback`` nothing waits: it reserves temporary reassignments for members that are back.
4. *Who owns the rest?* The assignor, which takes reservations as claims and sees nothing that
   waits. Under ``failback`` the planner releases reservations beyond a member's fair quota, and
   asks the assignor again. For balance a member first revokes what is temporarily reassigned to it.
   Last, what has failed at a member is tried elsewhere
   (:mod:`~holdfast.core.machine.leader.targets`).
5. *What waits on, and what moves now?* :mod:`~holdfast.core.machine.leader.imbalance`.
6. *What is revoked, and when do members rejoin?* The planner here, with the claims that question 1
   ignored and those beyond the end of a topic. The plan is final.

Then :mod:`~holdfast.core.machine.leader.ring` only leaves parts of the leader state out.

**Strategy.** Subscriptions become columns (:func:`group_of`). A member gains the partitions of the
target that it does not claim, and revokes its other claims.

References: Incremental Cooperative Rebalancing, "Leader process" of Designs I, II and III;
KIP-429, "Consumer leader".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from holdfast.core.assignors.claims import Claims, normalise
from holdfast.core.machine.leader.delayed_rebalance import Losses, find_losses
from holdfast.core.machine.leader.departed_members import owed
from holdfast.core.machine.leader.imbalance import Imbalance, resolver_of
from holdfast.core.machine.leader.planner import PlannedRound, RoundPlanner
from holdfast.core.machine.leader.ring import PlannedAssignment, RoundState
from holdfast.core.machine.leader.state_reconstruction import reconstruct
from holdfast.core.machine.leader.subscriptions import (
    SubscribedMember,
    VersionedCounts,
    undisputed,
    version_of,
    with_locations,
    without_claims,
)
from holdfast.core.machine.policy import Policy
from holdfast.core.model.columns import Mask
from holdfast.core.model.group import Group
from holdfast.core.model.lag import lag_column
from holdfast.core.model.partitions import (
    Resource,
    TopicPartitions,
    grouped,
    merge_topics,
    resources_of,
)
from holdfast.core.model.reported import (
    ReportedClaims,
    Subscriptions,
)
from holdfast.core.model.topics import Topics

MOST_NEW_RESOURCES = 10_000
"""Resources that are assigned in one round before the leader knows them: a report may be false.

The bound is far more than a deployment adds, and quick to list.
"""


def plan_round(
    policy: Policy,
    members: Sequence[SubscribedMember],
    partitions: Mapping[str, int],
    *,
    generation: int,
    leader_id: str = "",
    lags: Mapping[str, Sequence[int]] | None = None,
    racks: Mapping[str, Sequence[Iterable[str]]] | None = None,
    unbroken: bool = True,
    same_members: bool = False,
    newer: VersionedCounts | None = None,
) -> PlannedRound:
    """Plan one round of Design I, II or III.

    Parameters
    ----------
    partitions : mapping of str to int
        Partition count of each topic that exists.
    generation : int
        Generation of this round, from JoinGroup.
    leader_id : str
        The member that plans; it trusts its own shard before all others.
    lags, racks : mapping, optional
        As for :func:`holdfast.core.machine.leader.leader_round.perform_assignment`.
    unbroken : bool
        Whether no claim of this or a later generation can be valid, as in
        :class:`~holdfast.core.machine.actions.ComputeAssignment`.
    same_members : bool
        Whether a round with exactly these members has left nothing to do, and this leader has led
        all rounds since. Isolated kinds are then left as they are unless they have changed
        themselves.
    newer : VersionedCounts, optional
        Counts of resources that a worker reports and this leader does not know yet: what both know
        is planned, and :func:`_with_new_resources` assigns the rest.

    Raises
    ------
    ModelError
        If member ids repeat, or lags do not fit the partitions.
    """
    # Two lists: the plan ignores impossible claims, but a member that made one still has to revoke
    # it, so the claims as reported are needed in the end.
    reported_by = members = sorted(with_locations(members), key=lambda m: m.member_id)
    first_impossible = generation if unbroken else None
    impossible = frozenset(
        m.member_id for m in members if unbroken and m.subscription.generation >= generation
    )
    members = [without_claims(m) if m.member_id in impossible else m for m in members]
    planned = partitions if newer is None else newer.shared_with(partitions)
    group = group_of(members, planned, generation=first_impossible, lags=lags, racks=racks)
    leader_state = (
        reconstruct(policy, members, generation, leader_id) if policy.carries_state else None
    )
    claims = normalise(group)
    losses = find_losses(policy, claims, members, leader_state, _unclaimed(claims))
    planner = _planners(policy, claims, members, losses, same_members=same_members)
    imbalance = Imbalance(
        policy=policy,
        group=group,
        departed=losses.departed,
        age_ms=losses.age_ms(group.n_members),
        pause_ms=losses.delayed.pace_ms,
        moves=lambda waits_ms: planner(waits_ms).moves,
    )
    resolution = resolver_of(policy)(imbalance)
    done = planner(resolution.waits_ms).finish(resolution, generation, leader_id)
    # A claim of a resource that only one of the two versions has stays where it is.
    exist = partitions if newer is None else {**planned, **newer.joined_with(partitions)}
    done = _with_what_is_taken_back(done, reported_by, exist, impossible)
    return done if newer is None else _with_new_resources(done, reported_by, newer, partitions)


def keep_round(
    policy: Policy,
    members: Sequence[SubscribedMember],
    *,
    generation: int,
    leader_id: str = "",
    unbroken: bool = True,
) -> PlannedRound:
    """Plan the round of a leader that cannot plan: members keep what no other member claims.

    The leader state is passed on; it is dropped where it would claim to know what it does not know.
    """
    members = with_locations(members)
    keeps = undisputed(members, generation if unbroken else None)
    leader_state = (
        reconstruct(policy, members, generation, leader_id) if policy.carries_state else None
    )
    kept = None
    if leader_state is not None and leader_state.complete:
        kept = RoundState(
            generation=generation,
            leader_id=leader_id,
            members=members,
            owned={member_id: own for member_id, own in keeps.items() if own},
            waiting=owed(policy, members, leader_state),
            pace_ms=leader_state.pace_ms,
        )
    return PlannedRound(
        assignments={
            m: PlannedAssignment(kept=own, gained=(), revoked=()) for m, own in keeps.items()
        },
        delay_ms=0,
        again=False,
        leader_state=kept,
    )


def _with_what_is_taken_back(
    plan: PlannedRound,
    members: Sequence[SubscribedMember],
    partitions: Mapping[str, int],
    impossible: frozenset[str],
) -> PlannedRound:
    """Return the plan, extended by revocations of what no member can own.

    A claim beyond the last partition of its topic is revoked, and all members rejoin. A member that
    claims under an ``impossible`` generation has to revoke its claims, as if its topics had no
    partitions; the group does not wait for it, and it alone rejoins.
    """
    assignments, again = dict(plan.assignments), plan.again
    nothing = dict.fromkeys(partitions, 0) if impossible else {}
    for m in members:
        planned, owned = assignments[m.member_id], m.subscription.owned
        if m.member_id in impossible:
            taken = _beyond(owned, nothing) - resources_of(planned.listed)
        elif taken := _beyond(owned, partitions):
            again = True
            taken |= resources_of(planned.revoked)
        if taken:
            assignments[m.member_id] = replace(planned, revoked=grouped(sorted(taken)))
    if again == plan.again:
        return replace(plan, assignments=assignments)
    # S9: no delay beside a round that revokes; the leader state keeps the deadline.
    return replace(plan, assignments=assignments, again=True, delay_ms=0)


def _beyond(owned: TopicPartitions, partitions: Mapping[str, int]) -> frozenset[Resource]:
    """Return the claims beyond the last partition of their topic, which has lost partitions.

    Elsewhere a claim is revoked only if another member shall own the partition. Claims of an
    unknown topic stay: the topic may be known again in the next round.
    """
    return frozenset(
        (topic, number)
        for topic, numbers in owned
        if max(numbers, default=-1) >= (count := partitions.get(topic, 2**31))
        for number in numbers
        if number >= count
    )


def _with_new_resources(
    plan: PlannedRound,
    members: Sequence[SubscribedMember],
    newest: VersionedCounts,
    known: Mapping[str, int],
) -> PlannedRound:
    """Return the plan of a round, extended by the resources of the newest version alone.

    A resource that no member claims goes to the worker of that version that has the fewest of its
    kind, and of several to the one that has the fewest in all. A claim stays where it is; no
    additional resource waits for a departed worker or moves for balance until a leader knows that
    version. Kinds unknown to the leader are named by the subscriptions of those workers.

    Example: the leader knows 10 shards, B and C report a version with 12. Shard 10 goes to B and
    shard 11 to C. B leaves: shard 10 goes to C, in the next round.

    Parameters
    ----------
    members : sequence of SubscribedMember
        The members of the round, sorted by id.
    newest : VersionedCounts
        The newest version that a member reports.
    known : mapping of str to int
        The leader's own counts, by kind.

    References: KIP-415 (a leader whose configuration offset is behind).
    """
    able = [m for m in members if m.stays and version_of(m) == newest.version]
    claimed = frozenset[Resource]().union(*(resources_of(m.subscription.owned) for m in members))
    # A generator and a bound: a report of a billion resources costs no more than one of ten
    # thousand.
    new = tuple(islice(_resources_without_claim(able, newest, known, claimed), MOST_NEW_RESOURCES))
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


def _resources_without_claim(
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


def group_of(
    members: Sequence[SubscribedMember],
    partitions: Mapping[str, int],
    *,
    generation: int | None = None,
    lags: Mapping[str, Sequence[int]] | None = None,
    racks: Mapping[str, Sequence[Iterable[str]]] | None = None,
) -> Group:
    """Return members, sorted by id, as a group; one that leaves for good subscribes to nothing.

    Claims of ``generation``, that of the round, or of a later one are ignored.
    """
    said = [m.subscription for m in members]
    topics = Topics.from_counts(
        partitions, racks=racks, more_racks=(s.rack for s in said if s.rack is not None)
    )
    return Group.build(
        topics=topics,
        member_ids=tuple(m.member_id for m in members),
        instance_ids=tuple(m.instance_id for m in members),
        subscriptions=Subscriptions.from_names(
            # Without a subscription the assignor gives the member nothing, and its claims are
            # revoked.
            topics,
            (() if m.leaves_for_good else m.subscription.topics for m in members),
        ),
        claims=ReportedClaims.from_partitions(topics, [s.owned for s in said]),
        generation=np.array([s.generation for s in said], np.int32),
        rack=topics.rack_indices([s.rack for s in said]),
        lags=lag_column(lags, topics),
        round_generation=generation,
    )


def _unclaimed(claims: Claims) -> Mask:
    """Return the topic-partitions with a subscriber and without a claim, bool[n_tps]."""
    free: Mask = claims.group.has_subscriber[claims.group.topics.topic_of]
    free[claims.claim_tp] = False
    return free


def _planners(
    policy: Policy,
    claims: Claims,
    members: Sequence[SubscribedMember],
    losses: Losses,
    *,
    same_members: bool,
) -> Callable[[Sequence[int]], RoundPlanner]:
    """Return a function from the waits of departed members' partitions to the round's planner."""
    planned: dict[tuple[int, ...], RoundPlanner] = {}

    def planner(waits_ms: Sequence[int]) -> RoundPlanner:
        # A resolver may compare several waits, and each costs a run of the assignor.
        key = tuple(waits_ms)
        if key not in planned:
            settled = losses.settled(key)
            planned[key] = RoundPlanner(policy, claims, members, settled, same_members=same_members)
        return planned[key]

    return planner
