"""Narrow the bounds of ownership gaps by commits, and sum gaps up in their rebalances.

An owner that committed was still alive.

**Rules.** The lower bound comes from the group's records alone. The upper bound is the time since
the last evidence of the old owner. A commit of the partition is such evidence if it is in the log
before the record in which the partition has no owner (or, if the partition moved, before the
record that names the new owner). A group's commits and records are in one partition of the log, so
their order is certain.

A partition without a waiting record has no downtime. No record waited if the group's offset was the
same from before the gap until after it, and no record was at that offset meanwhile: the log ended
there when log ends were read later, or a cluster reported the time of the record that came. Every
other gap may be downtime, and ``is_idle`` is null. Log ends are read for existing groups: a batch
of a stream may know what a later run over the whole history, which finds the group empty, cannot.

A gap belongs to the last rebalance of its group and generation that is not later than its end.
Sums do not depend on the order in which gaps are added.

**Strategy.** Commits and gaps of a group come to one task. One sort by (partition, position)
matches all pairs at once: the last commit seen is carried forward. A stream does not read old
commits again. It keeps the latest commit of each partition. For a partition that has lost its
owner, it also keeps the last commit before that; rows of basis ``open`` request it. Log ends come
as rows of basis ``idle``, one for each partition that has nothing to read, or had nothing for a
while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import I64, Mask, index_in
from holdfast.fleet.columnar import (
    Arrays,
    ArrowColumn,
    floats,
    ints,
    list_parts,
    make_lists,
    new_runs,
    numbered_together,
    replaced,
    take,
)
from holdfast.fleet.pipeline.history.movements import BASES, UNOWNED, Events, without_owner
from holdfast.fleet.tables.columns.schemas import (
    TIMESTAMP,
    arrow_schema,
    filled_table,
    from_columns,
)
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.snapshot import conform

STAGED_GAPS: Final = "_gaps"
"""Staged by the groups job: rows of :data:`STAGED`."""
SEEN: Final = "_seen"
"""Kept by a stream: last commits of partitions without an owner, as rows of :data:`STAGED`."""

STAGED: Final = arrow_schema("gap_input")
"""Gaps, for which commits before ``log_offset`` count; or commits: basis ``commit``, a
``partition``, their time in ``timestamp`` and their position; or ``open``: no owner yet; or
``left``: a departed member and its partitions; or ``idle``: no record of a ``partition`` waited
from ``last_seen`` to ``timestamp``."""

COMMIT: Final = "commit"
OPEN: Final = "open"
IDLE: Final = "idle"
LEFT: Final = "left"

GAP_SUMS: Final = {
    f"{kind}_{bound}_seconds": (f"gap_{bound}_seconds", kind == "idle")
    for kind in ("gap", "idle")
    for bound in ("lower", "upper")
}
"""Columns of ``rebalances``: which column of ``gaps`` they sum up, and if of idle ones alone."""
_KEYS: Final = ["group", "generation"]


def gap_candidates(events: Events, covered: Mask | None = None) -> pa.Table:
    """Return gaps by the group records alone, as STAGED; commits narrow their upper bound later.

    ``last_seen`` is the last record in which the partitions had an owner. ``covered``,
    bool[n_rows], marks rows whose gaps come from records of current assignments; they are omitted.
    """
    gens, layout = events.gens, events.layout
    new = ~gens.head["context"].to_numpy()
    if covered is not None:
        new &= ~covered
    keep = np.flatnonzero(new[events.gap_row] & ~events.fresh[events.gap_row])
    keep = keep[np.lexsort((events.gap_tp[keep], events.gap_row[keep]))]
    row, tp = events.gap_row[keep], events.gap_tp[keep]
    basis, last_row = events.gap_basis[keep], events.gap_last_row[keep]
    topic = layout.tp_topic[tp]
    first = np.flatnonzero(new_runs(row, topic, basis, last_row))
    row, topic, basis, last_row = row[first], topic[first], basis[first], last_row[first]
    time = ints(gens.head, "timestamp")
    unowned = basis == UNOWNED
    since = time[last_row + unowned]
    lower = np.where(unowned, np.maximum(time[row] - since, 0), 0) / 1e6
    limit = np.where(unowned, last_row + 1, row)
    names = take(layout.topics, topic)
    return staged(
        events,
        row,
        limit,
        reads=read_by(events, last_row, names),
        topic=names,
        partitions=make_lists(np.append(first, len(tp)), layout.tp_partition[tp].astype(np.int32)),
        basis=take(pa.array(BASES), basis),
        gap_lower_seconds=pa.array(lower),
        unowned_since=pa.array(since, mask=~unowned).cast(TIMESTAMP),
        last_seen=pa.array(time[last_row]).cast(TIMESTAMP),
    )


def staged(events: Events, row: I64, limit: I64, **known: ArrowColumn) -> pa.Table:
    """Return rows of STAGED about generations at ``row``; commits before ``limit`` count."""
    head = events.gens.head
    columns: Arrays = {n: take(head[n], row) for n in ("group", "generation", "timestamp")}
    columns["log_offset"] = take(head["log_offset"], limit)
    return filled_table(columns | known, STAGED, len(row))


def read_by(events: Events, row: I64, owned_in: ArrowColumn) -> pa.Array:
    """Return what tasks of each subtopology read in the generation at ``row``; null for topics."""
    reads, dtype = events.reads, STAGED.field("reads").type
    if not reads:
        return pa.nulls(len(row), dtype)
    named = zip(row.tolist(), owned_in.to_pylist(), strict=True)
    return pa.array([sorted(reads[at]) if at in reads else None for at in named], dtype)


def open_gaps(events: Events, groups: I64) -> pa.Table:
    """Return partitions of groups of the layout that lost their last owner, as gaps without an end.

    A later step finds the last commit before the owner was lost.
    """
    layout, tp = events.layout, without_owner(events, groups)
    row = layout.row(tp, events.last_ordinal[tp]) + 1
    names = take(layout.topics, layout.tp_topic[tp])
    return staged(
        events,
        row,
        row,
        reads=read_by(events, row - 1, names),
        topic=names,
        partitions=make_lists(np.arange(len(tp) + 1), layout.tp_partition[tp].astype(np.int32)),
        basis=pa.repeat(OPEN, len(tp)),
    )


def commit_rows(positions: pa.Table) -> pa.Table:
    """Return rows of ``POSITION`` (:mod:`holdfast.fleet.pipeline.ingest.split`) as commits."""
    found = positions.filter(positions["offset"].is_valid())
    n = found.num_rows
    columns: Arrays = {name: found[name] for name in ("group", "topic", "partition", "log_offset")}
    columns["timestamp"] = found["commit_timestamp"]
    columns["basis"] = pa.repeat(COMMIT, n)
    return filled_table(columns, STAGED, n)


def idle_rows(lag: pa.Table, taken_at_us: int) -> pa.Table:
    """Return the times in which no record of a partition waited, as rows of STAGED.

    Since its first commit at its present offset the group has nothing to read, until the log ends
    were read if no record is behind the offset, else until the time of the next record, if that is
    its own. In a log without any record there was never anything to read.
    """
    may_wait = np.asarray(lag["has_unread"].fill_null(True))
    behind = np.where(may_wait, ints(lag, "lag"), 0)
    since = ints(lag, "position_timestamp")
    settled = pc.and_(pc.equal(lag["status"], "committed"), pc.equal(lag["clamped"], "none"))
    dated = pc.fill_null(pc.equal(lag["lag_seconds_basis"], "record"), False)
    read_up = (behind == 0) & (since >= 0) & settled.to_numpy(zero_copy_only=False)
    later = (behind > 0) & (since >= 0) & pc.and_(settled, dated).to_numpy(zero_copy_only=False)
    empty = ints(lag, "log_end_offset") == 0
    age_us = np.nan_to_num(floats(lag, "lag_seconds")) * 1e6
    until = np.where(later, taken_at_us - age_us, taken_at_us).astype(np.int64)
    known = np.flatnonzero(read_up | later | empty)
    found, n = lag.take(pa.array(known)), len(known)
    columns: Arrays = {name: found[name] for name in ("group", "topic", "partition")}
    columns["last_seen"] = pa.array(np.where(empty, 0, since)[known]).cast(TIMESTAMP)
    columns["timestamp"] = pa.array(until[known]).cast(TIMESTAMP)
    columns["basis"] = pa.repeat(IDLE, n)
    return filled_table(columns, STAGED, n)


def narrow(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the table ``ownership_gaps`` of whole groups, and the last commits of open gaps.

    ``rows`` are STAGED: gaps, commits and idle times in any order.
    """
    commits = rows.filter(pc.equal(rows["basis"], COMMIT))
    idle = rows.filter(pc.equal(rows["basis"], IDLE))
    beside = pc.is_in(rows["basis"], pa.array([COMMIT, LEFT, IDLE]))
    gaps = rows.filter(pc.invert(beside))
    if gaps.num_rows == 0:
        return arrow_schema("ownership_gaps").empty_table(), STAGED.empty_table()
    row, partition, which, read = read_of(gaps)
    found = last_commits(gaps, read, commits)
    is_open = pc.equal(gaps["basis"], OPEN).to_numpy(zero_copy_only=False)
    wanted = is_open[read.row] & (found >= 0)
    seen = commits.take(pa.array(np.unique(found[wanted])))
    last = np.zeros(len(row), np.int64)
    np.maximum.at(last, which, times_of(commits, found))
    row, partition, last = row[~is_open[row]], partition[~is_open[row]], last[~is_open[row]]
    return _bounded(gaps, row, partition, last, idle), seen


