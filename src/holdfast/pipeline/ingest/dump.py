"""Write a dump: the offsets topic as it stands, with topics, begin and end offsets.

**Rules.** ``dump.json`` is written last, by a rename, when all the others are on the disk: a folder
without it is not a dump. Nothing is written or deleted through a link. The records end where the
topic ended when the dump began; offsets of the other topics are read after that, or a lag could
come out negative. A key of the topic is data: it never becomes a path.

**Strategy.** Every Kafka partition is one Spark partition and one file, written by the task itself
with Arrow. The counts come back and are compared with the broker's end offsets.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import SourceError
from holdfast.pipeline.arrow_types import Batches
from holdfast.pipeline.batches.schemas import spark_ddl
from holdfast.pipeline.ingest.source import (
    DUMP_FILE,
    DUMP_VERSION,
    OFFSETS_TOPIC,
    Cluster,
    Dump,
    SourceSnapshot,
    kafka_records,
    reading,
)
from holdfast.tables.parquet import BATCH_BYTES
from holdfast.tables.private import create_private, make_private_folder
from holdfast.tables.schemas import arrow_schema, from_columns
from holdfast.tables.store import FolderStore, is_draft, sync_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Note = Callable[[str], None]

SHARE_STATE: Final = "share_state"
PARTS: Final = ("records", "topics", "offsets", SHARE_STATE)

WRITTEN: Final = arrow_schema("dumped")
"""Columns: :data:`holdfast.tables.steps.DUMPED`."""


def write_dump(
    spark: SparkSession, cluster: Cluster, folder: Path | str, *, note: Note | None = None
) -> Dump:
    """Dump the offsets topic of a live cluster into a folder.

    Parameters
    ----------
    spark : SparkSession
        With the Kafka connector on its class path.
    cluster : Cluster
        The cluster to read.
    folder : Path
        New or empty, or a dump, which is replaced.
    note : callable, optional
        Called with one line about anything unusual.

    Raises
    ------
    SourceError
        The cluster cannot be read, ``folder`` holds something else, or Spark read nothing from a
        topic that is not empty.
    """
    root = Path(folder)
    _make_room(root)
    ends = cluster.partition_ends(OFFSETS_TOPIC)
    with reading(f"{OFFSETS_TOPIC} of {cluster.bootstrap}"):
        n_planned, counts = _write_records(kafka_records(spark, cluster, ends), root / "records")
    _check_counts(ends, n_planned, counts, note)
    write_parts(root, cluster.snapshot())
    dump = Dump.open(root)
    dump.check_read()
    return dump


def write_log(folder: Path | str, columns: Mapping[str, object], snapshot: SourceSnapshot) -> Dump:
    """Write records that are at hand, such as a simulation's, as a dump; needs no Spark.

    Parameters
    ----------
    folder : Path
        New or empty, or a dump, which is replaced.
    columns : mapping of str to sequence
        ``partition``, ``offset``, ``timestamp`` (int64 microseconds), ``key``, ``value``.
    snapshot : SourceSnapshot
        Topics and offsets after the last record.

    Raises
    ------
    SourceError
        If ``folder`` holds something else.
    """
    root = Path(folder)
    _make_room(root)
    _write(root / "records", from_columns("records", columns))
    write_parts(root, snapshot)
    return Dump.open(root)


def write_parts(root: Path, snapshot: SourceSnapshot) -> None:
    """Write topics, offsets and, last, ``dump.json``."""
    ids, names, counts = zip(*snapshot.topics, strict=True) if snapshot.topics else ((), (), ())
    topics = from_columns("topics", {"topic_id": ids, "topic": names, "partitions": counts})
    _write(root / "topics", topics)
    _write(root / "offsets", offsets_table(snapshot))
    if snapshot.share_state:
        _write(root / SHARE_STATE, share_table(snapshot))
    document = {
        "schema_version": DUMP_VERSION,
        "cluster_id": snapshot.cluster_id,
        "taken_at": snapshot.taken_at,
    }
    sync_all(file for part in PARTS for file in sorted((root / part).glob("*.parquet")))
    FolderStore(root).replace(DUMP_FILE, f"{json.dumps(document, indent=1)}\n".encode())


def share_table(snapshot: SourceSnapshot) -> pa.Table:
    """Records of ``__share_group_state`` as the part ``share_state`` of a dump."""
    names = arrow_schema("share_state").names
    rows = list(zip(*snapshot.share_state, strict=True)) or [()] * len(names)
    return from_columns("share_state", dict(zip(names, rows, strict=True)))


def offsets_table(snapshot: SourceSnapshot) -> pa.Table:
    """Begin and end offsets as the part ``offsets`` of a dump."""
    rows = list(zip(*snapshot.offsets, strict=True)) if snapshot.offsets else [(), (), (), ()]
    return from_columns("offsets", dict(zip(arrow_schema("offsets").names, rows, strict=True)))


def _make_room(root: Path) -> None:
    """Empty a folder that is an older dump; refuse one that holds anything else."""
    if root.exists() and not root.is_dir():
        raise SourceError(f"cannot write a dump to {root}: it is not a folder")
    ours = {*PARTS, DUMP_FILE}
    found = sorted(root.iterdir()) if root.exists() else []
    foreign = [path.name for path in found if path.name not in ours and not is_draft(path.name)]
    if foreign:
        raise SourceError(f"cannot write a dump to {root}: it already holds {foreign[0]!r}")
    linked = [path for path in found if path.is_symlink()]
    if linked:
        raise SourceError(f"{linked[0]} is a link: a dump is not written through links")
    (root / DUMP_FILE).unlink(missing_ok=True)
    for part in PARTS:
        for file in (root / part).glob("*.parquet"):
            file.unlink()
        if part != SHARE_STATE:  # only a cluster with share groups has one
            make_private_folder(root / part)


def _write(folder: Path, rows: pa.Table) -> None:
    make_private_folder(folder)
    pq.write_table(rows, create_private(folder / "part-0.parquet"))


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


def _write_records(frame: DataFrame, folder: Path) -> tuple[int, dict[int, int]]:
    """Write the records; return how many tasks there were, and what each Kafka partition gave."""
    target = str(folder.resolve())
    schema = arrow_schema("records")

    def write(batches: Batches) -> Batches:
        # One file per task; Spark gives it one Kafka partition, in the order of the log.
        name = f"part-{uuid.uuid4().hex}.parquet"
        counts: Counter[int] = Counter()
        writer = None
        for rows in gathered(batches, schema):
            if writer is None:
                writer = pq.ParquetWriter(Path(target) / name, schema)
            writer.write_table(rows)
            for found in rows["partition"].value_counts().to_pylist():
                counts[found["values"]] += found["counts"]
        if writer is not None:
            writer.close()
        row = {"file": name, "partitions": list(counts), "rows": list(counts.values())}
        yield from pa.Table.from_pylist([row], schema=WRITTEN).to_batches()

    written = frame.mapInArrow(write, spark_ddl("dumped")).toArrow().to_pylist()
    named = {row["file"] for row in written}
    for file in folder.glob("*.parquet"):  # a task that ran twice leaves a file nobody named
        if file.name not in named:
            file.unlink()
    counts: Counter[int] = Counter()
    for row in written:
        counts.update(dict(zip(row["partitions"], row["rows"], strict=True)))
    if not counts:
        _write(folder, schema.empty_table())
    return len(written), counts


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
