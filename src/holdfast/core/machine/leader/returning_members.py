"""Rule 4 of a delayed rebalance: members that are back, and new members that replace departed ones.

**Rules.** Until its deadline, a departed member that is back by its identity gets exactly the
partitions that wait for it (:func:`return_known`). A member that claims nothing, is in no
generation and in no leader state is new (:func:`find_new_members`), and may replace a departed
dynamic member (:func:`serve_new_members`). Each function has its part of the rule and an example.

**Strategy.** Members are found by identity in a table of prefixes. New members queue for each topic
they subscribe to, and each is served once.

References: Incremental Cooperative Rebalancing, Design II, "Leader process" and "Events".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from holdfast.core.machine.leader.imbalance import DepartedMember
from holdfast.core.machine.leader.state_reconstruction import LeaderState
from holdfast.core.machine.leader.subscriptions import (
    SubscribedMember,
    identities_of,
    identity_of_id,
    identity_of_location,
)
from holdfast.core.machine.leader.successors import (
    alike,
)
from holdfast.core.model.columns import I32, Mask, row_sizes
from holdfast.core.model.group import Group
from holdfast.core.wire.layouts.state_shard import MemberEntry


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


def is_new(member: SubscribedMember) -> bool:
    """Return whether a member stays and has been in no generation."""
    return member.stays and member.subscription.generation < 0


def is_back(who: MemberEntry, member: SubscribedMember) -> bool:
    """Return whether another process has a member's instance id or location, in no generation."""
    same = alike(who.identity, identity_of_id(member))
    return not same and member.subscription.generation < 0


class PresentMembers:
    """The members of a round by identity, cut to any size; a shared identity is no member's.

    A member with a generation was in the last round, because a coordinator that removes a member
    ends its generation. So an identity that the last round named belongs to such a member, even if
    a member that joins now has the same one. If such a member missed the assignment of the last
    round, it cannot say that this round named it by its location.

    Example: C misses the assignment of a round that named it by its location. D joins with the same
    location, so neither has it now. C is the member that the leader state names, and what C claims
    waits for nobody.
    """

    def __init__(self, members: Sequence[SubscribedMember], leader_state: LeaderState | None):
        newest = -1 if leader_state is None else leader_state.generation
        every = [(whole, i) for i, m in enumerate(members) for whole in identities_of(m)]
        there = [(whole, i) for whole, i in every if members[i].subscription.generation >= 0]
        there += [
            (identity_of_location(m.subscription.location), i)
            for i, m in enumerate(members)
            if 0 <= m.subscription.generation < newest
            and m.subscription.location
            and m.instance_id is None
        ]
        self._index_of = _index_by_identity(every)
        self._index_there = _index_by_identity(list(dict.fromkeys(there)))

    def find(self, who: MemberEntry) -> int | None:
        """Return the index of the member that an entry names, None if it is not in the round."""
        member = self.find_there(who)
        return self._index_of(who.identity) if member is None else member

    def find_there(self, who: MemberEntry) -> int | None:
        """Return the same only if the member was in the last round as well."""
        # A member for which something waits was not in the last round.
        return None if who.delay_ms else self._index_there(who.identity)


def _index_by_identity(every: Sequence[tuple[str, int]]) -> Callable[[str], int | None]:
    """Return a function from an identity, cut to any size, to the index of its member, or None.

    An identity that two members share is no member's.
    """
    said = Counter(whole for whole, _ in every)
    identities = [(whole, i) for whole, i in every if said[whole] == 1]
    by_size: dict[int, dict[str, int]] = {}

    def find(identity: str) -> int | None:
        size = len(identity)
        if not size:
            return None
        if size not in by_size:
            by_size[size] = {whole[:size]: i for whole, i in identities}
        return by_size[size].get(identity)

    return find


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
