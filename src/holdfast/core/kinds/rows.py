"""The kinds of groups, one row each.

**Rules.** A row is all that the pipeline, the report and the commands know of a kind: code that
needs a group's kind calls :func:`kind_of`. A classic group of a protocol type without a row counts
as a group of plain consumers, and its assignments are not read.

References: KIP-415 (Connect), KIP-441 (Streams), KIP-848 (consumer), KIP-932 (share), KIP-1071
(streams).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from holdfast.core.kinds.increments import read_connect, read_worker
from holdfast.core.kinds.kind import (
    ACTIVE,
    CONSUMER_PROTOCOL,
    SHARED,
    STANDBY,
    WARMUP,
    EpochRecords,
    GroupKind,
    GroupType,
    Words,
)
from holdfast.core.kinds.streams import mark_warm_ups, read_streams
from holdfast.core.wire.layouts.offsets_schemas import RecordType

_TASKS: Final = Words(
    things="tasks", thing="task", parent="subtopology", parents="subtopologies", joint="_"
)
_OF_STREAMS: Final = "Kafka Streams assigns tasks, and takes no other assignor"

CLASSIC: Final = GroupKind(
    name="consumer",
    group_type=GroupType.CLASSIC,
    protocol_type=CONSUMER_PROTOCOL,
    topics=True,
    announces=True,
)

KINDS: Final = (
    CLASSIC,
    GroupKind(
        name="stream",
        group_type=GroupType.CLASSIC,
        protocol_type=CONSUMER_PROTOCOL,
        protocol="stream",
        # Cooperative since 2.4, but eager where `upgrade.from` names an older version.
        cooperative=frozenset(["stream"]),
        claims_show_stops=True,
        topics=True,
        announces=True,
        words=_TASKS,
        own_assignment=_OF_STREAMS,
        read=read_streams,
        among=mark_warm_ups,
    ),
    GroupKind(
        name="connect",
        group_type=GroupType.CLASSIC,
        protocol_type="connect",
        cooperative=frozenset(["compatible", "sessioned"]),  # since KIP-415
        lowest=-1,  # a connector itself
        words=Words(things="connectors and tasks", thing="task", parent="connector"),
        own_assignment="Kafka Connect assigns connectors and tasks, and takes no other assignor",
        no_replay={"default": "Kafka Connect's eager protocol has no replay"},
        resource_kind=lambda _, number: "connector" if number < 0 else "task",
        imitated_by="deferred",
        tool="",
        read=read_connect,
    ),
    GroupKind(
        name="worker",
        group_type=GroupType.CLASSIC,
        protocol_type="holdfast",
        announces=True,
        words=Words(things="resources", thing="task", parent="kind"),
        own_assignment="a group of workers divides resources of its own, not partitions of topics",
        resource_kind=lambda kind, _: kind,
        tool="",
        read=read_worker,
    ),
    GroupKind(
        name="consumer",
        group_type=GroupType.CONSUMER,
        protocol_type=GroupType.CONSUMER,
        topics=True,
        records=EpochRecords(
            epoch=RecordType.CONSUMER_GROUP_METADATA,
            member=RecordType.CONSUMER_GROUP_MEMBER_METADATA,
            target_epoch=RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
            target=RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
            current=RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
            roles={"topicPartitions": ACTIVE},
            assigned="assignedPartitions",
            pending="partitionsPendingRevocation",
        ),
    ),
    GroupKind(
        name="share",
        group_type=GroupType.SHARE,
        protocol_type=GroupType.SHARE,
        topics=True,
        own_assignment="a share group: its members read partitions together, without an assignor "
        "of the clients",
        tool="kafka-share-groups.sh",
        records=EpochRecords(
            epoch=RecordType.SHARE_GROUP_METADATA,
            member=RecordType.SHARE_GROUP_MEMBER_METADATA,
            target_epoch=RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
            target=RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
            current=RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
            roles={"topicPartitions": SHARED},
        ),
    ),
    GroupKind(
        name="streams",
        group_type=GroupType.STREAMS,
        protocol_type=GroupType.STREAMS,
        words=_TASKS,
        own_assignment=_OF_STREAMS,
        tool="kafka-streams-groups.sh",
        records=EpochRecords(
            epoch=RecordType.STREAMS_GROUP_METADATA,
            member=RecordType.STREAMS_GROUP_MEMBER_METADATA,
            target_epoch=RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
            target=RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
            current=RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
            roles={"activeTasks": ACTIVE, "standbyTasks": STANDBY, "warmupTasks": WARMUP},
            parent="subtopologyId",
            assigned="activeTasks",
            pending="activeTasksPendingRevocation",
            topology=RecordType.STREAMS_GROUP_TOPOLOGY,
        ),
    ),
)


BY_RECORD: Final[Mapping[int, tuple[GroupKind, EpochRecords]]] = MappingProxyType(
    {
        record_type: (kind, kind.records)
        for kind in KINDS
        if kind.records is not None
        for record_type in kind.records.types
    }
)
"""The kind of group whose broker writes records of a type, and all such records of it."""


def kind_of(group_type: str, protocol_type: str | None, protocol: str | None) -> GroupKind:
    """Return the kind of a group, by three columns of one row of the table ``generations``."""
    found = [
        kind
        for kind in KINDS
        if kind.group_type == group_type
        and (group_type != GroupType.CLASSIC or kind.protocol_type == protocol_type)
        and kind.protocol in (None, protocol)
    ]
    return found[-1] if found else CLASSIC  # of two, the one that has this protocol alone


def is_read(protocol_type: str) -> bool:
    """Return whether the assignments of groups of a protocol type are read."""
    return protocol_type in {kind.protocol_type for kind in KINDS}