class ReadBy(NamedTuple):
    """Topic-partitions whose commits are requested, and the requesting row of a table."""

    row: I64
    topic: pa.Array
    partition: I64


def read_of(rows: pa.Table) -> tuple[I64, I64, I64, ReadBy]:
    """Return the partitions of ``rows``, and the topic-partitions whose commits count for each.

    For a partition its own; for a task those of its number in each topic that it reads. The columns
    are row and number of each partition, and its index among them for each entry of what is read.
    """
    starts, values = list_parts(rows["partitions"])
    row, partition = np.repeat(np.arange(rows.num_rows), np.diff(starts)), values.astype(np.int64)
    own = rows["topic"].take(pa.array(row)).combine_chunks()
    reads = rows["reads"].combine_chunks()
    if reads.null_count == len(reads):
        return row, partition, np.arange(len(row)), ReadBy(row, own, partition)
    many = np.asarray(pc.fill_null(pc.list_value_length(reads), 0), np.int64)
    count = np.maximum(many[row], 1)
    which = np.repeat(np.arange(len(row)), count)
    inside = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    topics = pa.concat_arrays([pc.list_flatten(reads).cast(own.type), own])
    first = (np.cumsum(many) - many)[row[which]] + inside
    at = np.where(many[row[which]] > 0, first, int(many.sum()) + which)
    read = ReadBy(row[which], topics.take(pa.array(at)), partition[which])
    return row, partition, which, read


