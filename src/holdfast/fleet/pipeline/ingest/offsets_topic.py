"""The offsets topic of a live cluster: end offsets, and records span by span.

**Rules.** The topic is read by ``assign``, never by ``subscribe``: that would make Spark join a
group and write into the very topic it reads. Spark reads up to the last stable offset, with the
isolation ``read_committed``, or aborted transactional commits would look committed. This process
reads the records after that offset (:mod:`holdfast.fleet.pipeline.ingest.topic_reader`). A batch
of a stream begins where the previous one ended, by the notes of that batch, which were committed
with its rows. A topic that ends before that is another topic: nothing is read from it.

**Strategy.** Two readers return a span as the same rows: this process, and Spark where more offsets
are new than ``HERE_ROWS``. The reader of this process also shows offsets without a record. A span
has the same fraction of every partition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.ingest.topic_reader import Span, TopicReader
from holdfast.fleet.pipeline.ingest.transactions import RECORDS, WAITING, OpenTransactions
from holdfast.fleet.pipeline.session import reading
from holdfast.fleet.pipeline.steps import HERE_ROWS, FrameRows, InMemoryRows, Rows, Session
from holdfast.fleet.tables.folder.manifest import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.cluster.cluster import LiveCluster, PartitionEnds

OFFSETS_TOPIC: Final = "__consumer_offsets"

SETTING: Final = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"

OFFSETS: Final = "offsets"
"""Note of a batch: its end offsets, as JSON."""

PART_OFFSETS: Final = 200_000
"""Offsets that this process reads at a time, as one batch of a stream."""

Offsets: TypeAlias = Mapping[int, int]
"""Partition -> offset of the next record."""

LogEnds: TypeAlias = "Mapping[int, PartitionEnds]"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogPart:
    """A part of the log that a batch takes, up to ``upto``.

    ``waiting`` has records of transactions that are open at the end; they are rows of a later part,
    or of none. ``missing_until``: partition -> behind the last of its offsets without a record. For
    offsets that Spark has read this is unknown, and all of them may be missing.
    """

    rows: Rows
    upto: Offsets
    waiting: pa.Table = field(default_factory=WAITING.empty_table)
    missing_until: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaFeed:
    """The offsets topic of a live cluster: partitions, each in the order of its offsets.

    ``session`` reads more than ``most_here`` offsets; if it is None, this process reads all.
    """

    cluster: LiveCluster
    session: Session = None
    most_here: int = HERE_ROWS

    def ends(self) -> LogEnds:
        """Return the present begin, last stable and end offset of each partition."""
        return self.cluster.partition_ends(OFFSETS_TOPIC)

    def needs_spark(self, n_offsets: int) -> bool:
        """Return whether Spark reads so many offsets."""
        return self.session is not None and n_offsets > self.most_here

    def on_spark(self, span: Span) -> LogPart:
        """Return a part before the last stable offset, for Spark to read."""
        assert self.session is not None
        _ = self.cluster.spark_options  # refused before Spark starts, if Java's client lacks them
        spark = self.session()
        check_session(spark)
        with reading(f"{OFFSETS_TOPIC} of {self.cluster.bootstrap}"):
            frame = kafka_records(spark, self.cluster, span)
        upto = {p: end for p, (_, end) in span.items()}
        rows = FrameRows(frame=frame, schema=RECORDS, cost_rows=n_offsets(span))
        return LogPart(rows=rows, upto=upto, missing_until=upto)

    def here(self, span: Span, waiting: pa.Table) -> LogPart:
        """Read a span in this process; ``waiting`` has the waiting records at its begin."""
        with self.reader(waiting) as reader:
            rows = pa.concat_tables([RECORDS.empty_table(), *reader.read(span)])
            return LogPart(
                rows=InMemoryRows(rows=rows, cost_rows=rows.num_rows),
                upto=reader.reached,
                waiting=reader.transactions.table(),
                missing_until=reader.missing_until,
            )

    @contextmanager
    def reader(self, waiting: pa.Table) -> Iterator[TopicReader]:
        """Yield a reader of the topic's log; ``waiting`` has the waiting records at its begin."""
        with self.cluster.connected() as request:
            yield TopicReader(request, OFFSETS_TOPIC, OpenTransactions(waiting))


