"""Even loads: partitions placed greedily, and then moved along chains until no chain helps.

**Rules.** A member with weight w and c partitions is at level c / w. Placing minimises the sum of c
* c / w, which is the balance of KIP-54 if all weights are 1. Counts come first. Lag decides only
which of the new partitions a member gets: the largest goes to the member with the least lag per
weight.

A chain m0 -> m1 -> .. -> mk moves one partition of m0 to m1, one of m1 to m2 and so on,
each to a subscriber of its topic. Only the loads of m0 and mk change. The chain helps if m0 saves
more than mk pays: with c partitions and weight w, (2 (c0 - slack) - 1) / w0 > (2 ck + 1) / wk. With
slack 0 and weights 1 that is c0 >= ck + 2, the condition of KIP-54. If no chain is left, the loads
are the most even ones possible. With slack 0 each chain lowers the sum of c * c / w, so the kernel
ends.

**Strategy.** Topics with the same subscribers form one *pool*. Within a pool the new counts are the
n cheapest of the marginal prices (2c + 1) / w, found by bisection on the price. Then the partitions
are assigned in rounds, with one sort of the pool's members per round. The Python loops are over
pools and rounds. Pools with few subscribers go first, because they have the least choice.

A search for a chain starts at the member that saves most. If no chain from this member helps, the
search closes every member that it reached: the reached members reach only each other, and no chain
that ends at one of them helps. A search visits a member once, and a member is closed once. Chains
are found breadth first: the fewest moves, then the end that pays least, then the assignment order.
The Python loop is the named kernel ``Levelling.step``: one call per chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from holdfast.core.model.columns import F64, I32, I64, NO_OWNER, Mask
from holdfast.core.model.group import Group
from holdfast.core.model.reported import Subscribers

Members = int | slice | I64
"""One member, a slice of all, or a column of some."""

_RELATIVE = 1e-12
"""Prices closer than this are equal: weights are floats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition that goes from one member to another."""

    tp: int
    source: int
    end: int


class Levelling:
    """Members, their partitions, and the chains between members.

    Parameters
    ----------
    owner : int32[n_tps]
        Owner of each topic-partition; changed in place by :meth:`apply`.
    claimed : int32[n_tps]
        Claimant of each topic-partition. Of equal choices a chain takes a partition that returns to
        its claimant, else one that its holder did not claim.
    weight : float64[n_members]
        Capacity.
    movable : bool[n_tps], optional
        Partitions that may move; all by default.
    slack : int
        Partitions a member may hold too many before it is relieved.
    """

    def __init__(
        self,
        group: Group,
        owner: I32,
        claimed: I32,
        weight: F64,
        *,
        movable: Mask | None = None,
        slack: int = 0,
    ):
        self.group = group
        self.owner = owner
        self.claimed = claimed
        self.weight = weight
        self.slack = slack
        self.movable = movable
        self.readers = group.subscriptions.by_topic(group.assignment_order, group.topics.n_topics)
        self.count = np.bincount(owner[owner != NO_OWNER], minlength=group.n_members)
        by_owner = np.argsort(owner, kind="stable")
        ends = np.searchsorted(owner[by_owner], np.arange(-1, group.n_members), side="right")
        self.rows: list[I64] = np.split(by_owner, ends)[1:-1]
        self.rank = np.empty(group.n_members, dtype=np.int64)
        self.rank[group.assignment_order] = np.arange(group.n_members)
        self._masks: dict[int, Mask] = {}
        self._topics: dict[int, list[int]] = {}
        self.reopen()

    def reopen(self) -> None:
        """Consider every member again, as at the start."""
        self.closed: Mask = np.zeros(self.group.n_members, dtype=np.bool_)
        saved = self.saved().tolist()
        self._queue = [
            (-saved[member], rank, member)
            for member, rank in enumerate(self.rank.tolist())
            if self.count[member]
        ]
        heapify(self._queue)

    def step(self) -> list[Move] | None:
        """Return the next chain that helps, fewest moves first; None for none."""
        while True:
            if not self._queue:
                return None
            saved, _, source = self._queue[0]
            if self.closed[source] or not self.count[source] or saved != -self.saved(source):
                heappop(self._queue)  # it has another entry, or no more to give
                continue
            found, reached = self._search(source, -saved)
            if found is not None:
                return found
            self.closed[reached] = True

    def may_read(self, member: int) -> Mask:
        """Return whether the member subscribes to each topic, bool[n_topics]."""
        group, row = self.group, int(self.group.subscription[member])
        if row not in self._masks:
            mask = np.zeros(group.topics.n_topics, dtype=np.bool_)
            mask[group.set_topic[group.set_start[row] : group.set_start[row + 1]]] = True
            self._masks[row] = mask
        return self._masks[row]

    def is_level(self) -> bool:
        """Return whether no chain helps; considers every member again."""
        self.reopen()
        return self.step() is None

    def apply(self, moves: list[Move]) -> None:
        """Move partitions; the order of the moves does not matter."""
        for move in moves:
            self._topics.pop(move.source, None)
            self._topics.pop(move.end, None)
            self.owner[move.tp] = move.end
            row = self.rows[move.source]
            self.rows[move.source] = row[row != move.tp]
            self.rows[move.end] = np.append(self.rows[move.end], move.tp)
            self.count[move.source] -= 1
            self.count[move.end] += 1
        for move in moves:
            for member in (move.source, move.end):
                entry = (-float(self.saved(member)), int(self.rank[member]), member)
                heappush(self._queue, entry)

    def cost(self, moves: list[Move]) -> int:
        """Return the number of broken claims less the number of restored claims."""
        broken = sum(self.claimed[move.tp] == move.source for move in moves)
        return int(broken) - int(sum(self.claimed[move.tp] == move.end for move in moves))

    def saved(self, members: Members = slice(None)) -> F64:
        """Return the cost that each of ``members`` (default all) saves by giving a partition."""
        saved: F64 = (2.0 * (self.count[members] - self.slack) - 1.0) / self.weight[members]
        return saved

    def price(self, members: Members = slice(None)) -> F64:
        """Return the cost that each of ``members`` (default all) adds by taking a partition."""
        price: F64 = (2.0 * self.count[members] + 1.0) / self.weight[members]
        return price

    def takers(self, topic: int) -> list[int]:
        """Return members that may take a partition of the topic, in assignment order."""
        takers: list[int] = self.readers.of(topic).tolist()
        return takers

    def _search(self, source: int, saved: float) -> tuple[list[Move] | None, list[int]]:
        """Search breadth first from ``source``: return the chain, or everything reachable."""
        limit = saved - abs(saved) * _RELATIVE
        came: dict[int, tuple[int, int]] = {source: (-1, -1)}
        seen_topics: set[int] = set()
        frontier = [source]
        while frontier:
            new: list[int] = []
            for member in frontier:
                for topic in self._topics_of(member):
                    if topic in seen_topics:
                        continue
                    seen_topics.add(topic)
                    for end in self.takers(topic):
                        if end not in came and not self.closed[end]:
                            came[end] = (member, topic)
                            new.append(end)
            ends = np.array(new, dtype=np.int64)
            price = self.price(ends)
            if ends.size and price.min() < limit:
                best = ends[price == price.min()]
                return self._chain(came, int(best[np.argmin(self.rank[best])])), []
            frontier = new
        return None, list(came)

    def _topics_of(self, member: int) -> list[int]:
        """Return topics of which the member can give a partition, the most owned first."""
        if member not in self._topics:
            row = self._givable(member)
            topics, counts = np.unique(self.group.topics.topic_of[row], return_counts=True)
            self._topics[member] = topics[np.argsort(-counts, kind="stable")].tolist()
        return self._topics[member]

    def _fits(self, end: int, topics: I32) -> Mask:
        """Return whether a member may take a partition of each of ``topics``."""
        return self.may_read(end)[topics]

    def _givable(self, member: int) -> I64:
        row = self.rows[member]
        return row if self.movable is None else row[self.movable[row]]

    def _chain(self, came: dict[int, tuple[int, int]], end: int) -> list[Move]:
        moves: list[Move] = []
        while (step := came[end])[0] >= 0:
            source, _ = step
            moves.append(Move(tp=self._pick(source, end), source=source, end=end))
            end = source
        return moves[::-1]

    def _pick(self, source: int, end: int) -> int:
        """Return the partition to move: restores a claim, breaks none, rarest topic of ``end``."""
        tps = self._givable(source)
        topic_of = self.group.topics.topic_of
        topics = topic_of[tps]
        may = self._fits(end, topics)
        tps, topics = tps[may], topics[may]
        claimed = self.claimed[tps]
        cost = (claimed == source).astype(np.int64) - (claimed == end)
        own, at, here = np.unique(topics, return_inverse=True, return_counts=True)
        owned = np.sort(topic_of[self.rows[end]])
        there = np.searchsorted(owned, own, side="right") - np.searchsorted(owned, own)
        order = np.lexsort((-tps, topics, (there - here)[at], cost))
        return int(tps[order[0]])


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
    readers = group.subscriptions.by_topic(group.assignment_order, group.topics.n_topics)
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
