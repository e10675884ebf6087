"""Write a dump: the offsets topic as it stands, with topics, begin and end offsets.

**Rules.** ``dump.json`` is written last, by a rename, when all the others are on the disk: a folder
without it is not a dump. Nothing is written or deleted through a link. The records end where the
topic ended when the dump began; offsets of the other topics are read after that, or a lag could
come out negative. A key of the topic is data: it never becomes a path.

**Strategy.** Every Kafka partition is one Spark partition and one file, written by the task itself
with Arrow. The counts come back and are compared with the broker's end offsets. Few records come to
the driver as they are, and are written there: no Python worker is started for them. Of groups that
are named, only the partitions are read that Kafka keeps them in.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.arrow_types import Batches
from holdfast.fleet.pipeline.ingest.selection import Selection
from holdfast.fleet.pipeline.ingest.source import (
    DUMP_FILE,
    DUMP_VERSION,
    OFFSETS_TOPIC,
    Cluster,
    Dump,
    SourceSnapshot,
    kafka_records,
)
from holdfast.fleet.pipeline.spark_errors import reading
from holdfast.fleet.pipeline.steps import collected, runs_here
from holdfast.fleet.tables.columns.schemas import arrow_schema, ddl_of, from_columns
from holdfast.fleet.tables.folder.contents import held_in
from holdfast.fleet.tables.storage.clients import telling
from holdfast.fleet.tables.storage.parquet import BATCH_BYTES
from holdfast.fleet.tables.storage.places import (
    Place,
    parquet_files,
    place_of,
    store_of,
)
from holdfast.fleet.tables.storage.store import is_draft

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Note = Callable[[str], None]

SHARE_STATE: Final = "share_state"
EVERY_GROUP: Final = Selection(all_groups=True)
PARTS: Final = ("records", "topics", "offsets", SHARE_STATE)

WRITTEN: Final = arrow_schema("dumped")
"""Columns: :data:`holdfast.fleet.tables.columns.steps.DUMPED`."""


def write_dump(
    spark: SparkSession,
    cluster: Cluster,
    folder: Place | str,
    *,
    groups: Sequence[str] = (),
    note: Note | None = None,
) -> Dump:
    """Dump the offsets topic of a live cluster into a folder.

    Parameters
    ----------
    spark : SparkSession
        With the Kafka connector on its class path.
    cluster : Cluster
        The cluster to read.
    folder : path or URL
        New or empty, or a dump, which is replaced; workers write there too.
    groups : sequence of str
        Only records of these groups, by name or pattern; empty: all records.
    note : callable, optional
        Called with one line about anything unusual.

    Raises
    ------
    SourceError
        The cluster cannot be read, ``folder`` holds something else, or Spark read nothing from a
        topic that is not empty.
    """
    root = place_of(folder).absolute()
    make_room(root)
    chosen = Selection(groups=groups, all_groups=True)
    ends = cluster.partition_ends(OFFSETS_TOPIC, chosen.log_partitions)
    with reading(f"{OFFSETS_TOPIC} of {cluster.bootstrap}"):
        frame = kafka_records(spark, cluster, ends)
        few = runs_here([n_held(ends)])
        rows = collected(frame, arrow_schema("records")) if few else None
        if rows is None:
            written = _write_records(frame, root / "records", chosen)
        else:
            written = _write_here(rows, root / "records", chosen)
    _check_counts(ends, written.n_tasks, written.rows, note)
    write_parts(root, cluster.snapshot(), written.files, groups)
    dump = Dump.open(root)
    dump.check_read()
    return dump


def write_log(folder: Place | str, columns: Mapping[str, object], snapshot: SourceSnapshot) -> Dump:
    """Write records that are at hand, such as a simulation's, as a dump; needs no Spark.

    Parameters
    ----------
    folder : path or URL
        New or empty, or a dump, which is replaced; workers write there too.
    columns : mapping of str to sequence
        ``partition``, ``offset``, ``timestamp`` (int64 microseconds), ``key``, ``value``.
    snapshot : SourceSnapshot
        Topics and offsets after the last record.

    Raises
    ------
    SourceError
        If ``folder`` holds something else.
    """
    root = place_of(folder).absolute()
    make_room(root)
    write_parts(root, snapshot, [_write(root / "records", from_columns("records", columns))])
    return Dump.open(root)


def write_parts(
    root: Place, snapshot: SourceSnapshot, records: Sequence[str], groups: Sequence[str] = ()
) -> None:
    """Write topics, offsets and, last, ``dump.json``, which names the files of the records."""
    ids, names, counts = zip(*snapshot.topics, strict=True) if snapshot.topics else ((), (), ())
    topics = from_columns("topics", {"topic_id": ids, "topic": names, "partitions": counts})
    parts = {"topics": topics, "offsets": offsets_table(snapshot)}
    if snapshot.share_state:
        parts[SHARE_STATE] = share_table(snapshot)
    files = [f"records/{name}" for name in records]
    files += [f"{part}/{_write(root / part, rows)}" for part, rows in parts.items()]
    document = {
        "schema_version": DUMP_VERSION,
        "cluster_id": snapshot.cluster_id,
        "taken_at": snapshot.taken_at,
        "records": sorted(records),
        **({"groups": list(groups)} if groups else {}),
    }
    data = f"{json.dumps(document, indent=1)}\n".encode()
    store_of(root).sync(files)
    store_of(root / DUMP_FILE).write(data)


def share_table(snapshot: SourceSnapshot) -> pa.Table:
    """Records of ``__share_group_state`` as the part ``share_state`` of a dump."""
    names = arrow_schema("share_state").names
    rows = list(zip(*snapshot.share_state, strict=True)) or [()] * len(names)
    return from_columns("share_state", dict(zip(names, rows, strict=True)))


def offsets_table(snapshot: SourceSnapshot) -> pa.Table:
    """Begin and end offsets as the part ``offsets`` of a dump."""
    rows = list(zip(*snapshot.offsets, strict=True)) if snapshot.offsets else [(), (), (), ()]
    return from_columns("offsets", dict(zip(arrow_schema("offsets").names, rows, strict=True)))


def make_room(root: Place) -> None:
    """Empty a folder that is an older dump; refuse one that holds anything else."""
    found = held_in(root, "a dump")
    ours = {*PARTS, DUMP_FILE}
    foreign = [place.name for place in found if place.name not in ours and not is_draft(place.name)]
    if foreign:
        raise SourceError(f"cannot write a dump to {root}: it already holds {foreign[0]!r}")
    linked = [place for place in found if place.is_symlink()]
    if linked:
        raise SourceError(f"{linked[0]} is a link: a dump is not written through links")
    (root / DUMP_FILE).unlink(missing_ok=True)
    for part in PARTS:
        for file in parquet_files(root / part):
            file.unlink()
        if part != SHARE_STATE:  # only a cluster with share groups has one
            store_of(root / part).make_folder()


def _write(folder: Place, rows: pa.Table) -> str:
    """Write a part of one file; returns its name."""
    store_of(folder).make_folder()
    file = folder / "part-0.parquet"
    with store_of(file).writable() as sink, telling(file, "written"):
        pq.write_table(rows, sink)
    return file.name


def gathered(batches: Batches, schema: pa.Schema) -> Iterator[pa.Table]:
    """Batches together in tables of about ``BATCH_BYTES``."""
    waiting, n_bytes = [schema.empty_table()], 0
    for batch in batches:
        waiting.append(pa.Table.from_batches([batch]).cast(schema))
        n_bytes += batch.nbytes
        if n_bytes >= BATCH_BYTES:
            yield pa.concat_tables(waiting)
            waiting, n_bytes = [schema.empty_table()], 0
    if n_bytes:
        yield pa.concat_tables(waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRecords:
    """What the tasks of a dump wrote.

    Parameters
    ----------
    n_tasks : int
        How many there were.
    rows : Counter of int to int
        Records of each Kafka partition.
    files : list of str
        Names of the files that count.
    """

    n_tasks: int
    rows: Counter[int]
    files: list[str]


def n_held(ends: Mapping[int, tuple[int, int]]) -> int:
    """Records between the begin and end offsets of partitions, at most."""
    return sum(end - begin for begin, end in ends.values())


def _write_here(rows: pa.Table, folder: Place, chosen: Selection) -> WrittenRecords:
    """Write collected records as one file; no task has written."""
    listed = rows["partition"].value_counts().to_pylist()
    ordered = rows.sort_by([("partition", "ascending"), ("offset", "ascending")])
    file = _write(folder, _only(ordered, chosen))
    counts = Counter({found["values"]: found["counts"] for found in listed})
    return WrittenRecords(n_tasks=0, rows=counts, files=[file])


def _only(rows: pa.Table, chosen: Selection) -> pa.Table:
    """Records of the chosen groups."""
    parts = [arrow_schema("records").empty_table()]
    for batch in rows.to_batches():
        keep = chosen.keep(batch["key"])
        part = batch if keep is None else batch.filter(pa.array(keep))
        parts.append(pa.Table.from_batches([part]))
    return pa.concat_tables(parts)


def _write_records(
    frame: DataFrame, folder: Place, chosen: Selection = EVERY_GROUP
) -> WrittenRecords:
    """Write the records; one file a task."""
    target, schema = str(folder), arrow_schema("records")

    def write(batches: Batches) -> Batches:
        # One file per task; Spark gives it one Kafka partition, in the order of the log.
        name = f"part-{uuid.uuid4().hex}.parquet"
        rows: Counter[int] = Counter()
        every = gathered(batches, schema)
        for part in written_to(f"{target}/{name}", every, schema, chosen):
            for found in part["partition"].value_counts().to_pylist():
                rows[found["values"]] += found["counts"]
        row = {"file": name, "partitions": list(rows), "rows": list(rows.values())}
        yield from pa.Table.from_pylist([row], schema=WRITTEN).to_batches()

    made = frame.mapInArrow(write, ddl_of(WRITTEN)).toArrow().to_pylist()
    there = {row["file"] for row in made if row["rows"]}
    for file in parquet_files(folder):  # a task that ran twice leaves a file nobody named
        if file.name not in there:
            file.unlink()
    rows: Counter[int] = Counter()
    for row in made:
        rows.update(dict(zip(row["partitions"], row["rows"], strict=True)))
    files = sorted(there) or [_write(folder, schema.empty_table())]
    return WrittenRecords(n_tasks=len(made), rows=rows, files=files)


def written_to(
    file: str, parts: Iterator[pa.Table], schema: pa.Schema, chosen: Selection
) -> Iterator[pa.Table]:
    """Write what is chosen of tables to one file, and hand each table on, whole.

    No file is made where there is no table.
    """
    first = next(parts, None)
    if first is None:
        return
    with store_of(file).writable() as sink:
        with telling(file, "written"):
            writer = pq.ParquetWriter(sink, schema)
        for part in chain([first], parts):
            with telling(file, "written"):
                writer.write_table(_only(part, chosen))
            yield part
        with telling(file, "written"):
            writer.close()


def _check_counts(
    ends: Mapping[int, tuple[int, int]],
    n_planned: int,
    counts: Mapping[int, int],
    note: Note | None,
) -> None:
    """Compare what Spark read with the broker's end offsets.

    Spark plans a task for every partition that holds records. One of them may rightly give nothing
    (all compacted or aborted); all of them may not.
    """
    full = [p for p, (begin, end) in sorted(ends.items()) if end > begin]
    if 0 < n_planned < len(full):
        raise SourceError(
            f"Spark planned {n_planned} of the {len(full)} partitions of {OFFSETS_TOPIC} that hold "
            "records: a report on some of them would be wrong"
        )
    silent = [p for p in full if not counts.get(p)]
    if full and len(silent) == len(full):
        held = sum(end - begin for begin, end in ends.values())
        raise SourceError(
            f"Spark read no record, but the broker's end offsets say that {OFFSETS_TOPIC} holds up "
            f"to {held} in {len(full)} partitions: spark.sql.streaming.kafka."
            "useDeprecatedOffsetFetching must be true before the session reads its first topic, "
            "and this principal needs READ on the topic"
        )
    if silent and note is not None:
        note(f"{len(silent)} of {len(full)} partitions of {OFFSETS_TOPIC} gave no record")
