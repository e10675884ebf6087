"""Write a dump: the records of the offsets topic, with topics, begin and end offsets.

**Rules.** ``dump.json`` is written last, by a rename, when all the other files are flushed to the
disk: a folder without it is not a dump. No file is written or deleted through a link. The records
are those that count at the end of the log: a record of an open transaction is omitted, and
``dump.json`` names the transaction. ``read`` in it has the span of the log that was read, so a
missing record in it was deleted. Offsets of the other topics are read after the records, or a lag
could come out negative. A key of the topic is data: it never becomes a path.

**Strategy.** Of a large topic, Spark reads and writes everything up to the last stable offset: each
Kafka partition is one task and one file, and the counts of the tasks are compared with the broker's
offsets. This process reads and writes the rest, which is everything of a small topic, until no
record is missing that was cleaned meanwhile (:mod:`holdfast.fleet.pipeline.ingest.offsets_topic`).
For named groups, only the partitions are read in which Kafka stores them.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.errors import SourceError
from holdfast.fleet.columnar import Batches, BatchTask
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.offsets_topic import (
    OFFSETS_TOPIC,
    KafkaFeed,
    LogPart,
    Offsets,
    cleaned_text,
    n_offsets,
)
from holdfast.fleet.pipeline.ingest.source import DUMP_FILE, DUMP_VERSION, RECORDS, Dump
from holdfast.fleet.pipeline.ingest.transactions import WAITING, OpenTransaction, described
from holdfast.fleet.pipeline.steps import Input, Session, Step, run
from holdfast.fleet.tables.columns.schemas import arrow_schema, from_columns
from holdfast.fleet.tables.folder.files import contents_of
from holdfast.fleet.tables.folder.manifest import COMPLETE_AT
from holdfast.fleet.tables.storage.clients import translated_errors
from holdfast.fleet.tables.storage.file_system import is_draft
from holdfast.fleet.tables.storage.parquet import BATCH_BYTES
from holdfast.fleet.tables.storage.paths import (
    StoragePath,
    file_system_of,
    parquet_files,
    storage_path,
)

Note = Callable[[str], None]

SHARE_STATE: Final = "share_state"
DELETED: Final = "deleted"
OPTIONAL: Final = (SHARE_STATE, DELETED)
"""Parts that only some dumps have: of a cluster with share groups, and of merged dumps."""
PARTS: Final = ("records", "topics", "offsets", *OPTIONAL)

WRITTEN: Final = arrow_schema("dumped")
"""Columns: :data:`holdfast.fleet.tables.columns.steps.DUMPED`."""


def write_dump(
    feed: KafkaFeed,
    folder: StoragePath | str,
    *,
    groups: Sequence[str] = (),
    note: Note | None = None,
) -> Dump:
    """Dump the offsets topic of a live cluster into a folder.

    Parameters
    ----------
    feed : KafkaFeed
        The cluster; its session needs the Kafka connector on its class path.
    folder : path or URL
        New or empty, or a dump, which is replaced; workers write there too.
    groups : sequence of str
        Only records of these groups, by name or pattern; empty: all records.

    Raises
    ------
    SourceError
        The cluster cannot be read, ``folder`` contains something else, or Spark read nothing from
        a topic that is not empty.
    """
    root = storage_path(folder).absolute()
    make_room(root)
    chosen = Selection(groups=groups, all_groups=True)
    complete_at = datetime.now(UTC).isoformat()  # later records may be omitted
    cluster = feed.cluster
    ends = cluster.partition_ends(OFFSETS_TOPIC, chosen.log_partitions)
    stable = {p: (one.begin, one.stable) for p, one in ends.items()}
    done: Offsets = {p: one.begin for p, one in ends.items()}
    files: list[str] = []
    if feed.needs_spark(n_offsets(stable)):
        part = feed.on_spark(stable)
        files, counts, n_tasks = _write_part(part, feed.session, root / "records", chosen)
        _check_counts(stable, n_tasks, counts, note)
        done = part.upto
    with feed.reader(WAITING.empty_table()) as reader:
        files += _write_rest(root / "records", reader.to_end(done), chosen)
    if note is not None and reader.missing_until:
        note(cleaned_text(reader.missing_until))
    read = {
        p: (begin, reader.reached[p])
        for p, (begin, _) in stable.items()
        if p not in reader.missing_until
    }
    files = files or [_write(root / "records", RECORDS.empty_table())]
    waiting = described(reader.transactions.table(), chosen)
    snapshot = cluster.snapshot()
    write_parts(root, snapshot, files, groups, complete_at, read=read, open_transactions=waiting)
    dump = Dump.open(root)
    dump.check_read()
    return dump


def write_log(
    folder: StoragePath | str,
    columns: Mapping[str, object],
    snapshot: ClusterSnapshot,
    *,
    notes: Mapping[str, Any] | None = None,
) -> Dump:
    """Write records in memory, such as a simulation's, as a dump; needs no Spark.

    Parameters
    ----------
    folder : path or URL
        New or empty, or a dump, which is replaced; workers write there too.
    columns : mapping of str to sequence
        ``partition``, ``offset``, ``timestamp`` (int64 microseconds), ``key``, ``value``.
    notes : mapping, optional
        More keys of ``dump.json``: those of a poll of coordinators.

    Raises
    ------
    SourceError
        ``folder`` contains something else.
    """
    root = storage_path(folder).absolute()
    make_room(root)
    file = _write(root / "records", from_columns("records", columns))
    write_parts(root, snapshot, [file], notes=notes)
    return Dump.open(root)


def write_parts(
    root: StoragePath,
    snapshot: ClusterSnapshot,
    records: Sequence[str],
    groups: Sequence[str] = (),
    complete_at: str = "",
    *,
    read: Mapping[int, tuple[int, int]] | None = None,
    open_transactions: Sequence[OpenTransaction] = (),
    deleted: pa.Table | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write topics, offsets and, last, ``dump.json``, which names the files of the records.

    ``complete_at`` is the moment up to which every record was read; empty if unknown.
    """
    sections: dict[str, Sequence[tuple[object, ...]]]
    sections = {"topics": snapshot.topics, "offsets": snapshot.offsets}
    sections |= {SHARE_STATE: snapshot.share_state} if snapshot.share_state else {}
    parts = {name: part_of(name, rows) for name, rows in sections.items()}
    parts |= {DELETED: deleted} if deleted is not None and deleted.num_rows else {}
    files = [f"records/{name}" for name in records]
    files += [f"{part}/{_write(root / part, rows)}" for part, rows in parts.items()]
    document = {
        "schema_version": DUMP_VERSION,
        "cluster_id": snapshot.cluster_id,
        "taken_at": snapshot.taken_at,
        "records": sorted(records),
        **({"groups": list(groups)} if groups else {}),
        **({COMPLETE_AT: complete_at} if complete_at else {}),
        **(notes or {}),
        **({} if read is None else {"read": {str(p): span for p, span in sorted(read.items())}}),
    }
    if open_transactions:
        document["open_transactions"] = [one.as_note() for one in open_transactions]
    data = f"{json.dumps(document, indent=1)}\n".encode()
    file_system_of(root).sync(files)
    file_system_of(root / DUMP_FILE).write(data)


