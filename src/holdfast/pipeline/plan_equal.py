"""``sticky`` for many groups at once: those whose members all ask for the same topics.

**Rules.** The result is that of :mod:`holdfast.assign.sticky_equal`, partition by partition; a test
holds it to that. A group whose topics would not come out evenly spread is left to the assignor, and
so is every group with unequal subscriptions. That a result is the best is not taken on trust: the
loads differ by one at most, and as many partitions move as :func:`needed_moves` counts.

**Strategy.** The steps of the closed form, each once over the columns of all groups: a group costs
its partitions, and no call of its own. Rows are members in their turn, group after group.

References
----------
KIP-54; KAFKA-9987; KAFKA-16277.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.model.columns import I32, I64, NO_OWNER, Mask, row_of, starts, within


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stack:
    """Groups as columns, one after the other.

    Parameters
    ----------
    tp_start, topic_start, member_start : int64[n_groups + 1]
        Where each group's topic-partitions, topics and members start.
    n_partitions : int32[n_topics]
        Partitions of each topic.
    place : int64[n_members]
        Turn of each member in its group.
    owner : int32[n_tps]
        Member of the group (0, 1, ...) that owns each topic-partition, or NO_OWNER.
    """

    tp_start: I64
    topic_start: I64
    member_start: I64
    n_partitions: I32
    place: I64
    owner: I32


def sticky_targets(stack: Stack) -> tuple[I32, Mask]:
    """The sticky optimum of every group.

    Returns
    -------
    (target, done) : int32[n_tps], bool[n_groups]
        Members as in ``owner``; where ``done`` is false the group is left to the assignor.
    """
    group = row_of(stack.tp_start).astype(np.int64)
    size = np.diff(stack.member_start)
    total = np.diff(stack.tp_start)
    floor, n_over = total // np.maximum(size, 1), total % np.maximum(size, 1)
    first = stack.member_start[:-1]
    rows = np.full(len(stack.owner), NO_OWNER, np.int64)  # the owner's row, in turn
    claimed = stack.owner != NO_OWNER
    member = first[group[claimed]] + stack.owner[claimed]
    rows[claimed] = first[group[claimed]] + stack.place[member]
    row_group = row_of(stack.member_start).astype(np.int64)
    held = np.bincount(rows[claimed], minlength=len(row_group)).astype(np.int64)
    quota = _quotas(held, floor[row_group], n_over[row_group], stack.member_start)
    _cut(stack, rows, held, quota)
    stays = np.minimum(held, quota)
    free = np.flatnonzero(rows == NO_OWNER)
    n_free = total - np.bincount(row_group, stays, len(total)).astype(np.int64)
    rows[free] = _slots(stays, quota, floor[row_group], row_group, n_free)
    done = ~_crowded(stack, rows, free, group)
    at_place = np.empty(len(row_group), np.int64)
    at_place[first[row_group] + stack.place] = np.arange(len(row_group))
    return (at_place[rows] - first[group]).astype(np.int32), done


def _quotas(held: I64, floor: I64, n_over: I64, member_start: I64) -> I64:
    """What each row may keep: the floor, and one more for the first that hold more."""
    above = held > floor
    before = starts(above.astype(np.int64))
    rank = before[:-1] - np.repeat(before[member_start[:-1]], np.diff(member_start))
    return np.asarray(floor + (above & (rank < n_over)), dtype=np.int64)


def _cut(stack: Stack, rows: I64, held: I64, quota: I64) -> None:
    """Take from rows above their quota; they keep their first partitions by number, then topic."""
    over = held > quota
    if not over.any():
        return
    owned = np.flatnonzero(rows != NO_OWNER)
    owned = owned[over[rows[owned]]]
    row = rows[owned]
    partition = within(stack.n_partitions)[owned]
    order = np.lexsort((partition, row))  # stable: equal partitions stay in the order of topics
    owned, row = owned[order], row[order]
    rank = within(np.bincount(row, minlength=len(held)))
    rows[owned[rank >= quota[row]]] = NO_OWNER


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
    order = np.lexsort((entry, turn, part, row_group[entry]))
    entry = entry[order]
    rank = within(np.bincount(row_group[entry], minlength=len(n_free)))
    return np.asarray(entry[rank < n_free[row_group[entry]]], dtype=np.int64)


def _crowded(stack: Stack, rows: I64, free: I64, group: I64) -> Mask:
    """Groups in which a free partition went to a row with more than its share of the topic."""
    crowded = np.zeros(len(stack.tp_start) - 1, np.bool_)
    several = np.diff(stack.topic_start) > 1
    free = free[several[group[free]]]
    if not len(free):
        return crowded
    topic = row_of(starts(stack.n_partitions))
    size = np.diff(stack.member_start)
    share = -(-stack.n_partitions // np.maximum(np.repeat(size, np.diff(stack.topic_start)), 1))
    some = np.flatnonzero(several[group])
    width = np.int64(stack.member_start[-1])
    keys = np.sort(topic[some] * width + rows[some])
    wanted = topic[free] * width + rows[free]
    together = np.searchsorted(keys, wanted, side="right") - np.searchsorted(keys, wanted)
    crowded[group[free[together > share[topic[free]]]]] = True
    return crowded
