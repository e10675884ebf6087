"""The plan of one round of a design, in columns: who owns, keeps, gains and revokes what.

**Rules.** The assignor takes reservations as claims and sees nothing that waits (question 4 of
:mod:`~holdfast.core.machine.leader.leader`). A claim that is invalid is revoked in any case; a
resolver decides about moves alone. A round that revokes carries no delay (S9).

**Strategy.** :class:`RoundPlanner` computes the target and the moves that it needs, for given waits
of what departed members owned. :meth:`RoundPlanner.finish` takes a resolver's decision.

References: Incremental Cooperative Rebalancing, "Leader process" of Designs I, II and III;
KIP-429, "Consumer leader".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.registry import assign_in_round
from holdfast.core.machine.leader.delayed_rebalance import DelayedRebalance
from holdfast.core.machine.leader.imbalance import ProposedMoves, Resolution
from holdfast.core.machine.leader.ring import PlannedAssignment, RoundState
from holdfast.core.machine.leader.subscriptions import SubscribedMember
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
from holdfast.core.model.measure import loads
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.model.reported import partitions_by_member, partitions_by_owner
from holdfast.core.wire.layouts.state_shard import MemberEntry


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


class RoundPlanner:
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
