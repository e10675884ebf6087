"""Sets of partitions: their three shapes, and the conversions between them.

========================  ================================  ======================================
shape                     looks like                        used by
========================  ================================  ======================================
:data:`TopicPartitions`   ``(("orders", (0, 2)), ...)``     messages, as Kafka groups them
set of :data:`Resource`   ``{("orders", 0), ...}``          members and checkers: set arithmetic
``tps``                   ``int32[...]`` of flat indices    leaders and assignors: columns
========================  ================================  ======================================

**Rules.** Every conversion between two shapes exists once: between the first two shapes here, from
and to columns in :mod:`holdfast.core.model.reported`, because messages and members need no
NumPy. A function is named after the shape that it returns, as :func:`resources_of` is. A *resource*
is a partition of a topic, or its equivalent in a group that divides something else: (kind, index).

Members and leaders live for months, and a single message of another member may be as large as a
broker allows. So a cache of sets (:func:`memoized`) is bounded in bytes, not only in entries: an
argument above the limit is neither kept nor looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

Made = TypeVar("Made")

Resource: TypeAlias = tuple[str, int]
"""A thing to own: (topic, partition), or (kind, index) for resources that are not topics."""

TopicPartitions: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""(topic, partitions), as Kafka's messages group them."""

KEPT = 1 << 16
"""Number of resources that are kept, so that equal ones are one object; above it all go."""

LONGEST = 249
"""Characters of a topic's name, by Kafka's rule; resources under longer names are not kept."""

SMALL = 256
"""Number of partitions below which sets are cached whole."""


def memoized(
    entries: int, *, largest: int, size: Callable[[Any], int] = len
) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """Decorate a pure function so that its last results are cached.

    Parameters
    ----------
    entries : int
        Number of results that are kept.
    largest : int
        Size of the first argument from which on results are not kept.
    size : callable
        Size of the first argument; much cheaper than the function itself.
    """

    def decorate(function: Callable[..., Made]) -> Callable[..., Made]:
        small = lru_cache(maxsize=entries)(function)

        @wraps(function)
        def call(first: Any, *others: Any) -> Made:
            return (small if size(first) < largest else function)(first, *others)

        return call

    return decorate


def weight_of(partitions: TopicPartitions) -> int:
    """Return a listing's cost in the cache, in partitions; eight characters of a name are one."""
    return sum([1 + len(topic) // 8 + len(numbers) for topic, numbers in partitions])


@memoized(1024, largest=SMALL, size=weight_of)
def resources_of(partitions: TopicPartitions) -> frozenset[Resource]:
    """Return each partition as a resource of its own."""
    return frozenset(r for topic, numbers in partitions for r in resources_of_topic(topic, numbers))


class _OfTopic(dict[int, Resource]):
    """The resources of one topic that were named so far."""

    def __init__(self, topic: str):
        super().__init__()
        self._topic = topic

    def __missing__(self, number: int) -> Resource:
        made = self[number] = (self._topic, number)
        return made


class _KeptResources:
    """Resources by topic, and their number."""

    def __init__(self) -> None:
        self.by_topic: dict[str, _OfTopic] = {}
        self.n_kept = 0

    def clear(self) -> None:
        """Keep no resource."""
        self.by_topic.clear()
        self.n_kept = 0

    def find(self, topic: str, numbers: Sequence[int]) -> list[Resource]:
        """Return one object for each number, which is kept from this call on."""
        if self.n_kept + len(numbers) > KEPT:
            self.clear()
        known = self.by_topic.get(topic)
        if known is None:
            known = self.by_topic[topic] = _OfTopic(topic)
        before = len(known)
        found = list(map(known.__getitem__, numbers))
        self.n_kept += len(known) - before
        return found


_kept = _KeptResources()


def resources_of_topic(topic: str, numbers: Sequence[int]) -> list[Resource]:
    """Return the resources ``(topic, number)``, in the order given.

    A resource is the same object most times, because comparing sets of equal objects that are not
    the same is slow. Time and memory are linear in the numbers given, however large they are, and
    at most :data:`KEPT` resources outlive the call.
    """
    if not numbers or len(numbers) > KEPT or len(topic) > LONGEST:
        return [(topic, number) for number in numbers]
    return _kept.find(topic, numbers)


def grouped(resources: Iterable[Resource]) -> TopicPartitions:
    """Return resources as (topic, partitions), in the order given.

    Only neighbours are grouped: a topic that occurs twice, apart, comes out twice.
    """
    return _grouped(tuple(resources))


@memoized(1024, largest=SMALL)
def _grouped(resources: tuple[Resource, ...]) -> TopicPartitions:
    """Group as :func:`grouped`, memoized: most members report equal partitions in every round."""
    return tuple(
        (topic, tuple(number for _, number in entries))
        for topic, entries in groupby(resources, key=itemgetter(0))
    )


def merge_topics(partitions: Iterable[tuple[str, Iterable[int]]]) -> TopicPartitions:
    """Return one entry per topic, topics and partitions in the order met."""
    groups: dict[str, list[int]] = {}
    for topic, numbers in partitions:
        groups.setdefault(topic, []).extend(numbers)
    return tuple((topic, tuple(numbers)) for topic, numbers in groups.items())


def sort_partitions(partitions: Iterable[tuple[str, Iterable[int]]]) -> TopicPartitions:
    """Return one entry per topic that has partitions, sorted by topic and partition."""
    merged = merge_topics(partitions)
    return tuple(sorted((topic, tuple(sorted(numbers))) for topic, numbers in merged if numbers))
