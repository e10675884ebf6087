"""The coordinators' own records: the offsets topic, of one group or of all, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from holdfast.core.wire.layouts.consumer_protocol import decode_assignment
from holdfast.core.wire.layouts.offsets_records import decode_key, decode_record
from holdfast.core.wire.layouts.record_size import batch_bytes

OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(frozen=True)
class Generation:
    """A finished round; ``owned`` is client id -> partitions of the topic by its assignment."""

    number: int
    leader: str
    owned: dict[str, set[int]]


@dataclass(frozen=True)
class Commit:
    """One committed offset, and the name that signed it."""

    partition: int
    offset: int
    signed: str


def read_group(bootstrap: str, group: str, topic: str) -> list[Generation | Commit]:
    """Every finished round and every commit of a group, as the coordinator ordered them."""
    return [found for one in _records(bootstrap) if (found := _read(one, group, topic))]


def leaders(bootstrap: str, group: str, topic: str) -> set[str]:
    """Client ids of the members that led a round."""
    log = read_group(bootstrap, group, topic)
    return {entry.leader for entry in log if isinstance(entry, Generation) and entry.owned}


def group_sizes(bootstrap: str, group: str) -> list[int]:
    """Bytes of the batch of each group record of a group, as its broker compares them."""
    sizes = []
    for one in _records(bootstrap):
        key, value = one.key(), one.value()
        found = decode_key(key)
        if found.name == "GroupMetadata" and found.key["group"] == group and value is not None:
            sizes.append(batch_bytes(len(key or b""), len(value)))
    return sizes


def columns_of(bootstrap: str) -> dict[str, list[Any]]:
    """Columns of the whole offsets topic, for a dump."""
    rows = sorted(
        (one.partition(), one.offset(), one.timestamp()[1] * 1000, one.key(), one.value())
        for one in _records(bootstrap)
    )
    names = ("partition", "offset", "timestamp", "key", "value")
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _records(bootstrap: str) -> Iterator[Message]:
    """All of the topic up to now, of aborted transactions, too; a group's are in one partition."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"unused-{uuid4().hex}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )
    try:
        n = len(reader.list_topics(OFFSETS_TOPIC, timeout=60).topics[OFFSETS_TOPIC].partitions)
        every = [TopicPartition(OFFSETS_TOPIC, p, OFFSET_BEGINNING) for p in range(n)]
        # A log that grows all the time has no end: librdkafka reports one when a fetch finds none.
        ends = {one.partition: reader.get_watermark_offsets(one)[1] for one in every}
        reader.assign(every)
        unfinished = {partition for partition, end in ends.items() if end}
        while unfinished:
            for message in reader.consume(1000, 0.2):
                error, partition = message.error(), message.partition()
                assert error is None or error.code() == KafkaError._PARTITION_EOF, error
                if error is None and message.offset() < ends[partition]:
                    yield message
                if error is not None or message.offset() + 1 >= ends[partition]:
                    unfinished.discard(partition)
    finally:
        reader.close()


def _read(record: Message, group: str, topic: str) -> Generation | Commit | None:
    found = decode_record(record.key(), record.value())
    if found.value is None or found.key.get("group") != group:
        return None
    if found.name == "OffsetCommit" and found.key["topic"] == topic:
        return Commit(found.key["partition"], found.value["offset"], found.value["metadata"])
    if found.name == "GroupMetadata":
        members = found.value["members"]
        names = {member["memberId"]: member["clientId"] for member in members}
        owned = {m["clientId"]: _partitions(m["assignment"], topic) for m in members}
        leader = names.get(found.value["leader"], "")
        return Generation(found.value["generation"], leader, owned)
    return None


def _partitions(assignment: bytes | None, topic: str) -> set[int]:
    if not assignment:
        return set()
    by_topic = dict(decode_assignment(assignment).partitions)
    return set(by_topic.get(topic, ()))
