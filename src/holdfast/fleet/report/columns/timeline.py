"""The owner of each partition over time: segments of one group, from generations and assignments.

**Rules.** A row is a partition. The segments of a row are in order, adjacent and cover the whole
window, so two owners at one moment cannot be represented. An owner is a member index, or
``NO_OWNER`` if no record names one. A segment is in a gap where its owner may have stopped already
(inferred, an upper bound).

**Strategy.** A row of the table ``assignments`` becomes a piece from the record of its generation
to the record of the next one. Pieces are sorted by (row, generation). Time between two pieces of a
row has no owner. A gap shortens the last piece of the old owner. Equal neighbours are joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import I32, I64, NO_OWNER, index_in
from holdfast.fleet.columnar import ArrowTable, codes, ints, lists, times_ms, words
from holdfast.fleet.report.columns.identity import Identities, read_identities
from holdfast.fleet.tables.columns.holdable import to_us
from holdfast.fleet.tables.folder.manifest import COMPLETE_AT
from holdfast.fleet.tables.reading import Tables

BOOL = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settlements:
    """Moments at which a group's ownership was settled, in time order.

    Parameters
    ----------
    number, at_ms, n_members : int64[n]
        Generation, time of its record in UTC milliseconds, members.
    era : int64[n]
        Life of the group: a deleted group that comes back counts from 1 again.
    state, protocol : tuple of str
        As in the records.
    """

    number: I64
    at_ms: I64
    n_members: I64
    era: I64
    state: tuple[str, ...]
    protocol: tuple[str, ...]

    def index_of(self, generation: I64, at_ms: I64) -> I64:
        """Return the index of each (generation, time); -1 if no record has that generation."""
        if not len(self.number):
            return np.full(len(generation), -1, dtype=np.int64)
        first = np.searchsorted(self.era, np.arange(int(self.era[-1]) + 1))
        era = np.maximum(np.searchsorted(self.at_ms[first], at_ms, side="right") - 1, 0)
        keys = self.era << np.int64(32) | (self.number + 1)
        return index_in(era.astype(np.int64) << np.int64(32) | (generation + 1), keys)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Ownership of one group over a window.

    Parameters
    ----------
    topics : tuple of str
        Sorted.
    row_topic : int32[n_rows]
        One row per topic-partition that ever had an owner.
    row_partition : int64[n_rows]
        Its number; the greatest has one behind it.
    members : tuple of str
        Member ids; ``identities`` maps them to processes.
    start : int64[n_rows + 1]
        First segment of each row.
    from_ms, to_ms : int64[n_segments]
        UTC milliseconds.
    in_gap : bool[n_segments]
        The owner gave no more evidence before the partition was settled again.
    position : int64[n_segments]
        Ascending: ``span_ms`` times the row, plus the milliseconds of ``from_ms`` in the window.
    """

    group: str
    topics: tuple[str, ...]
    row_topic: I32
    row_partition: I64
    members: tuple[str, ...]
    identities: Identities
    start: I64
    from_ms: I64
    to_ms: I64
    owner: I32
    in_gap: BOOL
    position: I64
    generations: Settlements
    first_ms: int
    last_ms: int

    def owner_at(self, at_ms: int) -> I32:
        """Return the owner of each row at a moment of the window: member index or NO_OWNER."""
        row = np.arange(len(self.row_partition))
        since_ms = at_ms - self.first_ms
        position = np.searchsorted(self.position, row * self.span_ms + since_ms, side="right")
        return self.owner[position - 1]

    @property
    def span_ms(self) -> int:
        """Offset of ``position`` from row to row: more than any time of the window."""
        return self.last_ms - self.first_ms + 1


