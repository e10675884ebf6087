"""Each topic spread over its members, for many groups at once: the last goal of ``sticky``.

**Rules.** The exchanges are those of :mod:`holdfast.assign.sticky_spread`, one by one and in their
order; a test holds the result to the assignor's. Groups share no topic, so what one of them
exchanges is nothing to the others.

**Strategy.** Pairs are looked at by *cell*, a topic and a member that has some of it: all
partitions of a cell gain the same. Only cells that help are opened into partitions. Then every
group makes its first exchange that still helps, all groups at once, until none has one.

References
----------
KAFKA-16277.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.assign.sticky_spread import MAX_WORK
from holdfast.model.columns import I32, I64, Mask, row_of, starts, within


@dataclass(slots=True, kw_only=True, eq=False)
class Spread:
    """What is being spread.

    Parameters
    ----------
    topic, group : int64[n_tps]
        Of every topic-partition; topics are numbered over all groups, and ascend with them.
    share : int64[n_topics]
        Partitions of a topic that are one member's even share.
    cell : int64[n_topics]
        Add the row of a member for the number of their cell.
    rows, claimed : int64[n_tps]
        Row of the owner, changed in place; row of the member that has it now, or -1.
    table : int64[n_cells]
        Partitions in each cell.
    """

    topic: I64
    group: I64
    share: I64
    cell: I64
    rows: I64
    claimed: I64
    table: I64

    @classmethod
    def of(
        cls,
        start: tuple[I64, I64, I64],
        n_partitions: I32,
        rows: I64,
        claimed: I64,
        live: Mask,
    ) -> Spread:
        """Count the cells of some groups.

        Parameters
        ----------
        start : tuple of int64[n_groups + 1]
            CSR starts of topic-partitions, topics and rows by group.
        live : bool[n_groups]
            The groups.
        """
        tp_start, topic_start, member_start = start
        size = np.diff(member_start)
        topic_group = row_of(topic_start)
        first = starts(np.where(live, size, 0)[topic_group])
        topic = row_of(starts(n_partitions)).astype(np.int64)
        group = row_of(tp_start).astype(np.int64)
        cell = first[:-1] - member_start[topic_group]
        there = np.flatnonzero(live[group])
        cells = cell[topic[there]] + rows[there]
        return cls(
            topic=topic,
            group=group,
            share=-(-n_partitions.astype(np.int64) // np.maximum(size[topic_group], 1)),
            cell=cell,
            rows=rows,
            claimed=claimed,
            table=np.bincount(cells, minlength=int(first[-1])).astype(np.int64),
        )

    def crowded(self, tps: I64) -> I64:
        """Those of ``tps`` whose member has more than an even share of their topic."""
        topic = self.topic[tps]
        found: I64 = tps[self.table[self.cell[topic] + self.rows[tps]] > self.share[topic]]
        return found

    def run(self, free: I64, choice: I64, live: Mask) -> None:
        """Exchange partitions with crowded ones until nothing is gained.

        Parameters
        ----------
        free, choice : int64
            Sorted: topic-partitions that are new to their member, and all with a choice.
        live : bool[n_groups]
            Groups to spread.
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
        key = self.cell[self.topic[choice]] + self.rows[choice]
        order = np.argsort(key, kind="stable")
        choice, key = choice[order], key[order]
        first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
        size = np.diff(np.append(first, len(key)))
        topics, others = self.topic[choice[first]], self.rows[choice[first]]
        cells = starts(np.bincount(self.group[choice[first]], minlength=n_groups))
        n_cells = np.diff(cells)[self.group[crowded]]
        at = np.repeat(cells[self.group[crowded]], n_cells) + within(n_cells)
        tps = np.repeat(crowded, n_cells)
        gain = self._gain(self.topic[tps], self.rows[tps], topics[at], others[at])
        helps = gain > 2
        at, tps, gain = at[helps], tps[helps], gain[helps]
        partner = choice[np.repeat(first[at], size[at]) + within(size[at])]
        tps, gain = np.repeat(tps, size[at]), np.repeat(gain, size[at])
        mine, other = self.rows[tps], self.rows[partner]
        here, there = self.claimed[tps], self.claimed[partner]
        kept = (here == mine).astype(np.int64) + (there == other)
        keeps = (here == other).astype(np.int64) + (there == mine)
        costs_nothing = kept == keeps
        tps, partner, gain = tps[costs_nothing], partner[costs_nothing], gain[costs_nothing]
        order = np.lexsort((partner, tps, -gain, self.group[tps]))
        return tps[order], partner[order]

    def _gain(self, topic: I64, mine: I64, topics: I64, other: I64) -> I64:
        """By how much the sum of squares falls, halved; 2 is what any exchange costs."""
        here = self.table[self.cell[topic] + mine] + self.table[self.cell[topics] + other]
        there = self.table[self.cell[topic] + other] + self.table[self.cell[topics] + mine]
        return np.where((mine == other) | (topic == topics), 0, here - there)

    def _exchange(self, tps: I64, partner: I64, n_groups: int) -> I64:
        """Make those exchanges that still help, in order; how many partitions moved, by group."""
        group, n_moved = self.group[tps], np.zeros(n_groups, np.int64)
        topic, topics = self.topic[tps], self.topic[partner]
        mine, other = self.rows[tps], self.rows[partner]
        moved = np.zeros(len(self.rows), np.bool_)
        left = np.arange(len(tps))
        while len(left):
            gain = self._gain(topic[left], mine[left], topics[left], other[left])
            helps = left[gain > 2]
            now = helps[np.unique(group[helps], return_index=True)[1]]
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
            # What was passed over before the exchange will not be looked at again.
            reached = np.full(n_groups, len(tps))
            reached[group[now]] = now
            left = left[left > reached[group[left]]]
            left = left[~(moved[tps[left]] | moved[partner[left]])]
        return n_moved
