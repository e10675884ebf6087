"""KIP-848 records of a group, folded into successive generations.

**Rules.** A generation is a target assignment: its epoch, and each member's partitions. The record
of the assignment epoch completes the generation; in a group without members the record of the group
epoch does. Members and targets are those of the newest records before that record; a tombstone
deletes one. Records name a topic by its id. If the topics table does not have the id, the id stands
in place of the name.

**Strategy.** There are few such records (a handful per member and epoch), so a loop folds them.

References: KIP-848, "Records"; KIP-1263.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.pipeline.history.generations import (
    CONSUMER,
    DEAD,
    EMPTY,
    HEAD,
    MEMBER_ROWS,
    OWNED_ROWS,
    STABLE,
    Generations,
)
from holdfast.pipeline.ingest.records import ConsumerGroupEvent
from holdfast.wire.layouts.offsets_schemas import RecordType


@dataclass(slots=True)
class _GroupColumns:
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    targets: dict[str, list[tuple[str, list[int]]]] = field(default_factory=dict)


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
    """Generations of KIP-848 groups.

    Parameters
    ----------
    events : iterable of ConsumerGroupEvent
        Of any groups, in any order.
    topic_names : mapping
        Topic id (UUID string) to topic.
    reported : mapping, optional
        Group to (log partition, log offset): generations up to there are not wanted again.

    Returns
    -------
    Generations
        Sorted by group and place in the log.
    """
    rows = _RecordRows()
    groups: dict[str, _GroupColumns] = {}
    ordered = sorted(events, key=lambda e: (e["group"], e["log_partition"], e["log_offset"]))
    for event in ordered:
        group = groups.setdefault(event["group"], _GroupColumns())
        place = event["log_partition"], event["log_offset"]
        known = reported is not None and place <= reported.get(event["group"], (-1, -1))
        if _apply(group, event, topic_names) and not known:
            _append(rows, group, event)
    gens = Generations(
        head=pa.Table.from_pylist(rows.head, schema=HEAD),
        members=pa.Table.from_pylist(rows.members, schema=MEMBER_ROWS),
        owned=pa.Table.from_pylist(rows.owned, schema=OWNED_ROWS),
    )
    return gens.sorted()


def _apply(group: _GroupColumns, event: ConsumerGroupEvent, topic_names: Mapping[str, str]) -> bool:
    """Apply a record; True if it completes a generation."""
    value, member_id = event["value"], event["member_id"]
    match event["type"]:
        case RecordType.CONSUMER_GROUP_MEMBER_METADATA:
            group.members[member_id] = value
            if value is None:
                del group.members[member_id]
        case RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER:
            group.targets[member_id] = _named(value, topic_names)
        case RecordType.CONSUMER_GROUP_METADATA:
            return value is None or not group.members
        case RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA:
            return value is not None and bool(group.members)
        case _:
            pass
    return False


def _named(value: Any, topic_names: Mapping[str, str]) -> list[tuple[str, list[int]]]:
    """A target assignment by topic, sorted; nothing for a tombstone."""
    parts = () if value is None else value["topicPartitions"]
    return sorted(
        (topic_names.get(part["topicId"], part["topicId"]), sorted(part["partitions"]))
        for part in parts
    )


def _append(rows: _RecordRows, group: _GroupColumns, event: ConsumerGroupEvent) -> None:
    value = event["value"]
    dead = value is None
    epoch = -1 if dead else value.get("assignmentEpoch", value.get("epoch"))
    row = len(rows.head)
    members = {} if dead else group.members
    assignors = sorted({str(m["serverAssignor"]) for m in members.values() if m["serverAssignor"]})
    rows.head.append(
        {
            "group": event["group"],
            "generation": epoch,
            "group_type": CONSUMER,
            "state": DEAD if dead else STABLE if members else EMPTY,
            "protocol_type": "consumer",
            "protocol": assignors[0] if assignors else None,
            "leader": None,
            "timestamp": event["timestamp"],
            "log_partition": event["log_partition"],
            "log_offset": event["log_offset"],
            "context": False,
        }
    )
    for member_id, member in sorted(members.items()):
        for topic, partitions in group.targets.get(member_id, ()):
            place = {"member": len(rows.members), "topic": topic, "partitions": partitions}
            rows.owned.append(place)
        rows.members.append(
            {
                "row": row,
                "member_id": member_id,
                "group_instance_id": member["instanceId"],
                "client_id": member["clientId"],
                "client_host": member["clientHost"],
                "rack": member["rackId"],
                "rebalance_timeout_ms": member["rebalanceTimeoutMs"],
                "session_timeout_ms": None,
                "subscribed_topics": member["subscribedTopicNames"],
                "n_claimed": 0,
                "readable": True,
            }
        )
