"""Records of the offsets topic, made of what coordinators answer about groups.

**Rules.** An answer does not say which generation of a classic group it describes, nor the
time-outs of members: the caller counts generations, and a time-out is 0, which means unknown. A
classic member without the bytes of its subscription subscribes to every topic of which any member
was given a partition. A topic that was deleted is named by its id.

References: KIP-848, "Records"; KIP-932; KIP-1071.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast.cluster.snapshot import EPOCH_RECORDS, Fields, GroupEpochs, SeenMember
from holdfast.core.kinds import CONSUMER_PROTOCOL, GroupType
from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.layouts.offsets_records import Record, encode_record
from holdfast.core.wire.layouts.offsets_schemas import RecordType

KeyValue = tuple[bytes, bytes | None]
"""Key and value of a record; no value: a tombstone."""

CLASSIC_VERSION = 3  # of the values of classic groups: the newest one without tagged fields


def generation_record(
    group: str,
    generation: int,
    members: Iterable[SeenMember],
    at_ms: int,
    *,
    protocol: str | None = None,
    protocol_type: str = CONSUMER_PROTOCOL,
    messages: Mapping[str, tuple[bytes, bytes]] | None = None,
) -> KeyValue:
    """Return the record of one generation of a classic group.

    ``messages`` has the subscription and the assignment of members, where they are known.
    """
    found = tuple(members)
    topics = tuple(sorted({topic for one in found for topic, _ in one.partitions}))
    known = messages or {}
    value = {
        "protocolType": protocol_type,
        "generation": generation,
        "protocol": protocol,
        "leader": None,
        "currentStateTimestamp": at_ms,
        "members": [_member(one, known.get(one.member_id) or _made(one, topics)) for one in found],
    }
    return encoded(RecordType.GROUP_METADATA, {"group": group}, value, CLASSIC_VERSION)


def deleted_group(group: str) -> KeyValue:
    """Return the tombstone of a classic group."""
    return encoded(RecordType.GROUP_METADATA, {"group": group}, None)


def commit_record(
    group: str, topic: str, partition: int, offset: int | None, at_ms: int, *, metadata: str = ""
) -> KeyValue:
    """Return the record of a commit; without an offset the tombstone of one."""
    key = {"group": group, "topic": topic, "partition": partition}
    value = {"offset": offset, "leaderEpoch": -1, "metadata": metadata, "commitTimestamp": at_ms}
    said = None if offset is None else value
    return encoded(RecordType.OFFSET_COMMIT, key, said, CLASSIC_VERSION)


def epoch_records(kind: GroupType, group: str, epochs: GroupEpochs) -> Iterator[KeyValue]:
    """Yield the records of one epoch: members, topology, epoch, and the target assignment.

    A share group's answer has no target: the present assignment of its members is used as one.
    """
    records, key = EPOCH_RECORDS[kind], {"groupId": group}
    for member_id, one in sorted(epochs.members.items()):
        yield encoded(records.member, {**key, "memberId": member_id}, one.metadata)
    if records.topology is not None and epochs.topology is not None:
        yield encoded(records.topology, key, epochs.topology)
    yield encoded(records.epoch, key, {"epoch": epochs.group, "metadataHash": 0})
    if not epochs.members:
        return
    for member_id, one in sorted(epochs.members.items()):
        target = one.assigned if one.target is None else one.target
        yield encoded(records.target, {**key, "memberId": member_id}, target)
    yield encoded(records.target_epoch, key, {"assignmentEpoch": epochs.assignment})


def current_record(kind: GroupType, group: str, member_id: str, value: Fields | None) -> KeyValue:
    """Return the record of what a member has now, or its tombstone.

    ``value`` has ``memberEpoch``, and the lists that an answer reports, those of revocations
    included.
    """
    record, key = EPOCH_RECORDS[kind].current, {"groupId": group, "memberId": member_id}
    if value is None:
        return encoded(record, key, None)
    rest: dict[str, Any] = {"previousMemberEpoch": value["memberEpoch"], "state": 0}
    if kind is GroupType.STREAMS:
        lists = ("standbyTasks", "warmupTasks")
        rest |= {f"{name}PendingRevocation": [] for name in lists}
    return encoded(record, key, {**rest, **value})


def departed_member(kind: GroupType, group: str, member_id: str) -> Iterator[KeyValue]:
    """Yield the tombstones of a member, in a broker's order."""
    records, key = EPOCH_RECORDS[kind], {"groupId": group, "memberId": member_id}
    for record in (records.current, records.target, records.member):
        yield encoded(record, key, None)


def deleted_epochs(kind: GroupType, group: str, members: Iterable[str]) -> Iterator[KeyValue]:
    """Yield the tombstones of a group whose assignments the broker computed."""
    records = EPOCH_RECORDS[kind]
    for member_id in members:
        yield from departed_member(kind, group, member_id)
    for record in (records.target_epoch, records.topology, records.epoch):
        if record is not None:
            yield encoded(record, {"groupId": group}, None)


def _made(one: SeenMember, topics: tuple[str, ...]) -> tuple[bytes, bytes]:
    assignment = AssignmentMessage(partitions=one.partitions)
    return encode_subscription(Subscription(topics=topics)), encode_assignment(assignment)


def _member(one: SeenMember, messages: tuple[bytes, bytes]) -> dict[str, object]:
    subscription, assignment = messages
    return {
        "memberId": one.member_id,
        "groupInstanceId": one.instance_id,
        "clientId": one.client_id,
        "clientHost": one.client_host,
        "rebalanceTimeout": 0,
        "sessionTimeout": 0,
        "subscription": subscription,
        "assignment": assignment,
    }


def encoded(
    kind: RecordType, key: Mapping[str, object], value: Fields | None, version: int = 0
) -> KeyValue:
    """Return the bytes of a record; a WireError if a field does not fit."""
    record = Record(
        record_type=kind,
        name=kind.schema_name,
        key={**key},
        value_version=None if value is None else version,
        value=None if value is None else {**value},
    )
    return encode_record(record)
