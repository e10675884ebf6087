"""What departed members left, how long it may wait, and which members get it meanwhile.

**Rules.** Rules 2 to 6 of :mod:`~holdfast.core.machine.leader.delayed_rebalance`: a departed member
has a deadline, and until then a member that is back by its identity gets exactly the partitions
that wait for it (:func:`return_known`). A member that claims nothing, is in no generation and in no
leader state is new (:func:`find_new_members`), and may replace a departed dynamic member
(:func:`serve_new_members`). Each function has its part of a rule and an example.

**Strategy.** Pure functions map claims and a leader state to columns of topic-partitions. New
members queue for each topic they subscribe to, and each is served once.

References: Incremental Cooperative Rebalancing, Design II, "Leader process" and "Events".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from holdfast.core.assignors.claims import Claims
from holdfast.core.machine.leader.imbalance import DepartedMember
from holdfast.core.machine.leader.state_reconstruction import (
    LeaderState,
    PresentMembers,
    is_back,
    is_first_wait,
    is_new,
)
from holdfast.core.machine.leader.subscriptions import (
    SubscribedMember,
    identities_of,
)
from holdfast.core.machine.leader.successors import (
    restored,
)
from holdfast.core.machine.policy import TOLERANCE_MS, Policy
from holdfast.core.model.columns import I32, Mask, row_sizes
from holdfast.core.model.group import Group
from holdfast.core.model.reported import tps_of
from holdfast.core.model.topics import Topics
from holdfast.core.wire.layouts.state_shard import MemberEntry

UNKNOWN_OWNER = MemberEntry(identity="")
"""The entry of an unknown owner (rule 5)."""


FIRST_MEMBERS = MemberEntry(identity="", static=True)
"""The first members of a new group, for which its partitions wait (rule 6)."""


def find_departed(
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


def _already_revoked(topics: Topics, members: Sequence[SubscribedMember]) -> Mask:
    """Return the topic-partitions that members report as revoked, bool[n_tps]."""
    mask = np.zeros(topics.n_tps, bool)
    mask[
        tps_of(topics, tuple(entry for m in members for entry in m.subscription.already_revoked))
    ] = True
    return mask


def first_wait(
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
        return first_wait(policy, claims, None, free) if policy.waits_first else []
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


def return_known(
    lost: list[DepartedMember],
    members: Sequence[SubscribedMember],
    reserved: I32,
    present: PresentMembers,
) -> tuple[tuple[int, ...], list[DepartedMember]]:
    """Reserve the partitions that waited for each member that is back by its identity.

    Rule 4. The identity is the instance id, the location, or the member id of a dynamic member.
    Until the deadline such a member gets exactly the partitions that wait for it. If it already
    claims others, it gets both, and no member revokes a claim for that in this round; a later round
    balances. The partitions of a static member go to no other member.

    Returns the members that are back, and the departed members that are not.
    """
    exact, rest = set(), []
    for waiting in lost:
        member = present.find(waiting.who)
        if member is None or members[member].leaves_for_good:
            rest.append(waiting)
            continue
        reserved[waiting.tps] = member
        exact.add(member)
    return tuple(sorted(exact)), rest


def find_new_members(
    members: Sequence[SubscribedMember],
    leader_state: LeaderState | None,
    reserved: I32,
    group: Group,
    *,
    left: Sequence[str],
    present: PresentMembers,
) -> list[int]:
    """Return the members that claim nothing, are in no generation and in no leader state.

    Rule 4. A member that lost its membership is new if it comes under another id. It is not new if
    it brings the only shard that speaks of the last round, or if its location
    (:mod:`holdfast.core.machine.leader.subscriptions`) is that of a member that left recently. A
    location that another member had in the last round and still has says nothing of a new member.

    Example: C and D depart, and C's process is back as E. E has C's location, and gets partition 2.
    Then C, whose session had expired, is back as F. F is new, because its location was E's.
    """
    known = () if leader_state is None else (*leader_state.waiting, *leader_state.named)
    old = {who.identity for who in known if present.find_there(who) is None}.union(left)
    sizes = {len(identity) for identity in old if identity}
    served = set(reserved.tolist())
    n_claims = row_sizes(group.claim_start).tolist()
    return [
        i
        for i, (m, n) in enumerate(zip(members, n_claims, strict=True))
        if n == 0
        and is_new(m)
        and i not in served
        and (leader_state is None or m.member_id not in leader_state.unreported)
        and not any(whole[:size] in old for whole in identities_of(m) for size in sizes)
    ]


def serve_new_members(
    lost: list[DepartedMember],
    new_members: Sequence[int],
    members: Sequence[SubscribedMember],
    reserved: I32,
    *,
    free: Mask,
    group: Group,
) -> tuple[list[int], list[DepartedMember]]:
    """Reserve what departed dynamic members owned for new members without claims.

    Rule 4. Each new member gets partitions of one departed member, only of topics that it
    subscribes to. If there are no more new members than departed dynamic members, each new member
    replaces one departed member: it gets all that waits for that member, even above its fair quota,
    and a later round balances. Surplus new members divide what waits for a member: each gets at
    most its fair quota, or an equal part if that is more. Of the partitions of an unknown owner no
    new member gets more than its fair quota. The rest waits on (D1, D2). A departed member whose
    successor joined before it departed does not wait at all
    (:mod:`holdfast.core.machine.leader.successors`).

    Example: C departs and D joins. If C was dynamic, D gets partition 2 at once.

    Returns the new members that each replaced a member alone, and what still waits.

    Notes
    -----
    Cost: linear in the new members' subscriptions and in the partitions that wait.
    """
    if not new_members or not lost:
        return [], lost
    # The fair quota counts everything that has or may get an owner, and only members that stay.
    takers = sum(m.stays for m in members)
    total = int(np.count_nonzero(free)) + len(group.claim_tp)
    quota = -(-total // max(1, takers))
    queues = _Queues(new_members, group)
    rest = [w for w in lost if w.who.static]
    of_member: dict[str | int, list[DepartedMember]] = {}
    for at, waiting in enumerate(lost):
        # Kinds with delays of their own make several entries of one departed member, which one new
        # member replaces in whole. Unknown owners have no identity, so each entry is one.
        if not waiting.who.static:
            of_member.setdefault(waiting.who.identity or at, []).append(waiting)
    unserved = len(of_member)
    replacing = []
    for own in of_member.values():
        unserved -= 1
        who, waits = own[0].who, np.sort(np.concatenate([w.tps for w in own]))
        known = who.identity != "" and who.owned is not None
        of = group.topics.topic_of[waits]
        edges = np.flatnonzero(np.diff(of)) + 1
        parts = np.split(waits, edges)  # sorted, so each topic is one part
        # The lowest partition is last, where ``take`` removes it at no cost.
        left = {int(group.topics.topic_of[part[0]]): part.tolist()[::-1] for part in parts}
        # Each departed member that is still unserved needs a new member of its own, so only the
        # surplus divides this one's partitions.
        dividing = max(1, queues.at_most(left) - unserved)
        # Nobody knows how many members an unknown owner was, so the fair quota is the bound.
        most = max(quota, -(-len(waits) // dividing)) if known else quota
        while (member := queues.first(left)) is not None:
            if known and dividing == 1:
                replacing.append(member)
            for tp in queues.take(member, left, most):
                reserved[tp] = member
        tps = np.array(sorted(tp for numbers in left.values() for tp in numbers), np.int32)
        each = [replace(w, tps=w.tps[np.isin(w.tps, tps)]) for w in own]
        rest += [w for w in each if len(w.tps)]
    return replacing, sorted(rest, key=lambda w: (w.remaining_ms, w.who.identity))


class _Queues:
    """New members that are not served yet, queued by topic."""

    def __init__(self, new_members: Sequence[int], group: Group):
        self.topics = {
            i: group.sub_topic[group.sub_start[i] : group.sub_start[i + 1]].tolist()
            for i in new_members
        }
        self.queues: dict[int, list[int]] = {}
        for i in reversed(new_members):
            for topic in self.topics[i]:
                self.queues.setdefault(topic, []).append(i)

    def at_most(self, left: Mapping[int, list[int]]) -> int:
        """Return an upper bound of the new members that subscribe to a topic of ``left``."""
        return min(len(self.topics), sum(len(self.queues.get(topic, ())) for topic in left))

    def first(self, left: Mapping[int, list[int]]) -> int | None:
        """Return the first new member that subscribes to a topic of ``left``, None for none."""
        best: int | None = None
        for topic in left:
            queue = self.queues.get(topic, [])
            while queue and queue[-1] not in self.topics:
                queue.pop()
            if queue and (best is None or queue[-1] < best):
                best = queue[-1]
        return best

    def take(self, member: int, left: dict[int, list[int]], quota: int) -> list[int]:
        """Give a new member up to ``quota`` partitions of ``left``, and dequeue the member.

        Each list of ``left`` ends with its lowest partition.
        """
        taken: list[int] = []
        for topic in self.topics.pop(member):
            numbers = left.get(topic)
            if numbers is None or len(taken) == quota:
                continue
            n = min(len(numbers), quota - len(taken))
            taken += numbers[-n:]
            del numbers[-n:]
            if not numbers:
                del left[topic]
        return taken
