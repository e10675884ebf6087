"""A feed without the offsets topic: what coordinators answer, poll by poll, as its records.

**Rules.** Offsets count appended records. A feed that starts on tables of an earlier one continues
from them. What a poll cannot know:
:data:`~holdfast.fleet.analysis.source_times.NOT_KNOWN_BY_POLLS`.

**Strategy.** All later steps are those of the offsets topic: the records are of its form
(:mod:`~holdfast.fleet.pipeline.ingest.described_records`), and are of what differs from the known
groups (:mod:`~holdfast.fleet.pipeline.ingest.known_groups`). The positions of share groups are
written in the form of their own topic, ``__share_group_state``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import SourceError
from holdfast.fleet.analysis.source_times import refused_text
from holdfast.fleet.pipeline.ingest.described_records import KeyValue
from holdfast.fleet.pipeline.ingest.dump import Note, write_log
from holdfast.fleet.pipeline.ingest.known_groups import KnownGroups
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC, LogPart, ends_of_batch
from holdfast.fleet.pipeline.ingest.selection import Selection
from holdfast.fleet.pipeline.ingest.share_positions import records_of
from holdfast.fleet.pipeline.ingest.transactions import RECORDS
from holdfast.fleet.pipeline.steps import InMemoryRows
from holdfast.fleet.tables.columns.schemas import from_columns
from holdfast.fleet.tables.folder.manifest import MOST_REFUSED, N_REFUSED, POLLED, REFUSED

if TYPE_CHECKING:
    from holdfast.cluster.cluster import LiveCluster
    from holdfast.cluster.group_messages import Position
    from holdfast.cluster.snapshot import ClusterSnapshot
    from holdfast.fleet.pipeline.ingest.offsets_topic import LogEnds
    from holdfast.fleet.pipeline.ingest.source import Dump
    from holdfast.fleet.pipeline.ingest.topic_reader import Span
    from holdfast.fleet.tables.reading import Tables
    from holdfast.fleet.tables.storage.paths import StoragePath

_LOG_PARTITION: Final = 0


@dataclass(slots=True, kw_only=True)
class PolledFeed:
    """The records that polls of coordinators gave, as a log of one partition.

    ``next_offset`` is the end of the batches in the tables. ``note`` takes a line about groups that
    are not recorded, when they change.
    """

    cluster: LiveCluster
    selection: Selection
    known: KnownGroups = field(default_factory=KnownGroups)
    next_offset: int = 0
    note: Note | None = None
    session: None = None
    _refused: Mapping[str, str] = field(default_factory=dict)
    _starts: Sequence[Position] = ()
    _log: pa.Table = field(default_factory=RECORDS.empty_table)

    def ends(self) -> LogEnds:
        """Poll the coordinators; return the begin and end offset of the log.

        Raises SourceError if no broker answers, or the principal may not list groups.
        """
        from holdfast.cluster.cluster import PartitionEnds
        from holdfast.cluster.groups_now import polled_groups  # needs kafka-python

        polled = polled_groups(self.cluster, self._chosen, known=self.known.generations.keys())
        self._report(polled.refused)
        self._starts = polled.share_starts
        self._append([*self.known.changes(polled)], polled.seen.queried_ms * 1000)
        begin = self.next_offset - self._log.num_rows
        return {_LOG_PARTITION: PartitionEnds(begin, self.next_offset, self.next_offset)}

    @property
    def notes(self) -> Mapping[str, Any]:
        """Return what a batch or a dump says about the last poll."""
        names = sorted(self._refused)
        some = {name: self._refused[name] for name in names[:MOST_REFUSED]}
        return {POLLED: True, REFUSED: some, N_REFUSED: len(names)}

    def needs_spark(self, n_offsets: int) -> bool:
        """Return False: the records are in memory."""
        return False

    def on_spark(self, span: Span) -> NoReturn:
        """Never called, because ``needs_spark`` is False."""
        raise NotImplementedError

    def here(self, span: Span, waiting: pa.Table) -> LogPart:
        """Return the records of a span; earlier ones are committed, and are dropped."""
        begin, end = span[_LOG_PARTITION]
        offsets = self._log["offset"]
        self._log = self._log.filter(pc.greater_equal(offsets, begin))
        rows = self._log.slice(0, end - begin)
        return LogPart(
            rows=InMemoryRows(rows=rows, cost_rows=rows.num_rows), upto={_LOG_PARTITION: end}
        )

    def reader(self, waiting: pa.Table) -> NoReturn:
        """Never called: no record of a poll is missing, and none waits for a transaction."""
        raise NotImplementedError

    def snapshot(self) -> ClusterSnapshot:
        """Return topics and offsets, and the positions of share groups by the last poll."""
        found = self.cluster.snapshot(share_state=False)
        return replace(found, share_state=records_of(self._starts, found))

    def dump(self, folder: StoragePath) -> Dump:
        """Poll once, and write what was found as a dump."""
        self.ends()
        found = self.snapshot()
        offsets = [row for row in found.offsets if row[0] != OFFSETS_TOPIC]
        columns = {name: self._log[name] for name in RECORDS.names}
        return write_log(folder, columns, replace(found, offsets=offsets), notes=self.notes)

    def _report(self, refused: Mapping[str, str]) -> None:
        """Report groups that are not recorded, once."""
        if refused and refused != self._refused and self.note is not None:
            self.note(f"not recorded: {refused_text(refused, len(refused))}")
        self._refused = refused

    def _append(self, records: Sequence[KeyValue], at_us: int) -> None:
        n = len(records)
        columns = {
            "partition": [_LOG_PARTITION] * n,
            "offset": [*range(self.next_offset, self.next_offset + n)],
            "timestamp": [at_us] * n,
            "key": [key for key, _ in records],
            "value": [value for _, value in records],
        }
        self._log = pa.concat_tables([self._log, from_columns("records", columns)])
        self.next_offset += n

    def _chosen(self, names: Collection[str]) -> list[str]:
        ordered = sorted(names)
        keep = self.selection.keep_groups(pa.array([n.encode() for n in ordered], pa.binary()))
        return ordered if keep is None else [ordered[i] for i in np.flatnonzero(keep)]


def feed_of(
    cluster: LiveCluster,
    selection: Selection,
    tables: Tables | None = None,
    note: Note | None = None,
) -> PolledFeed:
    """Return a feed that continues the tables of an earlier one, or starts a new history.

    Raises SourceError if the tables are those of the offsets topic.
    """
    batches = [] if tables is None else tables.committed()
    if tables is None or not batches:
        return PolledFeed(cluster=cluster, selection=selection, note=note)
    if not tables.is_polled:
        raise SourceError(
            f"{tables.root} has the records of the offsets topic, and cannot continue with polls "
            "of coordinators: name a new folder"
        )
    done = ends_of_batch(batches[-1]) or {}
    return PolledFeed(
        cluster=cluster,
        selection=selection,
        known=KnownGroups.of(tables),
        next_offset=done.get(_LOG_PARTITION, 0),
        note=note,
    )
