"""Records of a KIP-848, share or streams group, folded into successive generations.

**Rules.** A generation is a target assignment: its epoch, and each member's partitions. The record
of the assignment epoch completes the generation; in a group without members the record of the group
epoch does. Members and targets are those of the newest records before that record; a tombstone
deletes one. Records name a topic by its id. If the topics table does not have the id, the id stands
in place of the name. A task of a streams group stands under its subtopology, in place of a topic;
the topic-partitions that it reads are those of its number in the topics that the group's topology
names.

**Strategy.** There are few such records (a handful per member and epoch), so a loop folds them.

References: KIP-848, "Records"; KIP-932; KIP-1071; KIP-1263.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.core.kinds.kind import ACTIVE, SOURCE, EpochRecords, GroupKind
from holdfast.core.kinds.rows import BY_RECORD
from holdfast.fleet.pipeline.ingest.decode_groups import ConsumerGroupEvent
from holdfast.fleet.pipeline.ingest.generations import (
    DEAD,
    EMPTY,
    HEAD,
    MEMBER_ROWS,
    OWNED_ROWS,
    STABLE,
    Generations,
)

Given = list[tuple[int, str, list[int]]]
"""What a member is given: role, topic or subtopology, partitions."""


@dataclass(slots=True)
class _GroupColumns:
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    targets: dict[str, Given] = field(default_factory=dict)
    reads: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class _RecordRows:
    head: list[dict[str, Any]] = field(default_factory=list)
    members: list[dict[str, Any]] = field(default_factory=list)
    owned: list[dict[str, Any]] = field(default_factory=list)


def fold(
    events: Iterable[ConsumerGroupEvent],
    topic_names: Mapping[str, str],
    reported: Mapping[str, tuple[int, int]] | None = None,
) -> Generations:
    """Generations of groups whose assignments the broker computes.

    Parameters
    ----------
    events : iterable of ConsumerGroupEvent
        Of any groups, in any order.
    reported : mapping, optional
        Group to (log partition, log offset): generations up to there are not wanted again.

    Returns
    -------
    Generations
        Sorted by group and place in the log.
    """
    rows = _RecordRows()
    groups: dict[tuple[str, str], _GroupColumns] = {}
    ordered = sorted(events, key=lambda e: (e["group"], e["log_partition"], e["log_offset"]))
    for event in ordered:
        if event["type"] not in BY_RECORD:
            continue
        kind, records = BY_RECORD[event["type"]]
        group = groups.setdefault((event["group"], kind.group_type), _GroupColumns())
        place = event["log_partition"], event["log_offset"]
        known = reported is not None and place <= reported.get(event["group"], (-1, -1))
        if _apply(group, records, event, topic_names) and not known:
            _append(rows, group, kind, event)
    gens = Generations(
        head=pa.Table.from_pylist(rows.head, schema=HEAD),
        members=pa.Table.from_pylist(rows.members, schema=MEMBER_ROWS),
        owned=pa.Table.from_pylist(rows.owned, schema=OWNED_ROWS),
    )
    return gens.sorted()


def _apply(
    group: _GroupColumns,
    records: EpochRecords,
    event: ConsumerGroupEvent,
    topic_names: Mapping[str, str],
) -> bool:
    """Apply a record; True if it completes a generation."""
    value, member_id, record_type = event["value"], event["member_id"], event["type"]
    if record_type == records.member:
        group.members[member_id] = value
        if value is None:
            del group.members[member_id]
    elif record_type == records.target:
        group.targets[member_id] = _given(records, value, topic_names)
    elif record_type == records.topology:
        group.reads = topics_read(value)
    elif record_type == records.epoch:
        return value is None or not group.members
    elif record_type == records.target_epoch:
        return value is not None and bool(group.members)
    return False


def _given(records: EpochRecords, value: Any, topic_names: Mapping[str, str]) -> Given:
    """A target assignment by role and topic, sorted; nothing for a tombstone."""
    if value is None:
        return []
    return sorted(
        (
            role,
            topic_names.get(part[records.place], part[records.place]),
            sorted(part["partitions"]),
        )
        for name, role in records.roles.items()
        for part in value[name]
    )


def topics_read(value: Any) -> dict[str, list[str]]:
    """Topics that each subtopology reads, sorted; nothing for a tombstone."""
    parts = () if value is None else value["subtopologies"]
    return {
        part["subtopologyId"]: sorted(
            {*part["sourceTopics"], *(topic["name"] for topic in part["repartitionSourceTopics"])}
        )
        for part in parts
    }


def _sources(given: Given, reads: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """What a member reads for its active tasks, as rows; no reader where several tasks share it."""
    tasks = [(place, numbers) for role, place, numbers in given if role == ACTIVE]
    numbers: dict[str, set[int]] = {}
    readers: dict[str, set[str]] = {}
    for place, partitions in tasks:
        for topic in reads.get(place, ()):
            numbers.setdefault(topic, set()).update(partitions)
            readers.setdefault(topic, set()).add(place)
    return [
        {
            "topic": topic,
            "partitions": sorted(found),
            "role": SOURCE,
            "reader": min(readers[topic]) if len(readers[topic]) == 1 else None,
        }
        for topic, found in sorted(numbers.items())
    ]


def _append(
    rows: _RecordRows, group: _GroupColumns, kind: GroupKind, event: ConsumerGroupEvent
) -> None:
    value = event["value"]
    dead = value is None
    epoch = -1 if dead else value.get("assignmentEpoch", value.get("epoch"))
    row = len(rows.head)
    members = {} if dead else group.members
    assignors = sorted({str(a) for m in members.values() if (a := m.get("serverAssignor"))})
    topics = sorted({topic for read in group.reads.values() for topic in read})
    rows.head.append(
        {
            "group": event["group"],
            "generation": epoch,
            "group_type": kind.group_type,
            "state": DEAD if dead else STABLE if members else EMPTY,
            "protocol_type": kind.protocol_type,
            "protocol": assignors[0] if assignors else None,
            "leader": None,
            "timestamp": event["timestamp"],
            "log_partition": event["log_partition"],
            "log_offset": event["log_offset"],
            "context": False,
        }
    )
    for member_id, member in sorted(members.items()):
        given = group.targets.get(member_id, [])
        for role, topic, partitions in given:
            place = {"topic": topic, "partitions": partitions, "role": role}
            rows.owned.append({"member": len(rows.members), **place})
        for source in _sources(given, group.reads):
            rows.owned.append({"member": len(rows.members), **source})
        rows.members.append(
            {
                "row": row,
                "member_id": member_id,
                "group_instance_id": member.get("instanceId"),
                "client_id": member["clientId"],
                "client_host": member["clientHost"],
                "rack": member["rackId"],
                "rebalance_timeout_ms": member.get("rebalanceTimeoutMs"),
                "session_timeout_ms": None,
                "subscribed_topics": member.get("subscribedTopicNames", topics),
                "n_claimed": 0,
                "readable": True,
            }
        )
