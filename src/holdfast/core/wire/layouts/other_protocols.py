"""Embedded protocols that holdfast only reads: Connect's, Kafka Streams', and a document's.

Each part of the file opens with the version table of its messages. Bytes after the last known field
are ignored in all of them.

References: KIP-415 (Connect v1), KIP-507 (Connect v2); KIP-441 (Streams: offset sums, probing
rebalances), KIP-708 (Streams: client tags), Kafka Streams 4.3.1, ``AssignmentInfo``; Incremental
Cooperative Rebalancing: Support and Policies, Designs I, II and III.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.core.model.constants import Design
from holdfast.core.model.partitions import TopicPartitions
from holdfast.core.wire.one.reader import TOPIC_PARTITIONS_MIN, Reader, read_topic_partitions
from holdfast.errors import Reason

# Kafka Connect (protocol type ``connect``)
#
# =======  ============  ===================================  ======================================
# version  protocol      metadata (worker to leader)          assignment (leader to worker)
# =======  ============  ===================================  ======================================
# 0        `default`     Url string, ConfigOffset int64       Error int16, Leader string, LeaderUrl
#                                                             string, ConfigOffset int64, Assignment
#                                                             [](Connector string, Tasks []int32)
# 1        `compatible`  + Allocation nullable bytes: the     Assignment nullable, + Revoked
#                        worker's last *assignment message*   nullable [](Connector, Tasks), Delay
#                                                             int32
# 2        `sessioned`   same                                 same; session keys (KIP-507)
# =======  ============  ===================================  ======================================
#
# Task -1 is the connector itself. From v1 on, trailing fields with a default may be missing:
# Allocation, Assignment and Revoked (null), Delay (0). A version above 2 is read as 2, a version
# below 0 is refused. From v1 on an assignment lists increments: next = (owned - revoked) +
# assigned. The allocation is left as bytes; :func:`decode_connect_assignment` reads it.

HIGHEST_CONNECT = 2
CONNECT_METADATA, CONNECT_ASSIGNMENT = "ConnectMetadata", "ConnectAssignment"


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
    reader = Reader(data, CONNECT_METADATA)
    version = reader.leading_version(HIGHEST_CONNECT)
    return ConnectMetadata(
        version=version,
        url=reader.string("url"),
        config_offset=reader.int64("config_offset"),
        allocation=reader.nullable_bytes("allocation") if version and reader.n_left else None,
    )


def decode_connect_assignment(data: bytes) -> ConnectAssignment:
    """Read a worker's assignment, or the allocation in its metadata."""
    reader = Reader(data, CONNECT_ASSIGNMENT)
    version = reader.leading_version(HIGHEST_CONNECT)
    return ConnectAssignment(
        version=version,
        error=reader.int16("error"),
        leader=reader.string("leader"),
        leader_url=reader.string("leader_url"),
        config_offset=reader.int64("config_offset"),
        assignment=_read_connectors(reader, "assignment")
        if version
        else reader.array("assignment", _read_connector, TOPIC_PARTITIONS_MIN),
        revoked=_read_connectors(reader, "revoked") if version else None,
        delay_ms=reader.delay_ms("delay") if version and reader.n_left else 0,
    )


def _read_connectors(reader: Reader, field: str) -> TopicPartitions | None:
    if not reader.n_left:
        return None
    return reader.nullable_array(field, _read_connector, TOPIC_PARTITIONS_MIN)


def _read_connector(reader: Reader) -> tuple[str, tuple[int, ...]]:
    return reader.string("connector"), reader.int32s("tasks")


# The user data of classic Kafka Streams groups (assignor ``stream``)
#
# =======  ==================================================  ===================================
# version  subscription (SubscriptionInfo)                     assignment (AssignmentInfo)
# =======  ==================================================  ===================================
# 1        version, processId uuid, prevTasks, standbyTasks    version, activeTasks, standbyTasks
# 2        + userEndPoint bytes                                + partitions by host
# 3        + latestSupportedVersion behind version             + commonlySupportedVersion
# 4        same                                                + errCode int32 at the end
# 5        same                                                topic names of hosts as a dictionary
# 6        same                                                + standby partitions by host
# 7        offset sums by subtopology instead of both lists    + nextRebalanceMs int64 at the end
# 8        + uniqueField int8                                  same
# 9        + errorCode int32                                   same
# 10       offset sums one by one, with the named topology     + named topology in each task id
# 11       + clientTags [](key bytes, value bytes)             same
# =======  ==================================================  ===================================
#
# The version is an int32; a task id is ``subtopology int32, partition int32``. An active task has
# the offset sum -2. A member that shall request a rebalance gets the time in ``nextRebalanceMs``: 0
# at once, the largest int64 never.
#
# ``activeTasks`` has one entry for each partition that the consumer protocol assigns, so a task
# that reads several topics occurs several times; here it occurs once. A version above 11 is read as
# 11, and a version below 1 is refused. The bytes do not distinguish a warm-up task from a standby
# task. Fields that only interactive queries need (the owner of each partition) are skipped.

