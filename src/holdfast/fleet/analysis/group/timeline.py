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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.model.columns import I32, I64, NO_OWNER, Mask, index_in
from holdfast.fleet.analysis.group.presence import Identities, Settlements
from holdfast.fleet.columnar import DecodedRows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Ownership of one group over a window."""

    group: str
    topics: tuple[str, ...]  # sorted
    row_topic: I32  # int32[n_rows]: one row per topic-partition that ever had an owner
    row_partition: I64  # int64[n_rows]: its number; the greatest has one behind it
    members: tuple[str, ...]  # member ids; ``identities`` maps them to processes
    identities: Identities
    start: I64  # int64[n_rows + 1]: first segment of each row
    # ``from_ms``, ``to_ms`` (int64[n_segments]): UTC milliseconds.
    from_ms: I64
    to_ms: I64
    owner: I32
    # bool[n_segments]: the owner gave no more evidence before the partition was settled again.
    in_gap: Mask
    # int64[n_segments]: ascending: ``span_ms`` times the row, plus the milliseconds of ``from_ms``
    # in the window.
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


def rows_of(
    within: Timeline | FlatAssignments, topics: Sequence[str], topic: I32 | I64, number: I64
) -> I64:
    """Return the row of each partition, by index into ``topics`` and number; -1 for none."""
    known = {name: i for i, name in enumerate(within.topics)}
    translate = np.asarray([known.get(name, -1) for name in topics], dtype=np.int64)
    rows = within.row_topic.astype(np.int64) << np.int64(32) | (within.row_partition + 1)
    if not len(topic):
        return np.zeros(0, dtype=np.int64)
    return index_in(translate[topic] << np.int64(32) | (number + 1), rows)


def build_timeline(
    group: str,
    generations: Settlements,
    identities: Identities,
    flat: FlatAssignments,
    *,
    gaps: DecodedRows,
    last: int,
) -> Timeline:
    """Build the ownership timeline of one group; without rows if it has no generation.

    Parameters
    ----------
    gaps : DecodedRows
        Rows of ``ownership_gaps``.
    last : int
        End of the window in UTC milliseconds, after the last generation.

    Notes
    -----
    Cost: O(n log n) in assignment rows of the group.
    """
    first = int(generations.at_ms[0]) if len(generations.at_ms) else 0
    position = {name: i for i, name in enumerate(identities.members)}
    rank = np.asarray([position[m] for m in flat.members], dtype=np.int64)
    pieces = _pieces(flat, rank, generations, first, last)
    cut = _cut_at_gaps(pieces, flat, gaps, first)
    start, from_ms, to_ms, owner, in_gap = _segments(pieces, cut, len(flat.row_partition))
    row = np.repeat(np.arange(len(start) - 1), np.diff(start))
    return Timeline(
        group=group,
        topics=flat.topics,
        row_topic=flat.row_topic,
        row_partition=flat.row_partition,
        members=identities.members,
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
class FlatAssignments:
    """Owned partitions of each generation, one by one: without copies of tasks and shared ones."""

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


def flat_assignments(rows: DecodedRows, index: I64) -> FlatAssignments:
    """Return the owned partitions of ``assignments``, given the generation of each row."""
    topic, topics = rows.codes("topic")
    member, members = rows.codes("member_id")
    role, roles = rows.codes("role")
    is_alone = np.asarray([*(name in ("active", "") for name in roles), True], np.bool_)[role]
    parent, partition = rows.lists("partitions")
    if not is_alone.all():  # topics of other rows do not count
        met = np.unique(topic[is_alone])
        topic = np.searchsorted(met, topic).astype(np.int32)
        topics = tuple(topics[i] for i in met.tolist())
    known = ((index >= 0) & is_alone)[parent]
    parent, partition = parent[known], partition[known]
    # Partition -1 is a connector of Kafka Connect itself.
    keys = topic[parent].astype(np.int64) << np.int64(32) | (partition + 1)
    found, row = np.unique(keys, return_inverse=True)
    return FlatAssignments(
        topics=topics,
        row_topic=(found >> 32).astype(np.int32),
        row_partition=(found & 0xFFFFFFFF) - 1,
        row=row.astype(np.int64),
        generation=index[parent],
        member=member[parent].astype(np.int64),
        members=members,
    )


def _pieces(
    flat: FlatAssignments, rank: I64, generations: Settlements, first: int, last: int
) -> _Pieces:
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


def _cut_at_gaps(pieces: _Pieces, flat: FlatAssignments, gaps: DecodedRows, first: int) -> I64:
    """Return the end of each piece after its gap; ``to_ms`` without one, or without records."""
    cut = pieces.to_ms.copy()
    if not len(gaps) or not len(cut):
        return cut
    topic, topics = gaps.codes("topic")
    parent, partition = gaps.lists("partitions")
    waits = ~gaps.flags("is_idle")[parent]
    if not waits.any():
        return cut
    parent, partition = parent[waits], partition[waits]
    row = rows_of(flat, topics, topic[parent], partition)
    seen = gaps.times_ms("last_seen")[parent]
    again = gaps.times_ms("timestamp")[parent]
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


def _segments(pieces: _Pieces, cut: I64, n_rows: int) -> tuple[I64, I64, I64, I32, Mask]:
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
