"""When a group committed each partition: signs of what its members were doing around a rebalance.

**Rules.** Times are those of the coordinator, by the same clock as the records of generations. A
member is looked at through at most :data:`LOOKED_AT` of its partitions, for a member commits all of
them at once.

**Strategy.** One sorted column of times per partition; every question is two binary searches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.model.columns import I64
from holdfast.tables.values import ints

TopicPartition = tuple[str, int]

LOOKED_AT: Final = 6
"""So many partitions of a member tell when it committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTimes:
    """Commits of one group.

    Parameters
    ----------
    times : mapping of (topic, partition) to int64 column
        When each partition was committed, in ms, ascending.
    advanced : mapping of (topic, partition) to int64 column
        The same for commits of a position that differs from the one before.
    epochs : bool
        Commits name the leader epoch of the last record.
    """

    times: Mapping[TopicPartition, I64] = field(default_factory=dict)
    advanced: Mapping[TopicPartition, I64] = field(default_factory=dict)
    epochs: bool = True

    @classmethod
    def of(cls, rows: pa.Table) -> CommitTimes:
        """Commits from rows of ``offset_commits``, times as whole ms; tombstones have none."""
        rows = rows.filter(rows["commit_timestamp"].is_valid())
        if rows.num_rows == 0:
            return cls()
        topics = rows["topic"].combine_chunks().dictionary_encode()
        topic = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        names = topics.dictionary.to_pylist()
        partition, time = ints(rows, "partition"), ints(rows, "commit_timestamp")
        offset = ints(rows, "offset")
        order = np.lexsort((time, partition, topic))
        topic, partition, time, offset = (c[order] for c in (topic, partition, time, offset))
        new = np.flatnonzero((np.diff(topic) != 0) | (np.diff(partition) != 0)) + 1
        edges = [0, *new.tolist(), len(order)]
        times, advanced = {}, {}
        for low, high in pairwise(edges):
            key = (names[topic[low]], int(partition[low]))
            times[key] = time[low:high]
            moved = np.diff(offset[low:high], prepend=-1) != 0
            advanced[key] = time[low:high][moved]
        epochs = rows["leader_epoch"].null_count < rows.num_rows
        return cls(times=times, advanced=advanced, epochs=epochs)

    def between(
        self, owned: Sequence[TopicPartition], after_ms: int, until_ms: int, *, moving: bool = False
    ) -> list[int]:
        """Times of commits of these partitions in (after, until], each once, ascending.

        ``moving``: only commits of a new position.
        """
        source = self.advanced if moving else self.times
        found: set[int] = set()
        for key in owned[:LOOKED_AT]:
            column = source.get(key)
            if column is not None:
                low, high = np.searchsorted(column, (after_ms, until_ms), side="right")
                found.update(column[low:high].tolist())
        return sorted(found)

    def first_after(self, owned: Sequence[TopicPartition], after_ms: int, until_ms: int) -> int:
        """When the last of these partitions was first committed in that time; -1 if one was not."""
        first = -1
        for key in owned[:LOOKED_AT]:
            column = self.times.get(key)
            at = 0 if column is None else int(np.searchsorted(column, after_ms, side="right"))
            if column is None or at >= len(column) or column[at] > until_ms:
                return -1
            first = max(first, int(column[at]))
        return first
