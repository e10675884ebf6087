"""Sets of partitions: the three shapes they have, and the ways from one shape to another.

========================  ================================  ======================================
shape                     looks like                        used by
========================  ================================  ======================================
:data:`TopicPartitions`   ``(("orders", (0, 2)), ...)``     messages, as Kafka groups them
set of :data:`Resource`   ``{("orders", 0), ...}``          members and checkers: set arithmetic
``tps``                   ``int32[...]`` of flat indices    leaders and assignors: columns
========================  ================================  ======================================

**Rules.** Every conversion between these shapes stands here, once. A function is named after the
shape that it returns: :func:`resources_of`, :func:`tps_of`, :func:`partitions_of`. A *resource* is
a partition of a topic, or the same thing in a group that shares something else: (kind, index).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TypeAlias

import numpy as np

from holdfast.model.columns import I32, NO_OWNER
from holdfast.model.topics import Topics

Resource: TypeAlias = tuple[str, int]
"""One thing to own: (topic, partition), or (kind, index) for resources that are not topics."""

TopicPartitions: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""(topic, partitions), as Kafka's messages group them."""

MANY = 16_384
"""Partitions of a topic whose :data:`Resource` objects are kept."""


@lru_cache(maxsize=1024)
def resources_of(partitions: TopicPartitions) -> frozenset[Resource]:
    """Each partition as a resource of its own."""
    return frozenset(r for topic, numbers in partitions for r in resources_of_topic(topic, numbers))


def resources_of_topic(topic: str, numbers: Sequence[int]) -> Iterable[Resource]:
    """The resources ``(topic, number)``, in the order given.

    A resource is the same object each time, because comparing sets of equal objects that are not
    the same is slow. Numbers below 0 or from :data:`MANY` on make new objects.
    """
    if not numbers or min(numbers) < 0 or max(numbers) >= MANY:
        return [(topic, number) for number in numbers]
    return map(_first_resources(topic, max(numbers).bit_length()).__getitem__, numbers)


@lru_cache(maxsize=4096)
def _first_resources(topic: str, bits: int) -> tuple[Resource, ...]:
    """The first ``2 ** bits`` resources of a topic; a longer row begins with the shorter one."""
    if not bits:
        return ((topic, 0),)
    half = 1 << (bits - 1)
    return _first_resources(topic, bits - 1) + tuple((topic, n) for n in range(half, 2 * half))


def grouped(resources: Iterable[Resource]) -> TopicPartitions:
    """Resources as (topic, partitions), in the order given.

    Only neighbours are grouped: a topic that stands in two places comes out twice.
    """
    return _grouped(tuple(resources))


@lru_cache(maxsize=1024)
def _grouped(resources: tuple[Resource, ...]) -> TopicPartitions:
    """Most members report the same partitions in every round, so this was mostly done before."""
    return tuple(
        (topic, tuple(number for _, number in entries))
        for topic, entries in groupby(resources, key=itemgetter(0))
    )


def merge_topics(partitions: Iterable[tuple[str, Iterable[int]]]) -> TopicPartitions:
    """One entry per topic, topics and partitions in the order met."""
    groups: dict[str, list[int]] = {}
    for topic, numbers in partitions:
        groups.setdefault(topic, []).extend(numbers)
    return tuple((topic, tuple(numbers)) for topic, numbers in groups.items())


def sort_partitions(partitions: Iterable[tuple[str, Iterable[int]]]) -> TopicPartitions:
    """One entry per topic that has partitions, sorted by topic and partition."""
    merged = merge_topics(partitions)
    return tuple(sorted((topic, tuple(sorted(numbers))) for topic, numbers in merged if numbers))


def tps_of(topics: Topics, partitions: TopicPartitions) -> I32:
    """Flat indices of the partitions that exist, int32[...], sorted; others are left out."""
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
    """Flat indices as (topic, partitions), sorted by topic and partition."""
    return partitions_by_member(topics, np.zeros(len(tps), np.int32), tps).get(0, ())


def partitions_by_owner(topics: Topics, owner: I32) -> dict[int, TopicPartitions]:
    """An assignment as one entry a member.

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
    """Pairs of a member and a topic-partition as one entry a member.

    Parameters
    ----------
    member, tps : int32[n_pairs]
        ``member[i]`` has ``tps[i]``; one topic-partition may stand with several members.

    Returns
    -------
    dict of int to (topic, partitions)
        As :func:`partitions_by_owner` has it.
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
