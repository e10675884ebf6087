"""Resources that have failed at a member: they are tried elsewhere, and move nothing else.

A member reports the resources whose work has failed there (``MemberSubscription.failed``). A
resource is *failed at* a member that reports it.

**Rules.** All examples are a group of A, B and C with four resources each; A reports resource 3.

1. A failed resource goes to a member that does not report it, to the one with the least load. So
   no member has more than if the members that report the resource had left.
   Example: 3 goes from A to B, which has five then. If A reports all its four, B and C take two
   each.
2. A resource that has failed at :data:`MOST_TRIED` members is most likely broken itself: it stays
   with its owner, after two rounds at most for each of them. Example: 3 fails at A, at B and at C.
   It stays with C, which tries it again later.
3. Wherever the resource is, it counts as load of a member that reports it: the one with the least
   other load. So A is assigned nothing instead of it, and no other resource moves because of a
   failure. Example: A has three resources and B five, and the next round moves none.
4. A member's report counts for that member alone, and for as many resources as it may report
   (``MOST_FAILED``).

**Strategy.** The assignor sees the claims as rule 3 has them, and its target is changed by rules 1
and 2. Both loop over the failed resources, which are few.

References: Kafka Connect, where a task that has failed stays FAILED (KIP-415 has no other answer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.model.columns import I32, I64, NO_OWNER
from holdfast.core.model.group import Group
from holdfast.core.wire.layouts.container import MOST_FAILED

MOST_TRIED = 3
"""Members at which a resource is tried before it stays where it is."""

MembersByFailed = Mapping[int, frozenset[int]]
"""Members that report each failed topic-partition, by topic-partition, ascending."""


def members_by_failed(group: Group, members: Sequence[SubscribedMember]) -> MembersByFailed:
    """Return the members, by index, that report a topic-partition of a topic they subscribe to."""
    topics = group.topics
    found: dict[int, set[int]] = {}
    for i, m in enumerate(members):
        left = MOST_FAILED
        for topic, _, numbers in m.subscription.failed:
            at = topics.index.get(topic)
            if at is None or not group.is_subscribed(np.array([i]), np.array([at]))[0]:
                continue
            known = [n for n in numbers[:left] if 0 <= n < int(topics.n_partitions[at])]
            left -= len(known)
            for number in known:
                found.setdefault(int(topics.start[at]) + number, set()).add(i)
    return {tp: frozenset(who) for tp, who in sorted(found.items())}


def at_home(group: Group, failed: MembersByFailed) -> Group:
    """Return the group with failed topic-partitions claimed where they have failed (rule 3)."""
    stays = ~np.isin(group.claim_tp, np.fromiter(failed, np.int32))
    member, tp = group.claim_members()[stays], group.claim_tp[stays]
    n_claims = np.bincount(member, minlength=group.n_members).tolist()
    home = {}
    # A resource that failed at one member has no choice, so it is counted first.
    for each, who in sorted(failed.items(), key=lambda entry: (len(entry[1]), entry[0])):
        home[each] = taker = min(who, key=lambda i: (n_claims[i], i))
        n_claims[taker] += 1
    member = np.concatenate((member, np.fromiter(home.values(), np.int32)))
    tp = np.concatenate((tp, np.fromiter(home, np.int32)))
    return group.with_claims(member.astype(np.int32), tp.astype(np.int32))


def elsewhere(
    group: Group,
    target: I32,
    owner: I32,
    failed: MembersByFailed,
    weights: Mapping[str, int],
) -> I32:
    """Return the target with failed topic-partitions tried at other members (rules 1 and 2).

    Parameters
    ----------
    target, owner : int32[n_tps]
        Owners wanted by an assignor that saw :func:`at_home`, and owners before the round.
    weights : mapping of str to int
        Load of one partition of a topic, 1 where not given.

    Notes
    -----
    Cost: O(failed * n_members).
    """
    target = target.copy()
    weight = np.array([weights.get(name, 1) for name in group.topics.names], np.int64)
    open_tps = []
    for tp, who in failed.items():
        if target[tp] == NO_OWNER:  # it waits for a departed member
            continue
        if owner[tp] != NO_OWNER:
            target[tp] = owner[tp]
        if int(target[tp]) in who and len(who) < MOST_TRIED:
            open_tps.append(tp)
    load = _loads(target, weight[group.topics.topic_of], group.n_members)
    for tp in open_tps:
        topic = group.topics.topic_of[tp]
        able = _subscribers(group, int(topic), failed[tp])
        if not len(able):
            continue
        taker = int(able[np.argmin(load[able])])
        load[[int(target[tp]), taker]] += (-weight[topic], weight[topic])
        target[tp] = taker
    return target


def _loads(target: I32, weight: I64, n_members: int) -> I64:
    """Return the sum of weights that each member has in a target, int64[n_members]."""
    placed = target != NO_OWNER
    return np.bincount(target[placed], weight[placed], n_members).astype(np.int64)


def _subscribers(group: Group, topic: int, without: frozenset[int]) -> I64:
    """Return the members that subscribe to a topic, int64[...], without some of them."""
    every = np.array([i for i in range(group.n_members) if i not in without], np.int64)
    return every[group.is_subscribed(every, np.full(len(every), topic))]
