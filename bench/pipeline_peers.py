"""The stages without holdfast, for comparison: Spark SQL, and Python record by record.

Each function takes a session, a dump and a folder, and writes its stage's table as Parquet: fewer
columns, no bad records, one version of each record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.pipeline.steps import plain_reader
from holdfast.fleet.tables.columns.schemas import ddl_of

COMMITS = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("commit_timestamp", pa.timestamp("us", "UTC")),
    ]
)
ASSIGNMENTS = pa.schema(
    [
        ("group", pa.string()),
        ("generation", pa.int32()),
        ("member_id", pa.string()),
        ("topic", pa.string()),
        ("partitions", pa.list_(pa.int32())),
    ]
)

# Version 4 of the value: offset at 3, leader epoch at 11, metadata (compact) at 15, then the time.
SQL = """
with lengths as (
  select *, cast(conv(hex(substring(key, 3, 2)), 16, 10) as int) as g from records
), topics as (
  select *, cast(conv(hex(substring(key, 5 + g, 2)), 16, 10) as int) as t from lengths
), metadata as (
  select *, cast(conv(hex(substring(value, 15, 1)), 16, 10) as int) as m from topics
)
select decode(substring(key, 5, g), 'UTF-8') as `group`,
  decode(substring(key, 7 + g, t), 'UTF-8') as topic,
  cast(conv(hex(substring(key, 7 + g + t, 4)), 16, -10) as int) as partition,
  cast(conv(hex(substring(value, 3, 8)), 16, -10) as bigint) as offset,
  timestamp_millis(cast(conv(hex(substring(value, 15 + m, 8)), 16, -10) as bigint))
    as commit_timestamp
from metadata
"""


def commits_by_sql(spark: Any, dump: Dump, out: Path) -> None:
    """Decode commits by Spark SQL over the bytes: the JVM reads, decodes and writes."""
    _records(spark, dump).createOrReplaceTempView("records")
    spark.sql(SQL).write.mode("overwrite").parquet(str(out / "commits"))


def _records(spark: Any, dump: Dump) -> Any:
    """Return records as Spark itself reads them."""
    return plain_reader(spark).parquet(*[str(file) for file in dump.record_files()])


def commits_by_struct(spark: Any, dump: Dump, out: Path) -> None:
    """Decode each record by ``struct.unpack``, in ``mapInArrow``."""
    frame = (
        _records(spark, dump).select("key", "value").mapInArrow(_unpack_commits, ddl_of(COMMITS))
    )
    frame.write.mode("overwrite").parquet(str(out / "commits"))


def _unpack_commits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return _each(batches, _commit, COMMITS)


def _each(
    batches: Iterator[pa.RecordBatch],
    read: Callable[[bytes, bytes], Iterator[tuple[Any, ...]]],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each record, one record after the other."""
    for batch in batches:
        pairs = zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
        columns = zip(*(row for key, value in pairs for row in read(key, value)), strict=True)
        arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _commit(key: bytes, value: bytes) -> Iterator[tuple[Any, ...]]:
    (size,) = struct.unpack_from(">h", key, 2)
    group = key[4 : 4 + size].decode()
    at = 4 + size
    (size,) = struct.unpack_from(">h", key, at)
    topic = key[at + 2 : at + 2 + size].decode()
    (partition,) = struct.unpack_from(">i", key, at + 2 + size)
    (offset,) = struct.unpack_from(">q", value, 2)
    (time,) = struct.unpack_from(">q", value, 14 + value[14])
    yield group, topic, partition, offset, time * 1000


def assignments_by_kafka_python(spark: Any, dump: Dump, out: Path) -> None:
    """Decode records by ``struct``, and assignments by kafka-python's own classes."""
    frame = (
        _records(spark, dump).select("key", "value").mapInArrow(_read_groups, ddl_of(ASSIGNMENTS))
    )
    frame.write.mode("overwrite").parquet(str(out / "assignments"))


def _read_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    def generation(key: bytes, value: bytes) -> Iterator[tuple[Any, ...]]:
        group = key[4:].decode()
        number, members = _members(value)
        for member_id, given in members:
            for part in ConsumerProtocolAssignment.decode(given).assigned_partitions:
                yield group, number, member_id, part.topic, list(part.partitions)

    return _each(batches, generation, ASSIGNMENTS)


def _members(value: bytes) -> tuple[int, list[tuple[str, bytes]]]:
    """Return generation and (member id, assignment) pairs of GroupMetadataValue version 3."""
    at = 2

    def sized(form: str) -> bytes:
        nonlocal at
        (size,) = struct.unpack_from(form, value, at)
        at += struct.calcsize(form)
        found = value[at : at + max(size, 0)]
        at += max(size, 0)
        return found

    sized(">h")  # protocol type
    (generation,) = struct.unpack_from(">i", value, at)
    at += 4
    sized(">h"), sized(">h")  # protocol, leader
    at += 8  # time of the state
    (n_members,) = struct.unpack_from(">i", value, at)
    at += 4
    found = []
    for _ in range(n_members):
        member_id = sized(">h").decode()
        sized(">h"), sized(">h"), sized(">h")  # instance id, client id, host
        at += 8  # two timeouts
        sized(">i")  # subscription
        found.append((member_id, sized(">i")))
    return generation, found


PEERS = {
    "commits-by-spark-sql": commits_by_sql,
    "commits-by-struct": commits_by_struct,
    "assignments-by-kafka-python": assignments_by_kafka_python,
}
