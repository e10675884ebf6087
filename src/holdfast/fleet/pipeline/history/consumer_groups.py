"""Read and fold the records of KIP-848, share and streams groups into generations and gaps.

**Rules.** A generation is a target assignment: its epoch, and each member's partitions. The record
of the assignment epoch completes the generation; in a group without members the record of the
group epoch does. Members and targets are those of the newest records before that record; a
tombstone deletes one. Records name a topic by its id. If the topics table does not have the id,
the id replaces the name. A task of a streams group is listed under its subtopology, instead of a
topic; the topic-partitions that it reads are those of its number in the topics that the group's
topology names.

A target names the future member of a partition. The record of a member's current assignment (type
8, or 22 with active tasks) names its present partitions. A member revokes a partition with its
first such record that does not name the partition, not even as pending revocation. A partition is
served again with the first record in which a member has it assigned. The gap is at least the time
between these two records, and at most the time since the last record in which the old owner had
the partition, or since the old owner's last commit of it. After the first such record of a group,
no gap of the group is inferred from its targets. The partitions of a share group have no owner of
their own, so they have no gaps.

**Strategy.** Such records are few (a handful per member and epoch), so a loop folds them. Revoked
partitions that no member has taken yet are kept between the batches of a stream, as an event of
type RELEASED.

References: KIP-848, "Records"; KIP-932; KIP-1071; KIP-1263.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NotRequired, TypedDict

import numpy as np
import pyarrow as pa

from holdfast.core.kinds import ACTIVE, BY_RECORD, SOURCE, EpochRecords, GroupKind
from holdfast.core.model.columns import Mask
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.core.wire.many.columns import Column, Columns, Ids, Items, Numbers, Optional
from holdfast.fleet.columnar import ints
from holdfast.fleet.pipeline.history.ownership_gaps import OPEN, STAGED
from holdfast.fleet.pipeline.ingest.decode import families, id_text, log_positions, text
from holdfast.fleet.pipeline.ingest.generations import (
    DEAD,
    EMPTY,
    HEAD,
    MEMBER_ROWS,
    OWNED_ROWS,
    STABLE,
    Generations,
    marked,
)

RELEASED: Final = -8
"""Type of the event that a stream keeps: revoked partitions that no member has taken yet."""
RECONCILED: Final = "reconciled"

Given = list[tuple[int, str, list[int]]]
"""What a member is given: role, topic or subtopology, partitions."""
Tp = tuple[str, int]


@dataclass(slots=True)
class _GroupColumns:
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    targets: dict[str, Given] = field(default_factory=dict)
    reads: dict[str, list[str]] = field(default_factory=dict)
    """Topics that each subtopology reads."""


@dataclass(slots=True)
class _RecordRows:
    head: list[dict[str, Any]] = field(default_factory=list)
    members: list[dict[str, Any]] = field(default_factory=list)
    owned: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class _Owners:
    """What the members of one group have now."""

    members_now: dict[str, tuple[int, set[Tp], set[Tp]]] = field(default_factory=dict)
    released: dict[Tp, tuple[int, int, int]] = field(default_factory=dict)
    """Revoked partitions: when their owner last had each, by time and position."""
    last: ConsumerGroupEvent | None = None
    reads: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Reconciled:
    """Result of the records of current assignments.

    ``gaps`` and ``open`` are rows of
    :data:`~holdfast.fleet.pipeline.history.ownership_gaps.STAGED`: ended gaps, and revoked
    partitions that no member took. ``since`` has the log position of the first such record of each
    group; before all positions if an earlier batch read it. ``released`` are events of type
    :data:`RELEASED` for the next batch.
    """

    topic_names: Mapping[str, str] = field(default_factory=dict)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    open: list[dict[str, Any]] = field(default_factory=list)
    since: dict[str, tuple[int, int]] = field(default_factory=dict)
    released: list[ConsumerGroupEvent] = field(default_factory=list)

    def table(self, *, with_open: bool) -> pa.Table:
        """Return the gaps as STAGED."""
        return pa.Table.from_pylist(self.gaps + self.open * with_open, schema=STAGED)

    def covered(self, gens: Generations) -> Mask:
        """Mark the rows after the group's first record of a current assignment, bool[n_rows]."""
        covered = np.zeros(gens.n_rows, bool)
        if not self.since:
            return covered
        consumer = marked(gens.head, lambda kind, _: bool(kind.records and kind.records.assigned))
        where = ints(gens.head, "log_partition"), ints(gens.head, "log_offset")
        for row in np.flatnonzero(consumer):
            first = self.since.get(gens.head["group"][int(row)].as_py())
            covered[row] = first is not None and (int(where[0][row]), int(where[1][row])) > first
        return covered


