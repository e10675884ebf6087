"""The user data of classic Kafka Streams groups (assignor ``stream``), for reading.

=======  ===================================================  ====================================
version  subscription (SubscriptionInfo)                      assignment (AssignmentInfo)
=======  ===================================================  ====================================
1        version, processId uuid, prevTasks, standbyTasks     version, activeTasks, standbyTasks
2        + userEndPoint bytes                                 + partitions by host
3        + latestSupportedVersion behind version              + commonlySupportedVersion
4        same                                                 + errCode int32 at the end
5        same                                                 topic names of hosts as a dictionary
6        same                                                 + standby partitions by host
7        offset sums by subtopology instead of both lists    + nextRebalanceMs int64 at the end
8        + uniqueField int8                                   same
9        + errorCode int32                                    same
10       offset sums one by one, with the named topology      + named topology in each task id
11       + clientTags [](key bytes, value bytes)              same
=======  ===================================================  ====================================

The version is an int32; a task id is ``subtopology int32, partition int32``. An active task has the
offset sum -2. A member that shall request a rebalance gets the time in ``nextRebalanceMs``: 0 at
once, the largest int64 never.

**Rules.** ``activeTasks`` has one entry for each partition that the consumer protocol assigns, so a
task that reads several topics occurs several times; here it occurs once. A version above 11 is read
as 11, and a version below 1 is refused. Bytes after the last known field are ignored. The bytes do
not distinguish a warm-up task from a standby task.

**Strategy.** Fields that only interactive queries need (the owner of each partition) are skipped.

References: KIP-441 (offset sums, probing rebalances), KIP-708 (client tags); Kafka Streams 4.3.1,
``AssignmentInfo``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.core.wire.one.reader import Reader
from holdfast.core.wire.one.reasons import Reason

HIGHEST_VERSION: Final = 11
SUBSCRIPTION, ASSIGNMENT = "StreamsSubscriptionInfo", "StreamsAssignmentInfo"
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
    reader, version = _begin(data, SUBSCRIPTION)
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
    reader, version = _begin(data, ASSIGNMENT)
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
    reader.version = min(version, HIGHEST_VERSION)
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
