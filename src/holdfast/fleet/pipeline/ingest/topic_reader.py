"""Read the log of a topic between two offsets, without Spark: every record that counts.

**Rules.** The log is read up to the high watermark, beyond its last stable offset, and the open
transactions there are followed (:mod:`holdfast.fleet.pipeline.ingest.transactions`). A record is
yielded once, when it begins to count.

The topic is compacted while it is read. A record that was cleaned before it was read has a later
record of its key, which may be behind the planned end. So :meth:`TopicReader.to_end` continues
until a part that begins at an end has a record at every offset: every superseding record is read
then.

**Strategy.** Fetch requests of our own over the connections of a command, some megabytes of each
partition at a time; memory depends on their size, and on waiting records. Spark's source and every
client hide producer ids, the ends of transactions, and offsets without a record.

References: KIP-74 (an answer holds one batch at least), KIP-98, KIP-110.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.cluster.cluster import PartitionEnds, SendRequest, ends_of
from holdfast.core.wire.many.record_batches import LogRecords, read_batches
from holdfast.errors import SourceError, WireError
from holdfast.fleet.pipeline.ingest.transactions import OpenTransactions

if TYPE_CHECKING:
    from holdfast.cluster.lookup import FetchedLog

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
