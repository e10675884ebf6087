"""Each topic spread evenly over its members: the last goal, wherever the others leave a choice.

**Rules.** What is minimised is the sum of squares of how many partitions of each topic each member
has. Only exchanges are made that change no load, no claim kept and no rack crossed, so the goals
before this one stay as they are; where nothing is better the assignment stays as Kafka deals it.

**Strategy.** A partition is *crowded* if its member has more of its topic than an even share. Only
partitions that are new to their member, or that a member above its quota kept, have a choice. For
each crowded one the best partner among those is found in one pass over columns; the passes are
bounded, so a large group costs no more than a moment. This is a local search: it ends where no
exchange of two helps, which is even in all the cases users complained about, but has no proof.

References
----------
KAFKA-16277.
"""

from __future__ import annotations

import numpy as np

from holdfast.assign.claims import Claims
from holdfast.model.columns import I32, I64, NO_OWNER, Mask
from holdfast.model.group import Group
from holdfast.model.measure import crosses_rack

MAX_WORK = 250_000
"""Partners looked at in one call, over all passes."""

MAX_TABLE = 1 << 24
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
    readers = np.bincount(
        group.set_topic,
        weights=np.repeat(
            np.bincount(group.subscription, minlength=group.n_sets), np.diff(group.set_start)
        ),
        minlength=group.topics.n_topics,
    ).astype(np.int64)
    share = -(-group.topics.n_partitions // np.maximum(readers, 1))
    key = group.topics.topic_of * np.int64(group.n_members) + target
    wanted = key[tps]
    key = np.sort(key[target != NO_OWNER])
    together = np.searchsorted(key, wanted, side="right") - np.searchsorted(key, wanted)
    return tps[together > share[topic]]


def spread(claims: Claims, target: I32, choice: I32) -> None:
    """Exchange partitions among ``choice`` until no exchange makes topics more even.

    Parameters
    ----------
    target : int32[n_tps]
        A best assignment by the goals before; changed in place.
    choice : int32[n]
        Topic-partitions whose member could as well be another, sorted.

    References
    ----------
    KAFKA-16277.
    """
    group = claims.group
    waiting = crowded(group, target, choice)
    if not len(waiting) or group.topics.n_topics * group.n_members > MAX_TABLE:
        return
    table = counts(group, target)
    work = 0
    while len(waiting) and work < MAX_WORK:
        found = False
        for tp in waiting.tolist():
            work += len(choice)
            partner = _partner(claims, target, table, tp, choice)
            if partner >= 0:
                _exchange(group, target, table, tp, partner)
                found = True
            if work >= MAX_WORK:
                return
        waiting = crowded(group, target, choice) if found else waiting[:0]


def _partner(claims: Claims, target: I32, table: I64, tp: int, choice: I32) -> int:
    """The partition to exchange ``tp`` with for the largest gain, or -1."""
    topic_of = claims.group.topics.topic_of
    mine, topic = int(target[tp]), int(topic_of[tp])
    others, topics = target[choice], topic_of[choice]
    gain = table[topic, mine] - table[topic, others] + table[topics, others] - table[topics, mine]
    useful = np.flatnonzero((gain > 2) & (others != mine) & (topics != topic))
    useful = useful[np.argsort(-gain[useful], kind="stable")]
    useful = useful[_is_free(claims, target, tp, choice[useful])]
    return int(choice[useful[0]]) if len(useful) else -1


def _is_free(claims: Claims, target: I32, tp: int, partners: I32) -> Mask:
    """Whether exchanging ``tp`` with each partner costs nothing in the goals before."""
    group, topic_of = claims.group, claims.group.topics.topic_of
    same = np.full(len(partners), tp, np.int32)
    mine, others = np.full(len(partners), target[tp], np.int32), target[partners]
    may = group.is_subscribed(others, topic_of[same]) & group.is_subscribed(
        mine, topic_of[partners]
    )
    kept = (claims.owner[same] == mine).astype(np.int64) + (claims.owner[partners] == others)
    keeps = (claims.owner[same] == others).astype(np.int64) + (claims.owner[partners] == mine)
    free: Mask = may & (kept == keeps)
    if group.topics.rack_start is not None:
        now = crosses_rack(group, same, mine).astype(int) + crosses_rack(group, partners, others)
        then = crosses_rack(group, same, others).astype(int) + crosses_rack(group, partners, mine)
        free &= now == then
    return free


def _exchange(group: Group, target: I32, table: I64, tp: int, partner: int) -> None:
    topic_of = group.topics.topic_of
    for one, other in ((tp, int(target[partner])), (partner, int(target[tp]))):
        table[topic_of[one], target[one]] -= 1
        table[topic_of[one], other] += 1
        target[one] = other