def part_of(name: str, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    """Return rows of a snapshot as one part: ``topics``, ``offsets`` or ``share_state``."""
    names = arrow_schema(name).names
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return from_columns(name, dict(zip(names, columns, strict=True)))


def make_room(root: StoragePath) -> None:
    """Empty a folder that is an older dump; refuse one that contains anything else."""
    found = contents_of(root, "a dump")
    ours = {*PARTS, DUMP_FILE}
    foreign = [path.name for path in found if path.name not in ours and not is_draft(path.name)]
    if foreign:
        raise SourceError(f"cannot write a dump to {root}: it already holds {foreign[0]!r}")
    linked = [path for path in found if path.is_symlink()]
    if linked:
        raise SourceError(f"{linked[0]} is a link: a dump is not written through links")
    (root / DUMP_FILE).unlink(missing_ok=True)
    for part in PARTS:
        for file in parquet_files(root / part):
            file.unlink()
        if part not in OPTIONAL:
            file_system_of(root / part).make_folder()


def _write(folder: StoragePath, rows: pa.Table) -> str:
    """Write a part of one file; returns its name."""
    file_system_of(folder).make_folder()
    file = folder / "part-0.parquet"
    with file_system_of(file).writable() as sink, translated_errors(file, "written"):
        pq.write_table(rows, sink)
    return file.name


def gathered(batches: Batches) -> Iterator[pa.Table]:
    """Join records into tables of about ``BATCH_BYTES``."""
    waiting, n_bytes = [RECORDS.empty_table()], 0
    for batch in batches:
        waiting.append(pa.Table.from_batches([batch]).cast(RECORDS))
        n_bytes += batch.nbytes
        if n_bytes >= BATCH_BYTES:
            yield pa.concat_tables(waiting)
            waiting, n_bytes = [RECORDS.empty_table()], 0
    if n_bytes:
        yield pa.concat_tables(waiting)


def _only(rows: pa.Table, chosen: Selection) -> pa.Table:
    """Return records of the chosen groups."""
    keep = chosen.keep(rows["key"].combine_chunks())
    return rows if keep is None else rows.filter(pa.array(keep))


def _write_part(
    part: LogPart, session: Session, folder: StoragePath, chosen: Selection
) -> tuple[list[str], Counter[int], int]:
    """Write a part of the log, one file a task; return files, records by partition, tasks."""
    inputs = [Input(rows=part.rows, into=_writing(str(folder), chosen))]
    made = run(session, Step(what=OFFSETS_TOPIC, inputs=inputs, schema=WRITTEN)).to_pylist()
    rows: Counter[int] = Counter()
    for row in made:
        rows.update(dict(zip(row["partitions"], row["rows"], strict=True)))
    there = {row["file"] for row in made if row["rows"]}
    for file in parquet_files(folder):  # a task that ran twice leaves an unnamed file
        if file.name not in there:
            file.unlink()
    return sorted(there), rows, len(made)


def _write_rest(folder: StoragePath, rest: Iterator[pa.Table], chosen: Selection) -> list[str]:
    """Write the records that this process reads; return their file, or none without records."""
    name = _new_file()
    batches = (batch for rows in rest for batch in rows.to_batches())
    n_parts = sum(1 for _ in _written_to(f"{folder}/{name}", batches, chosen))
    return [name] if n_parts else []


def _new_file() -> str:
    return f"part-{uuid.uuid4().hex}.parquet"


def _writing(folder: str, chosen: Selection) -> BatchTask:
    """Return a task that writes its records to a file: on Spark one Kafka partition in order."""

    def write(batches: Batches) -> Batches:
        name = _new_file()
        rows: Counter[int] = Counter()
        for part in _written_to(f"{folder}/{name}", batches, chosen):
            for found in part["partition"].value_counts().to_pylist():
                rows[found["values"]] += found["counts"]
        row = {"file": name, "partitions": list(rows), "rows": list(rows.values())}
        made = pa.Table.from_pylist([row], schema=WRITTEN)
        yield from made.to_batches()

    return write


def _written_to(file: str, batches: Batches, chosen: Selection) -> Iterator[pa.Table]:
    """Write the chosen records to one file, and yield all of them; create none without records."""
    parts = gathered(batches)
    first = next(parts, None)
    if first is None:
        return
    with file_system_of(file).writable() as sink:
        with translated_errors(file, "written"):
            writer = pq.ParquetWriter(sink, RECORDS)
        for part in chain([first], parts):
            with translated_errors(file, "written"):
                writer.write_table(_only(part, chosen))
            yield part
        with translated_errors(file, "written"):
            writer.close()


def _check_counts(
    ends: Mapping[int, tuple[int, int]],
    n_planned: int,
    counts: Mapping[int, int],
    note: Note | None,
) -> None:
    """Compare the number of records that Spark read with the broker's end offsets.

    Spark plans a task for every partition that has records. One of them may rightly return nothing
    (all compacted or aborted); all of them may not.
    """
    full = [p for p, (begin, end) in sorted(ends.items()) if end > begin]
    if 0 < n_planned < len(full):
        raise SourceError(
            f"Spark planned {n_planned} of the {len(full)} partitions of {OFFSETS_TOPIC} that have "
            "records: a report on some of them would be wrong"
        )
    silent = [p for p in full if not counts.get(p)]
    if full and len(silent) == len(full):
        raise SourceError(
            f"Spark read no record, but by the broker's end offsets {OFFSETS_TOPIC} has up "
            f"to {n_offsets(ends)} in {len(full)} partitions: spark.sql.streaming.kafka."
            "useDeprecatedOffsetFetching must be true before the session reads its first topic, "
            "and this principal needs READ on the topic"
        )
    if silent and note is not None:
        note(f"{len(silent)} of {len(full)} partitions of {OFFSETS_TOPIC} gave no record")
