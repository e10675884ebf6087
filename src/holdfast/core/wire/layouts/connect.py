"""Kafka Connect's embedded protocol (protocol type ``connect``), for reading.

=======  ============  ===================================  ========================================
version  protocol      metadata (worker to leader)          assignment (leader to worker)
=======  ============  ===================================  ========================================
0        `default`     Url string, ConfigOffset int64       Error int16, Leader string, LeaderUrl
                                                            string, ConfigOffset int64, Assignment
                                                            [](Connector string, Tasks []int32)
1        `compatible`  + Allocation nullable bytes: the     Assignment nullable, + Revoked nullable
                       worker's last *assignment message*   [](Connector, Tasks), Delay int32
2        `sessioned`   same                                 same; session keys (KIP-507)
=======  ============  ===================================  ========================================

**Rules.** Task -1 is the connector itself. From v1 on, trailing fields with a default may be
missing: Allocation, Assignment and Revoked (null), Delay (0). A version above 2 is read as 2, a
version below 0 is refused, and trailing bytes are ignored. From v1 on an assignment lists
increments: next = (owned - revoked) + assigned.

**Strategy.** The allocation is left as bytes; :func:`decode_connect_assignment` reads it.

References: KIP-415 (v1), KIP-507 (v2).
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.one.reader import TOPIC_PARTITIONS_MIN, Reader

HIGHEST_VERSION = 2
METADATA, ASSIGNMENT = "ConnectMetadata", "ConnectAssignment"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectMetadata:
    """The metadata that a worker sends to the leader."""

    version: int
    url: str  # of the worker
    config_offset: int  # how far the worker has read the config topic
    allocation: bytes | None = None  # the worker's current assignment message (v1 and above)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectAssignment:
    """The assignment that the leader sends to a worker."""

    version: int  # 0 to 2
    error: int  # 0 none, 1 config mismatch
    # Member id and URL of the leader.
    leader: str
    leader_url: str
    config_offset: int  # of the leader
    # Task -1 is the connector itself.
    assignment: TopicPartitions | None
    revoked: TopicPartitions | None = None
    delay_ms: int = 0  # when to join again at the latest, 0 none


def decode_connect_metadata(data: bytes) -> ConnectMetadata:
    """Read a worker's metadata."""
    reader = Reader(data, METADATA)
    version = reader.leading_version(HIGHEST_VERSION)
    return ConnectMetadata(
        version=version,
        url=reader.string("url"),
        config_offset=reader.int64("config_offset"),
        allocation=reader.nullable_bytes("allocation") if version and reader.n_left else None,
    )


def decode_connect_assignment(data: bytes) -> ConnectAssignment:
    """Read a worker's assignment, or the allocation in its metadata."""
    reader = Reader(data, ASSIGNMENT)
    version = reader.leading_version(HIGHEST_VERSION)
    return ConnectAssignment(
        version=version,
        error=reader.int16("error"),
        leader=reader.string("leader"),
        leader_url=reader.string("leader_url"),
        config_offset=reader.int64("config_offset"),
        assignment=_read_optional(reader, "assignment")
        if version
        else reader.array("assignment", _read_connector, TOPIC_PARTITIONS_MIN),
        revoked=_read_optional(reader, "revoked") if version else None,
        delay_ms=reader.delay_ms("delay") if version and reader.n_left else 0,
    )


def _read_optional(reader: Reader, field: str) -> TopicPartitions | None:
    if not reader.n_left:
        return None
    return reader.nullable_array(field, _read_connector, TOPIC_PARTITIONS_MIN)


def _read_connector(reader: Reader) -> tuple[str, tuple[int, ...]]:
    return reader.string("connector"), reader.int32s("tasks")
