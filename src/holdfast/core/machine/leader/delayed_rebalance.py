"""Design II's decision: which partitions wait for a departed member, and which do not.

A partition that no member claims is *unclaimed*. A partition is *held back* if the leader state
names a departed owner of it and all claims of it are older than the leader state. A member that the
leader state names and that is not in the round is *departed*. In all examples A, B and C own
partitions 0, 1 and 2 of one topic, and the delay is 30 s.

**Rules.** The docstring of the function that a rule names has the whole rule and its example.

1. A deadline continues when the leader changes, and never restarts (L5, L6): the age of the leader
   state is subtracted from every delay in it
   (:func:`holdfast.core.machine.leader.state_reconstruction.reconstruct`). No delay is longer than
   this leader's configuration allows.
   Example: C departs, and the leader state says "partition 2 waits 30 s". The leader A departs 10 s
   later. B, whose shard is 10 s old, leads, and partition 2 waits 20 s more.
2. Only what a departed member owned may wait (:func:`_departed`).
3. Each departed member has a deadline of its own (:func:`_by_delay`).
4. Until the deadline, a member that is back gets the partitions that wait for it
   (:func:`~holdfast.core.machine.leader.returning_members.return_known`), and new members may
   replace a departed dynamic member
   (:func:`~holdfast.core.machine.leader.returning_members.serve_new_members`).
5. Without any leader state the leader guesses what waits (:func:`_guess`).
6. The partitions of a new group may wait for its first members (:func:`_first_wait`).
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
from holdfast.core.machine.leader.imbalance import SETTLED_MS, DepartedMember
from holdfast.core.machine.leader.returning_members import (
    PresentMembers,
    find_new_members,
    is_back,
    is_new,
    return_known,
    serve_new_members,
)
from holdfast.core.machine.leader.state_reconstruction import LeaderState, is_first_wait
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.machine.leader.successors import (
    Departures,
    RecentJoiners,
    after_round,
    alike,
    hurried,
    joined_recently,
    restored,
    served_by,
)
from holdfast.core.machine.policy import TOLERANCE_MS, Policy
from holdfast.core.model.columns import I32, I64, NO_OWNER, Mask, frozen, row_sizes
from holdfast.core.model.group import Group
from holdfast.core.model.reported import partitions_of, tps_of
from holdfast.core.model.topics import Topics
from holdfast.core.wire.layouts.state_shard import MemberEntry

UNKNOWN_OWNER = MemberEntry(identity="")
"""The entry of an unknown owner (rule 5)."""

FIRST_MEMBERS = MemberEntry(identity="", static=True)
"""The first members of a new group, for which its partitions wait (rule 6)."""


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
    found = _departed(policy, claims, members, leader_state, free=free, present=present)
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
    first = _first_wait(policy, claims, leader_state, free) if policy.waits_first else []
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
    found = _departed(policy, claims, members, leader_state, free=free, present=present)
    found = [w for w in found if w.who.identity and len(w.tps)]
    exact, _ = return_known(found, members, reserved, present)
    return tuple(_only(found, ~free | (reserved == NO_OWNER))), exact


def _claimed_before(claims: Claims, leader_state: LeaderState) -> Mask:
    """Return the topic-partitions whose claims are all older than the leader state (rule 2).

    The mask is bool[n_tps].
    """
    group = claims.group
    mask = np.zeros(group.topics.n_tps, bool)
    was_there = group.generation >= leader_state.generation
    mask[claims.claim_tp] = True
    mask[claims.claim_tp[was_there[claims.claim_member]]] = False
    return mask & group.has_subscriber[group.topics.topic_of]


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


def _first_wait(
    policy: Policy, claims: Claims, leader_state: LeaderState | None, free: Mask
) -> list[DepartedMember]:
    """Return what waits for the first members of a group.

    Rule 6. Without a leader state and without any claim the group is new: ``Policy.first_member``
    decides whether its partitions are assigned at once or after ``Policy.first_member_delay_ms``.
    That delay is independent of the delay of a departed member.
    """
    topics, tps = claims.group.topics, np.flatnonzero(free).astype(np.int32)
    if leader_state is None:
        left_ms = 0 if len(claims.claim_tp) else policy.first_member_delay_ms
    else:
        waits = [w for w in leader_state.waiting if is_first_wait(w)]
        left_ms = max((w.delay_ms for w in waits), default=0)
        tps = np.intersect1d(
            tps, tps_of(topics, tuple(own for w in waits for own in w.owned or ()))
        )
    if left_ms <= TOLERANCE_MS or not len(tps):
        return []
    return [DepartedMember(who=FIRST_MEMBERS, remaining_ms=left_ms, tps=tps.astype(np.int32))]


def _departed(
    policy: Policy,
    claims: Claims,
    members: Sequence[SubscribedMember],
    leader_state: LeaderState | None,
    *,
    free: Mask,
    present: PresentMembers,
) -> list[DepartedMember]:
    """Return the departed members by deadline, with their unclaimed or held back partitions.

    Rule 2. An unclaimed partition waits only if the leader state names an owner of it that has
    departed. It does not wait if its owner is in the round, or if the leader state names no owner
    (D3, D4, KAFKA-9848): the partition is new, or its owner revoked it on request of the leader. If
    the leader state was too large to say what its members owned, every unclaimed partition that no
    member reports as revoked belongs to the departed member that is first by identity. A member
    that announced to leave for good is not waited for.

    Example: the topic grows to four partitions; partition 3 never had an owner, so it does not
    wait.

    A partition that is held back waits as well, or is reserved for a member: an old claim takes
    nothing from the newest owner. The partition is assigned in the round in which no member claims
    it. Example: C departs, and A claims partition 2 without a generation. The partition waits for
    C, and the leader requests that A revokes it.
    """
    if leader_state is None:
        was_there = claims.group.generation == claims.group.generation.max(initial=-1)
        back = [m.stays and not last for m, last in zip(members, was_there.tolist(), strict=True)]
        left = free & ~_already_revoked(claims.group.topics, members)
        return _guess(policy, claims, left, back)
    unowned = free | _claimed_before(claims, leader_state)
    reassigned = np.full(len(free), policy.failback)
    if not unowned.any() and not (policy.failback and leader_state.waiting):
        return []
    topics = claims.group.topics
    departed, owning = [], []
    for who in (*leader_state.waiting, *leader_state.named):
        member = present.find(who)
        here = None if member is None else members[member]
        if here is not None and here.leaves_for_good:
            waits = False
        elif here is not None and not who.delay_ms:
            # Its owner is here: its SyncGroup failed. A member with an instance id or a location
            # that is in no generation is another process, which gets back what the last process
            # owned.
            waits = is_back(who, here)
        else:
            waits = True
        if who.owned is None:
            owning += [who] if waits and not who.delay_ms else []
            continue
        tps = tps_of(topics, who.owned) if who.owned else np.empty(0, np.int32)
        tps = tps[(unowned | reassigned)[tps] if who.delay_ms else unowned[tps]]
        if member is not None:
            tps = tps[claims.owner[tps] != member]  # a member keeps what it claims itself
        unowned[tps] = reassigned[tps] = False
        if waits and who.delay_ms:
            departed.append(DepartedMember(who=who, remaining_ms=who.delay_ms, tps=tps))
        elif waits:
            departed += _by_delay(policy, topics, who, tps)
    unowned &= free & ~_already_revoked(topics, members)
    if owning:
        # The leader state was too large to say what its members owned.
        tps = np.flatnonzero(unowned).astype(np.int32)
        departed += _by_delay(policy, topics, owning[0], tps)
    elif not leader_state.complete and unowned.any():
        departed += _guess(policy, claims, unowned, [is_new(m) for m in members])
    return sorted(departed, key=lambda w: (w.remaining_ms, w.who.identity))


def _already_revoked(topics: Topics, members: Sequence[SubscribedMember]) -> Mask:
    """Return the topic-partitions that members report as revoked, bool[n_tps]."""
    mask = np.zeros(topics.n_tps, bool)
    mask[
        tps_of(topics, tuple(entry for m in members for entry in m.subscription.already_revoked))
    ] = True
    return mask


def _guess(
    policy: Policy, claims: Claims, free: Mask, may_be_back: Sequence[bool]
) -> list[DepartedMember]:
    """Return what waits if no member brings a leader state, or an incomplete one.

    Rule 5. If no member claims anything of a topic, the topic is new and does not wait. Partitions
    that members report as revoked do not wait either. If a member claims nothing and was not in the
    last generation, it counts as a departed member that is back, and nothing waits. A member that
    was in the last generation and owned nothing is idle, as where a group has more members than
    partitions. Otherwise the unclaimed partitions wait for an unknown owner.

    The leader guesses in the same way about partitions that no member names if the leader state is
    incomplete, because more than three neighbours of a member departed with it; in that case a new
    member counts as the member that is back.

    Example: A and B join with claims of 0 and 1 and without a leader state: partition 2 waits 30 s.
    """
    topics = claims.group.topics
    claimed = claims.claim_tp
    if not len(claimed):
        return _first_wait(policy, claims, None, free) if policy.waits_first else []
    n_claims = row_sizes(claims.group.claim_start).tolist()
    if any(n == 0 and back for n, back in zip(n_claims, may_be_back, strict=True)):
        return []
    seen = np.zeros(topics.n_topics, bool)
    seen[topics.topic_of[claimed]] = True
    lost = free & seen[topics.topic_of]
    return _by_delay(policy, topics, UNKNOWN_OWNER, np.flatnonzero(lost).astype(np.int32))


def _by_delay(policy: Policy, topics: Topics, who: MemberEntry, tps: I32) -> list[DepartedMember]:
    """Return one entry for each delay of the partitions lost with a member just now.

    Rule 3. Each departed member has a deadline of its own; a later departure does not change it.
    Kinds with a delay of their own (``Policy.kinds``) wait that long, or not at all; partitions
    that do not wait are left out.

    Example: C departs, and 20 s later B. Partition 2 waits 10 s more, partition 1 waits 30 s.
    """
    if not policy.kinds:
        return [DepartedMember(who=who, remaining_ms=policy.delay_ms, tps=tps)]
    delay_ms = np.array([policy.delay_of(name) for name in topics.names], np.int64)
    own = delay_ms[topics.topic_of[tps]]
    return [
        DepartedMember(who=who, remaining_ms=each, tps=tps[own == each])
        for each in np.unique(own[own > 0]).tolist()
    ]


def owed(
    policy: Policy, members: Sequence[SubscribedMember], leader_state: LeaderState
) -> tuple[MemberEntry, ...]:
    """Return what still waits after a round in which a leader that cannot plan assigns nothing.

    A member that came back in this round claims nothing yet, so its partitions still wait for it.
    """
    present = PresentMembers(members, leader_state)

    def claims_it(who: MemberEntry) -> bool:
        member = present.find(who)
        return member is not None and not is_back(who, members[member])

    gone = (*leader_state.waiting, *(w for w in leader_state.named if not claims_it(w)))
    waits = tuple(entry for w in gone for entry in _owed_by_delay(policy, w))
    return waits + restored(policy, members, leader_state).entries(policy)


def _owed_by_delay(policy: Policy, who: MemberEntry) -> list[MemberEntry]:
    """Return an entry for each time that a member's partitions wait, from now on."""
    by_delay: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
    for topic, numbers in who.owned or ():
        by_delay.setdefault(who.delay_ms or policy.delay_of(topic), []).append((topic, numbers))
    return [replace(who, delay_ms=d, owned=tuple(o)) for d, o in sorted(by_delay.items()) if d]
