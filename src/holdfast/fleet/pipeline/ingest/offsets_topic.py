"""The offsets topic of a live cluster: end offsets, and every record that counts, span by span.

**Rules.** The topic is read by ``assign``, never by ``subscribe``: that would make Spark join a
group and write into the very topic it reads. Spark reads up to the last stable offset, with the
isolation ``read_committed``, or aborted transactional commits would look committed. This process
reads up to the high watermark, and follows the open transactions there
(:mod:`holdfast.fleet.pipeline.ingest.transactions`): a record is yielded once, when it begins to
count. A batch of a stream begins where the previous one ended, by the notes of that batch, which
were committed with its rows. A topic that ends before that is another topic: nothing is read from
it.

The topic is compacted while it is read. A record that was cleaned before it was read has a later
record of its key, which may be behind the planned end. So :meth:`TopicReader.to_end` continues
until a part that begins at an end has a record at every offset: every superseding record is read
then.

**Strategy.** Two readers return a span as the same rows: this process, and Spark where more offsets
are new than ``HERE_ROWS``. A span has the same fraction of every partition. This process sends
fetch requests over the connections of a command, some megabytes of each partition at a time, since
Spark's source and every client hide producer ids, the ends of transactions, and offsets without a
record. Memory depends on the size of the answers, and on waiting records.

References: KIP-74 (an answer holds one batch at least), KIP-98, KIP-110.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from holdfast.cluster.cluster import PartitionEnds, SendRequest, ends_of
from holdfast.core.wire.many.record_batches import LogRecords, read_batches
from holdfast.errors import SourceError, WireError
from holdfast.fleet.pipeline.ingest.transactions import RECORDS, WAITING, OpenTransactions
from holdfast.fleet.pipeline.session import reading
from holdfast.fleet.pipeline.steps import HERE_ROWS, FrameRows, InMemoryRows, Rows, Session
from holdfast.fleet.tables.folder.manifest import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.cluster.cluster import LiveCluster
    from holdfast.cluster.lookup import FetchedLog


OFFSETS_TOPIC: Final = "__consumer_offsets"

SETTING: Final = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"

OFFSETS: Final = "offsets"
"""Note of a batch: its end offsets, as JSON."""

PART_OFFSETS: Final = 200_000
"""Offsets that this process reads at a time, as one batch of a stream."""

Offsets: TypeAlias = Mapping[int, int]
"""Partition -> offset of the next record."""

Span = Mapping[int, tuple[int, int]]
"""Partition -> first offset, and the one behind the last."""

MOST_READS: Final = 20
"""So often :meth:`TopicReader.to_end` reads on, while the topic is cleaned under its eyes."""
MOST_EMPTY = 50
"""So many answers in a row may have no record; a leader waits a tenth of a second for one."""
_MOST_UNPACKED: Final = 64 << 20
_MOST_FACTOR: Final = 1_000
"""A batch may unpack to so many times its size, and to ``_MOST_UNPACKED`` in any case."""
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_CODECS: Final = {_GZIP: "gzip", _SNAPPY: "snappy", _LZ4: "lz4", _ZSTD: "zstd"}
_GZIP_BITS: Final = 31  # zlib's number for gzip's frame
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16  # its magic and two versions
_OFFSET_GONE: Final = "the log of partition {} of {} ends before offset {}, which existed before"

LogEnds: TypeAlias = Mapping[int, PartitionEnds]


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
    needs_spark: Callable[[int], bool] | None = None,
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
    if needs_spark is not None and needs_spark(n_offsets(next_span(done, stable, None))):
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


class TopicReader:
    """Reads parts of the log of one topic; updates the waiting records of an earlier read."""

    def __init__(
        self, request: SendRequest, topic: str, transactions: OpenTransactions | None = None
    ):
        self.request, self.topic = request, topic
        self.transactions = transactions or OpenTransactions()
        self.reached: dict[int, int] = {}
        self.missing_until: dict[int, int] = {}
        """Partition -> behind the last offset of what was read that has no record."""

    def read(self, span: Span) -> Iterator[pa.Table]:
        """Read a part of each partition; yield tables of RECORDS.

        Raises SourceError if the cluster cannot be read, or a batch does not parse.
        """
        for partition, records in self.parts(span):
            yield from self.transactions.take(partition, records)

    def parts(self, span: Span) -> Iterator[tuple[int, LogRecords]]:
        """Read a part of each partition as it is, whether its records count or not."""
        at = {p: begin for p, (begin, end) in span.items() if begin < end}
        self.reached.update({p: end for p, (_, end) in span.items()})
        n_empty = 0
        while at:
            found, before = self._fetch(at), dict(at)
            for partition in sorted(found):
                begin, end = at[partition], span[partition][1]
                if found[partition].is_out_of_range:
                    at[partition] = self._behind_the_gap(partition, begin, end)
                else:
                    records = self._parsed(partition, begin, found[partition].records)
                    at[partition] = min(records.next_offset, end)
                    self._note_missing(partition, min(records.missing_until, end))
                    yield partition, records.before(end)
            n_empty = n_empty + 1 if at == before else 0
            if n_empty > MOST_EMPTY:
                self._end_empty(at, span, found)
            at = {p: offset for p, offset in at.items() if offset < span[p][1]}

    def _end_empty(self, at: dict[int, int], span: Span, found: Mapping[int, FetchedLog]) -> None:
        """Step over the ends of partitions whose leaders have no record there.

        Compaction keeps the last record of a log, so losing all of them needs more than that.
        """
        for partition, offset in at.items():
            end = span[partition][1]
            if partition not in found or found[partition].end < end:
                raise SourceError(
                    f"the leader of partition {partition} of {self.topic} has no record from "
                    f"offset {offset} on, expected some up to {end}"
                )
            self._note_missing(partition, end)
            at[partition] = end

    def to_end(self, begin: Mapping[int, int]) -> Iterator[pa.Table]:
        """Read from ``begin`` to the end, and on until no cleaned record is missed.

        ``missing_until`` then names the partitions in which the last part still lacks a record.
        """
        at = dict(begin)
        for _ in range(MOST_READS):
            ends = self.ends(list(at))
            self.missing_until = {}
            yield from self.read({p: (at[p], max(at[p], ends[p].end)) for p in at})
            at = {p: self.reached[p] for p in self.missing_until}
            if not at:
                return

    def ends(self, partitions: list[int]) -> Mapping[int, PartitionEnds]:
        """Return the present ends of the partitions."""
        return ends_of(self.request, self.topic, partitions) if partitions else {}

    def _fetch(self, at: Mapping[int, int]) -> Mapping[int, FetchedLog]:
        found: Mapping[int, FetchedLog]
        found = self.request("Fetch", lambda lookup: lookup.fetch(self.topic, at))
        return found

    def _behind_the_gap(self, partition: int, begin: int, end: int) -> int:
        """Return where a partition continues after its first records were deleted meanwhile."""
        from holdfast.cluster.lookup import EARLIEST  # needs kafka-python, which no worker has

        tp = (self.topic, partition)
        first = self.request("ListOffsets", lambda lookup: lookup.list_offsets([tp], EARLIEST))
        if first[tp] <= begin:
            raise SourceError(_OFFSET_GONE.format(partition, self.topic, begin))
        behind = min(int(first[tp]), end)
        self._note_missing(partition, behind)
        return behind

    def _parsed(self, partition: int, begin: int, records: bytes) -> LogRecords:
        try:
            return read_batches(records, begin, unpack)
        except (WireError, OSError, zlib.error) as error:
            raise SourceError(
                f"partition {partition} of {self.topic} cannot be read from offset {begin} on: "
                f"{error}"
            ) from error

    def _note_missing(self, partition: int, behind: int) -> None:
        if behind >= 0:
            self.missing_until[partition] = max(behind, self.missing_until.get(partition, -1))


def unpack(codec: int, data: bytes) -> bytes:
    """Unpack the records of a batch.

    Raises SourceError if the codec is not known here, or the records unpack to far more than their
    size. Raises OSError or zlib.error if they are not what the codec writes.
    """
    most = max(_MOST_UNPACKED, _MOST_FACTOR * len(data))
    if codec == _GZIP:
        found = zlib.decompressobj(_GZIP_BITS).decompress(data, most + 1)
    elif codec not in _CODECS or not pa.Codec.is_available(_CODECS[codec]):
        name = _CODECS.get(codec, f"codec {codec}")
        raise SourceError(f"records are packed with {name}, which this pyarrow does not have")
    elif codec == _SNAPPY:
        found = _unpack_snappy(data, most)
    else:
        with pa.input_stream(pa.BufferReader(data), compression=_CODECS[codec]) as stream:
            found = stream.read(most + 1)
    if len(found) > most:
        raise SourceError(
            f"{len(data)} bytes of records unpack to more than {most}, expected at most that"
        )
    return found


def _unpack_snappy(data: bytes, most: int) -> bytes:
    """Unpack one block of snappy, or the blocks of Java's snappy, each with its size before it."""
    if not data.startswith(_XERIAL):
        return _unpack_block(data, most)
    found, at, size = [], _XERIAL_HEADER, 0
    while at + 4 <= len(data) and size <= most:
        n_bytes = int.from_bytes(data[at : at + 4], "big")
        found.append(_unpack_block(data[at + 4 : at + 4 + n_bytes], most))
        at, size = at + 4 + n_bytes, size + len(found[-1])
    return b"".join(found)


def _unpack_block(block: bytes, most: int) -> bytes:
    """Unpack a block of snappy, which begins with its unpacked size."""
    size, shift = 0, 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > most:
        raise SourceError(f"a block of records unpacks to {size} bytes, expected at most {most}")
    return bytes(pa.Codec("snappy").decompress(block, size))
