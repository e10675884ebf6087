"""A feed without the offsets topic: what coordinators answer, poll by poll, as its records.

**Rules.** A poll gives records for each generation that differs from the known one, for each commit
that moved, for each member of a KIP-848 or streams group that has other partitions than before, and
tombstones for each group, member and commit that was deleted. A classic group that rebalances, and
a share group with a member behind its epoch, keep the known generation until the members have their
assignments. A group that changes its protocol is deleted and begins again, as at a broker. A group
without an answer stays as it is.

Generations of classic groups are counted here, one for each change that a poll found; the others
are numbered by their brokers. A member that has given partitions up, and is still of the epoch
before, is revoking them (KIP-848): an answer does not list pending revocations. Offsets count
appended records. What a poll cannot know:
:data:`~holdfast.fleet.analysis.times.NOT_KNOWN_BY_POLLS`.

**Strategy.** All later steps are those of the offsets topic: the records are of its form
(:mod:`~holdfast.fleet.pipeline.ingest.described_records`). A feed that starts on tables of an
earlier one continues from them: :class:`KnownGroups` starts with what they hold, so a restart
repeats nothing but the present partitions of members, which change nothing. The positions of share
groups are written in the form of their own topic, ``__share_group_state``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.cluster.snapshot import EPOCH_RECORDS, EpochMember, Fields, GroupEpochs
from holdfast.core.kinds import ACTIVE, ROLES, GroupKind, GroupType, kind_of
from holdfast.errors import SourceError, WireError
from holdfast.fleet.analysis.times import refused_text
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.described_records import (
    KeyValue,
    commit_record,
    current_record,
    deleted_epochs,
    deleted_group,
    departed_member,
    epoch_records,
    generation_record,
)
from holdfast.fleet.pipeline.ingest.dump import Note, log_columns, write_log
from holdfast.fleet.pipeline.ingest.offsets_topic import (
    OFFSETS_TOPIC,
    KafkaFeed,
    LogPart,
    ends_of_batch,
)
from holdfast.fleet.pipeline.ingest.split import records_of
from holdfast.fleet.pipeline.ingest.transactions import RECORDS
from holdfast.fleet.pipeline.steps import InMemoryRows
from holdfast.fleet.tables.columns.schemas import from_columns
from holdfast.fleet.tables.folder.manifest import MOST_REFUSED, N_REFUSED, POLLED, REFUSED

if TYPE_CHECKING:
    from holdfast.cluster.cluster import LiveCluster
    from holdfast.cluster.group_messages import Position
    from holdfast.cluster.groups_now import PolledGroups
    from holdfast.cluster.snapshot import ClusterSnapshot, SeenGroup, SeenMember
    from holdfast.fleet.pipeline.ingest.offsets_topic import LogEnds, Span
    from holdfast.fleet.pipeline.ingest.source import Dump
    from holdfast.fleet.tables.reading import Tables
    from holdfast.fleet.tables.storage.paths import StoragePath

_DELETED: Final = "Dead"
_GENERATIONS: Final = ("group", "group_type", "generation", "state", "log_offset")
_MEMBERS: Final = ("group", "generation", "member_id")
_OWNERS: Final = (*_MEMBERS, "topic", "partition")
_COMMITS: Final = ("group", "topic", "partition", "current_offset")

Owned = frozenset[tuple[str, str, int]]
"""Member, topic and partition of each partition with an owner; each member once with ("", -1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGeneration:
    """The newest recorded generation of a group; ``owned`` is None after a tombstone."""

    kind: GroupType
    number: int
    owned: Owned | None

    @property
    def members(self) -> list[str]:
        """Member ids, sorted."""
        return sorted({member for member, _, _ in self.owned or ()})


@dataclass(slots=True)
class KnownGroups:
    """Generations, commits and present partitions that are recorded already, by group.

    ``commits`` has the offset of each topic-partition, ``current`` the value of the record of each
    member's present partitions.
    """

    generations: dict[str, KnownGeneration] = field(default_factory=dict)
    commits: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    current: dict[str, dict[str, Fields]] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Tables) -> KnownGroups:
        """Return what the tables of an earlier feed hold; nothing of an empty folder."""
        known = cls()
        if not tables.committed():
            return known
        newest = _newest(tables)
        owned: dict[str, set[tuple[str, str, int]]] = {group: set() for group in newest}
        for group, generation, member in _rows(tables, "members", _MEMBERS):
            if generation == newest[group].number:
                owned[group].add((member, "", -1))
        for group, generation, member, topic, partition in _rows(tables, "assignments", _OWNERS):
            if generation == newest[group].number:
                owned[group].add((member, topic, partition))
        for group, one in newest.items():
            has = None if one.owned is None else frozenset(owned[group])
            known.generations[group] = KnownGeneration(kind=one.kind, number=one.number, owned=has)
        for group, topic, partition, offset in _rows(tables, "lag", _COMMITS):
            is_shared = group in newest and newest[group].kind is GroupType.SHARE
            if offset is not None and not is_shared:
                known.commits.setdefault(group, {})[topic, partition] = offset
        return known

    def changes(self, polled: PolledGroups) -> Iterator[KeyValue]:
        """Yield records of what differs from the known groups, which then are the polled ones."""
        at_ms, groups = polled.seen.queried_ms, polled.seen.groups
        for name, group in sorted(groups.items()):
            if group.members is None:  # refused
                continue
            known = self.generations.get(name)
            if known is not None and known.kind is not group.kind:
                yield from self._forgotten(name)
            if group.epochs is not None:
                yield from self._epoch(name, group.kind, group.epochs)
            elif not group.is_rebalancing:
                yield from self._generation(name, group, at_ms)
        for name, commits in sorted(polled.commits.items()):
            if name in groups:
                yield from self._commits(name, commits, at_ms)
        for name in sorted(polled.seen.gone):
            yield from self._commits(name, {}, at_ms)
            yield from self._forgotten(name)

    def _generation(self, name: str, group: SeenGroup, at_ms: int) -> Iterator[KeyValue]:
        number, before = self._before(name)
        owned = _owned(group)
        if owned == before or not (owned or before is not None):
            return
        self.generations[name] = KnownGeneration(kind=group.kind, number=number + 1, owned=owned)
        yield generation_record(
            name,
            number + 1,
            group.members or (),
            at_ms,
            protocol=group.protocol or None,
            protocol_type=group.protocol_type,
            messages=group.messages,
        )

    def _epoch(self, name: str, kind: GroupType, epochs: GroupEpochs) -> Iterator[KeyValue]:
        number, before = self._before(name)
        now = epochs.assignment if epochs.members else epochs.group
        is_new = (now != number or before is None) and now > 0
        # One without members that was never recorded has never had one.
        if is_new and (epochs.members or before is not None) and not _waits(kind, epochs):
            gone = {member for member, _, _ in before or ()} - epochs.members.keys()
            for member_id in sorted(gone):
                yield from departed_member(kind, name, member_id)
                self.current.get(name, {}).pop(member_id, None)
            owned = frozenset((member_id, "", -1) for member_id in epochs.members)
            self.generations[name] = KnownGeneration(kind=kind, number=now, owned=owned)
            yield from epoch_records(kind, name, epochs)
        if name in self.generations and EPOCH_RECORDS[kind].assigned:
            yield from self._current(name, kind, epochs)

    def _current(self, name: str, kind: GroupType, epochs: GroupEpochs) -> Iterator[KeyValue]:
        known = self.current.setdefault(name, {})
        for member_id in sorted(known.keys() - epochs.members.keys()):
            del known[member_id]
            yield current_record(kind, name, member_id, None)
        for member_id, member in sorted(epochs.members.items()):
            value = _value(kind, member, known.get(member_id))
            if value != known.get(member_id):
                known[member_id] = value
                yield current_record(kind, name, member_id, value)

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

    def _forgotten(self, name: str) -> Iterator[KeyValue]:
        """Yield the tombstones of a group that is no more, or is one of another kind."""
        known = self.generations.get(name)
        self.current.pop(name, None)
        if known is None or known.owned is None:
            return
        dead = KnownGeneration(kind=known.kind, number=known.number, owned=None)
        self.generations[name] = dead
        if known.kind is GroupType.CLASSIC:
            yield deleted_group(name)
        else:
            yield from deleted_epochs(known.kind, name, known.members)

    def _before(self, name: str) -> tuple[int, Owned | None]:
        known = self.generations.get(name)
        return (0, None) if known is None else (known.number, known.owned)


