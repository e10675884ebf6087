"""An offsets topic in memory: a coordinator that writes it, a cleaner, and a leader that is asked.

The coordinator keeps the positions that Kafka's would answer with, by ``OffsetMetadataManager``; a
feed reads the topic as it reads a cluster, but for Spark.
"""

from __future__ import annotations

import json
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pyarrow as pa
from tests.pipeline import fleet
from tests.wire.log_twin import Batch, end_of_transaction

from holdfast.cluster.cluster import PartitionEnds
from holdfast.cluster.lookup import FetchedLog
from holdfast.core.wire.many.record_batches import ABORT, COMMIT
from holdfast.fleet.pipeline.ingest import dump
from holdfast.fleet.pipeline.ingest.dump import part_of
from holdfast.fleet.pipeline.ingest.offsets_topic import KafkaFeed, LogPart, TopicReader, n_offsets
from holdfast.fleet.pipeline.ingest.transactions import RECORDS
from holdfast.fleet.pipeline.steps import InMemoryRows

BEGAN_MS = 1_767_225_600_000


@dataclass
class Entry:
    """A record of a partition."""

    offset: int
    key: bytes
    value: bytes | None
    producer: int = -1
    marker: int = -1
    state: str = "counts"  # or waits, aborted

    def batch(self, time_ms):
        if self.marker >= 0:
            return end_of_transaction(self.offset, self.producer, self.marker, time_ms)
        records = [(self.offset, time_ms, self.key, self.value)]
        transactional = self.producer >= 0
        said = {"producer_id": self.producer, "transactional": transactional}
        return Batch(base=self.offset, last=self.offset, records=records, **said)