def times_of(commits: pa.Table, found: I64) -> I64:
    """Return times of commits by their row; 0 for none."""
    if commits.num_rows == 0:
        return np.zeros(len(found), np.int64)
    return np.where(found >= 0, ints(commits, "timestamp")[np.maximum(found, 0)], 0)


def _bounded(gaps: pa.Table, row: I64, partition: I64, seen: I64, idle: pa.Table) -> pa.Table:
    """Return rows of ``gaps``, each of partitions with equal evidence and equal idle time."""
    until = ints(gaps, "timestamp")
    since = np.where(gaps["unowned_since"].is_null().to_numpy(), until, ints(gaps, "unowned_since"))
    last_seen = np.maximum(ints(gaps, "last_seen")[row], np.minimum(seen, since[row]))
    is_idle = _is_idle(gaps, row, partition, last_seen, idle)
    order = np.lexsort((partition, is_idle, last_seen, row))
    row, partition, last_seen = row[order], partition[order], last_seen[order]
    is_idle = is_idle[order]
    first = np.flatnonzero(new_runs(row, last_seen, is_idle.astype(np.int64)))
    at = row[first]
    picked = gaps.take(pa.array(at))
    columns: dict[str, Any] = {name: picked[name] for name in gaps.column_names}
    columns["partitions"] = make_lists(np.append(first, len(partition)), partition.astype(np.int32))
    columns["last_seen"] = pa.array(last_seen[first]).cast(TIMESTAMP)
    columns["gap_upper_seconds"] = np.maximum(until[at] - last_seen[first], 0) / 1e6
    columns["is_idle"] = pa.array(is_idle[first], mask=~is_idle[first])
    return from_columns("ownership_gaps", columns)


def _is_idle(gaps: pa.Table, row: I64, partition: I64, last_seen: I64, idle: pa.Table) -> Mask:
    """Return which partitions are known to have had nothing to read during their whole gap."""
    n = len(row)
    if not (n and idle.num_rows):
        return np.zeros(n, np.bool_)
    own = ReadBy(row, gaps["topic"].take(pa.array(row)).combine_chunks(), partition)
    key, _ = keys_of(gaps, own, idle)
    where = index_in(key[:n], key[n:])
    since, until = ints(idle, "last_seen")[where], ints(idle, "timestamp")[where]
    again = ints(gaps, "timestamp")[row]
    found: Mask = (where >= 0) & (since <= last_seen) & (again <= until)
    return found


def keys_of(gaps: pa.Table, read: ReadBy, others: pa.Table) -> tuple[I64, I64]:
    """Return the number of each requested topic-partition, followed by those of other rows.

    The second result is the number of its group.
    """
    wanted = pa.table({"group": gaps["group"].take(pa.array(read.row)), "topic": read.topic})
    group, topic = (numbered_together(wanted, others, name) for name in ("group", "topic"))
    number = np.concatenate([read.partition, ints(others, "partition")])
    pair = group * (int(topic.max()) + 1) + topic
    if int(pair.max()) >= 1 << 31:
        pair = np.unique(pair, return_inverse=True)[1].astype(np.int64)
    return pair << 32 | (number & 0xFFFFFFFF), group