def process_moves(timeline: Timeline) -> tuple[I64, I64]:
    """Return row and time, in UTC ms, of each move to another process; sorted by both."""
    owned = np.flatnonzero(timeline.owner >= 0)
    row = np.searchsorted(timeline.start, owned, side="right") - 1
    process = timeline.identities.identity[timeline.owner[owned]]
    other = np.flatnonzero((row[1:] == row[:-1]) & (process[1:] != process[:-1])) + 1
    return row[other], timeline.from_ms[owned[other]]


def rows_of(within: Timeline | _Flat, topics: Sequence[str], topic: I32 | I64, number: I64) -> I64:
    """Return the row of each partition, by index into ``topics`` and number; -1 for none."""
    known = {name: i for i, name in enumerate(within.topics)}
    translate = np.asarray([known.get(name, -1) for name in topics], dtype=np.int64)
    rows = within.row_topic.astype(np.int64) << np.int64(32) | (within.row_partition + 1)
    if not len(topic):
        return np.zeros(0, dtype=np.int64)
    return index_in(translate[topic] << np.int64(32) | (number + 1), rows)


def read_generations(table: ArrowTable) -> Settlements:
    """Read the settlements of one group."""
    order, kept = settled(table, np.zeros(table.num_rows, np.int64))
    number, dead = ints(table, "generation")[order], _dead(table)[order]
    fresh = np.zeros(len(order), dtype=np.int64)
    fresh[1:] = dead[:-1] | ((number[1:] < number[:-1]) & ~dead[1:])
    texts = table.select(["state", "protocol"]).take(pa.array(order[kept]))
    return Settlements(
        number=number[kept],
        at_ms=np.maximum.accumulate(times_ms(table, "timestamp")[order][kept]),
        n_members=ints(table, "n_members")[order][kept],
        era=np.cumsum(fresh)[kept],
        state=words(texts, "state"),
        protocol=words(texts, "protocol"),
    )


def settled(table: ArrowTable, group: I64) -> tuple[I64, I64]:
    """Return rows of ``generations`` by group and time, and which of them count.

    Of records that repeat a generation only the first counts.

    Returns
    -------
    order, kept : int64
        Row of the table at each position; positions that count.
    """
    log = ints(table, "log_offset"), ints(table, "log_partition")
    order = np.lexsort((*log, times_ms(table, "timestamp"), group))
    keys = [column[order] for column in (group, ints(table, "generation"), _dead(table))]
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return order, np.flatnonzero(new)


def _dead(table: ArrowTable) -> BOOL:
    return np.asarray(pc.fill_null(pc.equal(table["state"], "Dead"), False), dtype=bool)


def count_roles(assignments: ArrowTable, generations: Settlements) -> Mapping[str, int]:
    """Count partitions or tasks of the members of the last generation, by role.

    A role is ``active`` (its one owner), ``standby`` or ``warmup`` (a copy of a task), or
    ``shared`` (one of many that read a partition of a share group: KIP-932, KIP-1071). An
    assignment without a role is active.
    """
    rows = of_the_last(assignments, generations)
    size = np.asarray(pc.fill_null(pc.list_value_length(rows["partitions"]), 0), dtype=np.int64)
    role, names = codes(rows, "role")
    active = int(size[role < 0].sum())
    found = {name: int(size[role == code].sum()) for code, name in enumerate(names)}
    return found | ({"active": active + found.get("active", 0)} if active else {})


def of_the_last(assignments: ArrowTable, generations: Settlements) -> ArrowTable:
    """Return rows of the last generation; none without one."""
    index = generations.index_of(
        ints(assignments, "generation"), times_ms(assignments, "timestamp")
    )
    last = len(generations.number) - 1
    return assignments.filter((index == last) & (last >= 0))


