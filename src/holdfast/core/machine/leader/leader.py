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

Then :mod:`~holdfast.core.machine.leader.record_limit` only leaves parts of the leader state out.

**Strategy.** Subscriptions become columns (:func:`group_of`). A member gains the partitions of the
target that it does not claim, and revokes its other claims.

References: Incremental Cooperative Rebalancing, "Leader process" of Designs I, II and III;
KIP-429, "Consumer leader".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from holdfast.core.assignors.claims import Claims, normalise
from holdfast.core.assignors.registry import assign_in_round
from holdfast.core.machine.leader.delayed_rebalance import (
    DelayedRebalance,
    Losses,
    find_losses,
    owed,
)
from holdfast.core.machine.leader.imbalance import Imbalance, ProposedMoves, Resolution, resolver_of
from holdfast.core.machine.leader.ring import RoundState
from holdfast.core.machine.leader.state_reconstruction import reconstruct
from holdfast.core.machine.leader.subscriptions import (
    SubscribedMember,
    undisputed,
    with_locations,
    without_claims,
)
from holdfast.core.machine.leader.targets import (
    at_home,
    elsewhere,
    isolated_target,
    members_by_failed,
    weighted_target,
)
from holdfast.core.machine.policy import Policy
from holdfast.core.model.columns import I32, NO_OWNER, Mask, frozen, row_sizes
from holdfast.core.model.group import Group
from holdfast.core.model.lag import lag_column
from holdfast.core.model.measure import loads
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
    partitions_by_member,
    partitions_by_owner,
)
from holdfast.core.model.topics import Topics
from holdfast.core.wire.layouts.state_shard import MemberEntry


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRound:
    """The outcome of one round."""

    assignments: dict[str, PlannedAssignment]  # by member id, sorted
    delay_ms: int  # until all members rejoin at the latest, 0 for no such time
    again: bool  # whether all members rejoin at once
    # The state for the next leader, which the members carry; Design I has none.
    leader_state: RoundState | None
    moves_left: int = 0  # moves that a later batch makes (Design III)
    notes: tuple[str, ...] = ()  # remarks on the plan for people
    waiting: tuple[MemberEntry, ...] = ()  # the departed members for which partitions wait
    # departed members with temporarily reassigned partitions
    reassigned: tuple[MemberEntry, ...] = ()


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
    left_alone: Mapping[str, int] | None = None,
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
    left_alone : mapping of str to int, optional
        Counts up to which a claim stays where it is, although it is beyond ``partitions``.

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
    group = group_of(members, partitions, generation=first_impossible, lags=lags, racks=racks)
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
    exist = {**partitions, **(left_alone or {})}
    return _with_what_is_taken_back(done, reported_by, exist, impossible)


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
) -> Callable[[Sequence[int]], _RoundPlanner]:
    """Return a function from the waits of departed members' partitions to the round's planner."""
    planned: dict[tuple[int, ...], _RoundPlanner] = {}

    def planner(waits_ms: Sequence[int]) -> _RoundPlanner:
        # A resolver may compare several waits, and each costs a run of the assignor.
        key = tuple(waits_ms)
        if key not in planned:
            settled = losses.settled(key)
            planned[key] = _RoundPlanner(
                policy, claims, members, settled, same_members=same_members
            )
        return planned[key]

    return planner


