"""``sticky`` for many groups at once: groups whose members all subscribe to the same topics.

**Rules.** The result equals that of :mod:`holdfast.core.assignors.optimal.sticky_equal`, partition
by partition; a test compares the two. A group with unequal subscriptions is left to the assignor,
and so is a group with very many topics, members or uneven partitions. The result's optimality is
checked: loads differ by at most one, and the number of moves is that of
:func:`holdfast.core.model.measure_history.needed_moves`.

**Strategy.** The steps of the closed form, each done once over the columns of all groups: the cost
of a group is its partitions, without a call of its own. Rows are members in their order of dealing,
group after group.

References: KIP-54; KAFKA-9987; KAFKA-16277.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.model.columns import I32, I64, NO_OWNER, Mask, row_of, starts, within
from holdfast.fleet.pipeline.plan.rows import Fleet
from holdfast.fleet.pipeline.plan.spread import Spread, order_by

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
    work = Spread.of((fleet.topic_start, fleet.member_start), fleet.n_partitions, columns, uneven)
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
