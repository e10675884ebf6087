"""The history as a stream: batch after batch from the offsets topic, stopped and resumed at will.

**Rules.** A batch is a span of offsets, and the commit that makes its rows visible records its
end. So a visible batch is not repeated, and an interrupted batch is repeated from the same
offsets. The tables equal those of one run over the whole topic, row for row, except that a commit
of a transaction that was open at the end of a batch narrows no gap of that batch.

Batches follow each other until the last one had a record at every offset: a record that compaction
deleted while an earlier batch was read has a later record of its key, which was read then
(:mod:`holdfast.fleet.pipeline.ingest.offsets_topic`). Records of open transactions are kept between
batches, as state. If new offsets have no record, a tombstone may be among the missing ones: then
the records behind the state are looked up, and a batch of tombstones deletes the lost ones
(:mod:`holdfast.fleet.pipeline.ingest.deletions`).

**Strategy.** This process reads the end offsets of the cluster, and new records as a batch like
any other (:mod:`holdfast.fleet.pipeline.ingest.offsets_topic`). Spark's own streams are not used:
on Spark Connect a server would have to start our Python within 10 s, and the progress of a stream
would be in a checkpoint beside the tables, on a storage that Spark itself must write.

A batch runs the jobs of :mod:`holdfast.fleet.pipeline.batches.jobs` over the new records and over
the result of the previous batch: the state of every group
(:mod:`holdfast.fleet.pipeline.batches.state`) and its positions. So no record is read twice. A
batch of few records, as nearly every batch that follows a cluster, runs in this process without
workers. ``lag`` is a snapshot: each batch replaces it, and without new records only log ends are
read again. A gap that ends in a later batch than its rebalance is added to that rebalance.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.core.command_lines import FOLDER, SERVERS, holdfast_line
from holdfast.core.wire.one.topic_ids import names_by_id
from holdfast.errors import SourceError
from holdfast.fleet.analysis.times import Since
from holdfast.fleet.pipeline.batches.examined import FOLLOWED
from holdfast.fleet.pipeline.batches.jobs import (
    STATE_TABLES,
    WAITING_STATE,
    Job,
    remove_staged,
    remove_state,
)
from holdfast.fleet.pipeline.batches.state import (
    STATE,
    CarriedState,
    known_groups,
    known_positions,
    read_state,
)
from holdfast.fleet.pipeline.history.lag import OWNERS, EarlierLag, Ends, UnreadQuery
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.deletions import deletions
from holdfast.fleet.pipeline.ingest.dump import SHARE_STATE, part_of
from holdfast.fleet.pipeline.ingest.offsets_topic import (
    MOST_READS,
    OFFSETS,
    KafkaFeed,
    LogEnds,
    LogPart,
    Offsets,
    as_note,
    cleaned_text,
    ends_of_batch,
    n_offsets,
    next_span,
    spans,
)
from holdfast.fleet.pipeline.ingest.polled_feed import Feed, PolledFeed
from holdfast.fleet.pipeline.ingest.split import LATEST, share_positions
from holdfast.fleet.pipeline.ingest.transactions import WAITING, described
from holdfast.fleet.pipeline.steps import InMemoryRows, Session
from holdfast.fleet.tables.columns.schemas import arrow_schema, moment_text, to_us
from holdfast.fleet.tables.folder.files import batch_folder, check_folder, checked_files
from holdfast.fleet.tables.folder.maintenance import (
    DROPPED,
    MAINTENANCE_EVERY,
    RETENTION_DAYS,
    expired,
    maintain,
    resolution_s,
)
from holdfast.fleet.tables.folder.manifest import (
    COMPLETE_AT,
    MOST_UNPOLLED,
    UNPOLLED,
    Batch,
)
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.parquet import BoundedParquet
from holdfast.fleet.tables.storage.paths import StoragePath, storage_path

T = TypeVar("T")


LATE_POLLS = 3
"""Intervals after which a poll of coordinators is late enough to be told."""


@dataclass(slots=True)
class Stream:
    """Adds the batches of a stream to a folder of tables."""

    tables: Tables
    # Reads topics and offsets of the cluster, once per batch, after its records are fixed.
    snapshot: Callable[[], ClusterSnapshot]
    selection: Selection
    # ``auto.offset.reset`` for the lag without a commit: 0 for ``latest``, else the whole log.
    auto_offset_reset: str = "latest"
    # Logs of group coordinators, read again for every batch with rebalances; a log that is missing
    # at the moment (during rotation) is skipped.
    broker_logs: Sequence[Path] = ()
    # Older rows are dropped, except current ones; None keeps every row.
    retention_days: float | None = None
    # Poll interval; recorded, so that a reader can recognize a dead stream.
    every_seconds: float | None = None
    # Queries the cluster for first unread records, once per batch and poll.
    unread: UnreadQuery | None = None
    # Options that start the stream again, without its folder and interval; recorded for people.
    started_with: Sequence[str] = ()
    # Maximum offsets in a batch, approximately; each partition gets its fraction.
    max_records: int | None = None
    # Returns the begin of the window of findings from its end; by default there is none.
    since: Since | None = None
    # Called before each batch with the number of its offsets, and of all that are new.
    before_batch: Callable[[int, int], None] | None = None
    # Called with the tables and the batch id after each batch (metrics, a progress line).
    after_batch: Callable[[Tables, int], None] | None = None
    # Called after log ends were read without new records, or with the error of that reading.
    after_look: Callable[[Tables, SourceError | None], None] | None = None
    # The moment, in microseconds since 1970, up to which the next batch or poll has every record;
    # None if some are missing, or if it is unknown.
    complete_us: int | None = None
    # Returns notes about the last poll of coordinators, if the records come from polls; recorded,
    # since such a folder cannot continue with the offsets topic.
    poll_notes: Callable[[], Mapping[str, Any]] | None = None

    def process(self, part: LogPart, session: Session = None) -> int:
        """Add the next batch, and return its number; a SourceError in the folder of another run."""
        known = self.tables.manifest()
        before = known.batches[-1] if known.batches else None
        if before is not None and "query" not in before.notes:
            raise _of_another_run(self.tables.root)
        batch_id = before.id + 1 if before else 0
        job = Job(
            session=session,
            tables=self.tables,
            batch=batch_id,
            keep_state=True,
            past=before.notes["state"] if before else {},
        )
        cluster = self.snapshot()
        if self.complete_us is not None:
            job.resolution_s = self._resolution_s(cluster)
        job.tables_of(
            part.rows,
            self.selection,
            _names(cluster),
            self._ends(cluster),
            unread=self.unread,
            logs=[log for log in self.broker_logs if log.is_file()],
        )
        job.amend()
        job.keep_waiting(part.waiting)
        query = before.notes["query"] if before else uuid.uuid4().hex
        done = (ends_of_batch(before) or {}) if before else {}
        notes = {"query": query, OFFSETS: as_note({**done, **part.upto})}
        waiting = described(part.waiting, self.selection)
        notes["open_transactions"] = [one.as_note() for one in waiting]
        notes |= {**self._looked(cluster), **job.notes}
        notes |= self._unpolled(before.notes if before else {}, cluster)
        notes |= job.examine(notes, self.since)
        notes["state"] = {name: job.files.pop(name, []) for name in STATE_TABLES}
        if before and DROPPED in before.notes:
            notes[DROPPED] = before.notes[DROPPED]
        made = Batch(id=batch_id, files=job.files, notes=notes)
        gone = [*job.amended, *self._expired(cluster)]
        self.tables.commit(made, anew=["lag", "findings"], without=gone, made_from=known)
        remove_staged(self.tables.root)
        remove_state(self.tables.root, but=batch_folder(batch_id))
        self._maintain(batch_id + 1)
        return batch_id

    def left(self) -> tuple[Offsets, pa.Table]:
        """Return the end offsets of the folder's batches, and waiting records; empty at first."""
        known = self.tables.committed()
        if not known:
            return {}, WAITING.empty_table()
        return ends_of_batch(known[-1]) or {}, self._state(WAITING_STATE, "waiting")

    def known(self, before: Offsets) -> pa.Table:
        """Return last records of keys before an offset of some partitions, as KNOWN_KEYS."""
        state = CarriedState()
        for batch in self._state(STATE, "state").rename_columns(["group", "message"]).to_batches():
            read_state(batch, state)
        positions = known_positions(self._state(LATEST, "positions"), before)
        return pa.concat_tables([positions, known_groups(state, before)])

    def _state(self, name: str, definition: str) -> pa.Table:
        """Return a table of the state of the last batch."""
        files = self.tables.committed()[-1].notes["state"].get(name, [])
        paths = checked_files(self.tables.root, [file for file, _ in files])
        rows = [BoundedParquet(path).read() for path in paths]
        return pa.concat_tables([arrow_schema(definition).empty_table(), *rows])

    def look(self, session: Session = None) -> bool:
        """Read log ends again, and update the newest batch's lag; return False without a batch.

        Raises SourceError if the cluster cannot be read, or another process has written to the
        folder since.
        """
        known = self.tables.manifest()
        last = known.batches[-1] if known.batches else None
        if last is None:
            return False
        state = last.notes.get("state", {})
        cluster = self.snapshot()
        owners = {OWNERS: [(str(name), int(rows)) for name, rows in state[OWNERS]]}
        past = {name: state.get(name, []) for name in (LATEST, FOLLOWED)}
        job = Job(session=session, tables=self.tables, batch=last.id, past=past, files=owners)
        job.resolution_s = self._resolution_s(cluster)
        job.lag(self._ends(cluster), self.unread)
        notes = {**last.notes, **self._looked(cluster), **self._unpolled(last.notes, cluster)}
        notes |= job.examine(notes, self.since)
        files = {name: job.files.get(name, []) for name in ("lag", "lag_history", "findings")}
        self.tables.commit(
            replace(last, files=files, notes=notes),
            anew=["lag", "findings"],
            without=self._expired(cluster),
            made_from=known,
            operation="UPDATE",
        )
        remove_staged(self.tables.root)
        self._maintain(self.tables.manifest().version)  # polls have no number of their own
        return True

    def _resolution_s(self, cluster: ClusterSnapshot) -> int:
        """Return the resolution of a reading's rows of ``lag_history``."""
        newest_ms = self.tables.newest_ms("lag_history") if self.tables.committed() else None
        newest_us = None if newest_ms is None else 1000 * newest_ms
        return resolution_s(_taken_at_us(cluster), newest_us)

    def _expired(self, cluster: ClusterSnapshot) -> list[str]:
        """Return the files of ``lag_history`` that a commit takes out."""
        files = self.tables.data_files("lag_history")
        return expired(files, _taken_at_us(cluster))

    def _maintain(self, n_done: int) -> None:
        """Merge files after every so many batches and polls: both add files."""
        if n_done % MAINTENANCE_EVERY == 0:
            maintain(self.tables.folder, retention_days=self.retention_days)

    def _looked(self, cluster: ClusterSnapshot) -> dict[str, Any]:
        """Return when and how often log ends and records are read, as notes of a batch."""
        complete_at = "" if self.complete_us is None else moment_text(self.complete_us)
        return {
            "taken_at": cluster.taken_at,
            COMPLETE_AT: complete_at,
            "every_seconds": self.every_seconds,
            "started_with": list(self.started_with),
            **(self.poll_notes() if self.poll_notes is not None else {}),
        }

    def _unpolled(self, before: Mapping[str, Any], cluster: ClusterSnapshot) -> dict[str, Any]:
        """Return times without a poll of coordinators, by the notes of the batch before."""
        earlier_us = to_us(str(before.get("taken_at")))
        if self.poll_notes is None or not self.every_seconds or earlier_us is None:
            return {}
        known = list(before.get(UNPOLLED, ()))
        between_s = (_taken_at_us(cluster) - earlier_us) / 1e6
        if between_s > LATE_POLLS * self.every_seconds:
            known.append([before["taken_at"], cluster.taken_at])
        return {UNPOLLED: known[-MOST_UNPOLLED:]}

    def _ends(self, cluster: ClusterSnapshot) -> Ends:
        records = part_of(SHARE_STATE, cluster.share_state)
        share, n_bad = share_positions(records, _names(cluster), self.selection)
        return Ends(
            offsets=part_of("offsets", cluster.offsets),
            taken_at_us=_taken_at_us(cluster),
            reset=self.auto_offset_reset,
            share=share,
            n_bad_share=n_bad,
            earlier=EarlierLag.of(self.tables),
        )


