"""Exchanges that spread each topic evenly over its members, the last goal of ``sticky``.

**Rules.** Each pair of topic and member has a number of partitions; the sum of the squares of the
numbers is to be small. An exchange is made only if it changes no load, no number of claims kept and
no number of reads across racks, so the earlier goals stay reached. If no exchange helps, the
assignment stays in Kafka's order.

**Strategy.** A partition is *crowded* if its member has more of its topic than an even quota. A
partition has a choice only if it is new to its member, or if its member kept it although it is
above its quota. One pass over columns finds the best partner with a choice for each crowded
partition. The passes are bounded, so a large group costs little more. The search is local: it
ends where almost no exchange of two partitions helps. In all cases that users complained about the
spread is then even. The end itself proves nothing: ``quality`` names ``topics`` as proven only if
every quota is even.

References: KAFKA-16277.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.core.assignors.claims import Claims
from holdfast.core.model.columns import (
    I32,
    I64,
    NO_OWNER,
    Mask,
    distinct,
    positions_in,
    ranked,
    row_of,
    row_sizes,
    stable_order,
    starts,
)
from holdfast.core.model.group import Group
from holdfast.core.model.measure import crosses_rack

MAX_WORK = 1_000_000
"""Bound on the pairs considered in one call, over all passes; a larger pass is not made."""

MAX_TABLE = 1 << 22
"""Bound on topics times members with a choice for which counts are kept; above it, no attempt."""


@dataclass(frozen=True, slots=True, eq=False)
class _Counts:
    """Partitions of each topic that each member has, for the topics and members with a choice."""

    # int32[n_topics], int32[n_members]: row and column of each; 0 for a topic or member without a
    # choice, as for the first one.
    topic: I32
    member: I32
    table: I64  # int64[...]: the counts

    def of(self, topics: npt.NDArray[np.integer], members: I32) -> I64:
        """Return counts of pairs, int64[n]."""
        found: I64 = self.table[self.topic[topics], self.member[members]]
        return found


def _counts(group: Group, target: I32, choice: I32) -> _Counts | None:
    """Return counts of the topics and owners of ``choice``; None if there are too many."""
    topics, members = distinct(group.topics.topic_of[choice]), distinct(target[choice])
    shape = len(topics), len(members)
    if shape[0] * shape[1] > MAX_TABLE:
        return None
    topic, member = np.zeros(group.topics.n_topics, np.int32), np.zeros(group.n_members, np.int32)
    topic[topics], member[members] = np.arange(shape[0]), np.arange(shape[1])
    tps = group.topics.tps_in(topics)
    owner = target[tps]
    known = (owner != NO_OWNER) & (members[member[owner]] == owner)
    key = topic[group.topics.topic_of[tps[known]]] * np.int64(shape[1]) + member[owner[known]]
    return _Counts(topic, member, np.bincount(key, minlength=shape[0] * shape[1]).reshape(shape))


def crowded(group: Group, target: I32, tps: I32) -> I32:
    """Return entries of ``tps`` whose member exceeds an even quota of the topic, int32[...]."""
    if not len(tps):
        return tps
    topic = group.topics.topic_of[tps]
    quota = -(-group.topics.n_partitions[topic] // group.n_readers[topic])
    all_of = group.topics.tps_in(distinct(topic.copy()))
    all_of = all_of[target[all_of] != NO_OWNER]
    key = group.topics.topic_of[all_of] * np.int64(group.n_members) + target[all_of]
    key.sort()
    wanted = topic * np.int64(group.n_members) + target[tps]
    together = np.searchsorted(key, wanted, side="right") - np.searchsorted(key, wanted)
    return tps[together > quota]


def spread(claims: Claims, target: I32, free: I32, choice: I32) -> None:
    """Exchange partitions with crowded ones until no exchange makes topics more even.

    Parameters
    ----------
    target : int32[n_tps]
        A best assignment by the earlier goals; changed in place.
    free : int32[n_free]
        Topic-partitions that are new to their member.
    choice : int32[n]
        Claims of which a member keeps some but not all, and could as well keep others.
    """
    group = claims.group
    rows = crowded(group, target, free)
    if not len(rows):
        return
    choice = distinct(np.concatenate((choice, free)))
    counts, work = _counts(group, target, choice), 0
    while counts is not None and len(rows):
        readers = _by_set(group, target, choice)
        work += _n_pairs(group, rows, readers)
        if work > MAX_WORK:
            return
        tp, partner = _pairs(claims, target, counts, rows, readers)
        if _exchange_all(group, target, counts, tp, partner) <= len(rows) // 32:
            return  # few that helped are not worth another pass over all pairs
        rows = crowded(group, target, free)


@dataclass(frozen=True, slots=True, eq=False)
class _BySet:
    """Partitions with a choice, by the subscription of their member."""

    # int64[n_sets + 1], int32[n_choice]: a row for each subscription that has such partitions.
    start: I64
    tp: I32
    topic: I64  # int64[n_topics]: topics of the subscriptions that have a row, sorted
    # int64[n_topics + 1], int32[...]: rows that hold each of ``topic``.
    topic_start: I64
    topic_set: I32


def _by_set(group: Group, target: I32, choice: I32) -> _BySet:
    """Order the choice by subscription: each crowded topic then finds partners without a search."""
    sets, row = ranked(group.subscription[target[choice]], group.n_sets)
    sizes, arcs = positions_in(group.set_start, sets)
    topic, at = ranked(group.set_topic[arcs], group.topics.n_topics)
    return _BySet(
        start=starts(np.bincount(row, minlength=len(sets))),
        tp=choice[stable_order(row, len(sets))],
        topic=topic,
        topic_start=starts(np.bincount(at, minlength=len(topic))),
        topic_set=row_of(starts(sizes))[stable_order(at, len(topic))],
    )


def _n_pairs(group: Group, rows: I32, readers: _BySet) -> int:
    """Count the pairs that :func:`_partners` lists."""
    per_arc = np.append(0, np.cumsum(row_sizes(readers.start)[readers.topic_set]))
    per_topic = np.diff(per_arc[readers.topic_start])
    return int(per_topic[np.searchsorted(readers.topic, group.topics.topic_of[rows])].sum())


def _gain(counts: _Counts, topic: I32, mine: I32, topics: I32, others: I32) -> I64:
    """Return by how much the sum of squares falls, halved, less the 2 that any exchange costs."""
    here = counts.of(topic, mine) + counts.of(topics, others)
    there = counts.of(topic, others) + counts.of(topics, mine)
    return np.where((mine == others) | (topic == topics), -2, here - there) - 2


def _pairs(
    claims: Claims, target: I32, counts: _Counts, rows: I32, readers: _BySet
) -> tuple[I32, I32]:
    """Return exchanges that help and cost nothing, the most helpful first."""
    topic_of = claims.group.topics.topic_of
    tps, partners = _partners(claims.group, rows, readers)
    gain = _gain(counts, topic_of[tps], target[tps], topic_of[partners], target[partners])
    helps = np.flatnonzero(gain > 0)
    if not len(helps):
        return tps[:0], partners[:0]
    helps = helps[_is_free(claims, target, tps[helps], partners[helps])]
    helps = helps[np.lexsort((partners[helps], tps[helps], -gain[helps]))]
    return tps[helps], partners[helps]


def _partners(group: Group, rows: I32, readers: _BySet) -> tuple[I32, I32]:
    """Return pairs of each of ``rows`` with every choice of a member that may read its topic."""
    topic = np.searchsorted(readers.topic, group.topics.topic_of[rows])
    n_sets, sets = positions_in(readers.topic_start, topic)
    n_tps, partners = positions_in(readers.start, readers.topic_set[sets])
    return np.repeat(np.repeat(rows, n_sets), n_tps), readers.tp[partners]


def _exchange_all(group: Group, target: I32, counts: _Counts, tps: I32, partners: I32) -> int:
    """Make the exchanges that still help; each partition moves once. Returns their number."""
    topic_of, table = group.topics.topic_of, counts.table
    columns = (
        *(tps, partners, target[tps], target[partners]),
        *(counts.topic[topic_of[tps]], counts.topic[topic_of[partners]]),
        *(counts.member[target[tps]], counts.member[target[partners]]),
    )
    moved: set[int] = set()
    for tp, partner, owner, owners, topic, topics, mine, other in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        if tp in moved or partner in moved:
            continue
        here = table[topic, mine] + table[topics, other]
        there = table[topic, other] + table[topics, mine]
        if here - there > 2:  # the pairs that can never help are removed already
            table[topic, mine] -= 1
            table[topic, other] += 1
            table[topics, other] -= 1
            table[topics, mine] += 1
            target[tp], target[partner] = owners, owner
            moved |= {tp, partner}
    return len(moved)


def _is_free(claims: Claims, target: I32, tps: I32, partners: I32) -> Mask:
    """Return whether exchanging each of ``tps`` with its partner costs earlier goals nothing."""
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