def fold(
    events: Iterable[ConsumerGroupEvent],
    topic_names: Mapping[str, str],
    reported: Mapping[str, tuple[int, int]],
) -> tuple[Generations, Reconciled]:
    """Fold generations, sorted, and gaps of groups whose assignments the broker computes.

    ``events`` are of any groups in any order; those marked ``old`` were reported in an earlier
    batch. ``reported`` has the log position up to which generations of a group were reported.
    """
    rows, out = _RecordRows(), Reconciled(topic_names=topic_names)
    groups: dict[tuple[str, str], _GroupColumns] = {}
    owners: dict[str, _Owners] = {}
    ordered = sorted(
        events,
        key=lambda e: (e["group"], not e.get("old"), e["log_partition"], e["log_offset"]),
    )
    for event in ordered:
        name, own = event["group"], owners.setdefault(event["group"], _Owners())
        if event["type"] == RELEASED:
            own.last = event
            own.released = {(where, p): tuple(rest) for where, p, *rest in event["value"]}
        if event["type"] not in BY_RECORD:
            continue
        kind, records = BY_RECORD[event["type"]]
        group = groups.setdefault((name, kind.group_type), _GroupColumns())
        known = _log_position(event) <= reported.get(name, (-1, -1))
        if _apply(group, records, event, topic_names) and not known:
            _append(rows, group, kind, event)
        if event["type"] == records.topology:
            own.reads = group.reads
        elif records.assigned and event["type"] in (records.epoch, records.current):
            own.last = event
            if event["type"] == records.current:
                _current(own, records, event, out)
            elif event["value"] is None:
                own.members_now, own.released = {}, {}
    for own in owners.values():
        _keep(own, out)
    gens = Generations(
        head=pa.Table.from_pylist(rows.head, schema=HEAD),
        members=pa.Table.from_pylist(rows.members, schema=MEMBER_ROWS),
        owned=pa.Table.from_pylist(rows.owned, schema=OWNED_ROWS),
    )
    return gens.sorted(), out


def _log_position(event: ConsumerGroupEvent) -> tuple[int, int]:
    return int(event["log_partition"]), int(event["log_offset"])


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
        group.reads = _topics_read(value)
    elif record_type == records.epoch:
        return value is None or not group.members
    elif record_type == records.target_epoch:
        return value is not None and bool(group.members)
    return False


def _given(records: EpochRecords, value: Any, topic_names: Mapping[str, str]) -> Given:
    """Return a target assignment by role and topic, sorted; empty for a tombstone."""
    if value is None:
        return []
    return sorted(
        (
            role,
            topic_names.get(part[records.parent], part[records.parent]),
            sorted(part["partitions"]),
        )
        for name, role in records.roles.items()
        for part in value[name]
    )


def _topics_read(value: Any) -> dict[str, list[str]]:
    """Return the topics that each subtopology reads, sorted; empty for a tombstone."""
    parts = () if value is None else value["subtopologies"]
    return {
        part["subtopologyId"]: sorted(
            {*part["sourceTopics"], *(topic["name"] for topic in part["repartitionSourceTopics"])}
        )
        for part in parts
    }


def _sources(given: Given, reads: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """Return what a member reads for its active tasks, as rows; no reader if it is shared."""
    tasks = [(where, numbers) for role, where, numbers in given if role == ACTIVE]
    numbers: dict[str, set[int]] = {}
    readers: dict[str, set[str]] = {}
    for where, partitions in tasks:
        for topic in reads.get(where, ()):
            numbers.setdefault(topic, set()).update(partitions)
            readers.setdefault(topic, set()).add(where)
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
            where = {"topic": topic, "partitions": partitions, "role": role}
            rows.owned.append({"member": len(rows.members), **where})
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
                "rebalance_timeout_ms": member.get("rebalanceTimeoutMs") or None,  # 0: unknown
                "session_timeout_ms": None,
                # The broker resolves a regular expression; its records do not contain the topics.
                "subscribed_topics": None
                if member.get("subscribedTopicRegex")
                else member.get("subscribedTopicNames", topics),
                "n_claimed": 0,
                "readable": True,
            }
        )


