"""``sticky`` for many groups at once: groups whose members all subscribe to the same topics.

**Rules.** The result equals that of :mod:`holdfast.core.assignors.optimal.sticky_equal`, partition
by partition; a test compares the two. A group with unequal subscriptions is left to the assignor,
and so is a group with very many topics, members or uneven partitions. The result's optimality is
checked: loads differ by at most one, and the number of moves is that of
:func:`holdfast.core.model.measure_history.needed_moves`. The exchanges that spread each topic are
those of :mod:`holdfast.core.assignors.optimal.sticky_spread`, one by one and in the same order.
Groups share no topic here, so an exchange in one group changes nothing in another.

**Strategy.** The steps of the closed form, each done once over the columns of all groups: the cost
of a group is its partitions, without a call of its own. Rows are members in their order of dealing,
group after group.

Pairs to be exchanged are looked at by *cell*: a topic and a member that owns some of it. All
partitions of a cell gain the same by an exchange, so only cells that gain are opened into
partitions. In each round every group makes its first exchange that still gains, all groups at once,
until no group has one.

References: KIP-54; KAFKA-9987; KAFKA-16277.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.assignors.optimal.sticky_spread import MAX_WORK
from holdfast.core.model.columns import (
    I32,
    I64,
    NO_OWNER,
    Mask,
    places_in,
    row_of,
    stable_order,
    starts,
    within,
)
from holdfast.fleet.pipeline.plan.rows import Fleet

MAX_CELLS = 1 << 16
"""Topics times members of a group of several topics, above which it is left to the assignor."""

MAX_PAIRS = 1 << 15
"""Crowded partitions times partitions with a choice of a group, above which it is left likewise."""


def sticky_targets(fleet: Fleet) -> tuple[I32, Mask]:
    """The sticky optimum of every group.

    Returns
    -------
    (target, done) : int32[n_tps], bool[n_groups]
        Members as in ``owner``; where ``done`` is false the group is left to the assignor.
    """
    place = fleet.places()
    group = row_of(fleet.tp_start).astype(np.int64)
    size = np.diff(fleet.member_start)
    total = np.diff(fleet.tp_start)
    floor, n_over = total // np.maximum(size, 1), total % np.maximum(size, 1)
    first = fleet.member_start[:-1]
    claimed = np.full(len(fleet.owner), NO_OWNER, np.int64)  # the owner's row, in turn
    has = fleet.owner != NO_OWNER
    member = first[group[has]] + fleet.owner[has]
    claimed[has] = first[group[has]] + place[member]
    row_group = row_of(fleet.member_start).astype(np.int64)
    held = np.bincount(claimed[has], minlength=len(row_group)).astype(np.int64)
    quota = _quotas(held, floor[row_group], n_over[row_group], fleet.member_start)
    stays = np.minimum(held, quota)
    n_free = total - np.bincount(row_group, stays, len(total)).astype(np.int64)
    slots = _slots(stays, quota, floor[row_group], row_group, n_free)
    over = _Over.of(fleet, claimed, held, quota)
    rows = _dealt(claimed, over.cut(over.by_number()), slots)
    done = _evened(fleet, (group, rows, claimed), over, slots)
    at_place = np.empty(len(row_group), np.int64)
    at_place[first[row_group] + place] = np.arange(len(row_group))
    return (at_place[rows] - first[group]).astype(np.int32), done


def _dealt(claimed: I64, taken: I64, slots: I64) -> I64:
    """Rows after some partitions were taken, and every free one was dealt to its slot."""
    rows = claimed.copy()
    rows[taken] = NO_OWNER
    rows[rows == NO_OWNER] = slots
    return rows


def _evened(fleet: Fleet, columns: tuple[I64, I64, I64], over: _Over, slots: I64) -> Mask:
    """Change the rows of groups in which a topic is uneven; return which groups are done."""
    group, rows, claimed = columns
    several = np.diff(fleet.topic_start) > 1
    n_cells = np.diff(fleet.topic_start) * np.diff(fleet.member_start)
    done: Mask = ~several | (n_cells <= MAX_CELLS)
    uneven = several & done
    work = Spread.of(fleet, columns, uneven)
    for again in (False, True):
        if not uneven.any():
            return done
        mine = uneven[group]
        if again:
            rows[mine] = _dealt(claimed, over.cut(over.by_topic(fleet)), slots)[mine]
        work.count(uneven)
        free = np.flatnonzero((rows != claimed) & mine)
        n_crowded = np.bincount(group[work.crowded(free)], minlength=len(done))
        uneven = n_crowded > 0
    has_choice = np.zeros(len(rows), np.bool_)
    has_choice[free] = has_choice[over.owned] = True
    choice = np.flatnonzero(has_choice)
    n_choice = np.bincount(group[choice], minlength=len(done))
    done &= n_crowded * n_choice <= MAX_PAIRS
    work.run(free, choice, uneven & done)
    return done


def _quotas(held: I64, floor: I64, n_over: I64, member_start: I64) -> I64:
    """What each row may keep: the floor, and one more for the first that hold more."""
    above = held > floor
    before = starts(above.astype(np.int64))
    rank = before[:-1] - np.repeat(before[member_start[:-1]], np.diff(member_start))
    return np.asarray(floor + (above & (rank < n_over)), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Over:
    """Partitions of rows above their quota: some of them must go.

    Parameters
    ----------
    owned, row : int64[n]
        The partitions, sorted, and the row of each.
    """

    owned: I64
    row: I64
    partition: I64
    held: I64
    quota: I64

    @classmethod
    def of(cls, fleet: Fleet, claimed: I64, held: I64, quota: I64) -> _Over:
        """The partitions of rows that hold more than their quota."""
        owned = np.flatnonzero(claimed != NO_OWNER)
        owned = owned[(held > quota)[claimed[owned]]]
        partition = within(fleet.n_partitions)[owned]
        held = np.where(held > quota, held, 0)
        return cls(owned=owned, row=claimed[owned], partition=partition, held=held, quota=quota)

    def by_number(self) -> I64:
        """An order in which rows keep the first by number, then topic, as Kafka does."""
        return order_by(self.partition, self.row)  # equal ones stay by topic

    def by_topic(self, fleet: Fleet) -> I64:
        """An order in which each row gives up partitions of the topics of which it has most.

        Of topics of which it has as many, it goes on where the row before it in its group stopped.
        """
        topic = row_of(starts(fleet.n_partitions))[self.owned].astype(np.int64)
        order = order_by(self.row)  # so by row, then topic: they stand by group and topic
        turned = np.diff(self.row[order], prepend=-1) | np.diff(topic[order], prepend=-1)
        first_of = np.flatnonzero(turned)
        occurrence = np.empty(len(order), np.int64)
        occurrence[order] = within(np.diff(np.append(first_of, len(order))))
        there = np.zeros(len(fleet.n_partitions), np.bool_)
        there[topic] = True
        number = starts(there)
        first, n_there = number[fleet.topic_start[:-1]], np.diff(number[fleet.topic_start])
        given = starts(np.maximum(self.held - self.quota, 0))
        row_group = row_of(fleet.member_start)
        shift = given[:-1] - given[fleet.member_start[:-1]][row_group]
        group = row_group[self.row]
        turn = (number[topic] - first[group] + shift[self.row]) % n_there[group]
        return order_by(turn, occurrence, self.row)

    def cut(self, order: I64) -> I64:
        """Partitions that leave their row, if each row keeps its first partitions in ``order``."""
        row = self.row[order]
        found: I64 = self.owned[order[within(self.held) >= self.quota[row]]]
        return found


def _slots(stays: I64, quota: I64, floor: I64, row_group: I64, n_free: I64) -> I64:
    """Row that gets each free partition, group by group in dealing order."""
    needs = np.maximum(floor - stays, 0)
    row = np.repeat(np.arange(len(stays)), needs)
    lap = within(needs)
    at_floor = np.flatnonzero((stays == floor) & (quota == floor))
    last = lap + 1 == needs[row]
    # Below the floor lap by lap; then those at the floor; then the others as they reached it.
    entry = np.concatenate((row, at_floor, row[last]))
    part = np.repeat([0, 1, 2], [len(row), len(at_floor), int(last.sum())])
    turn = np.concatenate((lap, np.zeros(len(at_floor), np.int64), lap[last]))
    order = order_by(entry, turn, part, row_group[entry])
    entry = entry[order]
    rank = within(np.bincount(row_group[entry], minlength=len(n_free)))
    return np.asarray(entry[rank < n_free[row_group[entry]]], dtype=np.int64)


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
    def of(cls, fleet: Fleet, columns: tuple[I64, I64, I64], live: Mask) -> Spread:
        """Lay out the cells of some groups; ``columns`` are ``group``, ``rows`` and ``claimed``."""
        member_start, n_partitions = fleet.member_start, fleet.n_partitions
        size = np.diff(member_start)
        group_of = row_of(fleet.topic_start).astype(np.int64)
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
