"""The history as a stream: batch after batch from the offsets topic, stopped and resumed at will.

**Rules.** A batch has the id that Spark gives it, and one commit makes it visible. A visible batch
is not done again; a batch that was interrupted is done anew from the same offsets. So the tables
equal those of one run over the whole topic, row for row. Checkpoint and tables are in one folder
and belong together. Where nobody commits there is no batch, but lag grows: then log ends are read
at the same pace, and the lag of the newest batch is made anew.

**Strategy.** ``foreachBatch`` runs the jobs of :mod:`holdfast.pipeline.batches.jobs` over the new
records and over what the batch before left: the state of every group
(:mod:`holdfast.pipeline.batches.state`) and its positions. So no record is read twice. ``lag`` is a
snapshot: each batch replaces it. If a pause ends in a later batch than the one its rebalance is in,
it is added to that rebalance.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.command_lines import FOLDER, SERVERS, holdfast_line
from holdfast.errors import SourceError
from holdfast.pipeline.batches.jobs import STATE_TABLES, Job, remove_staged
from holdfast.pipeline.history.ages import Times
from holdfast.pipeline.history.history import CHECKPOINT, is_watched
from holdfast.pipeline.history.lag import OWNERS, Ends
from holdfast.pipeline.ingest.dump import offsets_table, share_table
from holdfast.pipeline.ingest.positions import LATEST
from holdfast.pipeline.ingest.selection import Selection
from holdfast.pipeline.ingest.share_positions import share_positions
from holdfast.pipeline.ingest.source import (
    OFFSETS_TOPIC,
    Cluster,
    SourceSnapshot,
    kafka_options,
    reading,
)
from holdfast.pipeline.session import is_connect
from holdfast.tables.folder import check_folder, remove_table
from holdfast.tables.lease import WriterLease
from holdfast.tables.manifest import Batch, Manifest, has_manifest
from holdfast.tables.names import batch_folder
from holdfast.tables.places import local_path
from holdfast.tables.reading import Tables
from holdfast.tables.values import to_us
from holdfast.wire.one.topic_ids import names_by_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

START_TRIES: Final = 3
LOOK_EVERY_S: Final = 1


@dataclass(slots=True)
class Stream:
    """Takes the batches of a stream into a folder of tables.

    Parameters
    ----------
    tables : Tables
        The folder.
    query : str
        Which stream this is; a folder belongs to one.
    snapshot : callable
        Reads topics and offsets of the cluster, once per batch, after its records are fixed.
    selection : Selection
        Which groups.
    auto_offset_reset : str
        kept = self._as_it_stands(kept)
        What the lag of a partition without a commit is: 0 for ``latest``, else the whole log.
    broker_logs : sequence of Path
        Logs of group coordinators, read anew for every batch with rebalances; one that is not
        there at the moment (it is being rotated) is left out.
    writer : WriterLease, optional
        The right to write to the folder; without it each batch takes it for itself.
    every_seconds : float, optional
        Pause between two looks; noted, so that a reader can tell a stream that has died.
    times : callable, optional
        Asks the cluster for times of records, once per batch and look.
    """

    tables: Tables
    query: str
    snapshot: Callable[[], SourceSnapshot]
    selection: Selection
    auto_offset_reset: str = "latest"
    broker_logs: Sequence[Path] = ()
    writer: WriterLease | None = None
    every_seconds: float | None = None
    times: Times | None = None

    def process(self, records: DataFrame, batch_id: int) -> None:
        """Take one batch in; do nothing if it is there already.

        Parameters
        ----------
        records : DataFrame
            partition, offset, timestamp, key, value.

        Raises
        ------
        SourceError
            The folder belongs to another stream, the batch before this one is missing, or another
            process has written to the folder since.
        """
        kept = self.tables.manifest()
        before = self._before(kept, batch_id)
        if before is None or before.id < batch_id:
            self._take(records, batch_id, kept, before)

    def _take(
        self, records: DataFrame, batch_id: int, kept: Manifest, before: Batch | None
    ) -> None:
        job = Job(
            spark=records.sparkSession,
            tables=self.tables,
            batch=batch_id,
            keep_state=True,
            past=before.notes["state"] if before else {},
        )
        cluster = self.snapshot()
        names = names_by_id((topic_id, topic) for topic_id, topic, _ in cluster.topics)
        job.read(records, self.selection, names)
        self._lag(job, cluster)
        job.pauses()
        job.restate([log for log in self.broker_logs if log.is_file()])
        job.amend()
        state = {name: job.files.pop(name, []) for name in STATE_TABLES}
        notes = {"query": self.query, "state": state, **self._looked(cluster), **job.notes}
        done = Batch(id=batch_id, files=job.files, notes=notes)
        kept = self._as_it_stands(kept)
        self.tables.commit(
            done, anew=["lag"], without=job.amended, made_from=kept, writer=self.writer
        )
        self._sweep(batch_id)

    def look(self, spark: SparkSession) -> bool:
        """Read log ends again, and make the lag of the newest batch by them; no record is read.

        Returns
        -------
        bool
            False where there is no batch yet, or an earlier version of holdfast kept it.

        Raises
        ------
        SourceError
            The cluster cannot be read, or another process has written to the folder since.
        """
        kept = self.tables.manifest()
        last = kept.batches[-1] if kept.batches else None
        state = last.notes.get("state", {}) if last is not None else {}
        if last is None or OWNERS not in state:
            return False
        cluster = self.snapshot()
        owners = {OWNERS: [(str(name), int(rows)) for name, rows in state[OWNERS]]}
        past = {LATEST: state.get(LATEST, [])}
        job = Job(spark=spark, tables=self.tables, batch=last.id, past=past, files=owners)
        self._lag(job, cluster)
        files = {"lag": job.files.get("lag", [])}
        done = replace(last, files=files, notes={**last.notes, **self._looked(cluster)})
        self.tables.commit(
            done, anew=["lag"], made_from=kept, writer=self.writer, operation="UPDATE"
        )
        remove_staged(self.tables.root)
        return True

    def _lag(self, job: Job, cluster: SourceSnapshot) -> None:
        ends = self._ends(cluster)
        job.lag(ends)
        if self.times is not None:
            job.ages(self.times, ends.taken_at_us)

    def _looked(self, cluster: SourceSnapshot) -> dict[str, Any]:
        """When log ends were read, and how often they are, as notes of a batch."""
        return {"taken_at": cluster.taken_at, "every_seconds": self.every_seconds}

    def _as_it_stands(self, before: Manifest) -> Manifest:
        """The manifest, if nothing but our own :meth:`look` has changed it since ``before``."""
        now = self.tables.manifest()
        ours = self.writer is not None and now.writer == self.writer.token
        same = [batch.id for batch in now.batches] == [batch.id for batch in before.batches]
        return now if ours and same else before

    def _ends(self, cluster: SourceSnapshot) -> Ends:
        taken_at = to_us(cluster.taken_at) or 0
        offsets = offsets_table(cluster)
        names = names_by_id((topic_id, topic) for topic_id, topic, _ in cluster.topics)
        share, n_bad = share_positions(share_table(cluster), names, self.selection)
        return Ends(
            offsets=offsets,
            taken_at_us=taken_at,
            reset=self.auto_offset_reset,
            share=share,
            n_bad_share=n_bad,
        )

    def _before(self, kept: Manifest, batch_id: int) -> Batch | None:
        batches = kept.batches
        if not batches:
            if batch_id:
                raise SourceError(
                    f"{self.tables.root} has a checkpoint at batch {batch_id} but no tables: they "
                    "belong together; start with an empty folder"
                )
            return None
        last = batches[-1]
        if last.notes.get("query") != self.query:
            raise _of_another_run(self.tables.root)
        if last.id < batch_id - 1:
            raise SourceError(f"batch {batch_id - 1} of {self.tables.root} is missing")
        return last

    def _sweep(self, batch_id: int) -> None:
        """Delete the state of earlier batches, and staged files."""
        remove_staged(self.tables.root)
        for name in STATE_TABLES:
            remove_table(self.tables.root, name, but=batch_folder(batch_id))


def check_watched(tables: Tables) -> None:
    """Refuse a folder that a stream cannot go on with, before anything slow is started.

    Raises
    ------
    SourceError
        It holds the tables of another run, or what is not ours.
    """
    check_folder(tables.root)
    kept = tables.committed()
    if kept and ("query" not in kept[-1].notes or not is_watched(tables.root)):
        raise _of_another_run(tables.root)


def _of_another_run(root: Path) -> SourceError:
    line = holdfast_line("watch", "-b", SERVERS, "-o", FOLDER)
    return SourceError(
        f"{root} holds the tables of another run (a history, or a stream whose checkpoint is "
        f"gone): a stream needs its own folder, an empty or a new one (`{line}`)"
    )


def watch(
    spark: SparkSession,
    cluster: Cluster,
    out_dir: Path | str,
    *,
    selection: Selection | None = None,
    every_seconds: float | None = None,
    max_records: int | None = None,
    auto_offset_reset: str = "latest",
    broker_logs: Sequence[Path] = (),
    after_batch: Callable[[Tables, int], None] | None = None,
    after_look: Callable[[Tables, SourceError | None], None] | None = None,
) -> Tables:
    """Follow the offsets topic of a live cluster into a folder of tables.

    Parameters
    ----------
    every_seconds : float, optional
        Pause between two batches, until stopped; by default read the records so far, and end.
    max_records : int, optional
        At most so many records in a batch.
    auto_offset_reset, broker_logs
        As in :class:`Stream`; on Spark Connect the server reads the logs.
    after_batch : callable, optional
        Called here with the tables and the batch id after each batch (metrics, a progress line).
    after_look : callable, optional
        Called here after log ends were read where no batch came, or with why they could not be.

    Raises
    ------
    SourceError
        The cluster cannot be read, or Spark read nothing though the topic holds records; or another
        process writes to the folder, or it holds what no stream has kept.
    """
    tables = Tables(local_path(out_dir).absolute())
    check_watched(tables)
    ends = cluster.partition_ends(OFFSETS_TOPIC)
    stream = spark.readStream.format("kafka").option("startingOffsets", "earliest")
    for key, value in kafka_options(cluster, sorted(ends)).items():
        stream = stream.option(key, value)
    if max_records is not None:
        stream = stream.option("maxOffsetsPerTrigger", str(max_records))
    into = Stream(
        tables=tables,
        query="",
        snapshot=cluster.snapshot,
        selection=selection or Selection(),
        auto_offset_reset=auto_offset_reset,
        broker_logs=[log.absolute() for log in broker_logs],
        every_seconds=every_seconds,
        times=cluster.times_at,
    )
    with reading(f"{OFFSETS_TOPIC} of {cluster.bootstrap}"):
        follow(stream.load(), into, after_batch=after_batch, after_look=after_look)
    if any(end > begin for begin, end in ends.values()) and not has_manifest(tables.root):
        raise SourceError(
            f"Spark read no record, but {OFFSETS_TOPIC} of {cluster.bootstrap} holds some"
        )
    return tables


def follow(
    records: DataFrame,
    into: Stream,
    *,
    after_batch: Callable[[Tables, int], None] | None = None,
    after_look: Callable[[Tables, SourceError | None], None] | None = None,
) -> None:
    """Take a streaming frame of records into tables, until it ends or is stopped.

    Parameters
    ----------
    records : streaming DataFrame
        partition, offset, timestamp, key, value; the records of each partition in order.
    into : Stream
        Where to; its ``query`` is that of the checkpoint.
    """
    with into.tables.writing() as writer:
        _run(records, replace(into, writer=writer), after_batch, after_look)


def _run(
    records: DataFrame,
    into: Stream,
    after_batch: Callable[[Tables, int], None] | None,
    after_look: Callable[[Tables, SourceError | None], None] | None,
) -> None:
    """Run the stream, as the only writer of its folder."""
    tables = into.tables
    checkpoint = tables.root / CHECKPOINT
    # A Connect server runs the batches: ``after_batch`` runs here, once they are committed.
    here = not is_connect(records.sparkSession)
    after = after_batch if here else None
    looks = Looks(into, records.sparkSession, after_look) if into.every_seconds else None
    # A lock does not travel to a Connect server; there a batch finds our look in the manifest.
    alone = looks.alone if here and looks is not None else nullcontext()

    def take(batch: DataFrame, batch_id: int) -> None:
        query = json.loads((checkpoint / "metadata").read_text())["id"]
        with alone:
            replace(into, query=query).process(batch, batch_id)
        if after is not None:
            after(tables, batch_id)

    frame = records.select("partition", "offset", "timestamp", "key", "value")
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    trigger: dict[str, Any] = {"availableNow": True}
    if into.every_seconds is not None:
        trigger = {"processingTime": f"{round(into.every_seconds * 1000)} milliseconds"}
    reported = tables.next_batch()
    query = started(writer.trigger(**trigger))
    try:
        ended: bool | None = False
        while not ended:
            ended = query.awaitTermination(LOOK_EVERY_S)
            if after_batch is not None and not here:
                reported = _report(tables, reported, after_batch)
            if looks is not None and not ended:
                looks.look()
    except BaseException:
        with suppress(Exception):  # what ended us counts, not how the stream takes it
            query.stop()
        raise
    query.stop()


class Looks:
    """Reads log ends where no batch has done so for as long as batches are apart.

    Parameters
    ----------
    into : Stream
        With ``every_seconds``.
    after : callable, optional
        Told of each look, or of why one failed: the next one is tried after the same time.
    """

    def __init__(
        self,
        into: Stream,
        spark: SparkSession,
        after: Callable[[Tables, SourceError | None], None] | None,
    ):
        self.alone = threading.Lock()
        self._into, self._spark, self._after = into, spark, after
        self._version = -1
        self._since = time.monotonic()

    def look(self) -> None:
        """Look if it is time, and no batch is being taken."""
        assert self._into.every_seconds is not None
        version = self._into.tables.manifest().version
        if version != self._version:
            self._version, self._since = version, time.monotonic()
        due = time.monotonic() - self._since >= self._into.every_seconds
        if not due or not self.alone.acquire(blocking=False):
            return
        try:
            looked, error = self._into.look(self._spark), None
        except SourceError as found:
            looked, error = False, found
        finally:
            self.alone.release()
        self._since = time.monotonic()
        if self._after is not None and (looked or error is not None):
            self._after(self._into.tables, error)


def _report(tables: Tables, first: int, after_batch: Callable[[Tables, int], None]) -> int:
    """Call ``after_batch`` for each batch from ``first`` on; returns the id of the next batch."""
    following = tables.next_batch()
    for batch_id in range(first, following):
        after_batch(tables, batch_id)
    return following


def started(writer: DataStreamWriter) -> StreamingQuery:
    """Start a stream, again if Spark did not wait long enough for its own Python.

    A Spark Connect server gives the Python that runs our batches 10 s to come up, and no setting
    changes that. On a busy machine, or where its modules are imported for the first time, it takes
    longer; the next try finds them compiled.

    That failure is raised after :data:`START_TRIES` tries, any other at once.
    """
    for _ in range(START_TRIES - 1):
        try:
            return writer.start()
        except Exception as error:
            if "to connect back" not in str(error):
                raise
    return writer.start()
