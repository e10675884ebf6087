"""The parts of a dump: the offsets topic, the cluster's topics and their offsets."""

from __future__ import annotations

from holdfast.fleet.tables.columns.definition import Column, DType, Table

_S, _I, _L, _T = DType.STRING, DType.INT32, DType.INT64, DType.TIMESTAMP

RECORDS = Table(
    name="records",
    doc="Records of the offsets topic: part of a dump.",
    columns=(
        Column("partition", _I, "partition of that topic"),
        Column("offset", _L, "offset in it"),
        Column("timestamp", _T, "time of the record"),
        Column("key", DType.BINARY, "key", nullable=True),
        Column("value", DType.BINARY, "value; null for a tombstone", nullable=True),
    ),
    order=("partition", "offset"),
)

SHARE_STATE = Table(
    name="share_state",
    doc="Records of __share_group_state: part of a dump of a cluster that has it.",
    columns=RECORDS.columns,
    order=("partition", "offset"),
)

DELETED = Table(
    name="deleted",
    doc="Tombstones that compaction has deleted, at positions of ours: part of a merged dump.",
    columns=RECORDS.columns,
    order=("partition", "offset", "key"),
)

TOPICS = Table(
    name="topics",
    doc="Topics of the cluster with their ids: part of a dump.",
    columns=(
        Column("topic_id", _S, "22 characters of base64url, as Kafka's tools show it"),
        Column("topic", _S, "name"),
        Column("partitions", _I, "number of partitions", "partitions"),
    ),
    order=("topic",),
)

OFFSETS = Table(
    name="offsets",
    doc="Begin and end offsets of every partition, read after the records: part of a dump.",
    columns=(
        Column("topic", _S, "topic"),
        Column("partition", _I, "partition of the topic"),
        Column("begin_offset", _L, "first offset"),
        Column("end_offset", _L, "offset of the next record"),
    ),
    order=("topic", "partition"),
)

DUMP_TABLES: dict[str, Table] = {
    table.name: table for table in (RECORDS, SHARE_STATE, DELETED, TOPICS, OFFSETS)
}
