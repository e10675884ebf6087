"""Topics and offsets of a cluster at one moment: asked of it, read of dumps, or of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

ShareRecord: TypeAlias = tuple[int, int, int, bytes | None, bytes | None]
"""Partition, offset, timestamp in microseconds, key and value of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """Topics and offsets of a cluster at one moment.

    Parameters
    ----------
    cluster_id : str
        The cluster's own id.
    topics : sequence of (str, str, int)
        Topic id (22 characters), topic, partitions; sorted by topic.
    offsets : sequence of (str, int, int, int)
        Topic, partition, begin offset, end offset; sorted.
    taken_at : str
        ISO 8601, UTC; when the last offset had been read.
    share_state : sequence of ShareRecord
        Records of ``__share_group_state``, each partition in order.
    """

    cluster_id: str
    topics: Sequence[tuple[str, str, int]]
    offsets: Sequence[tuple[str, int, int, int]]
    taken_at: str
    share_state: Sequence[ShareRecord] = ()
