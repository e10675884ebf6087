"""Requests to a coordinator, its responses and settings; its records, and their replay.

**Rules.** Values only. A response repeats the number of its request.

References: KIP-62, KIP-345, KIP-394.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from holdfast.core.machine.actions import SendHeartbeat, SendJoin, SendLeave, SendSync
from holdfast.core.machine.events import (
    CommitAnswered,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    SyncAnswered,
)
from holdfast.core.model.constants import INT32_MAX
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.offsets_records import Record, decode_record, encode_record
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.core.wire.layouts.record_size import MESSAGE_MAX_BYTES
from holdfast.core.wire.one.reader import INT16, INT32, INT64

# The durable state of a coordinator: records of ``__consumer_offsets``, and their replay.
#
# - Durable state changes only in ``replay``: a change is first written as a record.
# - A group record holds a completed generation; an interrupted generation leaves no record.
# - Bytes are Kafka's: GroupMetadataValue v3, OffsetCommitValue v4.
#
# Replay keeps the last record of each key as bytes. The first reader of the state, in general a
# coordinator after a failover, decodes the records.
#
# References: KIP-345 (v3), KAFKA-19141 (v4).


GROUP_VERSION, COMMIT_VERSION = 3, 4


class Append(NamedTuple):
    """A record to be written to the offsets topic and then replayed."""

    key: bytes
    value: bytes | None


def group_record(group_id: str, value: Mapping[str, Any]) -> Append:
    """Return the record of a completed generation; ``value`` has the fields of Kafka's schema.

    A group without members has neither protocol nor leader.
    """
    record = Record(
        record_type=RecordType.GROUP_METADATA,
        name="GroupMetadata",
        key={"group": group_id},
        value_version=GROUP_VERSION,
        value=dict(value),
    )
    return Append(*encode_record(record))


def commit_record(
    group_id: str, topic: str, partition: int, offset: int, timestamp_ms: int
) -> Append:
    """Return the record of one committed offset."""
    key, version, rest = _commit_around(group_id, topic, timestamp_ms)
    return Append(key + INT32.pack(partition), version + INT64.pack(offset) + rest)


@lru_cache(maxsize=256)
def _commit_around(group_id: str, topic: str, timestamp_ms: int) -> tuple[bytes, bytes, bytes]:
    """Return the bytes around partition and offset: key, version, value after the offset.

    A member commits hundreds of partitions at once, and their records differ only in partition and
    offset.
    """
    record = Record(
        record_type=RecordType.OFFSET_COMMIT,
        name="OffsetCommit",
        key={"group": group_id, "topic": topic, "partition": 0},
        value_version=COMMIT_VERSION,
        value={"offset": 0, "leaderEpoch": -1, "metadata": "", "commitTimestamp": timestamp_ms},
    )
    key, value = encode_record(record)
    assert value is not None
    return key[: -INT32.size], value[: INT16.size], value[INT16.size + INT64.size :]


class Durable:
    """The state of a group in its log: of each key the last record counts, as after compaction."""

    __slots__ = ("_group", "_offsets", "_unread")

    def __init__(self) -> None:
        self._group: Mapping[str, Any] | None = None
        self._offsets: dict[tuple[str, int], int] = {}
        self._unread: dict[bytes, bytes | None] = {}

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply one record of this group.

        References: Kafka's group coordinator: ``replay`` is the only key that mutates.
        """
        self._unread[key] = value

    @property
    def group(self) -> Mapping[str, Any] | None:
        """The value of the last group record; ``WireError`` if a record is broken."""
        self._read()
        return self._group

    @property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        """Committed offset of each (topic, partition); raises as :attr:`group`."""
        self._read()
        return self._offsets

    def _read(self) -> None:
        for key, value in self._unread.items():
            record = decode_record(key, value)
            if record.record_type == RecordType.GROUP_METADATA:
                self._group = record.value
            elif record.record_type == RecordType.OFFSET_COMMIT:
                resource = (record.key["topic"], record.key["partition"])
                if record.value is None:
                    self._offsets.pop(resource, None)
                else:
                    self._offsets[resource] = record.value["offset"]
        self._unread.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCommit:
    """OffsetCommit, fenced by member, generation and instance."""

    request: int
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[tuple[Resource, int], ...]


Request: TypeAlias = SendJoin | SendSync | SendHeartbeat | SendLeave | SendCommit
Response: TypeAlias = (
    JoinAnswered | SyncAnswered | HeartbeatAnswered | LeaveAnswered | CommitAnswered
)


class Received(NamedTuple):
    """A request of a client; ``client`` names its connection."""

    client: str
    request: Request


class Answer(NamedTuple):
    """A response to a client."""

    client: str
    response: Response


Out: TypeAlias = Answer | Append
Outs = tuple[Out, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOptions:
    """Broker settings; times in ms.

    ``wall_ms`` is the wall clock's time at time 0, for the times in records. ``client_id`` returns
    the client id of a connection's name: a process that starts again has another connection and
    keeps its client id. ``message_max_bytes`` is the broker's ``message.max.bytes``: a group's
    record above it is not written. A member id ends in a counter of ``id_digits`` digits; with 36
    it is as long as Kafka's, which ends in a UUID.
    """

    initial_delay_ms: int = 3_000
    wall_ms: int = 0
    client_id: Callable[[str], str] = str
    min_session_timeout_ms: int = 1
    max_session_timeout_ms: int = 1_800_000
    max_size: int = INT32_MAX
    message_max_bytes: int = MESSAGE_MAX_BYTES
    id_digits: int = 4


class GroupMember(NamedTuple):
    """One member; ``joining`` and ``syncing`` are requests that wait for an answer.

    A named tuple, because a member is rewritten six times in a round and a named tuple costs least.
    """

    member_id: str
    instance_id: str | None
    client: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    joining: int | None = None
    syncing: int | None = None
    synced: bool = False
    assignment: bytes = b""

    @property
    def waits(self) -> bool:
        """Whether the member waits for an answer, and so is alive."""
        return self.joining is not None or self.syncing is not None