def _current(
    own: _Owners, records: EpochRecords, event: ConsumerGroupEvent, out: Reconciled
) -> None:
    """Take in one record of a member's current assignment."""
    member, value, at = event["member_id"], event["value"], int(event["timestamp"])
    seen, assigned, pending = own.members_now.pop(member, (at, set(), set()))
    out.since.setdefault(event["group"], (-1, -1) if event.get("old") else _log_position(event))
    now = _tps(value, records, records.assigned)
    still = now | _tps(value, records, records.pending)
    if event.get("old"):
        own.members_now[member] = (at, now, still - now)
        return
    for tp in sorted((assigned | pending) - still):
        if not any(tp in a for _, a, _ in own.members_now.values()):
            own.released[tp] = (seen, at, int(event["log_offset"]))
    for tp in sorted(now - assigned):
        if tp in own.released:
            seen_us, since_us, log_offset = own.released.pop(tp)
            gap = {
                "generation": value["memberEpoch"],
                "gap_lower_seconds": max(at - since_us, 0) / 1e6,
                "unowned_since": since_us,
                "last_seen": seen_us,
                "timestamp": at,
                "basis": RECONCILED,
                "log_offset": log_offset,
            }
            out.gaps.append(gap | _where(own, event["group"], tp, out))
    if value is not None:
        own.members_now[member] = (at, now, still - now)


def _where(own: _Owners, group: str, tp: Tp, out: Reconciled) -> dict[str, Any]:
    topic, partition = tp
    return {
        "group": group,
        "topic": out.topic_names.get(topic, topic),
        "partitions": [partition],
        "reads": own.reads.get(topic),
    }


def _tps(value: Any, records: EpochRecords, name: str) -> set[Tp]:
    if value is None:
        return set()
    return {(part[records.parent], p) for part in value[name] for p in part["partitions"]}


def _keep(own: _Owners, out: Reconciled) -> None:
    """Record what a group's members revoked and no member has taken."""
    if (last := own.last) is None:
        return
    kept = sorted(own.released.items())
    for tp, (*_, log_offset) in kept:
        where = _where(own, last["group"], tp, out)
        out.open.append({**where, "basis": OPEN, "log_offset": log_offset})
    value = [[*tp, *release] for tp, release in kept]
    out.released.append({**last, "type": RELEASED, "member_id": "", "value": value})


_OLD_PROTOCOL: Final = "classicMemberMetadata"
"""Member data of the classic protocol: unused, and a stream would keep its bytes."""


class ConsumerGroupEvent(TypedDict):
    """One record of a KIP-848, share or streams group, fit for JSON.

    A stream keeps the events that still count.
    """

    type: int
    """A RecordType, or RELEASED of :mod:`holdfast.fleet.pipeline.history.consumer_groups`."""
    group: str
    member_id: str
    """Empty in a record about the whole group."""
    value: Any
    """Fields by Kafka's names; None in a tombstone."""
    timestamp: int
    """Microseconds since 1970."""
    log_partition: int
    log_offset: int
    old: NotRequired[bool]
    """An earlier batch has reported it."""


def group_events(batch: pa.RecordBatch, record_type: RecordType) -> Iterator[ConsumerGroupEvent]:
    """Yield records of one type of KIP-848, share groups or Streams groups.

    Ids are text. An absent tagged struct is None.

    References: KIP-848, KIP-932, KIP-1071.
    """
    for family in families(batch, (record_type,)):
        position = log_positions(batch, family.rows)
        position["timestamp"] = position["timestamp"].cast(pa.int64())
        said = {name: one for name, one in family.value.items() if name != _OLD_PROTOCOL}
        values: Sequence[Any] = _structs(said) if said else [None] * len(family)
        positions = pa.table(position).to_pylist()
        for key, value, where in zip(_structs(family.key), values, positions, strict=True):
            yield ConsumerGroupEvent(
                type=record_type,
                group=key["groupId"],
                member_id=key.get("memberId", ""),
                value=value,
                timestamp=where["timestamp"],
                log_partition=where["log_partition"],
                log_offset=where["log_offset"],
            )


def _structs(columns: Columns) -> list[dict[str, Any]]:
    rows = zip(*map(_values, columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _values(column: Column) -> Any:
    """Return a decoder's column as a list of Python values; no such record has bytes."""
    match column:
        case Numbers():
            return column.values.tolist()
        case Ids():
            return id_text(column.values).to_pylist()
        case Items():
            inner = column.columns
            flat = _values(inner[""]) if "" in inner else _structs(inner)
            rows = [flat[begin:end] for begin, end in pairwise(column.start.tolist())]
            there = [True] * len(rows) if column.valid is None else column.valid.tolist()
            return [row if is_there else None for row, is_there in zip(rows, there, strict=True)]
        case Optional():
            structs = _structs(column.columns)
            return [structs[i] if i >= 0 else None for i in column.index.tolist()]
        case _:
            return text(column).to_pylist()