HIGHEST_STREAMS: Final = 11
STREAMS_SUBSCRIPTION, STREAMS_ASSIGNMENT = "StreamsSubscriptionInfo", "StreamsAssignmentInfo"
ACTIVE_OFFSET_SUM: Final = -2
NEVER_MS: Final = 2**63 - 1
_TASK_MIN, _OLD_SUMS_MIN, _NEW_SUM_MIN, _STANDBY_MIN, _HOST_MIN, _TAG_MIN = 8, 8, 18, 12, 10, 8

Task = tuple[str, int]
"""Subtopology, with the named topology before it (``name__0``), and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsSubscription:
    """A Streams member's report to the leader."""

    version: int  # 1 to 11
    process_id: str  # of the process, whose threads are members each
    # Tasks that the member ran, and tasks of which the member has state.
    active: tuple[Task, ...]
    standby: tuple[Task, ...]
    # How far the state of each task is, -2 for an active one; empty before version 7.
    offset_sums: tuple[tuple[Task, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsAssignment:
    """The leader's assignment of a Streams member."""

    version: int  # 1 to 11
    # Tasks to run; tasks of which to keep state, warm-up tasks among them.
    active: tuple[Task, ...]
    standby: tuple[Task, ...]
    error: int = 0  # 0 none
    # When to request another rebalance, in ms since 1970: 0 at once, :data:`NEVER_MS` never.
    next_rebalance_ms: int = NEVER_MS


def decode_streams_subscription(data: bytes) -> StreamsSubscription:
    """Read the user data of a subscription."""
    reader, version = _begin(data, STREAMS_SUBSCRIPTION)
    if version >= 3:
        reader.int32("latestSupportedVersion")
    process_id = str(reader.uuid("processId"))
    if version < 7:
        active = reader.array("prevTasks", _old_task, _TASK_MIN)
        standby = reader.array("standbyTasks", _old_task, _TASK_MIN)
        if version >= 2:
            reader.bytes_("userEndPoint")
        return StreamsSubscription(
            version=version, process_id=process_id, active=active, standby=standby
        )
    reader.bytes_("userEndPoint")
    if version < 10:
        nested = reader.array("taskOffsetSums", _old_sums, _OLD_SUMS_MIN)
        sums = tuple(one for part in nested for one in part)
    else:
        sums = reader.array("taskOffsetSums", _new_sum, _NEW_SUM_MIN)
    _skip_rest(reader, version)
    return StreamsSubscription(
        version=version,
        process_id=process_id,
        active=tuple(task for task, offset in sums if offset == ACTIVE_OFFSET_SUM),
        standby=tuple(task for task, offset in sums if offset != ACTIVE_OFFSET_SUM),
        offset_sums=sums,
    )


def decode_streams_assignment(data: bytes) -> StreamsAssignment:
    """Read the user data of an assignment."""
    reader, version = _begin(data, STREAMS_ASSIGNMENT)
    if version >= 3:
        reader.int32("commonlySupportedVersion")
    task = _named_task if version >= 10 else _old_task
    active = reader.array("activeTasks", task, _TASK_MIN)

    def standby_task(inner: Reader) -> Task:
        found = task(inner)
        inner.array("partitions", _topic_partition, 6)
        return found

    standby = reader.array("standbyTasks", standby_task, _STANDBY_MIN)
    _skip_hosts(reader, version)
    return StreamsAssignment(
        version=version,
        active=tuple(dict.fromkeys(active)),
        standby=standby,
        error=reader.int32("errCode") if version >= 4 else 0,
        next_rebalance_ms=reader.int64("nextRebalanceMs") if version >= 7 else NEVER_MS,
    )


def _skip_rest(reader: Reader, version: int) -> None:
    """Skip the fields of a subscription behind the offset sums."""
    if version >= 8:
        reader.int8("uniqueField")
    if version >= 9:
        reader.int32("errorCode")
    if version >= 11:
        reader.array("clientTags", _client_tag, _TAG_MIN)


def _client_tag(reader: Reader) -> None:
    reader.bytes_("key")
    reader.bytes_("value")


def _begin(data: bytes, schema: str) -> tuple[Reader, int]:
    reader = Reader(data, schema)
    version = reader.int32("version")
    if version < 1:
        reader.fail(Reason.BAD_VERSION, "version", 0, f"{version} is below 1")
    reader.version = min(version, HIGHEST_STREAMS)
    return reader, reader.version


def _skip_hosts(reader: Reader, version: int) -> None:
    if 2 <= version < 5:
        reader.array("partitionsByHost", _host, _HOST_MIN)
    elif version >= 5:
        reader.array("topics", _indexed_topic, 6)
        for name in ("partitionsByHost", "standbyPartitionsByHost")[: 1 + (version >= 6)]:
            reader.array(name, _indexed_host, _HOST_MIN)


def _old_task(reader: Reader) -> Task:
    return str(reader.int32("subtopology")), reader.int32("partition")


def _named_task(reader: Reader) -> Task:
    subtopology, partition = _old_task(reader)
    start = reader.pos
    size = reader.int32("namedTopology")
    if not size:  # mostly
        return subtopology, partition
    if size < 0:
        reader.fail(Reason.BAD_LENGTH, "namedTopology", start, str(size))
    if 2 * size > reader.n_left:
        reader.fail(Reason.TRUNCATED, "namedTopology", start, f"{2 * size} bytes expected")
    begin = reader.pos
    reader.skip(2 * size, "namedTopology")
    name = reader.data[begin : reader.pos].decode("utf-16-be", "replace")
    return _in_topology(name, subtopology), partition


def _in_topology(name: str | None, subtopology: str) -> str:
    return f"{name}__{subtopology}" if name else subtopology


def _old_sums(reader: Reader) -> tuple[tuple[Task, int], ...]:
    subtopology = str(reader.int32("subtopology"))
    return reader.array(
        "partitionToOffsetSum",
        lambda inner: ((subtopology, inner.int32("partition")), inner.int64("offsetSum")),
        12,
    )


def _new_sum(reader: Reader) -> tuple[Task, int]:
    subtopology, partition = _old_task(reader)
    offset = reader.int64("offsetSum")
    name = reader.nullable_string("namedTopology")
    return (_in_topology(name, subtopology), partition), offset


def _topic_partition(reader: Reader) -> None:
    reader.string("topic")
    reader.int32("partition")


def _indexed_topic(reader: Reader) -> None:
    reader.int32("index")
    reader.string("topic")


def _host(reader: Reader) -> None:
    reader.string("host")
    reader.int32("port")
    reader.array("partitions", _topic_partition, 6)


def _indexed_host(reader: Reader) -> None:
    reader.string("host")
    reader.int32("port")
    reader.array("partitions", _indexed_partition, 8)


def _indexed_partition(reader: Reader) -> None:
    reader.int32("index")
    reader.int32("partition")


# The messages of the document "Incremental Cooperative Rebalancing"
#
# =======  ============================================  ===========================================
# version  Subscription                                  Assignment
# =======  ============================================  ===========================================
# 1        SubscribeTopics []string,                     AssignedTopicPartitions [](Topic string,
#          PartitionAssignorData bytes,                  Partitions []int32),
#          AssignedTopicPartitions [](Topic string,      RevokeTopicPartitions [](Topic, Partitions)
#          Partitions []int32)
# 2        same                                          + ScheduledRebalanceTimeout int32
# 3        same                                          same
# =======  ============================================  ===========================================
#
# The types are Kafka's classic ones. The version is the number of the design; one above 3 is read
# as 3. A member then owns (owned - revoked) + assigned. It keeps a partition that the assignment
# does not list: absence never revokes. Lists may be null. Null and empty ``revoked`` differ. Empty
# means that another member revokes a partition: another round follows, and this member may join
# again at once. Null has neither meaning. The timeout is in ms, 0 to 2**31 - 1; 0 means no timeout.
# A negative timeout is refused.
#
# These messages are the document's reference, read by ``holdfast decode`` alone. No member uses
# them: in every group, of :class:`holdfast.Worker` too, the same content is in
# :mod:`holdfast.core.wire.layouts.container`.

DESIGN_SUBSCRIPTION = "DesignSubscription"
DESIGN_ASSIGNMENT = "DesignAssignment"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignSubscription:
    """The document's Subscription."""

    design: Design  # which design the member runs
    topics: tuple[str, ...]  # topics subscribed
    assignor_data: bytes | None = None  # the assignor's own bytes
    # partitions that the member owns; null or empty for a new member
    assigned: TopicPartitions | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignAssignment:
    """The document's Assignment."""

    design: Design  # which design the leader runs
    # Further partitions of the member; null repeats the last assignment.
    assigned: TopicPartitions | None = ()
    # Partitions to revoke before joining again. Empty, not null: another round follows.
    revoked: TopicPartitions | None = ()
    timeout_ms: int = 0  # ScheduledRebalanceTimeout, 0 none; Design I has none


def decode_design_subscription(data: bytes) -> DesignSubscription:
    """Read the document's Subscription."""
    reader = Reader(data, DESIGN_SUBSCRIPTION)
    return DesignSubscription(
        design=_read_design(reader),
        topics=reader.strings("subscribe_topics"),
        assignor_data=reader.nullable_bytes("partition_assignor_data"),
        assigned=_read_list(reader, "assigned_topic_partitions"),
    )


def decode_design_assignment(data: bytes) -> DesignAssignment:
    """Read the document's Assignment."""
    reader = Reader(data, DESIGN_ASSIGNMENT)
    design = _read_design(reader)
    return DesignAssignment(
        design=design,
        assigned=_read_list(reader, "assigned_topic_partitions"),
        revoked=_read_list(reader, "revoke_topic_partitions"),
        timeout_ms=0 if design is Design.SIMPLE else reader.delay_ms("scheduled_rebalance_timeout"),
    )


def _read_design(reader: Reader) -> Design:
    return Design(reader.leading_version(int(Design.INCREMENTAL), int(Design.SIMPLE)))


def _read_list(reader: Reader, field: str) -> TopicPartitions | None:
    return reader.nullable_array(field, read_topic_partitions, TOPIC_PARTITIONS_MIN)
