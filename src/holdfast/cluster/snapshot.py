"""Topics and offsets of a cluster at one moment: queried, read from dumps, or simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

ShareRecord: TypeAlias = tuple[int, int, int, bytes | None, bytes | None]
"""Partition, offset, timestamp in microseconds, key and value of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """Topics and offsets of a cluster at one moment."""

    cluster_id: str
    # Topic id (22 characters), topic, partitions; sorted by topic.
    topics: Sequence[tuple[str, str, int]]
    # Topic, partition, begin offset, end offset; sorted.
    offsets: Sequence[tuple[str, int, int, int]]
    taken_at: str  # ISO 8601, UTC; when the last offset was read
    # Records of ``__share_group_state``, each partition in order.
    share_state: Sequence[ShareRecord] = ()