@dataclass
class OffsetsLog:
    """The topic: its log, what its coordinator knows, and everything that it ever held."""

    n_partitions: int = 2
    log: dict[int, list[Entry]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    written: list[tuple[int, Entry, int]] = field(default_factory=list)
    positions: dict[tuple[str, str, int], tuple[int, int]] = field(default_factory=dict)
    """Group, topic and partition -> offset, and the offset of the record."""
    pending: dict[int, dict] = field(default_factory=dict)
    times: dict[tuple[int, int], int] = field(default_factory=dict)
    on_fetch: list = field(default_factory=list)
    """Functions that are called before the next answers, one before each."""
    fetched: int = 0

    def __post_init__(self):
        for p in range(self.n_partitions):
            self.log[p], self.ends[p] = [], 0

    # The coordinator

    def partition_of(self, group):
        return sum(group.encode()) % self.n_partitions

    def append(self, group, key, value, **said):
        partition = self.partition_of(group)
        return self._append(partition, key, value, **said)

    def _append(self, partition, key, value, **said):
        entry = Entry(self.ends[partition], key, value, **said)
        self.times[partition, entry.offset] = BEGAN_MS + 1000 * len(self.times)
        self.ends[partition] += 1
        self.log[partition].append(entry)
        self.written.append((partition, entry, self.times[partition, entry.offset]))
        return entry

    @property
    def now_s(self):
        return BEGAN_MS / 1000 + len(self.times)

    def commit(self, group, topic, partition, offset, producer=-1):
        pair = fleet.commit(group, topic, partition, offset, at=self.now_s)
        state = "waits" if producer >= 0 else "counts"
        entry = self.append(group, *pair, producer=producer, state=state)
        at = (group, topic, partition)
        if producer >= 0:
            self.pending.setdefault(producer, {})[at] = (offset, entry.offset)
        else:
            self.positions[at] = (offset, entry.offset)

    def end(self, producer, *, commit=True):
        """End the transaction of a producer: a marker in each partition that it wrote to."""
        waiting = [(p, e) for p, entries in self.log.items() for e in entries]
        mine = [(p, e) for p, e in waiting if e.producer == producer and e.state == "waits"]
        for partition in sorted({p for p, _ in mine}):
            marker = COMMIT if commit else ABORT
            self._append(partition, b"", None, producer=producer, marker=marker)
        for _, entry in mine:
            entry.state = "counts" if commit else "aborted"
        for at, (offset, record) in self.pending.pop(producer, {}).items():
            if commit and record > self.positions.get(at, (0, -1))[1]:
                self.positions[at] = (offset, record)

    def delete(self, group, topic=None):
        """Delete a group, or its commits of a topic: a tombstone for each key."""
        every = {at for own in self.pending.values() for at in own} | self.positions.keys()
        for at in sorted(every):
            if at[0] == group and topic in (None, at[1]):
                self.append(group, *fleet.commit(*at, None, at=0))
                self.positions.pop(at, None)
                for own in self.pending.values():
                    own.pop(at, None)
        if topic is None:
            self.append(group, *fleet.record(2, None, {"group": group}, None))

    # The cleaner

    def stable(self, partition):
        open_ = [e.offset for e in self.log[partition] if e.state == "waits"]
        return min(open_, default=self.ends[partition])

    def clean(self, *, tombstones=False, active=0):
        """Keep the last record of each key; ``active`` records at the end are not touched.

        One is always in the active segment, or the log would end before its end.
        """
        for partition, entries in self.log.items():
            limit = min(self.stable(partition), self.ends[partition] - max(active, 1))
            last = {
                e.key: e.offset
                for e in entries
                if e.offset < limit and e.state == "counts" and e.marker < 0
            }
            self.log[partition] = [
                e
                for e in entries
                if e.offset >= limit
                or (e.marker >= 0 and not tombstones)
                or (
                    e.state == "counts"
                    and e.marker < 0
                    and last[e.key] == e.offset
                    and (e.value is not None or not tombstones)
                )
            ]

    # The leader

    def partition_ends(self, topic=None, only=None):
        return {p: PartitionEnds(0, self.stable(p), end) for p, end in sorted(self.ends.items())}

    @contextmanager
    def connected(self):
        yield lambda request, ask: ask(self).result()

    def list_offsets(self, places, at, *, committed_only=None):
        ends = self.partition_ends()
        which = {-2: 0, -1: 1 if committed_only else 2}[at]
        return done({(topic, p): ends[p][which] for topic, p in places})

    def fetch(self, topic, offsets):
        if self.on_fetch:
            self.on_fetch.pop(0)()
        self.fetched += 1
        found = {}
        for p, begin in offsets.items():
            near = [e for e in self.log[p] if e.offset >= begin][:7]
            blob = b"".join(e.batch(self.times[p, e.offset]).encode() for e in near)
            found[p] = FetchedLog(records=blob)
        return done(found)

    # What a run over everything would read

    def rows(self, entries=None):
        """Records that count now, as RECORDS; by default all that were ever written."""
        chosen = self.written if entries is None else entries
        return part_of(
            "records",
            [
                (p, e.offset, time_ms * 1000, e.key, e.value)
                for p, e, time_ms in sorted(chosen, key=lambda one: (one[0], one[1].offset))
                if e.state == "counts" and e.marker < 0
            ],
        )

    def snapshot(self):
        return SimpleNamespace(
            cluster_id="c",
            topics=[],
            offsets=[
                *(("__consumer_offsets", p, 0, end) for p, end in sorted(self.ends.items())),
                *(("t", p, 0, 1000) for p in range(4)),
            ],
            taken_at="2026-02-01T00:00:00+00:00",
            share_state=[],
        )

    def feed(self, reader="python"):
        """The topic for ``python``, or for ``spark``: then Spark reads what is stable."""
        session = SimpleNamespace if reader == "spark" else None
        return LogFeed(cluster=self, session=session, most_here=0)


class LogFeed(KafkaFeed):
    """Reads as that of a cluster; records for Spark are taken from memory."""

    def on_spark(self, span):
        entries = [
            (p, e, self.cluster.times[p, e.offset])
            for p, (begin, end) in span.items()
            for e in self.cluster.log[p]
            if begin <= e.offset < end
        ]
        rows = self.cluster.rows(entries)
        upto = {p: end for p, (_, end) in span.items()}
        assert n_offsets(span)
        if self.cluster.on_fetch:
            self.cluster.on_fetch.pop(0)()
        held = InMemoryRows(rows=rows, cost_rows=rows.num_rows)
        return LogPart(rows=held, upto=upto, missing_until=upto)


def done(value):
    found = Future()
    found.set_result(value)
    return found


def read_whole(log):
    """All that :class:`TopicReader` finds from the beginning."""
    with log.connected() as asked:
        reader = TopicReader(asked, "o")
        found = [RECORDS.empty_table(), *reader.to_end(dict.fromkeys(log.ends, 0))]
    return reader, pa.concat_tables(found)


def write_dump(log, folder, *, taken_at, says_read=True):
    """A dump of the topic as it stands, as ``holdfast dump`` writes it, or as a stranger does."""
    dump.write_dump(log.feed(), folder)
    about = folder / "dump.json"
    said = json.loads(about.read_text()) | {"taken_at": taken_at}
    del said["complete_at"]
    if not says_read:
        del said["read"]
    about.write_text(json.dumps(said))
    return folder
