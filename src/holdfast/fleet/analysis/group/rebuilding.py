"""The cost of a move for the member that gains the partition: the delay of its first commit.

**Rules.** A member that rebuilds state commits a partition later after it gained it than between
two commits. The delay of each move to another process is the time to the partition's first commit
after it, less an interval between its commits that nine of ten do not exceed; never less than 0. A
move counts if the partition was committed before it, so that the log was not compacted since, and
after it before it moves again. So the figure is a lower bound.

**Strategy.** Commits are sorted once by (partition, time); two binary searches find the commits
around a move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from holdfast.core.model.columns import I64
from holdfast.fleet.analysis.group.timeline import Timeline, process_moves, rows_of
from holdfast.fleet.columnar import ArrowTable, GroupedTable, codes, ints, times_ms
from holdfast.fleet.tables.reading import Tables

MOST_COMMITS = 1_000_000
"""Limit of a table that is read whole; of a larger one, only a single group's commits are read.
This many commits of all groups take about 210 MiB."""
MOST_SEARCHED = 10_000_000
"""Of a table with more, none is read."""
FEWEST_MOVES = 3
"""Fewer moves give no figure."""
_USUAL = 0.9
"""The part of a partition's gaps that its usual gap is not exceeded by."""
_COLUMNS = ("group", "topic", "partition", "timestamp", "is_tombstone")


@dataclass(slots=True)
class CommitTimes:
    """When partitions were committed; read at the first question, since most groups have none."""

    tables: Tables
    groups: Sequence[str] | None = None  # of which groups; all by default
    _read: GroupedTable | None = field(default=None, init=False)

    def of_group(self, group: str) -> ArrowTable:
        """Return commits of a group: topic, partition, timestamp."""
        if self._read is None:
            is_alone = self.groups is not None and len(self.groups) == 1
            n_commits = sum(file.rows for file in self.tables.data_files("offset_commits"))
            few = n_commits <= (MOST_SEARCHED if is_alone else MOST_COMMITS)
            groups = self.groups if few else ()
            rows = self.tables.stored("offset_commits", groups=groups, columns=_COLUMNS)
            self._read = GroupedTable.of(rows)
        return self._read.of_group(group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilding:
    """How dear moves are."""

    n_moves: int = 0  # moves that could be judged
    seconds: float = 0.0  # median of how much later than usual a first commit came; 0 without moves


def rebuilding_of(commits: ArrowTable, timeline: Timeline) -> Rebuilding:
    """Return the cost of a group's moves, by its commits.

    Notes
    -----
    Cost: a sort of the group's commits.
    """
    row, at_ms = _in_order(commits, timeline)
    moved, moved_ms = process_moves(timeline)
    if not len(row) or not len(moved):
        return Rebuilding()
    # One key for a partition and a time: times of both are of the same days.
    start = min(int(at_ms.min()), int(moved_ms.min()))
    span = max(int(at_ms.max()), int(moved_ms.max())) - start + 2
    position, move = row * span + at_ms - start, moved * span + moved_ms - start
    following = np.searchsorted(position, move, side="right")
    behind = np.minimum(following, len(row) - 1)
    before = np.maximum(following - 1, 0)
    next_move = np.append(move[1:], np.iinfo(np.int64).max)
    known = (following < len(row)) & (row[behind] == moved) & (position[behind] < next_move)
    known &= (following > 0) & (row[before] == moved)
    usual = _usual_gaps(row, position, move, len(timeline.row_partition))[moved]
    known &= usual >= 0
    if known.sum() < FEWEST_MOVES:
        return Rebuilding()
    late = np.maximum(at_ms[behind] - moved_ms - usual, 0)[known]
    return Rebuilding(n_moves=int(known.sum()), seconds=float(np.median(late)) / 1000)


def _in_order(commits: ArrowTable, timeline: Timeline) -> tuple[I64, I64]:
    """Return timeline row and time of each commit, sorted by both."""
    topic, topics = codes(commits, "topic")
    row = rows_of(timeline, topics, topic, ints(commits, "partition"))
    at_ms = times_ms(commits, "timestamp")
    gone = np.asarray(commits["is_tombstone"], dtype=bool)
    kept = np.flatnonzero((row >= 0) & (at_ms >= 0) & ~gone)
    order = kept[np.lexsort((at_ms[kept], row[kept]))]
    return row[order], at_ms[order]


def _usual_gaps(row: I64, position: I64, move: I64, n_rows: int) -> I64:
    """Return the usual interval between two commits of each row, without moves; -1 if unknown."""
    gap = np.diff(position)
    settled = np.searchsorted(move, position[1:]) == np.searchsorted(move, position[:-1])
    inside = np.flatnonzero((row[1:] == row[:-1]) & settled)
    of, gap = row[1:][inside], gap[inside]
    order = np.lexsort((gap, of))
    first = np.searchsorted(of[order], np.arange(n_rows + 1))
    n_gaps = np.diff(first)
    at = first[:-1] + np.ceil(_USUAL * n_gaps).astype(np.int64) - 1
    found = np.full(n_rows, -1, dtype=np.int64)
    some = n_gaps > 0
    found[some] = gap[order][at[some]]
    return found
