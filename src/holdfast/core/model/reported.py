"""Reports of members as columns, and sets of partitions between columns and messages.

**Rules.** Members with equal subscriptions share one row of :class:`Subscriptions`. An impossible
claim (see :data:`REASONS`) is dropped and counted; a claim of a partition that exists but that its
member does not subscribe to is *foreign*, and kept separately.
:mod:`holdfast.core.assignors.claims` decides which of several claims of one partition counts.

**Strategy.** A class method for each shape in which reports come: names (messages, snapshots), rows
of topic indices and owner columns (tables). :meth:`holdfast.core.model.group.Group.build` takes
both classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.core.model.columns import (
    I32,
    I64,
    NO_OWNER,
    Mask,
    frozen,
    positions_in,
    row_of,
    starts,
)
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.model.topics import Topics

IMPOSSIBLE = "impossible-generation"

REASONS = (IMPOSSIBLE, "unknown-topic", "no-such-partition", "not-subscribed", "repeated")
"""Why a single claim is dropped, in the order in which the reasons are tried."""

MAX_EXAMPLES = 100
"""Dropped claims that are kept by name; the counts are complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedClaims:
    """Claims that are not passed to assignors."""

    # Dropped claims by reason, without reasons that have none.
    counts: Mapping[str, int] = field(default_factory=dict)
    # Up to 100 dropped claims, each as ``(reason, member id, topic, partition)``.
    examples: tuple[tuple[str, str, str, int], ...] = ()

    def __add__(self, other: DroppedClaims) -> DroppedClaims:
        """Return the counts and the examples of both together."""
        return DroppedClaims(
            counts=dict(Counter(self.counts) + Counter(other.counts)),
            examples=(self.examples + other.examples)[:MAX_EXAMPLES],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Subscriptions:
    """The subscription of each member."""

    # int64[n_sets + 1], int32[...]: the distinct subscriptions, each a sorted row of topic indices.
    start: I64
    topic: I32
    of_member: I32  # int32[n_members]: row of each member

    @classmethod
    def from_names(cls, topics: Topics, names: Iterable[tuple[str, ...]]) -> Subscriptions:
        """Build from topic names of each member in any order; unknown ones are left out."""
        index = topics.index
        number: dict[tuple[str, ...], int] = {}
        of_member = [number.setdefault(one, len(number)) for one in names]
        rows = cls.from_rows(tuple(sorted({index[t] for t in one if t in index})) for one in number)
        return cls(rows.start, rows.topic, rows.of_member[of_member])

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[int, ...]]) -> Subscriptions:
        """Build from sorted topic indices of each member; equal rows become one."""
        number: dict[tuple[int, ...], int] = {}
        of_member = [number.setdefault(row, len(number)) for row in rows]
        return cls(
            start=frozen(starts(np.array([len(row) for row in number], np.int64))),
            topic=frozen(np.array([topic for row in number for topic in row], np.int32)),
            of_member=frozen(np.array(of_member, np.int32)),
        )

    def holds(self, members: npt.NDArray[Any], topics: npt.NDArray[Any], n_topics: int) -> Mask:
        """Return whether ``members[i]`` subscribes to ``topics[i]`` (0 to ``n_topics - 1``)."""
        n_sets = len(self.start) - 1
        if len(self.topic) == n_sets * n_topics:  # every member reads every topic
            return np.ones(len(members), np.bool_)
        keys = row_of(self.start).astype(np.int64) * n_topics + self.topic
        wanted = self.of_member[members].astype(np.int64) * n_topics + topics
        if n_sets * n_topics <= 1 << 25:
            table = np.zeros(n_sets * n_topics, np.bool_)
            table[keys] = True
            known: Mask = table[wanted]
            return known
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        found: Mask = keys[at] == wanted if len(keys) else np.zeros(len(wanted), np.bool_)
        return found

    def by_topic(self, order: I32, n_topics: int) -> Subscribers:
        """Return the subscribers of each topic; ``order`` is that of members in each row.

        Notes
        -----
        Cost: linear in the subscriptions; a sort of them where they differ.

        References: KIP-54, "potential consumers of each topic partition".
        """
        sizes, at = positions_in(self.start, self.of_member)
        topic = self.topic[at]
        start = starts(np.bincount(topic, minlength=n_topics))
        if len(self.start) == 2:  # one subscription, by far the most frequent case
            return Subscribers(start=start, member=np.tile(order, len(self.topic)))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        member = np.repeat(np.arange(len(order), dtype=np.int32), sizes)
        by_topic = np.argsort(topic.astype(np.int64) * len(order) + rank[member])
        return Subscribers(start=start, member=member[by_topic])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subscribers:
    """Members that subscribe to each topic: the transpose of :class:`Subscriptions`."""

    start: I64  # int64[n_topics + 1]: rows of ``member``
    member: I32  # int32[n_subscriptions]: member indices, each row in the requested order

    def of(self, topic: int) -> I32:
        """Return the subscribers of one topic, in order."""
        return self.member[self.start[topic] : self.start[topic + 1]]


