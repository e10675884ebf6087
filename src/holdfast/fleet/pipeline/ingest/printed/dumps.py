"""Make a dump of a text that one of Kafka's tools printed.

**Rules.** The records are those of the text; their transactions are followed as by the coordinator
if the text names them. Topics are those whose id a record names, with the partitions that records
name. The text has the end of the offsets topic only, so lags are unknown. One line reports what
the text lacks. A text is of one tool: its first line that is not a remark decides. Of groups as
``kafka-consumer-groups --describe`` printed them, a dump has one generation each.

**Strategy.** The text becomes the bytes of the topic, so later steps read it like a dump. Records
become tables of BATCH_ROWS while the lines are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.core.wire.layouts.offsets_records import ZERO_ID, decode_record
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.core.wire.many.columns import Slices
from holdfast.core.wire.many.ragged import padded
from holdfast.core.wire.many.record_batches import LogRecords
from holdfast.core.wire.one.topic_ids import topic_id_text
from holdfast.errors import SourceError, WireError
from holdfast.fleet.columnar import new_runs
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.described_records import (
    KeyValue,
    commit_record,
    generation_record,
)
from holdfast.fleet.pipeline.ingest.dump import make_room, write_log, write_parts
from holdfast.fleet.pipeline.ingest.envelopes import TextFile
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC
from holdfast.fleet.pipeline.ingest.printed import console, described, dump_log
from holdfast.fleet.pipeline.ingest.printed.console import (
    NO_GROUPS,
    PrintedRecord,
    TextNotes,
    is_noise,
)
from holdfast.fleet.pipeline.ingest.printed.described import DescribedGroups, snapshot_of
from holdfast.fleet.pipeline.ingest.source import RECORDS, Dump
from holdfast.fleet.pipeline.ingest.transactions import OpenTransactions
from holdfast.fleet.pipeline.ingest.transactions import described as named
from holdfast.fleet.tables.storage.paths import StoragePath, file_system_of, storage_path

Note = Callable[[str], None]
TextReader = Callable[[Path, TextFile, TextNotes], Iterator[PrintedRecord]]
"""Yields the records of a text, in its order, and notes what it lacks."""
BATCH_ROWS: Final = 20_000
_SAMPLE_LINES: Final = 1_000
_FILE: Final = "part-0.parquet"


class PrintedKind(StrEnum):
    """What printed a text."""

    LOG = "kafka-dump-log"
    CONSOLE = "the console consumer"
    OLD_CONSOLE = "the console consumer before Kafka 4"
    DESCRIBED = "kafka-consumer-groups"


_BEGINS: Final[Mapping[PrintedKind, re.Pattern[str]]] = {
    PrintedKind.LOG: dump_log.BEGINS,
    PrintedKind.CONSOLE: console.BEGINS,
    PrintedKind.OLD_CONSOLE: console.BEGINS_OLD,
    PrintedKind.DESCRIBED: described.HEADING,
}
_READERS: Final[Mapping[PrintedKind, TextReader]] = {
    PrintedKind.LOG: dump_log.read_log,
    PrintedKind.CONSOLE: console.read_console,
    PrintedKind.OLD_CONSOLE: console.read_old_console,
}

NO_ENDS: Final = "log ends are not printed, so lags are not known"


def kind_of(path: Path) -> PrintedKind | None:
    """Return the tool that printed the text of a file; None for an unknown text."""
    for line in islice(TextFile(path), _SAMPLE_LINES):
        for kind, begins in _BEGINS.items():
            if begins.match(line):
                return kind
        if not is_noise(line) and not described.is_remark(line):
            return None
    return None


def write_printed(path: Path, folder: StoragePath | str, note: Note) -> Dump:
    """Write the records of a printed text as a dump.

    Parameters
    ----------
    folder : path or URL
        New or empty, or a dump, which is replaced.
    note : callable
        Called with one line about what the text lacks.

    Raises
    ------
    SourceError
        A line is malformed, the text is cut short, or it does not contain records.
    """
    kind = kind_of(path)
    if kind is None or kind is PrintedKind.DESCRIBED:
        raise SourceError(f"{path} has no records as {PrintedKind.LOG} or the console consumer")
    root = storage_path(folder).absolute()
    make_room(root)
    lines, notes = TextFile(path), TextNotes()
    rows, transactions = _counted(_tables(_READERS[kind](path, lines, notes)))
    if lines.is_cut:
        raise SourceError(f"{path}: the packed file lacks its end")
    if notes.n_groups:
        if not rows.num_rows:
            raise SourceError(f"{path}: {NO_GROUPS}")
        notes.lacks.append(f"{notes.n_groups} records of groups are left out: {NO_GROUPS}")
    if notes.n_unknown:
        notes.lacks.append(f"{notes.n_unknown} records are of types that the tool did not know")
    ends = {0: (0, rows.num_rows)} if notes.ends is None else notes.ends
    taken_at = _newest(rows)
    file_system_of(root / "records").make_folder()
    with file_system_of(root / "records" / _FILE).writable() as sink:
        pq.write_table(rows, sink)
    snapshot = ClusterSnapshot(
        cluster_id="",
        topics=_topics(rows),
        offsets=[(OFFSETS_TOPIC, p, *span) for p, span in sorted(ends.items())],
        taken_at=taken_at,
    )
    waiting = named(transactions.table(), Selection(all_groups=True))
    write_parts(root, snapshot, [_FILE], open_transactions=waiting)
    note("; ".join((*notes.lacks, NO_ENDS)))
    return Dump.open(root)


def _tables(records: Iterable[PrintedRecord]) -> pa.Table:
    """Return records of a text, in its order, with the columns that transactions need."""
    rest, parts = iter(records), [_TAKEN.empty_table()]
    while part := list(islice(rest, BATCH_ROWS)):
        columns = zip(zip(*part, strict=True), _TAKEN.types, strict=True)
        parts.append(pa.Table.from_arrays([pa.array(c, t) for c, t in columns], schema=_TAKEN))
    return pa.concat_tables(parts)


_TAKEN: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("producer_id", pa.int64()),
        ("transactional", pa.bool_()),
        ("marker", pa.int64()),
    ]
)
"""Columns of :class:`PrintedRecord`."""


def _counted(rows: pa.Table) -> tuple[pa.Table, OpenTransactions]:
    """Return the records that count, as RECORDS in the order of the log, and the waiting ones."""
    transactions, found = OpenTransactions(), [RECORDS.empty_table()]
    for partition in sorted(rows["partition"].unique().to_pylist()):
        own = rows.filter(pc.equal(rows["partition"], partition)).sort_by("offset")
        # A segment may have been printed twice.
        own = own.filter(pa.array(new_runs(own["offset"].to_numpy())))
        found += transactions.take(partition, _log_records(own.combine_chunks()))
    counted = pa.concat_tables(found)
    return counted.sort_by([("partition", "ascending"), ("offset", "ascending")]), transactions


def _log_records(rows: pa.Table) -> LogRecords:
    numbers = {
        name: rows[name].to_numpy()
        for name in ("offset", "timestamp_ms", "producer_id", "transactional", "marker")
    }
    offset = numbers["offset"]
    return LogRecords(
        **numbers,
        key=_slices(rows["key"]),
        value=_slices(rows["value"]),
        next_offset=int(offset[-1]) + 1 if len(offset) else 0,
        missing_until=-1,
    )


def _slices(column: pa.ChunkedArray) -> Slices:
    blobs: list[bytes | None] = column.to_pylist()
    size = np.array([len(one or b"") for one in blobs], np.int64)
    valid = np.array([one is not None for one in blobs], np.bool_)
    return Slices(
        data=padded(np.frombuffer(b"".join(one or b"" for one in blobs), np.uint8)),
        begin=np.cumsum(size) - size,
        size=size,
        valid=None if valid.all() else valid,
    )


def _newest(rows: pa.Table) -> str:
    newest_us = pc.max(rows["timestamp"].cast(pa.int64())).as_py()
    return "" if newest_us is None else datetime.fromtimestamp(newest_us / 1e6, UTC).isoformat()


def _topics(rows: pa.Table) -> list[tuple[str, str, int]]:
    """Return ids, names and named partitions of topics whose id a record names."""
    counts: dict[tuple[str, str], int] = {}
    for topic_id, topic, partition in _named_topics(rows):
        counts[topic, topic_id] = max(counts.get((topic, topic_id), 0), partition + 1)
    latest = {topic: (topic_id, topic, n) for (topic, topic_id), n in counts.items()}
    return [latest[topic] for topic in sorted(latest)]


def _named_topics(rows: pa.Table) -> Iterator[tuple[str, str, int]]:
    for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
        if value is None or int.from_bytes(key[:2], "big") not in _NAMING:
            continue
        try:
            record = decode_record(key, value)
        except WireError:
            continue  # a row of bad_records later
        said = record.value or {}
        if (topic_id := said.get("topicId", ZERO_ID)) != ZERO_ID:
            yield topic_id_text(topic_id), record.key["topic"], record.key["partition"]
        for topic in said.get("topics", ()):
            yield topic_id_text(topic["topicId"]), topic["topicName"], topic["numPartitions"] - 1


_NAMING: Final = (RecordType.OFFSET_COMMIT, RecordType.CONSUMER_GROUP_PARTITION_METADATA)


def write_described(found: DescribedGroups, at_us: int, folder: StoragePath | str) -> Dump:
    """Write groups as a dump in which each has one generation, with its members and commits.

    Every record has the time ``at_us`` of the text, in microseconds since 1970. The beginning of
    each log is taken for 0, and what members subscribe to for what any of them was given
    (:func:`~holdfast.fleet.pipeline.ingest.printed.described.snapshot_of`).
    """
    records = [*_records_of_groups(found, at_us // 1000)]
    columns = {
        "partition": [0] * len(records),
        "offset": [*range(len(records))],
        "timestamp": [at_us] * len(records),
        "key": [key for key, _ in records],
        "value": [value for _, value in records],
    }
    offsets = {
        (one.topic, one.partition): one.end for one in found.partitions if one.end is not None
    }
    counts: dict[str, int] = {}
    for group in found.groups:
        for topic, n in snapshot_of(found, group)["partitions"].items():
            counts[topic] = max(n, counts.get(topic, 0))
    for topic, partition in offsets:
        counts[topic] = max(partition + 1, counts.get(topic, 0))
    snapshot = ClusterSnapshot(
        cluster_id="",
        topics=[("", topic, n) for topic, n in sorted(counts.items())],
        offsets=[
            *((topic, p, 0, end) for (topic, p), end in sorted(offsets.items())),
            (OFFSETS_TOPIC, 0, 0, len(records)),
        ],
        taken_at=datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(),
    )
    return write_log(folder, columns, snapshot)


def _records_of_groups(found: DescribedGroups, at_ms: int) -> Iterator[KeyValue]:
    for group in found.groups:
        if readers := found.readers(group):
            yield generation_record(group, 1, readers, at_ms)
        for one in found.partitions:
            if one.group == group and one.committed is not None:
                yield commit_record(group, one.topic, one.partition, one.committed, at_ms)
