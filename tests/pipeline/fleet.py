"""A fleet with known truth as records of the offsets topic, and as a dump."""

from __future__ import annotations

import json
import uuid

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.core.wire.layouts.consumer_protocol import (
    AssignmentMessage,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.core.wire.layouts.offsets_records import Record, encode_record
from holdfast.core.wire.layouts.offsets_schemas import RECORD_SCHEMAS
from holdfast.fleet.pipeline.ingest.dump import part_of

NAMESPACE = uuid.UUID(int=7)
PARTITIONS = 50


def topic_id(topic):
    return uuid.uuid5(NAMESPACE, repr(topic))


def log_partition(group):
    """Kafka's own: abs(String.hashCode) % 50 (any fixed choice would do)."""
    code = 0
    for unit in group.encode("utf-16-be"):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code % PARTITIONS


def record(number, version, key, value):
    name = RECORD_SCHEMAS[number].name
    return encode_record(
        Record(record_type=number, name=name, value_version=version, key=key, value=value)
    )


def commit(group, topic, partition, offset, *, at, version=4, expire=None, metadata=""):
    """A commit at second ``at``; ``offset`` None is a tombstone."""
    key = {"group": group, "topic": topic, "partition": partition}
    if offset is None:
        return record(1, None, key, None)
    value = {"offset": offset, "metadata": metadata, "commitTimestamp": int(at * 1000)}
    if version >= 3:
        value["leaderEpoch"] = 0
    if version == 1:
        value["expireTimestamp"] = int((expire or at) * 1000)
    if version == 4:
        value["topicId"] = topic_id(topic)
    return record(1, version, key, value)


COLUMN_OF = {
    "groupInstanceId": "group_instance_id",
    "clientId": "client_id",
    "clientHost": "client_host",
    "rebalanceTimeout": "rebalance_timeout_ms",
    "sessionTimeout": "session_timeout_ms",
}


def member(member_id, subscription=b"", assignment=b"", **fields):
    """A member in the record of a classic group, and other values of these fields."""
    return {
        "memberId": member_id,
        "groupInstanceId": None,
        "clientId": member_id.split("-")[0],
        "clientHost": "/10.0.0.1",
        "rebalanceTimeout": 60_000,
        "sessionTimeout": 10_000,
        "subscription": subscription,
        "assignment": assignment,
        **fields,
    }


def generation_value(number, members, **fields):
    """The value of such a record, and other values of these fields."""
    return {
        "protocolType": "consumer",
        "generation": number,
        "protocol": "range",
        "leader": members[0]["memberId"] if members else None,
        "currentStateTimestamp": 0,
        "members": tuple(members),
        **fields,
    }


def classic(g):
    """A generation of :func:`tests.pipeline.histories.generation` as a record."""
    if g["state"] == "Dead":
        return record(2, None, {"group": g["group"]}, None)
    members = []
    for member_id, value in sorted(g["members"].items()):
        extra, topics = value if isinstance(value, tuple) else ({}, value)
        owned = [(topic, tuple(ps)) for topic, ps in topics.items()]
        asked = Subscription(
            version=1, topics=tuple(sorted(topics)), user_data=None, owned=(), generation=-1
        )
        given = AssignmentMessage(version=1, partitions=tuple(owned), user_data=None)
        said = {name: extra[column] for name, column in COLUMN_OF.items() if column in extra}
        members.append(
            member(member_id, encode_subscription(asked), encode_assignment(given), **said)
        )
    value = generation_value(
        g["generation"],
        members,
        protocol=g["protocol"] if members else None,
        leader=g["leader"],
        currentStateTimestamp=int(g["timestamp"] * 1000),
    )
    return record(2, 3, {"group": g["group"]}, value)


def classics(history):
    """Generations as records of a dump."""
    return [(g["group"], g["timestamp"], classic(g)) for g in history]


def consumer_member(group, member_id, topics, *, instance=None, classic=None):
    value = {
        "instanceId": instance,
        "rackId": None,
        "clientId": member_id.split("-")[0],
        "clientHost": "/10.0.0.1",
        "subscribedTopicNames": tuple(topics),
        "subscribedTopicRegex": None,
        "rebalanceTimeoutMs": 45_000,
        "serverAssignor": None,
        "classicMemberMetadata": classic,
    }
    return record(5, 0, {"groupId": group, "memberId": member_id}, value)


def consumer_target(group, member_id, topics):
    parts = tuple(
        {"topicId": topic_id(topic), "partitions": tuple(ps)} for topic, ps in topics.items()
    )
    return record(7, 0, {"groupId": group, "memberId": member_id}, {"topicPartitions": parts})


def consumer_current(group, member_id, epoch, topics, *, pending=None, state=0):
    """What a member works on, and what it is asked to give up."""

    def parts(of):
        return tuple(
            {"topicId": topic_id(topic), "partitions": tuple(ps), "assignmentEpochs": None}
            for topic, ps in (of or {}).items()
        )

    value = {
        "memberEpoch": epoch,
        "previousMemberEpoch": max(epoch - 1, 0),
        "state": state,
        "assignedPartitions": parts(topics),
        "partitionsPendingRevocation": parts(pending),
    }
    return record(8, 0, {"groupId": group, "memberId": member_id}, value)


def consumer_epoch(group, epoch):
    return record(3, 0, {"groupId": group}, {"epoch": epoch, "metadataHash": 0})


def assignment_epoch(group, epoch):
    value = {"assignmentEpoch": epoch, "assignmentTimestamp": 0}
    return record(6, 0, {"groupId": group}, value)


def tombstone(number, group, member_id=None):
    key = {"groupId": group} | ({} if member_id is None else {"memberId": member_id})
    return record(number, None, key, None)


def write_dump(
    folder,
    records,
    *,
    topics=(),
    offsets=(),
    files=1,
    complete=True,
    taken_at="2026-01-01T00:00:00Z",
):
    """``records`` are (group, second, (key, value)); ``topics`` (name, partitions)."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, heads = [], {}
    for group, at, (key, value) in records:
        partition = log_partition(group)
        rows.append((partition, heads.get(partition, 0), int(at * 1e6), key, value))
        heads[partition] = heads.get(partition, 0) + 1
    table = part_of("records", rows)
    (folder / "records").mkdir(exist_ok=True)
    step = -(-max(len(table), 1) // files)
    for i in range(files):
        pq.write_table(table.slice(i * step, step), folder / "records" / f"{i}.parquet")
    named = [(str(topic_id(t)), t, n) for t, n in topics]
    write_part(folder, "topics", named)
    log = [("__consumer_offsets", p, 0, n) for p, n in sorted(heads.items())]
    write_part(folder, "offsets", [*offsets, *log])
    if complete:
        document = {"schema_version": 1, "cluster_id": "c", "taken_at": taken_at}
        (folder / "dump.json").write_text(json.dumps(document))
    return folder


def record_batch(rows):
    """Records as one batch: (log partition, offset, microseconds, key, value) each."""
    found = part_of("records", rows)
    columns = [column.combine_chunks() for column in found.columns]
    return pa.RecordBatch.from_arrays(columns, schema=found.schema)


def write_part(folder, name, rows):
    """A part of a dump of these rows, times in microseconds."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    pq.write_table(part_of(name, rows), folder / name / "0.parquet")