@dataclass(frozen=True, slots=True, eq=False)
class ReportedClaims:
    """Claims in member order, still unchecked."""

    # int32[n_claims]: indices of member and topic (-1: unknown), and the partition as it was
    # reported.
    member: I32
    topic: I32
    partition: I32
    # Topic name of each claim, to name unknown topics among the dropped claims.
    names: Sequence[str] = ()

    @classmethod
    def from_partitions(cls, topics: Topics, owned: Sequence[TopicPartitions]) -> ReportedClaims:
        """Build from the claims of each member as (topic, partitions)."""
        rows = [(i, name, numbers) for i, own in enumerate(owned) for name, numbers in own]
        sizes = np.array([len(numbers) for _, _, numbers in rows], np.int64)
        flat = [number for _, _, numbers in rows for number in numbers]
        index = np.array([topics.index.get(name, -1) for _, name, _ in rows], np.int32)
        return cls(
            member=np.repeat(np.array([i for i, _, _ in rows], np.int32), sizes),
            topic=np.repeat(index, sizes),
            partition=np.array(flat, np.int64).astype(np.int32),
            names=[name for _, name, numbers in rows for _ in numbers],
        )

    @classmethod
    def from_owner(cls, topics: Topics, owner: I32) -> ReportedClaims:
        """Build from the owner column ``owner``, int32[n_tps]."""
        tps = np.flatnonzero(owner != NO_OWNER)
        tps = tps[np.argsort(owner[tps], kind="stable")]
        return cls(owner[tps], topics.topic_of[tps], topics.partition_of[tps])


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedClaims:
    """Claims after the checks: CSR columns by member, foreign claims, dropped claims."""

    start: I64
    tp: I32
    foreign_member: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    foreign_tp: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    dropped: DroppedClaims = field(default_factory=DroppedClaims)


def check_claims(
    topics: Topics,
    subscriptions: Subscriptions,
    claims: ReportedClaims,
    member_ids: tuple[str, ...],
    *,
    impossible: Mask | None = None,
) -> CheckedClaims:
    """Drop and name impossible claims; return the others as CSR sorted by member and tp.

    ``impossible``, bool[n_members]: members that claim under a generation that cannot exist.
    """
    possible = np.ones(len(claims.topic), np.bool_)
    if impossible is not None:
        possible = ~impossible[claims.member]
    if not len(claims.topic) or not topics.n_topics:
        start = np.zeros(len(member_ids) + 1, np.int64)
        none = np.zeros(len(claims.topic), np.bool_)
        tests = (possible, *(none,) * (len(REASONS) - 1))
        dropped = _name_dropped(topics, claims, tests, member_ids)
        return CheckedClaims(start=start, tp=np.empty(0, np.int32), dropped=dropped)
    known = claims.topic >= 0
    topic = np.maximum(claims.topic, 0)
    exists = (claims.partition >= 0) & (claims.partition < topics.n_partitions[topic])
    may = subscriptions.holds(claims.member, topic, topics.n_topics)
    key = topics.start[topic] + claims.partition
    key += claims.member * np.int64(topics.n_tps)
    good = possible & known & exists & may
    if good.all() and (key[1:] > key[:-1]).all():
        return CheckedClaims(
            start=_edges(key, topics, member_ids), tp=_tps(key, claims.member, topics)
        )
    at = np.flatnonzero(good)
    kept, first = np.unique(key[at], return_index=True)
    fresh = np.zeros(len(known), np.bool_)
    fresh[at[first]] = True
    foreign = np.flatnonzero(possible & known & exists & ~may)
    return CheckedClaims(
        start=_edges(kept, topics, member_ids),
        tp=_tps(kept, claims.member[at[first]], topics),
        foreign_member=claims.member[foreign],
        foreign_tp=_tps(key[foreign], claims.member[foreign], topics),
        dropped=_name_dropped(topics, claims, (possible, known, exists, may, fresh), member_ids),
    )


