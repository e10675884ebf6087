"""Design II's decision: which partitions wait for a departed member, and which do not.

A partition that no member claims is *unclaimed*. A partition is *held back* if the leader state
names a departed owner of it and all claims of it are older than the leader state. A member that the
leader state names and that is not in the round is *departed*. In all examples A, B and C own
partitions 0, 1 and 2 of one topic, and the delay is 30 s.

**Rules.** The docstring of the function that a rule names has the whole rule and its example; the
functions of rules 2 to 6 are those of :mod:`~holdfast.core.machine.leader.departed_members`.

1. A deadline continues when the leader changes, and never restarts (L5, L6): the age of the leader
   state is subtracted from every delay in it
   (:func:`holdfast.core.machine.leader.state_reconstruction.reconstruct`). No delay is longer than
   this leader's configuration allows.
   Example: C departs, and the leader state says "partition 2 waits 30 s". The leader A departs 10 s
   later. B, whose shard is 10 s old, leads, and partition 2 waits 20 s more.
2. Only what a departed member owned may wait (``find_departed``).
3. Each departed member has a deadline of its own (``_by_delay``).
4. Until the deadline, a member that is back gets the partitions that wait for it
   (``return_known``), and new members may replace a departed dynamic member
   (``serve_new_members``).
5. Without any leader state the leader guesses what waits (``_guess``).
6. The partitions of a new group may wait for its first members (``first_wait``).
7. Under ``Policy.failback`` nothing waits; what a departed member owned is temporarily reassigned
   (:func:`_reassigned`).

**Strategy.** Pure functions map claims and a leader state to masks over topic-partitions, in time
linear in both.

References: Incremental Cooperative Rebalancing, Design II, "Leader process" and "Events".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from holdfast.core.assignors.claims import Claims
from holdfast.core.machine.leader.departed_members import (
    find_departed,
    find_new_members,
    first_wait,
    return_known,
    serve_new_members,
)
from holdfast.core.machine.leader.imbalance import SETTLED_MS, DepartedMember
from holdfast.core.machine.leader.state_reconstruction import (
    LeaderState,
    PresentMembers,
    is_first_wait,
)
from holdfast.core.machine.leader.subscriptions import SubscribedMember, alike
from holdfast.core.machine.leader.successors import (
    Departures,
    RecentJoiners,
    after_round,
    hurried,
    joined_recently,
    restored,
    served_by,
)
from holdfast.core.machine.policy import TOLERANCE_MS, Policy
from holdfast.core.model.columns import I32, I64, NO_OWNER, Mask, frozen
from holdfast.core.model.group import Group
from holdfast.core.model.reported import partitions_of
from holdfast.core.model.topics import Topics
from holdfast.core.wire.layouts.state_shard import MemberEntry


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DelayedRebalance:
    """The leader's decision about unclaimed topic-partitions."""

    waiting: tuple[DepartedMember, ...]  # their partitions are assigned to nobody in this round
    # int32[n_tps]: the one member that may get an unclaimed topic-partition, or NO_OWNER.
    reserved: I32
    # Members that are back by their identity, and new members that replace a departed member: they
    # get exactly what is reserved for them.
    exact: tuple[int, ...]
    pace_ms: int  # Design III: time until the next batch may move
    # Entries of the leader state for members that joined recently.
    recent_changes: tuple[MemberEntry, ...] = ()
    # Reserved for members that are back, while others still claim them: the next leader must know.
    held_back: tuple[DepartedMember, ...] = ()

    @property
    def delay_ms(self) -> int:
        """Time until the first deadline in ms, 0 if nothing waits."""
        return min((w.remaining_ms for w in self.waiting), default=0)

    def entries(self, topics: Topics) -> tuple[MemberEntry, ...]:
        """Return the entries of the leader state that tell the next leader of this decision."""
        return (*self.written(topics, (*self.waiting, *self.held_back)), *self.recent_changes)

    def without_reassigned(self, tps: Mask) -> DelayedRebalance:
        """Drop temporary reassignments: their previous owners do not reclaim them in this round."""
        return replace(self, held_back=tuple(_only(self.held_back, ~tps)))

    @staticmethod
    def written(topics: Topics, waits: Sequence[DepartedMember]) -> tuple[MemberEntry, ...]:
        """Return departed members as entries of the leader state, with topics by name."""
        return tuple(
            replace(w.who, delay_ms=w.remaining_ms, owned=partitions_of(topics, w.tps))
            for w in waits
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Losses:
    """Partitions that departed members left unclaimed, before a resolver decides what waits on."""

    departed: tuple[DepartedMember, ...]  # what may wait, by deadline
    # Decided whatever waits: reservations for members that are back, temporary reassignments.
    delayed: DelayedRebalance
    served: _Served | None = None  # new members that may replace a departed member
    # For a policy that asks for ages: the members that joined recently.
    recent: RecentJoiners = RecentJoiners()  # noqa: RUF009 - a frozen value

    def age_ms(self, n_members: int) -> I64:
        """Return how long each member has been in the group, in ms: int64[n_members].

        ``SETTLED_MS`` means longer than the leader state counts.
        """
        ages = np.full(n_members, SETTLED_MS, np.int64)
        for each in self.recent.open:
            ages[each.member] = each.age_ms
        return frozen(ages)

    def settled(self, waits_ms: Sequence[int]) -> DelayedRebalance:
        """Return the decision if the partitions of each of ``departed`` wait ``waits_ms``.

        A wait of 0 is none: the partitions are assigned in this round.
        """
        waits = [
            replace(departed, remaining_ms=ms)
            for departed, ms in zip(self.departed, waits_ms, strict=True)
            if ms > 0
        ]
        if self.served is None:
            return replace(self.delayed, waiting=tuple(waits))
        return self.served.settled(self.delayed, self.departed, waits)


def find_losses(
    policy: Policy,
    claims: Claims,
    members: Sequence[SubscribedMember],
    leader_state: LeaderState | None,
    free: Mask,
) -> Losses:
    """Find which unclaimed topic-partitions may wait, and which are reserved for a member.

    Parameters
    ----------
    members : sequence of SubscribedMember
        The members of the group, in its order.
    free : bool[n_tps]
        Topic-partitions with a subscriber and without a claim.
    """
    topics = claims.group.topics
    reserved = np.full(topics.n_tps, NO_OWNER, np.int32)
    pace_ms = 0 if leader_state is None else leader_state.pace_ms
    before = restored(policy, members, leader_state)
    if not policy.defers:
        return _undelayed_losses(policy, claims, members, leader_state, before=before, free=free)
    present = PresentMembers(members, leader_state)
    found = find_departed(policy, claims, members, leader_state, free=free, present=present)
    found = [w for w in found if len(w.tps)]
    exact, lost = return_known(found, members, reserved, present)
    # A wait that ends within the tolerance is not worth a round of its own.
    waits = [w for w in lost if w.remaining_ms > TOLERANCE_MS]
    held_back = _only(
        [w for w in found if w.remaining_ms > TOLERANCE_MS], ~free & (reserved != NO_OWNER)
    )
    new_members = find_new_members(
        members,
        leader_state,
        reserved,
        claims.group,
        left=[who for who, _ in before.left],
        present=present,
    )
    if policy.needs_ages:  # such a policy decides by ages who is a successor
        departed, recent_joiners = waits, joined_recently(policy, before, new_members, members)
    else:
        departed, recent_joiners = _with_successors(waits, before, members, claims.group)
    return Losses(
        departed=tuple(departed),
        delayed=DelayedRebalance(
            waiting=(), held_back=tuple(held_back), reserved=reserved, exact=exact, pace_ms=pace_ms
        ),
        served=_Served(
            policy=policy,
            members=members,
            group=claims.group,
            free=free,
            new_members=new_members,
            came=[i for i in new_members if i not in before.members],
            recent_joiners=recent_joiners,
            ran_out=frozenset(_members_of(lost) - _members_of(waits)),
            idle=_idle(present, leader_state),
        ),
        recent=recent_joiners if policy.needs_ages else RecentJoiners(),
    )


def _undelayed_losses(
    policy: Policy,
    claims: Claims,
    members: Sequence[SubscribedMember],
    leader_state: LeaderState | None,
    *,
    before: RecentJoiners,
    free: Mask,
) -> Losses:
    """Find the losses under a policy that delays nothing but, perhaps, the first round."""
    reserved = np.full(claims.group.topics.n_tps, NO_OWNER, np.int32)
    first = first_wait(policy, claims, leader_state, free) if policy.waits_first else []
    held_back, exact = _reassigned(
        policy, claims, members, leader_state, free=free, reserved=reserved
    )
    recent = RecentJoiners()
    if policy.needs_ages:
        present = PresentMembers(members, leader_state)
        came = find_new_members(
            members, leader_state, reserved, claims.group, left=(), present=present
        )
        recent = joined_recently(policy, before, came, members)
    delayed = DelayedRebalance(
        waiting=(),
        held_back=held_back,
        reserved=reserved,
        exact=exact,
        pace_ms=0 if leader_state is None else leader_state.pace_ms,
        recent_changes=recent.entries(policy),
    )
    return Losses(departed=tuple(first), delayed=delayed, recent=recent)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Served:
    """New members, and the entries of the leader state about them after the round."""

    policy: Policy
    members: Sequence[SubscribedMember]
    group: Group
    free: Mask
    new_members: Sequence[int]
    came: Sequence[int]  # new members that the leader state does not name yet
    recent_joiners: RecentJoiners  # without those that succeed a departed member of this round
    ran_out: frozenset[str]  # identities of departed members whose deadline has passed
    idle: Sequence[str]  # identities of departed members that owned nothing

    def settled(
        self,
        decided: DelayedRebalance,
        departed: Sequence[DepartedMember],
        waits: list[DepartedMember],
    ) -> DelayedRebalance:
        """Return the decision in which ``waits`` of the departed members continue to wait."""
        reserved = decided.reserved.copy()
        waiting = _members_of(waits)
        dealt = [w for w in departed if w.who.identity not in waiting]
        now = sorted(_members_of([w for w in dealt if w.just_now]))
        ended = self.ran_out | _members_of([w for w in dealt if not w.just_now])
        waited = [(w.who.identity, w.tps) for w in waits]
        replacing, lost = serve_new_members(
            waits, self.new_members, self.members, reserved, free=self.free, group=self.group
        )
        recent_joiners = self.recent_joiners
        if not self.policy.needs_ages:
            recent_joiners = after_round(
                self.policy,
                recent_joiners,
                self.came,
                self.members,
                departed=Departures(waited=waited, ran_out=len(ended), at_once=(*now, *self.idle)),
                reserved=reserved,
            )
        return replace(
            decided,
            waiting=tuple(lost),
            reserved=reserved,
            exact=tuple(sorted({*decided.exact, *replacing})),
            recent_changes=recent_joiners.entries(self.policy),
        )


def _reassigned(
    policy: Policy,
    claims: Claims,
    members: Sequence[SubscribedMember],
    leader_state: LeaderState | None,
    *,
    free: Mask,
    reserved: I32,
) -> tuple[tuple[DepartedMember, ...], tuple[int, ...]]:
    """Find what is temporarily reassigned, and reserve it for the members that are back.

    Rule 7. Under ``Policy.failback`` nothing waits for a departed member. What the member owned is
    *temporarily reassigned*: it is assigned at once, and the leader state names the departed member
    for as long as its partitions would wait. If that member is back by its identity before that
    time ends, it gets its partitions back, up to its fair quota: their present owner revokes them,
    and keeps what it had before. No new member replaces a departed member, so there are no
    successors. A member without instance id and without location cannot be recognised when it is
    back.

    Example: C departs, and A gets partition 2 at once. B departs, and A gets partition 1 as well. C
    is back within 30 s: A revokes partition 2, and C gets it in the next round.
    """
    if leader_state is None or not policy.failback or not policy.longest_delay_ms:
        return (), ()
    waiting = tuple(w for w in leader_state.waiting if w.delay_ms > TOLERANCE_MS)
    leader_state = replace(leader_state, waiting=waiting)
    present = PresentMembers(members, leader_state)
    found = find_departed(policy, claims, members, leader_state, free=free, present=present)
    found = [w for w in found if w.who.identity and len(w.tps)]
    exact, _ = return_known(found, members, reserved, present)
    return tuple(_only(found, ~free | (reserved == NO_OWNER))), exact


def _only(lost: Sequence[DepartedMember], mask: Mask) -> list[DepartedMember]:
    """Return the departed members with their partitions in ``mask``, if they have any."""
    kept = [replace(w, tps=w.tps[mask[w.tps]]) for w in lost]
    return [w for w in kept if len(w.tps)]


def _members_of(lost: Sequence[DepartedMember]) -> set[str]:
    """Return the identities of departed members, without that of a new group's first members."""
    return {w.who.identity for w in lost if not is_first_wait(w.who)}


def _with_successors(
    lost: Sequence[DepartedMember],
    recent_joiners: RecentJoiners,
    members: Sequence[SubscribedMember],
    group: Group,
) -> tuple[list[DepartedMember], RecentJoiners]:
    """Mark the departed members that have a successor, and return the recent joiners still unused.

    A recent joiner that succeeds a member that departed just now is used up.
    """
    topics = _succeeded_topics(lost, recent_joiners, members, group)
    names = list(topics)
    served, recent_joiners = served_by(
        recent_joiners, _subscribed(recent_joiners, group), list(topics.values())
    )
    succeeded = {names[at] for at in served}
    waits = [w for w in lost if w.who.delay_ms or w.who.identity not in succeeded]
    topics = _succeeded_topics(waits, recent_joiners, members, group)
    names = list(topics)
    early = hurried(recent_joiners, _subscribed(recent_joiners, group), list(topics.values()))
    soon = {names[at] for at in early}
    return [
        replace(
            w,
            succeeded=not w.who.delay_ms and w.who.identity in succeeded,
            succeeded_soon=not w.who.delay_ms and w.who.identity in soon,
        )
        for w in lost
    ], recent_joiners


def _succeeded_topics(
    lost: Sequence[DepartedMember],
    recent_joiners: RecentJoiners,
    members: Sequence[SubscribedMember],
    group: Group,
) -> dict[str, set[int]]:
    """Return, by identity, the topics of members that departed just now and may be succeeded."""
    topics: dict[str, set[int]] = {}
    if not recent_joiners.members or not lost:
        return topics
    came = [a.who.identity for a in recent_joiners.open]
    known_only = any(m.instance_id is not None for m in members)
    for w in sorted(lost, key=lambda w: (not w.who.identity, -len(w.tps), w.who.identity)):
        who = w.who
        if who.static or who.delay_ms or any(alike(who.identity, each) for each in came):
            continue
        if who.identity or not known_only:
            topics.setdefault(who.identity, set()).update(group.topics.topic_of[w.tps].tolist())
    return topics


def _subscribed(recent_joiners: RecentJoiners, group: Group) -> dict[int, list[int]]:
    """Return the topics of each recent joiner in the round, by its index."""
    return {
        i: group.sub_topic[group.sub_start[i] : group.sub_start[i + 1]].tolist()
        for i in recent_joiners.members
    }


def _idle(present: PresentMembers, leader_state: LeaderState | None) -> list[str]:
    """Return the identities of departed members that have a location and owned nothing."""
    named = () if leader_state is None else leader_state.named
    return [w.identity for w in named if w.owned == () and present.find(w) is None]
