"""Each topic spread evenly over its members: the last goal, wherever the others leave a choice.

**Rules.** What is minimised is the sum of squares of how many partitions of each topic each member
has. Only exchanges are made that change no load, no claim kept and no rack crossed, so the goals
before this one stay as they are; where nothing is better the assignment stays as Kafka deals it.

**Strategy.** A partition is *crowded* if its member has more of its topic than an even share. Only
partitions that are new to their member, or that a member above its quota kept, have a choice. For
each crowded one the best partner among those is found in one pass over columns; the passes are
bounded, so a large group costs no more than a moment. This is a local search: it ends where (next
to) no exchange of two helps, which is even in all the cases users complained about, but has no
proof of its own; ``quality`` names ``topics`` among what is proven where every share is even.

References
----------
KAFKA-16277.
"""

from __future__ import annotations

import numpy as np

from holdfast.assign.claims import Claims
from holdfast.model.columns import I32, I64, NO_OWNER, Mask, row_of
from holdfast.model.group import Group
from holdfast.model.measure import crosses_rack

MAX_WORK = 1_000_000
"""Pairs looked at in one call, over all passes; where one pass has more, none is made."""

MAX_TABLE = 1 << 22
"""Topics times members up to which the counts are kept; above it, nothing is exchanged."""


def counts(group: Group, target: I32) -> I64:
    """Partitions of each topic that each member has, int64[n_topics, n_members]."""
    held = np.flatnonzero(target != NO_OWNER)
    key = group.topics.topic_of[held] * np.int64(group.n_members) + target[held]
    size = group.topics.n_topics * group.n_members
    return np.bincount(key, minlength=size).reshape(group.topics.n_topics, group.n_members)


def crowded(group: Group, target: I32, tps: I32) -> I32:
    """Those of ``tps`` whose member has more than an even share of their topic, int32[...]."""
    if not len(tps):
        return tps
    topic = group.topics.topic_of[tps]
    share = -(-group.topics.n_partitions // np.maximum(group.n_readers, 1))
    key = group.topics.topic_of * np.int64(group.n_members) + target
    wanted = key[tps]
    key = np.sort(key[target != NO_OWNER])
    together = np.searchsorted(key, wanted, side="right") - np.searchsorted(key, wanted)
    return tps[together > share[topic]]


def spread(claims: Claims, target: I32, free: I32, choice: I32) -> None:
    """Exchange partitions with crowded ones until no exchange makes topics more even.

    Parameters
    ----------
    target : int32[n_tps]
        A best assignment by the goals before; changed in place.
    free : int32[n_free]
        Topic-partitions that are new to their member.
    choice : int32[n]
        Claims of which a member keeps some but not all, and could as well keep others.

    References
    ----------
    KAFKA-16277.
    """
    group = claims.group
    if group.topics.n_topics * group.n_members > MAX_TABLE:
        return
    rows = crowded(group, target, free)
    choice = np.union1d(choice, free).astype(np.int32)
    work = len(rows) * len(choice)
    table = counts(group, target) if 0 < work <= MAX_WORK else None
    while table is not None and 0 < work <= MAX_WORK:
        tp, partner = _pairs(claims, target, table, rows, choice)
        if _exchange_all(group, target, table, tp.tolist(), partner.tolist()) <= len(rows) // 32:
            return  # few that helped are not worth another pass over all pairs
        rows = crowded(group, target, free)
        work += len(rows) * len(choice) if len(rows) else MAX_WORK


def _gain(table: I64, topic: I32, mine: I32, topics: I32, others: I32) -> I64:
    """By how much the sum of squares falls, halved and without the 2 that any exchange costs."""
    here = table[topic, mine] + table[topics, others]
    there = table[topic, others] + table[topics, mine]
    return np.where((mine == others) | (topic == topics), -2, here - there) - 2


def _pairs(claims: Claims, target: I32, table: I64, rows: I32, choice: I32) -> tuple[I32, I32]:
    """Exchanges that help and cost nothing, the most helpful first."""
    topic_of = claims.group.topics.topic_of
    tps, partners = _partners(claims.group, target, rows, choice)
    gain = _gain(table, topic_of[tps], target[tps], topic_of[partners], target[partners])
    helps = np.flatnonzero(gain > 0)
    helps = helps[_is_free(claims, target, tps[helps], partners[helps])]
    helps = helps[np.argsort(-gain[helps], kind="stable")]
    return tps[helps], partners[helps]


def _partners(group: Group, target: I32, rows: I32, choice: I32) -> tuple[I32, I32]:
    """Pairs of each of ``rows`` with every choice of a member that may read its topic."""
    topics, row_topic = np.unique(group.topics.topic_of[rows], return_inverse=True)
    may = np.zeros((len(topics), group.n_sets), np.bool_)
    arc = np.flatnonzero(np.isin(group.set_topic, topics))
    place = np.searchsorted(topics, group.set_topic[arc])
    may[place, row_of(group.set_start)[arc]] = True
    row, column = np.nonzero(may[:, group.subscription[target[choice]]][row_topic])
    return rows[row], choice[column]


def _exchange_all(
    group: Group, target: I32, table: I64, tps: list[int], partners: list[int]
) -> int:
    """Make those exchanges that still help; each partition moves once. Returns their number."""
    topic_of = group.topics.topic_of
    moved: set[int] = set()
    for tp, partner in zip(tps, partners, strict=True):
        if tp in moved or partner in moved:
            continue
        topic, topics, mine, other = topic_of[tp], topic_of[partner], target[tp], target[partner]
        if _gain(table, topic, mine, topics, other) > 0:
            table[topic, mine] -= 1
            table[topic, other] += 1
            table[topics, other] -= 1
            table[topics, mine] += 1
            target[tp], target[partner] = other, mine
            moved |= {tp, partner}
    return len(moved)


def _is_free(claims: Claims, target: I32, tps: I32, partners: I32) -> Mask:
    """Whether exchanging each of ``tps`` with its partner costs nothing in the goals before."""
    group, topic_of = claims.group, claims.group.topics.topic_of
    mine, others = target[tps], target[partners]
    may = group.is_subscribed(mine, topic_of[partners])
    kept = (claims.owner[tps] == mine).astype(np.int64) + (claims.owner[partners] == others)
    keeps = (claims.owner[tps] == others).astype(np.int64) + (claims.owner[partners] == mine)
    free: Mask = may & (kept == keeps)
    if group.topics.rack_start is not None:
        now = crosses_rack(group, tps, mine).astype(int) + crosses_rack(group, partners, others)
        then = crosses_rack(group, tps, others).astype(int) + crosses_rack(group, partners, mine)
        free &= now == then
    return free