def _waits(kind: GroupType, epochs: GroupEpochs) -> bool:
    """Return whether a share group's answer is not the target: a member is behind the epoch."""
    is_behind = (one.epoch != epochs.assignment for one in epochs.members.values())
    return kind is GroupType.SHARE and any(is_behind)


def _value(kind: GroupType, member: EpochMember, before: Fields | None) -> Fields:
    """Return the value of the record of a member's present partitions."""
    records = EPOCH_RECORDS[kind]
    (own,) = (name for name, role in records.roles.items() if role == ACTIVE)
    now = _flat(member.assigned[own], records.parent)
    pending: set[tuple[Any, int]] = set()
    if before is not None and before["memberEpoch"] == member.epoch:
        lists = (before[records.assigned], before[records.pending])
        pending = {tp for some in lists for tp in _flat(some, records.parent)} - now
    value: dict[str, Any] = {"memberEpoch": member.epoch}
    for name in records.roles.keys() - {own}:
        value[name] = _lists(_flat(member.assigned[name], records.parent), records.parent)
    value[records.assigned] = _lists(now, records.parent)
    value[records.pending] = _lists(pending, records.parent)
    return value


def _flat(lists: Iterable[Fields], parent: str) -> set[tuple[Any, int]]:
    return {(one[parent], number) for one in lists for number in one["partitions"]}