def _edges(key: I64, topics: Topics, member_ids: tuple[str, ...]) -> I64:
    """Return CSR starts of sorted keys ``member * n_tps + tp``."""
    edges = np.arange(len(member_ids) + 1, dtype=np.int64) * topics.n_tps
    return np.asarray(np.searchsorted(key, edges), dtype=np.int64)


def _tps(key: I64, member: I32, topics: Topics) -> I32:
    tps: I32 = (key - member * np.int64(topics.n_tps)).astype(np.int32)
    return tps


def _name_dropped(
    topics: Topics, claims: ReportedClaims, tests: tuple[Mask, ...], member_ids: tuple[str, ...]
) -> DroppedClaims:
    """Count by the first test that each claim fails, with examples in the order given."""
    counts: dict[str, int] = {}
    examples: list[tuple[str, str, str, int]] = []
    passed = np.ones(len(claims.topic), np.bool_)
    for reason, test in zip(REASONS, tests, strict=True):
        failed = np.flatnonzero(passed & ~test)
        passed &= test
        if len(failed):
            counts[reason] = len(failed)
        for i in failed[: MAX_EXAMPLES - len(examples)].tolist():
            topic = int(claims.topic[i])
            name = topics.names[topic] if topic >= 0 else claims.names[i] if claims.names else "?"
            member_id = member_ids[claims.member[i]]
            examples.append((reason, member_id, name, int(claims.partition[i])))
    return DroppedClaims(counts=counts, examples=tuple(examples))


# Conversions between columns of flat indices and partitions by topic.
#
# ``partitions`` lists the shapes of a set of partitions. A function is named after the shape that
# it returns: ``tps_of``, ``partitions_of``.


def tps_of(topics: Topics, partitions: TopicPartitions) -> I32:
    """Return flat indices of the partitions that exist, int32[...], sorted; others are left out."""
    parts = [np.empty(0, np.int64)]
    for name, numbers in partitions:
        topic = topics.index.get(name)
        if topic is None:
            continue
        column = np.asarray(numbers, np.int64)
        column = column[(column >= 0) & (column < int(topics.n_partitions[topic]))]
        parts.append(column + topics.start[topic])
    return np.unique(np.concatenate(parts)).astype(np.int32)


def partitions_of(topics: Topics, tps: I32) -> TopicPartitions:
    """Return flat indices as (topic, partitions), sorted by topic and partition."""
    return partitions_by_member(topics, np.zeros(len(tps), np.int32), tps).get(0, ())


def partitions_by_owner(topics: Topics, owner: I32) -> dict[int, TopicPartitions]:
    """Return an assignment as one entry a member.

    Parameters
    ----------
    owner : int32[n_tps]
        A member index, or NO_OWNER.

    Returns
    -------
    dict of int to (topic, partitions)
        By member index, ascending; members that own nothing are left out.
    """
    tps = np.flatnonzero(owner != NO_OWNER).astype(np.int32)
    return partitions_by_member(topics, owner[tps], tps)


def partitions_by_member(topics: Topics, member: I32, tps: I32) -> dict[int, TopicPartitions]:
    """Return pairs of a member and a topic-partition as one entry a member.

    Parameters
    ----------
    member, tps : int32[n_pairs]
        ``member[i]`` has ``tps[i]``; one topic-partition may belong to several members.

    Returns
    -------
    dict of int to (topic, partitions)
        As of :func:`partitions_by_owner`.
    """
    order = np.lexsort((tps, member))
    member, tps = member[order], tps[order]
    of = topics.topic_of[tps]
    numbers = (tps - topics.start[of]).tolist()
    new = np.flatnonzero((np.diff(member, prepend=-1) != 0) | (np.diff(of, prepend=-1) != 0))
    edges = pairwise((*new.tolist(), len(tps)))
    rows: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
    for m, topic, (a, b) in zip(member[new].tolist(), of[new].tolist(), edges, strict=True):
        rows.setdefault(m, []).append((topics.names[topic], tuple(numbers[a:b])))
    return {m: tuple(row) for m, row in rows.items()}
