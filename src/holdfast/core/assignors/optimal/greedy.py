"""Even placement of partitions without an owner on members that may already hold some.

**Rules.** A member with weight w and c partitions is at level c / w. Placing minimises the sum of c
* c / w, which is the balance of KIP-54 if all weights are 1. Counts come first. Lag decides only
which of the new partitions a member gets: the largest goes to the member with the least lag per
weight.

**Strategy.** Topics with the same subscribers form one *pool*. Within a pool the new counts are the
n cheapest of the marginal prices (2c + 1) / w, found by bisection on the price. Then the partitions
are assigned in rounds, with one sort of the pool's members per round. The Python loops are over
pools and rounds. Pools with few subscribers go first, because they have the least choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from holdfast.core.assignors.subscribers import Subscribers, subscribers_by_topic
from holdfast.core.model.columns import F64, I32, I64, NO_OWNER, Mask
from holdfast.core.model.group import Group

_BISECTIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopicPool:
    """Topics that the same members read."""

    topics: I32  # int32[...]: topic indices, sorted
    members: I32  # int32[...]: the subscribers of each of ``topics``, in assignment order


@dataclass(slots=True, kw_only=True, eq=False)
class Loads:
    """Count and lag of each member while partitions are placed; changed in place."""

    count: I64  # int64[n_members]: topic-partitions
    lag: I64  # int64[n_members]: their total lag
    weight: F64  # float64[n_members]: capacity, above 0

    @classmethod
    def of(cls, owner: I32, lags: I64, weight: F64) -> Loads:
        """Return the loads of an owner column."""
        held = owner != NO_OWNER
        lag = np.zeros(len(weight), dtype=np.int64)
        np.add.at(lag, owner[held], lags[held])
        count = np.bincount(owner[held], minlength=len(weight)).astype(np.int64)
        return cls(count=count, lag=lag, weight=weight)


def assign_greedily(group: Group, owner: I32, lags: I64, weight: F64) -> Loads:
    """Give every subscribed partition without an owner to a subscriber.

    Parameters
    ----------
    owner : int32[n_tps]
        Owners before; entries without an owner are filled in.
    lags : int64[n_tps]
        Messages; zeros where lag does not matter.
    weight : float64[n_members]
        Capacity of each member.

    Returns
    -------
    Loads
        Loads of the filled column.

    Notes
    -----
    Cost: O(n log n) in partitions placed, O(n_members) a pool, one transpose of the subscriptions.
    With one pool the counts are the best there are. With several pools the counts of each pool are
    the best that the counts of the pools before it allow.

    References: KIP-54, "The Algorithm", step 2; KAFKA-5337.
    """
    loads = Loads.of(owner, lags, weight)
    readers = subscribers_by_topic(group, group.assignment_order)
    free = (owner == NO_OWNER) & group.has_subscriber[group.topics.topic_of]
    for pool in pools(group, readers):
        tps = _free_by_lag(group, free, pool, lags)
        if tps.size:
            new = _counts(loads, pool.members, tps.size)
            owner[tps] = _deal(loads, pool.members, new, lags[tps])
    return loads


def pools(group: Group, readers: Subscribers) -> Iterator[TopicPool]:
    """Return topics by equal subscribers, the fewest subscribers first, then by first topic."""
    if group.n_sets == 1:
        topics = group.set_topic
        if topics.size:
            yield TopicPool(topics=topics, members=group.assignment_order)
        return
    rows: dict[bytes, list[int]] = {}
    for topic in range(group.topics.n_topics):
        rows.setdefault(readers.of(topic).tobytes(), []).append(topic)
    for row, alike in sorted(rows.items(), key=lambda item: (len(item[0]), item[1])):
        if row:
            members = np.frombuffer(row, dtype=np.int32)
            yield TopicPool(topics=np.array(alike, dtype=np.int32), members=members)


def spread_count(count: I64, weight: F64, n: int) -> I64:
    """Return how many of ``n`` more partitions each member takes for the most even levels.

    Parameters
    ----------
    count : int64[n_members]
        Partitions of each member before.
    weight : float64[n_members]
        Capacity; ties go to the earlier member.
    n : int
        Partitions to assign.

    Returns
    -------
    int64[n_members]
        Sums to ``n`` (all zeros without members).

    Notes
    -----
    Cost: at most 64 passes and one sort. Prices are compared exactly where all weights are 1.
    """
    low, high = -1.0, float((2 * (count + n) + 1).max() / weight.min())
    for _ in range(_BISECTIONS):
        price = (low + high) / 2
        new = _taken(count, weight, price)
        total = int(new.sum())
        if total == n:
            return new
        low, high = (price, high) if total < n else (low, price)
    new = _taken(count, weight, low)
    while (rest := n - int(new.sum())) > 0:
        next_price = (2 * (count + new) + 1) / weight
        new[np.argsort(next_price, kind="stable")[:rest]] += 1
    return new


def _taken(count: I64, weight: F64, price: float) -> I64:
    """Return how many partitions below ``price`` each member takes."""
    upto = np.floor((price * weight - 1) / 2).astype(np.int64) + 1
    taken: I64 = np.maximum(upto - count, 0)
    return taken


def _free_by_lag(group: Group, free: Mask, pool: TopicPool, lags: I64) -> I64:
    """Return free partitions of a pool: largest lag first, then topic by topic.

    Assigning them one after the other then spreads every topic over the members where lags are
    equal.
    """
    topics = group.topics
    if len(pool.topics) == topics.n_topics:
        tps = np.flatnonzero(free)
    else:
        spans = [np.arange(topics.start[topic], topics.start[topic + 1]) for topic in pool.topics]
        tps = np.concatenate(spans)
        tps = tps[free[tps]]
    order: I64 = tps[np.lexsort((tps, -lags[tps]))]
    return order


def _counts(loads: Loads, members: I32, n: int) -> I64:
    # Of equal counts the member with less lag comes first: this makes up for heavy partitions.
    by_lag = np.argsort(loads.lag[members] / loads.weight[members], kind="stable")
    new = np.empty(members.size, dtype=np.int64)
    chosen = members[by_lag]
    new[by_lag] = spread_count(loads.count[chosen], loads.weight[chosen], n)
    return new


def _deal(loads: Loads, members: I32, new: I64, lags: I64) -> I32:
    """Return owners of partitions given by descending lag; ``new`` of them to each member."""
    dealt = np.empty(lags.size, dtype=np.int32)
    done, lap = 0, 0
    while done < lags.size:
        at = np.flatnonzero(new > lap)
        chosen = members[at]
        chosen = chosen[np.argsort(loads.lag[chosen] / loads.weight[chosen], kind="stable")]
        dealt[done : done + chosen.size] = chosen
        loads.lag[chosen] += lags[done : done + chosen.size]
        done, lap = done + chosen.size, lap + 1
    loads.count[members] += new
    return dealt
