"""Sets of partitions: the three shapes they have, and the ways from one shape to another.

========================  ================================  ======================================
shape                     looks like                        used by
========================  ================================  ======================================
:data:`TopicPartitions`   ``(("orders", (0, 2)), ...)``     messages, as Kafka groups them
set of :data:`Resource`   ``{("orders", 0), ...}``          members and checkers: set arithmetic
``tps``                   ``int32[...]`` of flat indices    leaders and assignors: columns
========================  ================================  ======================================

**Rules.** Every conversion between these shapes stands once: between the first two here, from and
to columns in :mod:`holdfast.model.partition_columns`, because messages and members need no NumPy.
A function is named after the shape that it returns, as :func:`resources_of` is. A *resource* is a
partition of a topic, or the same thing in a group that shares something else: (kind, index).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

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
