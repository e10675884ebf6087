"""``sticky`` for many groups at once: groups whose members all subscribe to the same topics.

**Rules.** The result equals that of :mod:`holdfast.core.assignors.optimal.sticky_equal`, partition
by partition; a test compares the two. A group with unequal subscriptions is left to the assignor,
and so is a group in which a topic is not even yet when its partitions are dealt. The result's
optimality is checked: loads differ by at most one, and the number of moves is that of
:func:`holdfast.core.model.measure_history.needed_moves`.

**Strategy.** The steps of the closed form, each done once over the columns of all groups: the cost
of a group is its partitions, without a call of its own. Rows are members in their order of dealing,
group after group.

References: KIP-54; KAFKA-9987; KAFKA-16277.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.model.columns import (
    I32,
    I64,
    NO_OWNER,
    Mask,
    row_of,
    stable_order,
    starts,
    within,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stack:
    """Groups as columns, one after the other.

    Parameters
    ----------
    tp_start, topic_start, member_start : int64[n_groups + 1]
        Where each group's topic-partitions, topics and members start.
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
    claimed = np.full(len(stack.owner), NO_OWNER, np.int64)  # the owner's row, in turn
    has = stack.owner != NO_OWNER
    member = first[group[has]] + stack.owner[has]
    claimed[has] = first[group[has]] + stack.place[member]
    row_group = row_of(stack.member_start).astype(np.int64)
    held = np.bincount(claimed[has], minlength=len(row_group)).astype(np.int64)
    quota = _quotas(held, floor[row_group], n_over[row_group], stack.member_start)
    stays = np.minimum(held, quota)
    n_free = total - np.bincount(row_group, stays, len(total)).astype(np.int64)
    slots = _slots(stays, quota, floor[row_group], row_group, n_free)
    rows = claimed.copy()
    rows[_cut(stack, claimed, held, quota)] = NO_OWNER
    rows[rows == NO_OWNER] = slots
    done = ~_is_crowded(stack, group, rows, claimed)
    at_place = np.empty(len(row_group), np.int64)
    at_place[first[row_group] + stack.place] = np.arange(len(row_group))
    return (at_place[rows] - first[group]).astype(np.int32), done


def _is_crowded(stack: Stack, group: I64, rows: I64, claimed: I64) -> Mask:
    """Groups in which a partition came to a member with more than an even share of its topic."""
    n_groups, n_members = len(stack.topic_start) - 1, np.diff(stack.member_start)
    several = np.diff(stack.topic_start) > 1  # of a single topic, even loads are even shares
    mine = np.flatnonzero(several[group])
    topic = row_of(starts(stack.n_partitions)).astype(np.int64)[mine]
    _, cell, n_in = np.unique(
        topic * (len(stack.place) + 1) + rows[mine], return_inverse=True, return_counts=True
    )
    share = -(-stack.n_partitions[topic] // n_members[group[mine]])
    crowded = (n_in[cell] > share) & (rows[mine] != claimed[mine])
    found: Mask = np.bincount(group[mine], crowded, n_groups) > 0
    return found


def _quotas(held: I64, floor: I64, n_over: I64, member_start: I64) -> I64:
    """What each row may keep: the floor, and one more for the first that hold more."""
    above = held > floor
    before = starts(above.astype(np.int64))
    rank = before[:-1] - np.repeat(before[member_start[:-1]], np.diff(member_start))
    return np.asarray(floor + (above & (rank < n_over)), dtype=np.int64)


def _cut(stack: Stack, claimed: I64, held: I64, quota: I64) -> I64:
    """Partitions that leave their row: all but the first by number, then topic, as Kafka does."""
    over = held > quota
    owned = np.flatnonzero(claimed != NO_OWNER)
    owned = owned[over[claimed[owned]]]
    row = claimed[owned]
    order = order_by(within(stack.n_partitions)[owned], row)  # equal ones stay by topic
    row = row[order]
    found: I64 = owned[order[within(np.where(over, held, 0)) >= quota[row]]]
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