def last_commits(gaps: pa.Table, read: ReadBy, commits: pa.Table) -> I64:
    """Return the row of each partition's last commit before its gap's position; -1 for none."""
    row = read.row
    if not (len(row) and commits.num_rows):
        return np.full(len(row), -1, np.int64)
    key, _ = keys_of(gaps, read, commits)
    owned_in = np.concatenate([ints(gaps, "log_offset")[row], ints(commits, "log_offset")])
    return _last_known([key], owned_in, len(row))


def _last_known(keys: Sequence[I64], at: I64, n_asking: int, *, or_same: bool = False) -> I64:
    """Return the last known row with the same keys before each requesting row; -1 for none.

    ``keys`` and ``at`` begin with the requesting rows. ``or_same``: a known row at the same
    position counts, too.
    """
    is_known = np.arange(len(at)) >= n_asking
    order = np.lexsort((is_known != or_same, at, *keys[::-1]))
    new_key = new_runs(*(column[order] for column in keys))
    rank = np.arange(len(order))
    # Forward fill inside each key: its start stops what came before it.
    found = np.maximum.accumulate(np.where(is_known[order], rank, -1))
    begin = np.maximum.accumulate(np.where(new_key, rank, 0))
    which = np.where(found >= begin, order[np.maximum(found, 0)] - n_asking, -1)
    result = np.empty(len(order), np.int64)
    result[order] = which
    return result[:n_asking]


# Sums in rebalances


OWNING: Final = (*_KEYS, "previous_generation", "timestamp")
"""Columns of ``rebalances`` that determine which gaps belong to a row."""


def late_gaps(gaps: Sequence[pa.Table], rebalances: Sequence[pa.Table]) -> pa.Table:
    """Return the gaps that belong to none of ``rebalances``."""
    rows = pa.concat_tables([arrow_schema("ownership_gaps").empty_table(), *gaps])
    own = pa.concat_tables([arrow_schema("rebalances").empty_table(), *rebalances])
    return rows.filter(pa.array(_rebalance_of(rows, own) < 0))


def gaps_of_each(gaps: pa.Table, rebalances: Sequence[pa.Table]) -> list[pa.Table]:
    """Return the gaps that belong to rows of each of the tables, which have :data:`OWNING`."""
    of = _rebalance_of(gaps, pa.concat_tables(rebalances))
    ends = np.cumsum([rows.num_rows for rows in rebalances])
    table = np.where(of < 0, -1, np.searchsorted(ends, of, side="right"))
    return [gaps.filter(pa.array(table == at)) for at in range(len(rebalances))]


def add_gaps(rebalances: pa.Table, gaps: pa.Table) -> pa.Table:
    """Return rebalances with the partition-seconds of gaps added, rows in their order."""
    rebalances = conform(rebalances, TABLES["rebalances"], "rebalances")
    of = _rebalance_of(gaps, rebalances)
    belongs = np.flatnonzero(of >= 0)
    gaps, of = gaps.take(pa.array(belongs)), of[belongs]
    size = np.asarray(pc.list_value_length(gaps["partitions"]), np.float64)
    idle = np.where(np.asarray(pc.fill_null(gaps["is_idle"], False)), size, 0.0)
    for name, (seconds, only_idle) in GAP_SUMS.items():
        weight = floats(gaps, seconds) * (idle if only_idle else size)
        more = np.bincount(of, weights=weight, minlength=rebalances.num_rows)
        # To the microsecond, so in whatever order they are added.
        total = np.round(floats(rebalances, name, 0.0) + more, 6)
        rebalances = replaced(rebalances, **{name: total})
    return rebalances


def _rebalance_of(gaps: pa.Table, rebalances: pa.Table) -> I64:
    """Return the row of the rebalance that each gap belongs to; -1 for none.

    It is the last one of its group and generation that is not later than the end of the gap: a
    group that was deleted and recreated counts its generations from the start. A converted group
    has its last generation twice: gaps belong to the first of the two.
    """
    n = gaps.num_rows
    first = pc.not_equal(rebalances["generation"], rebalances["previous_generation"])
    own = np.flatnonzero(np.asarray(pc.fill_null(first, True), np.bool_))
    rows = rebalances.select([*_KEYS, "timestamp"]).take(pa.array(own))
    group = numbered_together(gaps, rows, "group")
    generation, at = (
        np.concatenate([ints(table, name) for table in (gaps, rows)])
        for name in ("generation", "timestamp")
    )
    found = _last_known([group, generation], at, n, or_same=True)
    # An index of -1 would be that of the last row.
    return np.where(found >= 0, own[found], -1) if len(own) else found