def _lists(found: set[tuple[Any, int]], parent: str) -> list[dict[str, Any]]:
    by_parent: dict[Any, list[int]] = {}
    for name, number in sorted(found, key=lambda one: (str(one[0]), one[1])):
        by_parent.setdefault(name, []).append(number)
    return [{parent: name, "partitions": numbers} for name, numbers in by_parent.items()]


def _owned(group: SeenGroup) -> Owned:
    """Return what the members of a classic group have, in the words of its kind."""
    kind = kind_of(group.kind, group.protocol_type, group.protocol)
    members = group.members or ()
    found = {(one.member_id, "", -1) for one in members}
    for one in members:
        found |= {(one.member_id, *thing) for thing in _things(kind, group, one)}
    return frozenset(found)


def _things(kind: GroupKind, group: SeenGroup, member: SeenMember) -> set[tuple[str, int]]:
    subscription, assignment = group.messages.get(member.member_id, (b"", b""))
    if kind.read is None or not assignment:
        return {(topic, p) for topic, ps in member.partitions for p in ps}
    try:
        given = kind.read(subscription, assignment).owned
    except WireError:
        return set()
    shown = [(parent, numbers) for role, parent, numbers in given if role < len(ROLES)]
    return {(parent, number) for parent, numbers in shown for number in numbers}


def _newest(tables: Tables) -> dict[str, KnownGeneration]:
    """Return the newest generation of each group, without its owners; None of a deleted group."""
    rows = sorted(_rows(tables, "generations", _GENERATIONS), key=itemgetter(4))
    found: dict[str, KnownGeneration] = {}
    for group, kind, generation, state, _ in rows:
        is_deleted = state == _DELETED  # without a number: the next one follows the last
        number = generation
        if is_deleted:
            number = found[group].number if group in found else 0
        owned = None if is_deleted else Owned()
        found[group] = KnownGeneration(kind=GroupType(kind), number=number, owned=owned)
    return found


def _rows(tables: Tables, name: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    found = tables.table(name)
    return zip(*(found[column].to_pylist() for column in columns), strict=True)


_LOG_PARTITION: Final = 0


@dataclass(slots=True, kw_only=True)
class PolledFeed:
    """The records that polls of coordinators gave, as a log of one partition, in memory.

    No record is missing, and none waits for a transaction.

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

    def here(self, span: Span, waiting: pa.Table) -> LogPart:
        """Return the records of a span; earlier ones are committed, and are dropped."""
        begin, end = span[_LOG_PARTITION]
        offsets = self._log["offset"]
        self._log = self._log.filter(pc.greater_equal(offsets, begin))
        rows = self._log.slice(0, end - begin)
        return LogPart(
            rows=InMemoryRows(rows=rows, cost_rows=rows.num_rows), upto={_LOG_PARTITION: end}
        )

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
        rows = from_columns("records", log_columns(records, at_us, self.next_offset))
        self._log = pa.concat_tables([self._log, rows])
        self.next_offset += len(records)

    def _chosen(self, names: Collection[str]) -> list[str]:
        ordered = sorted(names)
        keep = self.selection.keep_groups(pa.array([n.encode() for n in ordered], pa.binary()))
        return ordered if keep is None else [ordered[i] for i in np.flatnonzero(keep)]


Feed: TypeAlias = KafkaFeed | PolledFeed
"""A log of records of the offsets topic's form, which a stream takes part by part."""


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
