"""Topics as columns: names, partition counts, and the flat numbering of topic-partitions.

**Rules.** Names are sorted and unique, so the same topics in any order are the same columns. A flat
index ``tp`` is ``start[topic] + partition``. Racks of a topic-partition are a CSR row of indices
into ``rack_names``; an empty row means "not known", which never counts as a mismatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from holdfast.core.model.columns import (
    I32,
    I64,
    frozen,
    positions_in,
    row_of,
    starts,
    within,
)
from holdfast.errors import ModelError

T = TypeVar("T")

MAX_TPS = 2**31 - 2
"""Topic-partitions a group may have: flat indices are int32."""

NO_RACK = -1
"""Rack index of a member that names none."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Topics:
    """Topics of a cluster, or the topics that a group may read.

    Parameters
    ----------
    names : tuple of str
        Sorted, unique.
    n_partitions : int32[n_topics]
        Partitions of each topic, at least 0.
    start : int64[n_topics + 1]
        First flat index of each topic.
    rack_names : tuple of str
        Sorted names that rack indices point into; empty where no racks are known.
    rack_start, rack : int64[n_tps + 1] and int32[...], or None
        Racks that hold a replica of each topic-partition.
    numbers : int32[n_tps], optional
        Kafka's number of each topic-partition, where some of a topic are left out (:meth:`only`).
    """

    names: tuple[str, ...]
    n_partitions: I32
    start: I64
    rack_names: tuple[str, ...] = ()
    rack_start: I64 | None = None
    rack: I32 | None = None
    numbers: I32 | None = None

    @classmethod
    def from_counts(
        cls,
        partitions: Mapping[str, int],
        *,
        racks: Mapping[str, Sequence[Iterable[str]]] | None = None,
        more_racks: Iterable[str] = (),
    ) -> Topics:
        """Build from ``{topic: partition count}``.

        Parameters
        ----------
        partitions : mapping
            Partition count of each topic, 0 or more.
        racks : mapping, optional
            For a topic, one collection of rack names a partition. A topic left out has none known.
        more_racks : iterable of str
            Further rack names (of members) that shall have an index.

        Raises
        ------
        ModelError
            A count is negative, there are more than 2**31 - 2 topic-partitions in all, or the racks
            do not fit the partitions.
        """
        names = tuple(sorted(partitions))
        counts = np.fromiter((partitions[name] for name in names), np.int64, len(names))
        if len(counts) and counts.min() < 0:
            bad = names[int(counts.argmin())]
            raise ModelError(f"{partitions[bad]} partitions, expected 0 or more", column=bad)
        if int(counts.sum()) > MAX_TPS:
            raise ModelError(f"{counts.sum()} topic-partitions, expected at most {MAX_TPS}")
        rack_names, rack_start, rack = _rack_columns(names, counts, racks or {}, more_racks)
        return cls(
            names=names,
            n_partitions=frozen(counts.astype(np.int32)),
            start=frozen(starts(counts)),
            rack_names=rack_names,
            rack_start=rack_start,
            rack=rack,
        )

    @property
    def n_topics(self) -> int:
        """Number of topics."""
        return len(self.names)

    @property
    def n_tps(self) -> int:
        """Number of topic-partitions."""
        return int(self.start[-1])

    @cached_property
    def index(self) -> dict[str, int]:
        """Topic index of each name."""
        return {name: topic for topic, name in enumerate(self.names)}

    @cached_property
    def topic_of(self) -> I32:
        """Topic of each topic-partition, int32[n_tps]."""
        return frozen(row_of(self.start))

    @cached_property
    def partition_of(self) -> I32:
        """Number of each topic-partition inside its topic, from 0 on, int32[n_tps]."""
        return frozen(within(self.n_partitions).astype(np.int32))

    @property
    def kafkas_number(self) -> I32:
        """Number that Kafka has for each topic-partition, int32[n_tps]."""
        return self.partition_of if self.numbers is None else self.numbers

    def tps_in(self, chosen: I32) -> I32:
        """Return the topic-partitions of the topics ``chosen``, int32[n] sorted: int32[...]."""
        if len(chosen) == self.n_topics:
            return np.arange(self.n_tps, dtype=np.int32)
        return positions_in(self.start, chosen)[1].astype(np.int32)

    def only(self, tps: I32) -> Topics:
        """Return topics with the topic-partitions ``tps`` alone, int32[n] ascending, renumbered."""
        counts = np.bincount(self.topic_of[tps], minlength=self.n_topics)
        fewer = replace(
            self,
            n_partitions=frozen(counts.astype(np.int32)),
            start=frozen(starts(counts)),
            numbers=frozen(self.kafkas_number[tps]),
        )
        if self.rack_start is None or self.rack is None:
            return fewer
        sizes, rows = positions_in(self.rack_start, tps)
        return replace(fewer, rack_start=frozen(starts(sizes)), rack=frozen(self.rack[rows]))

    def racks_of(self, tp: int) -> tuple[str, ...]:
        """Return names of the racks known to hold the topic-partition at index ``tp``, if any."""
        if self.rack_start is None or self.rack is None:
            return ()
        row = self.rack[self.rack_start[tp] : self.rack_start[tp + 1]]
        return tuple(self.rack_names[i] for i in row)

    def rack_indices(self, racks: Sequence[str | None]) -> I32:
        """Return the index of each rack name, int32[...]; -1 for none and for an unknown name."""
        index = {rack: i for i, rack in enumerate(self.rack_names)}
        return np.array([index.get(rack or "", NO_RACK) for rack in racks], np.int32)

    def by_name(self, values: list[T]) -> dict[str, list[T]]:
        """Return one value a topic-partition as one list a topic."""
        start = self.start.tolist()
        return {name: values[start[i] : start[i + 1]] for i, name in enumerate(self.names)}

    def name_of(self, tp: int) -> tuple[str, int]:
        """Return topic name and Kafka's partition number of the topic-partition ``tp``."""
        topic = int(np.searchsorted(self.start, tp, side="right")) - 1
        if self.numbers is not None:
            return self.names[topic], int(self.numbers[tp])
        return self.names[topic], tp - int(self.start[topic])


def _rack_columns(
    names: tuple[str, ...],
    counts: I64,
    racks: Mapping[str, Sequence[Iterable[str]]],
    more_racks: Iterable[str],
) -> tuple[tuple[str, ...], I64 | None, I32 | None]:
    """Return rack names and the CSR pair of racks a topic-partition, None without racks."""
    unknown = sorted(set(racks) - set(names))
    if unknown:
        raise ModelError(f"racks of topic {unknown[0]!r}, which has no partition count")
    if not racks:
        return tuple(sorted(set(more_racks))), None, None
    rows: list[tuple[str, ...]] = []
    for name, count in zip(names, counts.tolist(), strict=True):
        given = racks.get(name)
        if given is not None and len(given) != count:
            raise ModelError(f"{len(given)} entries, expected {count}", column=f"racks.{name}")
        rows += [()] * count if given is None else [tuple(sorted(set(row))) for row in given]
    rack_names = tuple(sorted({*more_racks, *(rack for row in rows for rack in row)}))
    index = {rack: i for i, rack in enumerate(rack_names)}
    start = starts(np.fromiter(map(len, rows), np.int64, len(rows)))
    values = np.fromiter((index[rack] for row in rows for rack in row), np.int32, int(start[-1]))
    return rack_names, frozen(start), frozen(values)
