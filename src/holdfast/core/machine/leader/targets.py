"""Targets for resources: isolated per kind, balanced by weight, and away from members they fail at.

**Rules.**

- Isolated: each kind is assigned by itself, so every member has as many resources of a kind as any
  other, or one more or less. Of the resources that have no owner, those that make one more go to
  members so that the totals are even, weights counted. Example: ten kinds of one resource each go
  to ten members.
- Isolated and levelled: where totals still differ by more than one resource, owned ones that make
  one more of a kind move until no chain of such moves evens the totals any further. Example: A owns
  eight kinds of one resource, B joins and gets four of them.
- Weighted, not isolated: the load of a member is the sum of the weights of its resources. A claimed
  resource moves only if that lowers the larger of two members' loads. Example: A owns resources of
  weight 2, 1 and 1, B owns nothing; the heavy one moves to B, and then nothing more.

**Strategy.** Both begin with the claims. The isolated target calls an assignor for each kind, and
then makes chains of moves, first of what moves anyway, then of claims if it is to level. The
weighted one keeps what fits, assigns unowned resources by weight, then makes the best move until
none helps.

References: Incremental Cooperative Rebalancing, "Motivation" (isolated support of heterogeneous
resources) and Design III.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from holdfast.core.assignors.claims import normalise
from holdfast.core.assignors.optimal.levelling import Levelling, Members, Move
from holdfast.core.machine.leader.subscriptions import SubscribedMember
from holdfast.core.model.columns import F64, I32, I64, NO_OWNER, Mask, frozen, row_of, starts
from holdfast.core.model.group import Group
from holdfast.core.wire.layouts.container import MOST_FAILED


def isolated_target(
    group: Group,
    assignor: Callable[[Group], I32],
    weights: Mapping[str, int] | None = None,
    *,
    level: bool = False,
) -> I32:
    """Assign each topic by itself, with totals as even as that allows.

    Parameters
    ----------
    assignor : callable
        Group -> int32[n_tps], here always called with one topic.
    weights : mapping of str to int, optional
        Weight of one resource of a kind, 1 where not given; decides who gets extra resources.
    level : bool
        Whether claims may move for even totals. Without it, a change in one kind moves nothing of
        another.

    Notes
    -----
    Without weights no assignment that is even in each kind has more even totals.
    """
    n_members = group.n_members
    target = np.full(group.topics.n_tps, NO_OWNER, np.int32)
    if not n_members:
        return target
    load = np.zeros(n_members, np.int64)
    weight = np.array([(weights or {}).get(name, 1) for name in group.topics.names], np.int64)
    counts = group.topics.n_partitions * weight
    for topic in np.lexsort((np.arange(len(counts)), -counts)).tolist():
        own = _only(group, topic)
        # Members are in order of load, so that an extra resource goes to the least loaded.
        order = np.lexsort((np.arange(n_members), load)).astype(np.int32)
        chosen = assignor(_relabelled(own, order))
        first, last = int(group.topics.start[topic]), int(group.topics.start[topic + 1])
        part = chosen[first:last]
        part = np.where(part == NO_OWNER, NO_OWNER, order[part]).astype(np.int32)
        target[first:last] = part
        load += weight[topic] * np.bincount(part[part != NO_OWNER], minlength=n_members)
    owner = normalise(group).owner
    _level(group, target, owner, weight, movable=target != owner)
    if level:
        _level(group, target, owner, weight, movable=np.ones(len(target), bool))
    return target


def _level(group: Group, target: I32, owner: I32, weight: I64, *, movable: Mask) -> None:
    """Even the totals out, in place; only kinds of equal weight move along a chain."""
    values = np.unique(weight[group.set_topic])[::-1].tolist()
    topic_of = group.topics.topic_of
    found = True
    while found:
        found = False
        for value in values:
            alike = movable & (weight[topic_of] == value)
            kinds = _KindLevelling(group, target, owner, weight, movable=alike, value=value)
            while (moves := kinds.step()) is not None:
                kinds.apply(moves)
                found = len(values) > 1


class _KindLevelling(Levelling):
    """Chains of moves that keep every kind even: each step gives one that makes one more.

    Parameters
    ----------
    weight : int64[n_topics]
        Load of one resource of each kind.
    value : int
        Weight of the resources that are movable.
    """

    def __init__(
        self, group: Group, owner: I32, claimed: I32, weight: I64, *, movable: Mask, value: int
    ):
        owned = owner != NO_OWNER
        topic_of = group.topics.topic_of
        n = group.n_members
        self.value = value
        self.load = np.zeros(n, np.int64)
        np.add.at(self.load, owner[owned], weight[topic_of[owned]])
        self.of_kind = np.zeros((group.topics.n_topics, n), np.int64)
        np.add.at(self.of_kind, (topic_of[owned], owner[owned]), 1)
        readers = _may(group)
        self.low = np.where(readers, self.of_kind, np.iinfo(np.int64).max).min(axis=1)
        high = np.where(readers, self.of_kind, -1).max(axis=1)
        movable = movable & (high == self.low + 1)[topic_of]
        super().__init__(group, owner, claimed, np.ones(n), movable=movable)

    def apply(self, moves: list[Move]) -> None:
        """Move resources."""
        topic_of = self.group.topics.topic_of
        for move in moves:
            self.load[[move.source, move.end]] += (-self.value, self.value)
            self.of_kind[topic_of[move.tp], [move.source, move.end]] += (-1, 1)
        super().apply(moves)

    def saved(self, members: Members = slice(None)) -> F64:
        """Return the load of each of ``members`` less what it gives."""
        return (self.load[members] - self.value).astype(np.float64)

    def price(self, members: Members = slice(None)) -> F64:
        """Return the load of each of ``members``."""
        return self.load[members].astype(np.float64)

    def takers(self, topic: int) -> list[int]:
        """Return the members that have the fewest of the kind."""
        able = self.readers.of(topic)
        takers: list[int] = able[self.of_kind[topic, able] == self.low[topic]].tolist()
        return takers

    def _fits(self, end: int, topics: I32) -> Mask:
        fits: Mask = self.of_kind[topics, end] == self.low[topics]
        return fits & super()._fits(end, topics)

    def _givable(self, member: int) -> I64:
        row = super()._givable(member)
        topics = self.group.topics.topic_of[row]
        givable: I64 = row[self.of_kind[topics, member] > self.low[topics]]
        return givable


def _only(group: Group, topic: int) -> Group:
    """Return the same group, subscribed to and claiming one topic only."""
    keep = group.set_topic == topic
    sizes = np.bincount(row_of(group.set_start)[keep], minlength=group.n_sets)
    mine = group.topics.topic_of[group.claim_tp] == topic
    foreign = group.topics.topic_of[group.foreign_tp] == topic
    return group.with_claims(
        group.claim_members()[mine],
        group.claim_tp[mine],
        set_start=frozen(starts(sizes)),
        set_topic=frozen(group.set_topic[keep]),
        foreign_member=frozen(group.foreign_member[foreign]),
        foreign_tp=frozen(group.foreign_tp[foreign]),
    )


def _relabelled(group: Group, order: I32) -> Group:
    """Return the same group with its members in another order, under ids that sort so."""
    back = np.argsort(order).astype(np.int32)
    return group.with_claims(
        back[group.claim_members()],
        group.claim_tp,
        member_ids=tuple(f"{i:09d}" for i in range(len(order))),
        instance_ids=(None,) * len(order),
        subscription=frozen(group.subscription[order]),
        generation=frozen(group.generation[order]),
        rack=frozen(group.rack[order]),
        foreign_member=frozen(back[group.foreign_member]),
    )


def weighted_target(group: Group, weights: Mapping[str, int]) -> I32:
    """Balance the sum of weights, moving claims only where that lowers the larger load.

    Parameters
    ----------
    weights : mapping of str to int
        Weight of one resource of a kind, 1 where not given.

    Notes
    -----
    Cost: O(n_tps * n_members); each levelling step lowers the sum of squared loads, so it ends.

    References: Incremental Cooperative Rebalancing, Design III, "a heavy connector" beside "a
    light" one.
    """
    topics = group.topics
    weight = np.array([weights.get(name, 1) for name in topics.names], np.int64)[topics.topic_of]
    may = _may(group)
    target = normalise(group).owner.copy()
    load = _loads(target, weight, group.n_members)
    order = np.lexsort((np.arange(topics.n_tps), -weight))
    for tp in order[target[order] == NO_OWNER].tolist():
        able = np.flatnonzero(may[topics.topic_of[tp]])
        if len(able):
            member = int(able[np.argmin(load[able])])
            target[tp] = member
            load[member] += weight[tp]
    while (step := _best_step(target, load, weight, may, topics.topic_of)) is not None:
        tp, member = step
        load[target[tp]] -= weight[tp]
        load[member] += weight[tp]
        target[tp] = member
    return target


def _best_step(
    target: I32, load: I64, weight: I64, may: Mask, topic_of: I32
) -> tuple[int, int] | None:
    """Return the move that levels most, or None if no move lowers the larger of two loads."""
    owned = np.flatnonzero(target != NO_OWNER)
    if not len(owned):
        return None
    gap = load[target[owned]][:, None] - load[None, :] - weight[owned][:, None]
    gain = np.where(may[topic_of[owned]], gap, 0) * weight[owned][:, None]
    best = int(np.argmax(gain))
    row, member = divmod(best, gain.shape[1])
    return (int(owned[row]), member) if gain[row, member] > 0 else None


def _may(group: Group) -> Mask:
    """Return whether each member subscribes to each topic, bool[n_topics, n_members]."""
    table = np.zeros((group.topics.n_topics, group.n_sets), bool)
    table[group.set_topic, row_of(group.set_start)] = True
    return table[:, group.subscription]


# Resources that have failed at a member: they are tried elsewhere, and move nothing else.
#
# A member reports the resources whose work has failed there (``MemberSubscription.failed``). A
# resource is *failed at* a member that reports it.
#
# All examples are a group of A, B and C with four resources each; A reports resource 3.
#
# 1. A failed resource goes to a member that does not report it, to the one with the least load. So
#    no member has more than if the members that report the resource had left. Example: 3 goes from
#    A to B, which has five then. If A reports all its four, B and C take two each.
# 2. A resource that has failed at ``MOST_TRIED`` members is most likely broken itself: it stays
#    with its owner, after two rounds at most for each of them. Example: 3 fails at A, at B and at
#    C. It stays with C, which tries it again later.
# 3. Wherever the resource is, it counts as load of a member that reports it: the one with the least
#    other load. So A is assigned nothing instead of it, and no other resource moves because of a
#    failure. Example: A has three resources and B five, and the next round moves none.
# 4. A member's report counts for that member alone, and for as many resources as it may report
#    (``MOST_FAILED``).
#
# The assignor sees the claims as rule 3 has them, and its target is changed by rules 1 and 2. Both
# loop over the failed resources, which are few.
#
# References: Kafka Connect, where a task that has failed stays FAILED (KIP-415 has no other
# answer).


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
    assigned = target != NO_OWNER
    return np.bincount(target[assigned], weight[assigned], n_members).astype(np.int64)


def _subscribers(group: Group, topic: int, without: frozenset[int]) -> I64:
    """Return the members that subscribe to a topic, int64[...], without some of them."""
    every = np.array([i for i in range(group.n_members) if i not in without], np.int64)
    return every[group.is_subscribed(every, np.full(len(every), topic))]