def window_end_ms(tables: Tables) -> int | None:
    """Return the end of every window, in UTC milliseconds; None for tables of no time.

    A group without new records is silent until its records were read, so the window ends then, and
    not at the newest record. After a first read in several batches not every record was read yet,
    and in-memory tables have no time of reading: then the newest record is the end, and also if
    the clock of the reading was behind the brokers' clocks.
    """
    named = ("offset_commits", "generations", "rebalances")
    found = [tables.newest_ms(name) for name in named]
    notes = tables.newest_notes()
    read_us = to_us(str(notes.get(COMPLETE_AT, notes.get("taken_at"))))
    found.append(None if read_us is None else read_us // 1000)
    return max((ms for ms in found if ms is not None), default=None)


def build_timeline(tables: Tables, group: str, last_ms: int | None = None) -> Timeline:
    """Build the ownership timeline of one group.

    Parameters
    ----------
    tables : Tables
        ``generations`` and ``assignments``; ``ownership_gaps`` and ``members`` if they exist.
    last_ms : int, optional
        End of the window; never before the last generation.

    Returns
    -------
    Timeline
        Without rows if the group has no generation.

    Notes
    -----
    Cost: O(n log n) in assignment rows of the group.
    """
    generations = read_generations(tables.of_group(group, "generations"))
    identities = read_identities(tables.of_group(group, "members"))
    flat = _flat_assignments(_owned_alone(tables.of_group(group, "assignments")), generations)
    first = int(generations.at_ms[0]) if len(generations.at_ms) else 0
    last = max(int(generations.at_ms[-1]) + 1 if len(generations.at_ms) else 1, last_ms or 0)
    names = sorted({*identities.members, *flat.members})
    identities = identities.over(names)
    position = {name: i for i, name in enumerate(names)}
    rank = np.asarray([position[m] for m in flat.members], dtype=np.int64)
    pieces = _pieces(flat, rank, generations, first, last)
    cut = _cut_at_gaps(pieces, flat, tables.of_group(group, "ownership_gaps"), first)
    start, from_ms, to_ms, owner, in_gap = _segments(pieces, cut, len(flat.row_partition))
    row = np.repeat(np.arange(len(start) - 1), np.diff(start))
    return Timeline(
        group=group,
        topics=flat.topics,
        row_topic=flat.row_topic,
        row_partition=flat.row_partition,
        members=tuple(names),
        identities=identities,
        start=start,
        from_ms=from_ms,
        to_ms=to_ms,
        owner=owner,
        in_gap=in_gap,
        position=row * (last - first + 1) + from_ms - first,
        generations=generations,
        first_ms=first,
        last_ms=last,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Flat:
    topics: tuple[str, ...]
    row_topic: I32
    row_partition: I64
    row: I64  # of each flat assignment
    generation: I64  # index into Settlements
    member: I64
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pieces:
    row: I64
    from_ms: I64
    to_ms: I64
    owner: I64


def _owned_alone(table: ArrowTable) -> ArrowTable:
    """Return assignments without copies of tasks, and without shared partitions."""
    alone = pc.is_in(pc.fill_null(table["role"], ""), pa.array(["active", ""]))
    return table if pc.all(alone).as_py() is not False else table.filter(alone)


def _flat_assignments(table: ArrowTable, generations: Settlements) -> _Flat:
    topic, topics = codes(table, "topic")
    member, members = codes(table, "member_id")
    index = generations.index_of(ints(table, "generation"), times_ms(table, "timestamp"))
    parent, partition = lists(table, "partitions")
    known = index[parent] >= 0
    parent, partition = parent[known], partition[known]
    # Partition -1 is a connector of Kafka Connect itself.
    keys = topic[parent].astype(np.int64) << np.int64(32) | (partition + 1)
    rows, row = np.unique(keys, return_inverse=True)
    return _Flat(
        topics=topics,
        row_topic=(rows >> 32).astype(np.int32),
        row_partition=(rows & 0xFFFFFFFF) - 1,
        row=row.astype(np.int64),
        generation=index[parent],
        member=member[parent].astype(np.int64),
        members=members,
    )


def _pieces(flat: _Flat, rank: I64, generations: Settlements, first: int, last: int) -> _Pieces:
    """Return owned pieces and, between them, pieces without an owner; sorted by row and time."""
    n = max(len(generations.at_ms), 1)
    edges = np.append(generations.at_ms, last) if len(generations.at_ms) else np.array([0, last])
    _, kept = np.unique(flat.row * n + flat.generation, return_index=True)
    row, generation = flat.row[kept], flat.generation[kept]
    begin, end = edges[generation], edges[generation + 1]
    owner = rank[flat.member[kept]] if len(kept) else np.zeros(0, np.int64)
    same = np.zeros(len(row) + 1, dtype=bool)
    same[1:-1] = row[1:] == row[:-1]
    before = np.where(same[:-1], np.roll(end, 1), first)
    after = ~same[1:] & (end < last)
    gap = before < begin
    rows = np.concatenate([row, row[gap], row[after]])
    starts = np.concatenate([begin, before[gap], end[after]])
    ends = np.concatenate([end, begin[gap], np.full(int(after.sum()), last)])
    nobody = np.full(int(gap.sum() + after.sum()), NO_OWNER, dtype=np.int64)
    order = np.lexsort((ends, starts, rows))
    owners = np.concatenate([owner, nobody])
    return _Pieces(row=rows[order], from_ms=starts[order], to_ms=ends[order], owner=owners[order])


def _cut_at_gaps(pieces: _Pieces, flat: _Flat, gaps: ArrowTable, first: int) -> I64:
    """Return the end of each piece after its gap; ``to_ms`` without one, or without records."""
    cut = pieces.to_ms.copy()
    gaps = gaps.filter(pc.invert(pc.fill_null(gaps["is_idle"], False)))
    if not gaps.num_rows or not len(cut):
        return cut
    topic, topics = codes(gaps, "topic")
    parent, partition = lists(gaps, "partitions")
    row = rows_of(flat, topics, topic[parent], partition)
    seen = times_ms(gaps, "last_seen")[parent]
    again = times_ms(gaps, "timestamp")[parent]
    span = np.int64(max(int(pieces.to_ms.max()) - first, 1) + 1)
    inside = np.clip(seen - first, 0, span - 1)
    position = np.searchsorted(
        pieces.row * span + (pieces.from_ms - first), row * span + inside, side="right"
    )
    position = np.maximum(position - 1, 0)
    fits = (row >= 0) & (pieces.row[position] == row) & (again >= pieces.to_ms[position])
    fits &= (pieces.owner[position] >= 0) & (seen < pieces.to_ms[position])
    np.minimum.at(cut, position[fits], np.maximum(seen[fits], pieces.from_ms[position[fits]]))
    return cut


def _segments(pieces: _Pieces, cut: I64, n_rows: int) -> tuple[I64, I64, I64, I32, BOOL]:
    """Return pieces and their gaps, equal neighbours joined."""
    cuts = cut < pieces.to_ms
    row = np.concatenate([pieces.row, pieces.row[cuts]])
    begin = np.concatenate([pieces.from_ms, cut[cuts]])
    end = np.concatenate([cut, pieces.to_ms[cuts]])
    owner = np.concatenate([pieces.owner, pieces.owner[cuts]])
    in_gap = np.arange(len(row)) >= len(pieces.row)
    lasting = end > begin
    order = np.lexsort((begin, row))
    order = order[lasting[order]]
    row, begin, end = row[order], begin[order], end[order]
    owner, in_gap = owner[order], in_gap[order]
    new = np.ones(len(row), dtype=bool)
    new[1:] = (row[1:] != row[:-1]) | (owner[1:] != owner[:-1])
    new[1:] |= in_gap[1:] != in_gap[:-1]
    heads = np.flatnonzero(new)
    tails = np.append(heads[1:], len(row)) - 1 if len(heads) else heads
    counts = np.bincount(row[heads], minlength=n_rows) if n_rows else np.zeros(0, np.int64)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return start, begin[heads], end[tails], owner[heads].astype(np.int32), in_gap[heads]
