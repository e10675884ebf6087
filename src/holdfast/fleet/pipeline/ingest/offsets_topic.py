"""The offsets topic of a live cluster: what is asked of the cluster, and records span by span.

**Rules.** The topic is read by ``assign``, never by ``subscribe``: that would make Spark join a
group and write into the very topic it reads. Isolation is ``read_committed``, or aborted
transactional commits would look committed. A batch of a stream begins where the one before it
ended, by the notes of that batch, which were committed with its rows. A topic that ends before that
is another topic: nothing is read from it.

**Strategy.** A span is cut into the same share for every partition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast.errors import SourceError
from holdfast.fleet.tables.folder.manifest import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.cluster.cluster import LiveCluster

OFFSETS_TOPIC: Final = "__consumer_offsets"

SETTING: Final = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"

OFFSETS: Final = "offsets"
"""Note of a batch: where it ends, as JSON has it."""

Offsets: TypeAlias = Mapping[int, int]
"""Partition -> offset of the next record."""

Span: TypeAlias = Mapping[int, tuple[int, int]]
"""Partition -> first offset, and the one behind the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaFeed:
    """The offsets topic of a live cluster: partitions, each in the order of its offsets."""

    spark: SparkSession
    cluster: LiveCluster

    def ends(self) -> Span:
        """Where each partition begins and ends now."""
        return self.cluster.partition_ends(OFFSETS_TOPIC)

    def records(self, span: Span) -> DataFrame:
        """partition, offset, timestamp, key, value of a span."""
        return kafka_records(self.spark, self.cluster, span)


def kafka_records(
    spark: SparkSession, cluster: LiveCluster, ends: Mapping[int, tuple[int, int]]
) -> DataFrame:
    """The offsets topic up to ``ends``: one partition of Spark for each partition of Kafka."""
    reader = spark.read.format("kafka")
    for key, value in kafka_options(cluster, sorted(ends)).items():
        reader = reader.option(key, value)
    begin = {str(p): first for p, (first, _) in sorted(ends.items())}
    end = {str(p): last for p, (_, last) in sorted(ends.items())}
    reader = reader.option("startingOffsets", json.dumps({OFFSETS_TOPIC: begin}))
    reader = reader.option("endingOffsets", json.dumps({OFFSETS_TOPIC: end}))
    return reader.load().select("partition", "offset", "timestamp", "key", "value")


def kafka_options(cluster: LiveCluster, partitions: Sequence[int]) -> dict[str, str]:
    """Options of Spark's Kafka source, for batch and streaming; those of the cluster win.

    Spark asks for the ends of a partition on the connection where the consumer's next fetch waits
    for records already, by default half a second: 13.5 s for 50 partitions of 30 records on two
    cores, and 1.5 s with the wait that is set here.
    """
    return {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "assign": json.dumps({OFFSETS_TOPIC: list(partitions)}),
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.wait.ms": "10",
        "failOnDataLoss": "false",
        **{f"kafka.{key}": value for key, value in cluster.spark_options.items()},
    }


def check_session(spark: SparkSession) -> None:
    """Refuse a session by whose settings nothing of the offsets topic is read, with no error."""
    if (spark.conf.get(SETTING, None) or "").lower() != "true":
        raise SourceError(
            f"Spark would read nothing from {OFFSETS_TOPIC}: {SETTING} must be true for this "
            "session"
        )


def next_span(done: Offsets, ends: Span, most: int | None) -> dict[int, tuple[int, int]]:
    """What the next batch takes; nothing where there is nothing new.

    Parameters
    ----------
    done : mapping
        Where the batch before ended; a partition that is not there is read from its beginning.
    most : int, optional
        Offsets of a batch, about; each partition with new records gives one at least.

    Raises
    ------
    SourceError
        A partition ends before the batch before did.
    """
    span = {}
    for partition, (first, end) in sorted(ends.items()):
        begin = done.get(partition, first)
        if begin > end:
            raise SourceError(
                f"partition {partition} of the topic ends at {end}, but this folder has read up to "
                f"{begin}: it follows another cluster, or the topic was made anew; name a new "
                "folder"
            )
        span[partition] = (min(max(begin, first), end), end)
    total = n_offsets(span)
    if not total:
        return {}
    if most is not None and total > most:
        span = {
            p: (b, b + min(e - b, max(1, (e - b) * most // total))) for p, (b, e) in span.items()
        }
    return span


def n_offsets(span: Span) -> int:
    """Offsets of a span: its records, where none was compacted away."""
    return sum(end - begin for begin, end in span.values())


def as_note(upto: Offsets) -> dict[str, int]:
    """Ends as a batch's note has them."""
    return {str(partition): end for partition, end in sorted(upto.items())}


def ends_of_batch(batch: Batch) -> dict[int, int] | None:
    """Where a batch ended, by its notes; None where it is not a stream's."""
    found = batch.notes.get(OFFSETS)
    return None if found is None else {int(partition): int(end) for partition, end in found.items()}