def _taken_at_us(cluster: ClusterSnapshot) -> int:
    return to_us(cluster.taken_at) or 0


def _names(cluster: ClusterSnapshot) -> dict[str, str]:
    return names_by_id((topic_id, topic) for topic_id, topic, _ in cluster.topics)


def check_watched(tables: Tables) -> None:
    """Refuse a folder that contains other files, or the tables of another run."""
    check_folder(tables.root)
    known = tables.committed()
    if known and ("query" not in known[-1].notes or ends_of_batch(known[-1]) is None):
        raise _of_another_run(tables.root)


def count_new(tables: Tables, ends: LogEnds) -> int:
    """Return the number of offsets that the batches of a folder have not read yet."""
    known = tables.committed()
    done = (ends_of_batch(known[-1]) or {}) if known else {}
    return n_offsets(next_span(done, {p: (one.begin, one.end) for p, one in ends.items()}, None))


def _of_another_run(root: StoragePath) -> SourceError:
    line = holdfast_line("watch", "-b", SERVERS, "-o", FOLDER)
    return SourceError(
        f"{root} contains the tables of another run, such as a history: a stream needs its own "
        f"folder, an empty or a new one (`{line}`)"
    )


def watch(feed: Feed, out_dir: StoragePath | str, **options: Any) -> Tables:
    """Follow the offsets topic of a live cluster into a folder of tables.

    Options are those of :class:`Stream`; rows are dropped after RETENTION_DAYS by default. Without
    ``every_seconds`` it reads the present records and ends. A session of the feed is called where
    this process does not read all new records, or run all steps.

    Raises
    ------
    SourceError
        The cluster cannot be read, or its topic ends before the folder's last batch; or another
        process writes to the folder, or it contains tables that no stream wrote.
    """
    tables, cluster = Tables(storage_path(out_dir).absolute()), feed.cluster
    check_watched(tables)
    chosen = {"selection": Selection(), "retention_days": RETENTION_DAYS, **options}
    chosen["broker_logs"] = [log.absolute() for log in options.get("broker_logs", ())]
    into = Stream(
        tables=tables,
        snapshot=feed.snapshot if isinstance(feed, PolledFeed) else cluster.snapshot,
        unread=cluster.first_unread,
        poll_notes=(lambda: feed.notes) if isinstance(feed, PolledFeed) else None,
        **chosen,
    )
    follow(feed, into)
    return tables


