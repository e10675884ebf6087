"""Records of ``__share_group_state``: a share group's progress in a partition, for reading.

======  ==================  ==============================================================
type    record              value (version 0, flexible)
======  ==================  ==============================================================
0       ShareSnapshot       SnapshotEpoch, StateEpoch, LeaderEpoch int32, StartOffset
                            int64, CreateTimestamp, WriteTimestamp int64, StateBatches,
                            tag 0 DeliveryCompleteCount int32
1       ShareUpdate         SnapshotEpoch, LeaderEpoch int32, StartOffset int64,
                            StateBatches, tag 0 DeliveryCompleteCount
======  ==================  ==============================================================

The key is an int16 type, then ``GroupId string, TopicId uuid, Partition int32``. A state batch is
``FirstOffset, LastOffset int64, DeliveryState int8, DeliveryCount int16``.

**Rules.** A start offset of -1 in an update changes nothing. A count of -1, and a count that was
not written, means that the broker does not know it. A record without a value deletes the state.

References: KIP-932; KIP-1226 (the count, from which the broker computes the lag).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.core.wire.one.reader import Reader
from holdfast.core.wire.one.topic_ids import read_topic_id, topic_id_text
from holdfast.core.wire.one.writer import Writer
from holdfast.errors import Reason

SNAPSHOT, UPDATE = 0, 1
_BATCH_MIN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """One record."""

    # The group's name, and the topic's id as Kafka's tools write it.
    group: str
    topic_id: str
    partition: int  # of the topic
    is_update: bool  # whether the record changes an earlier record, in place of replacing it
    # First offset that is not completed; -1 not known, or not changed. None: deleted.
    start_offset: int | None
    # Offsets from ``start_offset`` on whose delivery is complete; -1 not known.
    n_delivered: int = -1


def decode_share_state(key: bytes, value: bytes | None) -> ShareState:
    """Read a record."""
    reader = Reader(key, "ShareStateKey", 0)
    kind = reader.int16("type")
    if kind not in (SNAPSHOT, UPDATE):
        reader.fail(Reason.UNKNOWN_TYPE, "type", 0, str(kind))
    group, topic_id = reader.string("groupId"), topic_id_text(reader.uuid("topicId"))
    partition = reader.int32("partition")
    start, delivered = (None, -1) if value is None else _value(value, kind)
    return ShareState(
        group=group,
        topic_id=topic_id,
        partition=partition,
        is_update=kind == UPDATE,
        start_offset=start,
        n_delivered=delivered,
    )


def encode_share_snapshot(state: ShareState) -> tuple[bytes, bytes]:
    """Write the key and the value of a snapshot without batches."""
    key, value = Writer("ShareStateKey", 0), Writer("ShareSnapshotValue", 0)
    key.int16(SNAPSHOT, "type")
    key.string(state.group, "groupId")
    key.uuid(read_topic_id(state.topic_id))
    key.int32(state.partition, "partition")
    value.int16(0, "version")
    for name in ("snapshotEpoch", "stateEpoch", "leaderEpoch"):
        value.int32(0, name)
    value.int64(-1 if state.start_offset is None else state.start_offset, "startOffset")
    for name in ("createTimestamp", "writeTimestamp"):
        value.int64(0, name)
    value.compact_array((), "stateBatches", lambda *_: None)
    count = "deliveryCompleteCount"
    value.tagged([(0, count, lambda inner: inner.int32(state.n_delivered, count))])
    return key.done(), value.done()


def _value(value: bytes, kind: int) -> tuple[int, int]:
    """Return the start offset and the number of delivered offsets."""
    reader = Reader(value, "ShareUpdateValue" if kind == UPDATE else "ShareSnapshotValue")
    version = reader.int16("version")
    if version != 0:
        reader.fail(Reason.BAD_VERSION, "version", 0, str(version))
    reader.version = version
    reader.int32("snapshotEpoch")
    if kind == SNAPSHOT:
        reader.int32("stateEpoch")
    reader.int32("leaderEpoch")
    start = reader.int64("startOffset")
    if kind == SNAPSHOT:
        reader.int64("createTimestamp")
        reader.int64("writeTimestamp")
    reader.compact_array("stateBatches", _skip_batch, _BATCH_MIN)
    found = {0: -1}

    def count(inner: Reader) -> None:
        found[0] = inner.int32("deliveryCompleteCount")

    reader.tagged({0: ("deliveryCompleteCount", count)})
    return start, found[0]


def _skip_batch(reader: Reader) -> None:
    reader.int64("firstOffset")
    reader.int64("lastOffset")
    reader.int8("deliveryState")
    reader.int16("deliveryCount")
    reader.tagged({})
