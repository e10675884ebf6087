"""Rebalances of one group as columns, and the cost of a move for the member that gains a partition.

**Rules.** Numbers of rebalances come from the table ``rebalances``.

A member that rebuilds state commits a partition later after it gained it than between two commits.
The delay of each move to another process is the time to the partition's first commit after it, less
an interval between its commits that nine of ten do not exceed; never less than 0. A move counts if
the partition was committed before it, so that the log was not compacted since, and after it before
it moves again. So the figure is a lower bound.

**Strategy.** Commits are sorted once by (partition, time); two binary searches find the commits
around a move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from holdfast.core.model.columns import F64, I64
from holdfast.fleet.analysis.group.timeline import Timeline, process_moves, rows_of
from holdfast.fleet.columnar import ArrowTable, DecodedRows, GroupedTable, codes, ints, times_ms
from holdfast.fleet.tables.columns.stored import REBALANCES
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
_COUNTS = tuple(column.name for column in REBALANCES.counts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rebalances:
    """Rebalances of one group in time order."""

    generation: I64
    at_ms: I64
    cause: tuple[str, ...]  # inferred or stated reason; "" where unknown
    confidence: F64  # float64[n]: 0 to 1; NaN where unknown
    # The broker's words if a log states the cause; None for an inferred one.
    stated: tuple[str | None, ...]
    # Columns of the table that start with ``n_``, and ``eager`` (1, 0), int64[n] each; -1
    # where unknown.
    counts: dict[str, I64]
    # ``downtime_lower_s``, ``downtime_upper_s`` (float64[n]): partition-seconds of downtime:
    # without an owner, except ``idle_*``; NaN where unknown.
    downtime_lower_s: F64
    downtime_upper_s: F64
    # ``idle_lower_s``, ``idle_upper_s`` (float64[n]): partition-seconds without an owner in which,
    # as is known, no record waited; else 0.
    idle_lower_s: F64
    idle_upper_s: F64
    # float64[n]: longest time without a commit of a departed member, while most others committed;
    # NaN without one.
    silent_s: F64
    # Time since the last evidence of each departed member, in the order of their ids: -1 without
    # evidence; empty if unknown.
    unseen_ms: tuple[I64, ...]
    # The broker's words where a log has some, whether they state the cause or not; else "".
    stated_reasons: tuple[str, ...]

    def since(self, at_ms: int) -> Rebalances:
        """Return rebalances since a moment, in UTC milliseconds."""
        first = int(np.searchsorted(self.at_ms, at_ms))
        if not first:
            return self
        cut = {
            one.name: getattr(self, one.name)[first:]
            for one in fields(self)
            if one.name != "counts"
        }
        return Rebalances(**cut, counts={name: n[first:] for name, n in self.counts.items()})

    def caused_by(self, name: str) -> npt.NDArray[np.bool_]:
        """Return which rebalances have a cause."""
        found: npt.NDArray[np.bool_] = np.asarray(self.cause, dtype=object) == name
        return found

    def total(self, name: str) -> int | None:
        """Return the sum of a count; None if no rebalance has it."""
        column = self.counts[name]
        known = column >= 0
        return int(column[known].sum()) if known.any() else None

    @property
    def total_downtime_s(self) -> tuple[float, float]:
        """Partition-seconds of downtime in all of them, at least and at most."""
        return float(np.nansum(self.downtime_lower_s)), float(np.nansum(self.downtime_upper_s))

    @property
    def idle_s(self) -> tuple[float, float]:
        """Partition-seconds without an owner in which no record waited, at least and at most."""
        return float(self.idle_lower_s.sum()), float(self.idle_upper_s.sum())

    @property
    def n_moved(self) -> int | None:
        """Partitions that moved, also through a gap; None if no rebalance has the count."""
        moved = self.total("n_moved")
        return None if moved is None else moved + (self.total("n_moved_through_gap") or 0)


def read_rebalances(rows: DecodedRows) -> Rebalances:
    """Read the rebalances of one group."""
    at = rows.times_ms("timestamp")
    order = np.lexsort((rows.ints("generation"), at))
    lower, upper = downtime_bounds_s(rows)
    reasons = rows.texts("stated_reason", "", order)
    stated = np.asarray(reasons, object)
    stated[~rows.equal("cause_basis", "stated")[order]] = None
    return Rebalances(
        generation=rows.ints("generation")[order],
        at_ms=at[order],
        cause=tuple(rows.texts("cause", "", order)),
        confidence=rows.floats("confidence")[order],
        stated=tuple(stated.tolist()),
        counts={
            **{name: rows.ints(name)[order] for name in _COUNTS},
            "eager": 1 - rows.ints("cooperative")[order],
        },
        downtime_lower_s=lower[order],
        downtime_upper_s=upper[order],
        idle_lower_s=rows.floats("idle_lower_seconds", 0.0)[order],
        idle_upper_s=rows.floats("idle_upper_seconds", 0.0)[order],
        silent_s=rows.floats("silent_seconds")[order],
        unseen_ms=rows.each_list("unseen_ms", order),
        stated_reasons=tuple(reasons),
    )


def downtime_bounds_s(rows: DecodedRows) -> tuple[F64, F64]:
    """Return the partition-seconds of downtime of each rebalance, at least and at most.

    Downtime is the time without an owner, except of partitions without a waiting record.
    """
    lower, upper = (
        np.maximum(rows.floats(f"gap_{b}_seconds") - rows.floats(f"idle_{b}_seconds", 0.0), 0.0)
        for b in ("lower", "upper")
    )
    return lower, upper


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
