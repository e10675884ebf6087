"""A feed without the offsets topic: what coordinators answer, poll by poll, as its records.

**Rules.** A poll appends a record for each generation that differs from the known one, for each
commit that moved, and a tombstone for each group and commit that was deleted. A group that
rebalances keeps its known generation until the rebalance ends: its members have no assignments
meanwhile. Offsets count appended records. A feed that starts on tables of an earlier one continues
from them, so a restart appends nothing that was already known.

What a poll cannot know: rebalances between two polls, and any time more exactly than the poll
interval. Generations are counted here, one for each change that a poll found. KIP-848 groups are
recorded as classic ones; share and Streams groups are not recorded.

**Strategy.** All later steps are those of the offsets topic: the records are of its form
(:mod:`holdfast.fleet.pipeline.ingest.described_records`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.cluster.groups_now import polled_groups
from holdfast.core.kinds.kind import GroupType
from holdfast.errors import SourceError
from holdfast.fleet.pipeline.ingest.described_records import (
    KeyValue,
    commit_record,
    deleted_group,
    generation_record,
)
from holdfast.fleet.pipeline.ingest.dump import write_log
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC, LogPart, ends_of_batch
from holdfast.fleet.pipeline.ingest.selection import Selection
from holdfast.fleet.pipeline.ingest.transactions import RECORDS
from holdfast.fleet.pipeline.steps import InMemoryRows
from holdfast.fleet.tables.columns.schemas import from_columns

if TYPE_CHECKING:
    from holdfast.cluster.cluster import LiveCluster
    from holdfast.cluster.groups_now import PolledGroups
    from holdfast.cluster.snapshot import SeenGroup, SeenMember
    from holdfast.fleet.pipeline.ingest.offsets_topic import LogEnds
    from holdfast.fleet.pipeline.ingest.source import Dump
    from holdfast.fleet.pipeline.ingest.topic_reader import Span
    from holdfast.fleet.tables.reading import Tables
    from holdfast.fleet.tables.storage.paths import StoragePath

RECORDED: Final = frozenset({GroupType.CLASSIC, GroupType.CONSUMER})
"""Types of groups whose members and commits become records."""

_LOG_PARTITION: Final = 0
_DELETED: Final = "Dead"
_GENERATIONS: Final = ("group", "generation", "state", "log_offset")
_MEMBERS: Final = ("group", "generation", "member_id")
_OWNERS: Final = (*_MEMBERS, "topic", "partition")
_COMMITS: Final = ("group", "topic", "partition", "current_offset")

Owned = frozenset[tuple[str, str, int]]
"""Member, topic and partition of each partition with an owner; a member without one: ("", -1)."""


@dataclass(slots=True)
class KnownGroups:
    """Generations and commits that are recorded already.

    Parameters
    ----------
    generations : dict
        Group -> number of the newest generation, and its owners; None after a tombstone.
    commits : dict
        Group -> (topic, partition) -> committed offset.
    """

    generations: dict[str, tuple[int, Owned | None]] = field(default_factory=dict)
    commits: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Tables) -> KnownGroups:
        """Return what the tables of an earlier feed hold; nothing of an empty folder."""
        known = cls()
        if not tables.committed():
            return known
        newest = _newest(tables)
        owned: dict[str, set[tuple[str, str, int]]] = {group: set() for group in newest}
        for group, generation, member in _rows(tables, "members", _MEMBERS):
            if generation == newest[group][0]:
                owned[group].add((member, "", -1))
        for group, generation, member, topic, partition in _rows(tables, "assignments", _OWNERS):
            if generation == newest[group][0]:
                owned[group].add((member, topic, partition))
        for group, (generation, state) in newest.items():
            is_deleted = state == _DELETED
            known.generations[group] = generation, None if is_deleted else frozenset(owned[group])
        for group, topic, partition, offset in _rows(tables, "lag", _COMMITS):
            if offset is not None:
                known.commits.setdefault(group, {})[topic, partition] = offset
        return known

    def changes(self, polled: PolledGroups) -> Iterator[KeyValue]:
        """Yield records of what differs from the known groups, which then are the polled ones."""
        at_ms, groups = polled.seen.queried_ms, polled.seen.groups
        for name, group in sorted(groups.items()):
            if group.kind in RECORDED and group.members is not None and not group.is_rebalancing:
                yield from self._generation(name, group, at_ms)
        for name, commits in sorted(polled.commits.items()):
            if name in groups and groups[name].kind in RECORDED:
                yield from self._commits(name, commits, at_ms)
        for name in sorted(polled.seen.gone):
            yield from self._deleted(name, at_ms)

    def _generation(self, name: str, group: SeenGroup, at_ms: int) -> Iterator[KeyValue]:
        members = group.members or ()
        number, before = self.generations.get(name, (0, None))
        owned = _owned(members)
        if owned != before and (owned or before is not None):
            self.generations[name] = number + 1, owned
            yield generation_record(name, number + 1, members, at_ms, group.protocol)

    def _commits(
        self, name: str, commits: Mapping[tuple[str, int], int], at_ms: int
    ) -> Iterator[KeyValue]:
        known = self.commits.setdefault(name, {})
        for (topic, partition), offset in sorted(commits.items()):
            if known.get((topic, partition)) != offset:
                known[topic, partition] = offset
                yield commit_record(name, topic, partition, offset, at_ms)
        for topic, partition in sorted(known.keys() - commits.keys()):
            del known[topic, partition]
            yield commit_record(name, topic, partition, None, at_ms)

    def _deleted(self, name: str, at_ms: int) -> Iterator[KeyValue]:
        yield from self._commits(name, {}, at_ms)
        number, owned = self.generations.get(name, (0, None))
        if owned is not None:
            self.generations[name] = number, None
            yield deleted_group(name)


@dataclass(slots=True, kw_only=True)
class PolledFeed:
    """The records that polls of coordinators gave, as a log of one partition.

    Parameters
    ----------
    selection : Selection
        Groups to query.
    known : KnownGroups
        The records that are known already (:meth:`KnownGroups.of`).
    next_offset : int
        Offset of the next record: the end of the batches in the tables.
    """

    cluster: LiveCluster
    selection: Selection
    known: KnownGroups = field(default_factory=KnownGroups)
    next_offset: int = 0
    session: None = None
    _log: pa.Table = field(default_factory=RECORDS.empty_table)

    def ends(self) -> LogEnds:
        """Poll the coordinators; return the begin and end offset of the log.

        Raises
        ------
        SourceError
            No broker answers, or the principal may not list groups.
        """
        from holdfast.cluster.cluster import PartitionEnds

        polled = polled_groups(self.cluster, self._chosen, known=self.known.generations.keys())
        self._append([*self.known.changes(polled)], polled.seen.queried_ms * 1000)
        begin = self.next_offset - self._log.num_rows
        return {_LOG_PARTITION: PartitionEnds(begin, self.next_offset, self.next_offset)}

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

    def dump(self, folder: StoragePath) -> Dump:
        """Poll once, and write what was found as a dump."""
        self.ends()
        found = self.cluster.snapshot()
        offsets = [row for row in found.offsets if row[0] != OFFSETS_TOPIC]
        columns = {name: self._log[name] for name in RECORDS.names}
        return write_log(folder, columns, replace(found, offsets=offsets), polled=True)

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


def feed_of(cluster: LiveCluster, selection: Selection, tables: Tables | None = None) -> PolledFeed:
    """Return a feed that continues the tables of an earlier one, or starts a new history.

    Raises
    ------
    SourceError
        The tables are those of the offsets topic.
    """
    batches = [] if tables is None else tables.committed()
    if tables is None or not batches:
        return PolledFeed(cluster=cluster, selection=selection)
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
    )


def _owned(members: Sequence[SeenMember]) -> Owned:
    found = {(one.member_id, "", -1) for one in members}
    found |= {(one.member_id, t, p) for one in members for t, ps in one.partitions for p in ps}
    return frozenset(found)


def _newest(tables: Tables) -> dict[str, tuple[int, str]]:
    """Return the number and the state of each group's newest generation."""
    rows = sorted(_rows(tables, "generations", _GENERATIONS), key=itemgetter(3))
    return {group: (generation, state) for group, generation, state, _ in rows}


def _rows(tables: Tables, name: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    found = tables.table(name)
    return zip(*(found[column].to_pylist() for column in columns), strict=True)
