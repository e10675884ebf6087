"""Each topic spread over its members, for many groups at once: the last goal of ``sticky``.

**Rules.** The exchanges are those of :mod:`holdfast.core.assignors.optimal.sticky_spread`, one by
one and in the same order; a test compares the results. Groups share no topic here, so an exchange
in one group changes nothing in another.

**Strategy.** Pairs are looked at by *cell*: a topic and a member that owns some of it. All
partitions of a cell gain the same by an exchange, so only cells that gain are opened into
partitions. In each round every group makes its first exchange that still gains, all groups at once,
until no group has one.

References: KAFKA-16277.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.assignors.optimal.sticky_spread import MAX_WORK
from holdfast.core.model.columns import I32, I64, Mask, places_in, row_of, stable_order, starts


def order_by(*keys: I64) -> I64:
    """``numpy.lexsort`` of keys that are 0 or more, the last one first; faster if small."""
    order = np.arange(len(keys[0]))
    for key in keys:
        own = key[order]
        order = order[stable_order(own, int(own.max(initial=0)) + 1)]
    return order


@dataclass(slots=True, kw_only=True, eq=False)
class Spread:
    """The partitions of many groups, while they are spread.

    Parameters
    ----------
    topic, group : int64[n_tps]
        Of every topic-partition; topics are numbered over all groups, in the groups' order.
    share : int64[n_topics]
        Partitions of a topic that are one member's even share.
    cell : int64[n_topics]
        The cell of a topic and a member is ``cell[topic]`` plus the member's row.
    base : int64[n_tps]
        ``cell`` of the topic of each topic-partition.
    rows, claimed : int64[n_tps]
        Row of the owner, changed in place; row of the member that has the partition before, or -1.
    table : int64[n_cells]
        Partitions in each cell; :meth:`count` makes it.
    """

    topic: I64
    group: I64
    share: I64
    cell: I64
    base: I64
    topic_of: I64
    group_of: I64
    rows: I64
    claimed: I64
    table: I64

    @classmethod
    def of(
        cls,
        start: tuple[I64, I64],
        n_partitions: I32,
        columns: tuple[I64, I64, I64],
        live: Mask,
    ) -> Spread:
        """Lay out the cells of some groups.

        Parameters
        ----------
        start : tuple of int64[n_groups + 1]
            CSR starts of topics and rows by group.
        columns : tuple of int64[n_tps]
            ``group``, ``rows`` and ``claimed``.
        """
        topic_start, member_start = start
        size = np.diff(member_start)
        group_of = row_of(topic_start).astype(np.int64)
        first = starts(np.where(live, size, 0)[group_of])
        topic = row_of(starts(n_partitions)).astype(np.int64)
        cell = first[:-1] - member_start[group_of]
        return cls(
            topic=topic,
            group=columns[0],
            share=-(-n_partitions.astype(np.int64) // np.maximum(size[group_of], 1)),
            cell=cell,
            base=cell[topic],
            topic_of=row_of(first).astype(np.int64),
            group_of=group_of,
            rows=columns[1],
            claimed=columns[2],
            table=first[:0],
        )

    def count(self, live: Mask) -> None:
        """Count the partitions in each cell of ``live``: groups that were live at the start."""
        there = live[self.group]
        cells = self.base[there] + self.rows[there]
        self.table = np.bincount(cells, minlength=len(self.topic_of)).astype(np.int64)

    def crowded(self, tps: I64) -> I64:
        """The entries of ``tps`` whose member has more than an even share of the topic."""
        n_own = self.table[self.base[tps] + self.rows[tps]]
        found: I64 = tps[n_own > self.share[self.topic[tps]]]
        return found

    def run(self, free: I64, choice: I64, live: Mask) -> None:
        """Exchange partitions with crowded ones until nothing is gained.

        Parameters
        ----------
        free, choice : int64
            Sorted: topic-partitions that are new to their member, and all with a choice.
        """
        n_groups = len(live)
        n_choice = np.bincount(self.group[choice], minlength=n_groups)
        work = np.zeros(n_groups, np.int64)
        live = live.copy()
        while True:
            crowded = self.crowded(free[live[self.group[free]]])
            n_rows = np.bincount(self.group[crowded], minlength=n_groups)
            work += n_rows * n_choice
            live &= (n_rows > 0) & (work <= MAX_WORK)
            crowded = crowded[live[self.group[crowded]]]
            if not len(crowded):
                return
            pairs = self._pairs(crowded, choice[live[self.group[choice]]], n_groups)
            live &= self._exchange(*pairs, n_groups) > n_rows // 32

    def _pairs(self, crowded: I64, choice: I64, n_groups: int) -> tuple[I64, I64]:
        """Exchanges that help and cost nothing, by group, the most helpful first."""
        key = self.base[choice] + self.rows[choice]
        open_cells = np.flatnonzero(np.bincount(key))
        topics = self.topic_of[open_cells]
        others = open_cells - self.cell[topics]
        cells = starts(np.bincount(self.group_of[topics], minlength=n_groups))
        group = self.group[crowded]
        n_cells, at = places_in(cells, group)
        tps = np.repeat(crowded, n_cells)
        gain = self._gain(self.topic[tps], self.rows[tps], topics[at], others[at])
        helps = np.flatnonzero(gain > 2)
        at, tps, gain = open_cells[at[helps]], tps[helps], gain[helps]
        used = np.zeros(len(self.topic_of), np.bool_)
        used[at] = True
        there = used[key]
        choice, key = choice[there], key[there]
        choice = choice[order_by(key)]
        size, partners = places_in(starts(np.bincount(key, minlength=len(used))), at)
        partner = choice[partners]
        tps, gain = np.repeat(tps, size), np.repeat(gain, size)
        mine, other = self.rows[tps], self.rows[partner]
        here, there = self.claimed[tps], self.claimed[partner]
        kept = (here == mine).astype(np.int8) + (there == other)
        keeps = (here == other).astype(np.int8) + (there == mine)
        free = np.flatnonzero(kept == keeps)
        tps, partner, gain = tps[free], partner[free], gain[free]
        order = order_by(partner, tps, gain.max(initial=0) - gain, self.group[tps])
        return tps[order], partner[order]

    def _gain(self, topic: I64, mine: I64, topics: I64, other: I64) -> I64:
        """Half of what the sum of the squares of ``table`` falls by, plus 2: 2 is no gain."""
        here = self.table[self.cell[topic] + mine] + self.table[self.cell[topics] + other]
        there = self.table[self.cell[topic] + other] + self.table[self.cell[topics] + mine]
        return np.where((mine == other) | (topic == topics), 0, here - there)

    def _exchange(self, tps: I64, partner: I64, n_groups: int) -> I64:
        """Make the exchanges that still help, in order; how many partitions moved, by group."""
        group, n_moved = self.group[tps], np.zeros(n_groups, np.int64)
        topic, topics = self.topic[tps], self.topic[partner]
        mine, other = self.rows[tps], self.rows[partner]
        moved = np.zeros(len(self.rows), np.bool_)
        left = np.arange(len(tps))
        while len(left):
            gain = self._gain(topic[left], mine[left], topics[left], other[left])
            helps = left[gain > 2]
            now = helps[np.diff(group[helps], prepend=-1) > 0]
            for tp_topic, row, step in (
                (topic, mine, -1),
                (topic, other, 1),
                (topics, other, -1),
                (topics, mine, 1),
            ):
                self.table[self.cell[tp_topic[now]] + row[now]] += step
            self.rows[tps[now]], self.rows[partner[now]] = other[now], mine[now]
            moved[tps[now]] = moved[partner[now]] = True
            n_moved[group[now]] += 2
            # Partitions passed over before the exchange are not looked at again.
            reached = np.full(n_groups, len(tps))
            reached[group[now]] = now
            left = left[left > reached[group[left]]]
            left = left[~(moved[tps[left]] | moved[partner[left]])]
        return n_moved