def follow(feed: Feed, into: Stream, *, wait: Callable[[float], None] = time.sleep) -> None:
    """Take what a feed has into tables, batch after batch, as the only writer of their folder."""
    with into.tables.writing(into.every_seconds or 0.0):
        queried_us, ends = _now_us(), feed.ends()  # a cluster that cannot be read now ends the run
        catching_up = _CatchingUp(feed, into, knows_all=bool(into.left()[0]))
        while True:
            began = time.monotonic()
            n_taken = catching_up.take(ends, queried_us)
            if into.every_seconds is None:
                return
            into.complete_us = queried_us
            if not n_taken and _read(into, lambda: into.look(feed.session)) and into.after_look:
                into.after_look(into.tables, None)
            wait(max(0.0, into.every_seconds - (time.monotonic() - began)))
            next_us = _now_us()
            if (found := _read(into, feed.ends)) is not None:
                queried_us, ends = next_us, found


@dataclass(slots=True)
class _CatchingUp:
    """Adds all new records, part by part.

    ``knows_all``: state has all records that the topic ever had. Before that no record of the state
    can have been deleted.
    """

    feed: Feed
    into: Stream
    knows_all: bool

    def take(self, ends: LogEnds, queried_us: int) -> int:
        """Add parts until no cleaned offset is missing; return their number.

        ``queried_us`` is when ``ends`` were read, in microseconds since 1970: with the last of the
        parts the tables are complete up to then. Raises SourceError if the topic was cleaned faster
        than it was read, and no other poll follows.
        """
        n_taken, missing = 0, set[int]()
        for _ in range(MOST_READS):
            missing.clear()
            while (part := self._next(ends)) is not None:
                missing |= part.missing_until.keys()
                is_last = not any(spans(part.upto, ends, part.waiting, None))
                self.into.complete_us = queried_us if is_last else None
                self._process(part)
                n_taken += 1
            self.knows_all = True
            if not missing:
                return n_taken
            queried_us, ends = _now_us(), self.feed.ends()
        error = SourceError(cleaned_text(missing))
        if self.into.every_seconds is None:
            raise error
        if self.into.after_look is not None:
            self.into.after_look(self.into.tables, error)
        return n_taken

    def _next(self, ends: LogEnds) -> LogPart | None:
        """Return the next part; before it, delete from the tables what was deleted meanwhile."""
        done, waiting = self.into.left()
        topic = self.feed if isinstance(self.feed, KafkaFeed) else None
        needs_spark = None if topic is None else topic.needs_spark
        by_spark, here = spans(done, ends, waiting, self.into.max_records, needs_spark)
        if not by_spark and not here:
            return None
        if self.into.before_batch is not None:
            self.into.before_batch(n_offsets(by_spark or here), count_new(self.into.tables, ends))
        if topic is not None and by_spark:
            # Spark reads nothing of partitions with waiting records: they wait on.
            part = replace(topic.on_spark(by_spark), waiting=waiting)
        else:
            part = self.feed.here(here, waiting)
        if topic is not None and part.missing_until and self.knows_all:
            self._delete(topic, part.missing_until, done, waiting)
        return part

    def _delete(
        self, topic: KafkaFeed, missing: Iterable[int], done: Offsets, waiting: pa.Table
    ) -> None:
        """Take out of the tables what was deleted in partitions in which new records are missing.

        Its tombstones come before everything new.
        """
        known = self.into.known({p: done[p] for p in missing if p in done})
        with topic.reader(waiting) as reader:
            rows = deletions(reader, known, done, time.time_ns() // 1000)
        if rows.num_rows:
            held = InMemoryRows(rows=rows, cost_rows=rows.num_rows)
            self._process(LogPart(rows=held, upto=done, waiting=waiting))

    def _process(self, part: LogPart) -> None:
        batch_id = self.into.process(part, self.feed.session)
        if self.into.after_batch is not None:
            self.into.after_batch(self.into.tables, batch_id)


def _read(into: Stream, read: Callable[[], T]) -> T | None:
    """Return a cluster's answer; None if it cannot be read now, which is reported."""
    try:
        return read()
    except SourceError as error:
        if into.after_look is not None:
            into.after_look(into.tables, error)
        return None


def _now_us() -> int:
    return time.time_ns() // 1000
