"""The history of every group: records in, tables out, as a few Spark jobs.

**Rules.** Functions take ``spark`` and frames, and use neither RDDs nor the JVM. All records of a
group come to one task, in the order of the log. A group's name is a value: it is never part of a
path or of a query's text.

**Strategy.** A live cluster is dumped first. :mod:`holdfast.pipeline.batches.jobs` makes the tables
of the dump as one batch, and renaming the manifest makes the batch visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.pipeline.batches.jobs import Job, remove_staged
from holdfast.pipeline.history.lag import Ends
from holdfast.pipeline.ingest.dump import write_dump
from holdfast.pipeline.ingest.selection import Selection
from holdfast.pipeline.ingest.source import Cluster, Dump
from holdfast.tables.manifest import Batch
from holdfast.tables.reading import Tables
from holdfast.tables.writing import remove_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Note = Callable[[str], None]

DUMP_FOLDER: Final = "_dump"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Tables that were written, to be read without Spark.

    Parameters
    ----------
    tables : Tables
        ``tables.table(name)`` is an Arrow table.
    dump : Dump
        What they were made from.
    n_records, n_unknown : int
        Records read, and how many of them had an unknown type.
    """

    tables: Tables
    dump: Dump
    n_records: int
    n_unknown: int

    def table(
        self, name: str, *, flat: bool = True, groups: Sequence[str] | None = None
    ) -> pa.Table:
        """One table; see :meth:`holdfast.tables.reading.Tables.table`."""
        return self.tables.table(name, flat=flat, groups=groups)


def run(
    spark: SparkSession,
    source: Dump | Cluster | Path | str,
    out_dir: Path | str,
    *,
    selection: Selection | None = None,
    auto_offset_reset: str = "latest",
    broker_logs: Sequence[Path] = (),
    note: Note | None = None,
) -> History:
    """Write the history of every group to a folder of tables, in place of what it held.

    Parameters
    ----------
    spark : SparkSession
        With the Kafka connector where ``source`` is a live cluster.
    source : Dump, path of one, or Cluster
        A live cluster is dumped first, into ``out_dir``.
    out_dir : Path
        Folder of the tables; made if it is not there. Workers write to it too.
    auto_offset_reset : str
        What the lag of a partition without a commit is: 0 for ``latest``, else the whole log.
    broker_logs : sequence of Path
        Logs of group coordinators, oldest first: causes that they state replace inferred ones.

    Raises
    ------
    SourceError
        The source or a log cannot be read, or nothing was read though it holds records.
    """
    tables = Tables(Path(out_dir).absolute())
    dump = _open(spark, source, tables.root, note)
    dump.check_read()
    tables.root.mkdir(parents=True, exist_ok=True)
    ends = Ends(offsets=dump.offsets(), taken_at_us=taken_at_us(dump), reset=auto_offset_reset)
    chosen = selection or Selection()
    return history_of(spark, dump, tables, chosen, ends, broker_logs=broker_logs)


def history_of(
    spark: SparkSession,
    dump: Dump,
    tables: Tables,
    selection: Selection,
    ends: Ends,
    *,
    broker_logs: Sequence[Path] = (),
) -> History:
    """Write the tables of one dump as one new batch that replaces all others."""
    job = Job(spark=spark, tables=tables, batch=tables.next_batch())
    job.read_dump(dump, selection, topic_names(dump))
    job.lag(ends)
    job.pauses()
    job.restate(broker_logs)
    n_records = dump.n_records()
    notes = {
        "cluster_id": dump.cluster_id,
        "taken_at": dump.taken_at,
        "n_records": n_records,
        "n_unknown": job.n_unknown,
    }
    tables.commit(Batch(id=job.batch, files=job.files, notes=notes), replace=True)
    remove_staged(tables.root)
    return History(tables=tables, dump=dump, n_records=n_records, n_unknown=job.n_unknown)


def _open(
    spark: SparkSession, source: Dump | Cluster | Path | str, root: Path, note: Note | None
) -> Dump:
    if isinstance(source, Dump):
        return source
    if isinstance(source, (str, Path)):
        return Dump.open(source)
    remove_tree(root / DUMP_FOLDER)
    return write_dump(spark, source, root / DUMP_FOLDER, note=note)


def taken_at_us(dump: Dump) -> int:
    """When the dump was taken, in microseconds; the time or else of its newest record."""
    found = to_us(dump.taken_at)
    return dump.newest_us() if found is None else found


def to_us(text: str) -> int | None:
    """ISO 8601 as microseconds since 1970; without a zone it is UTC; None if it cannot be read."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000)


def topic_names(dump: Dump) -> dict[str, str]:
    """Topic id to name, as KIP-848 records need it."""
    topics = dump.topics()
    return dict(zip(topics["topic_id"].to_pylist(), topics["topic"].to_pylist(), strict=True))