def kafka_records(spark: SparkSession, cluster: LiveCluster, span: Span) -> DataFrame:
    """Return a frame of a span of the offsets topic: one Spark partition a Kafka partition."""
    reader = spark.read.format("kafka")
    for key, value in kafka_options(cluster, sorted(span)).items():
        reader = reader.option(key, value)
    begin = {str(p): first for p, (first, _) in sorted(span.items())}
    end = {str(p): last for p, (_, last) in sorted(span.items())}
    reader = reader.option("startingOffsets", json.dumps({OFFSETS_TOPIC: begin}))
    reader = reader.option("endingOffsets", json.dumps({OFFSETS_TOPIC: end}))
    return reader.load().select("partition", "offset", "timestamp", "key", "value")


def kafka_options(cluster: LiveCluster, partitions: Sequence[int]) -> dict[str, str]:
    """Return options of Spark's Kafka source, for batch and streaming; those of the cluster win.

    Spark queries the ends of a partition on the connection on which the consumer's next fetch
    already waits for records, by default half a second: 13.5 s for 50 partitions of 30 records on
    two cores, and 1.5 s with the wait that is set here.
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
    """Refuse a session whose settings would read nothing of the offsets topic, with no error."""
    if (spark.conf.get(SETTING, None) or "").lower() != "true":
        raise SourceError(
            f"Spark would read nothing from {OFFSETS_TOPIC}: {SETTING} must be true for this "
            "session"
        )


def next_span(done: Offsets, ends: Span, most: int | None) -> dict[int, tuple[int, int]]:
    """Return the offsets of the next batch; empty without new records.

    ``done`` is the end of the previous batch; a missing partition is read from its beginning.
    ``most`` offsets are about one batch; each partition with new records gives one at least. Raises
    SourceError if a partition ends before the previous batch did.
    """
    span = {}
    for partition, (first, end) in sorted(ends.items()):
        begin = done.get(partition, first)
        if begin > end:
            raise SourceError(
                f"partition {partition} of the topic ends at {end}, but this folder has read up to "
                f"{begin}: it follows another cluster, or the topic was recreated; name a new "
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


def spans(
    done: Offsets,
    ends: LogEnds,
    waiting: pa.Table,
    most: int | None,
    needs_spark: Callable[[int], bool] = lambda _: False,
) -> tuple[Span, Span]:
    """Return the offsets of the next batch: for Spark, or else for this process.

    As :func:`next_span`. Spark reads nothing of partitions with ``waiting`` records: it does not
    show ends of transactions.
    """
    held = set(waiting["partition"].to_pylist())
    stable, whole = {}, {}
    for p, one in ends.items():
        begin = done.get(p, one.begin)
        stable[p] = one.begin, begin if p in held else max(one.stable, min(begin, one.end))
        whole[p] = one.begin, one.end
    if not next_span(done, whole, None):
        return {}, {}
    if needs_spark(n_offsets(next_span(done, stable, None))):
        return next_span(done, stable, most), {}
    return {}, next_span(done, whole, PART_OFFSETS if most is None else min(most, PART_OFFSETS))


def n_offsets(span: Span) -> int:
    """Return the offsets of a span: its records, if none was compacted away."""
    return sum(end - begin for begin, end in span.values())


def cleaned_text(partitions: Iterable[int]) -> str:
    """Return the text about partitions that were cleaned faster than they were read."""
    numbers = ", ".join(map(str, sorted(partitions)))
    return (
        f"partition {numbers} of {OFFSETS_TOPIC} was repeatedly cleaned while it was read: "
        "the last commit of a group may be missing"
    )


def as_note(upto: Offsets) -> dict[str, int]:
    """Return ends in the form of a batch's note."""
    return {str(partition): end for partition, end in sorted(upto.items())}


def ends_of_batch(batch: Batch) -> dict[int, int] | None:
    """Return the end offsets of a batch, by its notes; None for another kind of batch."""
    found = batch.notes.get(OFFSETS)
    return None if found is None else {int(partition): int(end) for partition, end in found.items()}