class _RoundPlanner:
    """One round in columns: previous owners, wanted owners, revoked claims."""

    def __init__(
        self,
        policy: Policy,
        claims: Claims,
        members: Sequence[SubscribedMember],
        delayed: DelayedRebalance,
        *,
        same_members: bool = False,
    ):
        self.policy = policy
        self.same_members = same_members
        self.claims = claims
        self.members = members
        self.group = claims.group
        self.waits = np.zeros(self.group.topics.n_tps, bool)
        for waiting in delayed.waiting:
            self.waits[waiting.tps] = True
        self.delayed = delayed
        self.reserved = self._valid(delayed.reserved)
        self.failed = members_by_failed(self.group, members)
        self.claimed = np.zeros(self.group.topics.n_tps, bool)
        self.claimed[claims.claim_tp] = True
        self.owner = self._owner()
        self.again = False
        self.notes: list[str] = []
        self.target = self._target()
        self.moves = self._moves()

    def _valid(self, reserved: I32) -> I32:
        """Return the reservations for members that subscribe."""
        tps = np.flatnonzero(reserved != NO_OWNER)
        if not len(tps):
            return reserved
        fits = self.group.is_subscribed(reserved[tps], self.group.topics.topic_of[tps])
        reserved = reserved.copy()
        reserved[tps[~fits]] = NO_OWNER
        return reserved

    def _owner(self) -> I32:
        """Return the owners before the round, without those of what is held back."""
        held_back = self.claimed & (self.waits | (self.reserved != NO_OWNER))
        return np.where(held_back, NO_OWNER, self.claims.owner).astype(np.int32)

    def _target(self) -> I32:
        """Return the owner wanted for each topic-partition; failed ones go to other members."""
        target = self._balanced()
        if not self.failed:
            return target
        reserved = self.reserved != NO_OWNER
        owner = np.where(reserved, self.reserved, self.owner).astype(np.int32)
        return elsewhere(self.group, target, owner, self.failed, self.policy.weights)

    def _balanced(self) -> I32:
        """Return the assignor's target; what is temporarily reassigned moves first."""
        target = self._wanted()
        if not self.policy.failback:
            return target
        # A reservation that the target does not obey is beyond its member's fair quota. It is
        # released before the assignor runs again, because its present owner's claim counts again
        # then.
        too_many = self.claimed & (self.reserved != NO_OWNER) & (target != self.reserved)
        if too_many.any():
            self.reserved = np.where(too_many, NO_OWNER, self.reserved).astype(np.int32)
            self.owner = self._owner()
            self.delayed = self.delayed.without_reassigned(too_many)
            target = self._wanted()
        return self._reassigned_first(target)

    def _wanted(self) -> I32:
        """Return the assignor's target; reservations are claims, what waits has no owner."""
        group = self._with_reserved()
        if self.failed:
            group = at_home(group, self.failed)
        if not self.waits.any():
            return self._computed(group)
        # What waits is taken out of the group, not only left without an owner: the assignor
        # balances as if it did not exist, so nothing moves twice when its member is back.
        rest, kept = group.without_partitions(self.waits)
        target = np.full(group.topics.n_tps, NO_OWNER, np.int32)
        target[kept] = self._computed(rest)
        return target

    def _computed(self, group: Group) -> I32:
        policy = self.policy
        if policy.isolate and isinstance(policy.assignor, str):
            level = not self.same_members
            return isolated_target(group, self._registry, policy.weights, level=level)
        if policy.weights and isinstance(policy.assignor, str):
            return weighted_target(group, policy.weights)
        return self._registry(group)

    def _registry(self, group: Group) -> I32:
        name, options = self.policy.assignor, dict(self.policy.options)
        return assign_in_round(group, name, self.notes, **options).target

    def _with_reserved(self) -> Group:
        group = self.group
        newest = int(group.generation.max(initial=-1))
        # A member that claims something gets its reservations in addition; they must cost no member
        # a claim.
        speaks = row_sizes(group.claim_start) == 0
        tps = np.flatnonzero(self.reserved != NO_OWNER).astype(np.int32)
        tps = tps[speaks[self.reserved[tps]]]
        if not len(tps):
            return group
        others = self.reserved[group.claim_tp] == NO_OWNER
        member = np.concatenate((group.claim_members()[others], self.reserved[tps]))
        tp = np.concatenate((group.claim_tp[others], tps))
        # A reservation counts like the newest claims, so its member gets their generation.
        generation = group.generation.copy()
        generation[np.unique(self.reserved[tps])] = newest
        return group.with_claims(member, tp, generation=frozen(generation))

    def finish(self, resolution: Resolution, generation: int, leader_id: str) -> PlannedRound:
        """Return the plan: what is assigned, what is revoked, and the leader state."""
        target, owner = self.target, self.owner
        # Invalid claims are revoked in any case; only moves are a resolver's decision.
        wrong_member, wrong_tp = self._wrong_claims(owner)
        moves = self.moves.tp[resolution.may_move]
        moves_left = len(self.moves) - len(moves)
        if moves_left and self.moves.assigns_unowned and not resolution.pause_ms:
            self.again = True  # what is held back follows at once
        revoked_member = np.concatenate((wrong_member, owner[moves]))
        revoked_tp = np.concatenate((wrong_tp, moves)).astype(np.int32)
        assigned = np.where(self.claimed | self.waits, NO_OWNER, target)
        exact = np.isin(self.reserved, np.array(self.delayed.exact, np.int32)) & ~self.claimed
        # while something waits, members of the last round get nothing that was lost (D1)
        if self.waits.any():
            exact = (self.reserved != NO_OWNER) & ~self.claimed
        assigned = self._exchanged(assigned, exact)
        if (assigned[exact] != target[exact]).any():
            self.again = True  # assigned by identity; a later round balances
        if len(revoked_tp):
            self.again = True
        next_owner = np.where(assigned != NO_OWNER, assigned, owner)
        next_owner[moves] = NO_OWNER  # other revoked claims were not their owner's
        pause_ms = resolution.pause_ms
        delay_ms = 0 if self.again else self._delay_ms(pause_ms if moves_left else 0)
        owned = partitions_by_owner(self.group.topics, next_owner)
        leader_state = self._leader_state(generation, leader_id, owned, pause_ms)
        kept_owner = np.where(assigned != NO_OWNER, NO_OWNER, next_owner).astype(np.int32)
        gained = partitions_by_owner(self.group.topics, assigned.astype(np.int32))
        kept = partitions_by_owner(self.group.topics, kept_owner) if gained else owned
        revoked = partitions_by_member(self.group.topics, revoked_member, revoked_tp)
        assignments = {
            m.member_id: PlannedAssignment(
                kept=kept.get(i, ()), gained=gained.get(i, ()), revoked=revoked.get(i, ())
            )
            for i, m in enumerate(self.members)
        }
        topics, delayed = self.group.topics, self.delayed
        return PlannedRound(
            assignments=assignments,
            delay_ms=delay_ms,
            again=self.again,
            leader_state=leader_state,
            moves_left=moves_left,
            notes=tuple(dict.fromkeys(self.notes)),
            waiting=delayed.written(topics, delayed.waiting),
            reassigned=delayed.written(topics, delayed.held_back if self.policy.failback else ()),
        )

    def _exchanged(self, assigned: I32, exact: Mask) -> I32:
        """Return what is assigned, with ``exact`` reservations obeyed.

        If the target gives a reserved partition to another member, the other member gets an
        unclaimed partition of the same topic in return, if the target gives one to the reserving
        member.
        """
        given = np.where(exact, self.reserved, assigned).astype(np.int32)
        instead = np.flatnonzero(exact & (assigned != NO_OWNER) & (assigned != self.reserved))
        for tp, other in self._replacing(instead.tolist(), self.reserved, assigned, ~exact):
            given[other] = assigned[tp]
        return given

    def _reassigned_first(self, target: I32) -> I32:
        """Return the target, in which members revoke temporary reassignments first."""
        reassigned = np.zeros(len(target), bool)
        for each in self.delayed.held_back:
            reassigned[each.tps] = True
        reassigned &= self.reserved >= NO_OWNER
        owner = self.owner
        moves = np.flatnonzero((owner != NO_OWNER) & (target != owner) & ~reassigned)
        swapped = target.copy()
        for tp, other in self._replacing(
            moves.tolist(), owner, target, reassigned & (target == owner)
        ):
            swapped[[tp, other]] = swapped[[other, tp]]
        return swapped

    def _replacing(
        self, tps: Sequence[int], member: I32, owner: I32, among: Mask
    ) -> Iterator[tuple[int, int]]:
        """Yield for each topic-partition another one of its topic that its member owns."""
        topic_of = self.group.topics.topic_of
        spare: dict[tuple[int, int], list[int]] = {}
        for tp in np.flatnonzero(among & np.isin(owner, member[tps])).tolist():
            spare.setdefault((int(owner[tp]), int(topic_of[tp])), []).append(tp)
        for tp in tps:
            if left := spare.get((int(member[tp]), int(topic_of[tp]))):
                yield int(tp), left.pop()

    def _wrong_claims(self, owner: I32) -> tuple[I32, I32]:
        """Return invalid claims: of another owner, doubled, or not subscribed."""
        tp, member = self.claims.claim_tp, self.claims.claim_member
        foreign = np.zeros(len(tp), bool)
        foreign[len(self.group.claim_tp) :] = True
        wrong = np.flatnonzero(foreign | (owner[tp] != member))
        return member[wrong], tp[wrong]

    def _moves(self) -> ProposedMoves:
        """Return what must be revoked for balance."""
        owner, target = self.owner, self.target
        tp = np.flatnonzero((owner != NO_OWNER) & (target != owner)).astype(np.int32)
        return ProposedMoves(
            tp=frozen(tp),
            giver=frozen(owner[tp]),
            taker=frozen(target[tp]),
            load=frozen(loads(owner, self.group.n_members)),
            assigns_unowned=bool((~self.claimed & ~self.waits & (target != NO_OWNER)).any()),
        )

    def _delay_ms(self, pause_ms: int) -> int:
        """Return the time until the first deadline or the pause's end in ms, 0 for neither."""
        deadline_ms = self.delayed.delay_ms if self.waits.any() else 0
        return min(filter(None, (deadline_ms, pause_ms)), default=0)

    def _leader_state(
        self,
        generation: int,
        leader_id: str,
        owned: Mapping[int, TopicPartitions],
        pause_ms: int,
    ) -> RoundState | None:
        if not self.policy.carries_state:
            return None
        return RoundState(
            generation=generation,
            leader_id=leader_id,
            members=tuple(self.members),
            owned={self.members[i].member_id: own for i, own in owned.items()},
            waiting=self.delayed.entries(self.group.topics),
            pace_ms=pause_ms,
        )
