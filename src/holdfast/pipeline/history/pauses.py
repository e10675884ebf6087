"""Narrow the bounds of pauses by commits: an owner that committed was still there.

**Rules.** The lower bound comes from the group's records alone. The upper bound is the time since
the last sign of the old owner. A commit of the partition is such a sign if it stands in the log
before the record in which the partition has no owner (or, if the partition was handed over, before
the record that names the new owner). A group's commits and records are in one partition of the log,
so their order is certain.

**Strategy.** Commits and pauses of a group come to one task. One sort by (partition, place) matches
all pairs at once: the last commit seen is carried forward. A stream does not read old commits
again. It keeps the latest commit of each partition. For a partition that has lost its owner, it
also keeps the last commit before that; rows of basis ``open`` ask for it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.model.columns import I64
from holdfast.pipeline.arrow_types import Arrays, Batches, BatchTask
from holdfast.pipeline.history.dense import codes
from holdfast.pipeline.history.generations import list_parts, make_lists, new_runs
from holdfast.pipeline.history.signs import DEPARTURES, LEFT, how_they_went
from holdfast.pipeline.ingest.arrow_columns import filled_table
from holdfast.tables.groups import whole_groups
from holdfast.tables.schemas import TIMESTAMP, arrow_schema, from_columns
from holdfast.tables.values import ints
from holdfast.tables.writing import BatchWriter

PAUSES: Final = "_pauses"
"""Staged by the groups job: rows of :data:`STAGED`."""
SEEN: Final = "_seen"
"""Kept by a stream: last commits of partitions without an owner, as rows of :data:`STAGED`."""

STAGED: Final = arrow_schema("pause_input")
"""Pauses, of which commits before ``log_offset`` count; or commits: basis ``commit``, one
partition, their time in ``timestamp`` and their place; or ``open``: no owner yet; or ``left``: a
member that went, and what it owned."""

COMMIT: Final = "commit"
OPEN: Final = "open"


def pauses_task(root: str, batch: int) -> BatchTask:
    """Turn rows of :data:`STAGED`, sorted by group, into ``pauses``; open pauses go to SEEN.

    How members went goes to :data:`~holdfast.pipeline.history.signs.DEPARTURES`.
    """

    def run(batches: Batches) -> Batches:
        writer = BatchWriter(root, batch)
        for rows in whole_groups(batches, STAGED):
            pauses, seen = narrow(rows)
            writer.write(DEPARTURES, told(rows))
            writer.write("pauses", pauses)
            writer.write(SEEN, seen)
        yield from writer.close().to_batches()

    return run


def commit_rows(positions: pa.Table) -> pa.Table:
    """Rows of :data:`~holdfast.pipeline.ingest.positions.POSITION` as commits among STAGED."""
    found = positions.filter(positions["offset"].is_valid())
    n = found.num_rows
    columns: Arrays = {name: found[name] for name in ("group", "topic", "log_offset")}
    columns["timestamp"] = found["commit_timestamp"]
    columns["partitions"] = make_lists(ints(found, "partition"), np.arange(n))
    columns["basis"] = pa.repeat(COMMIT, n)
    return filled_table(columns, STAGED, n)


def narrow(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the table ``pauses`` of whole groups, and the last commits of open pauses.

    Parameters
    ----------
    rows : Table of STAGED
        Pauses and commits in any order.
    """
    is_commit = pc.equal(rows["basis"], COMMIT)
    commits = rows.filter(is_commit)
    is_left = pc.equal(rows["basis"], LEFT)
    pauses = rows.filter(pc.invert(pc.or_(is_commit, is_left)))
    if pauses.num_rows == 0:
        return arrow_schema("pauses").empty_table(), STAGED.empty_table()
    starts, partition = list_parts(pauses["partitions"])
    row = np.repeat(np.arange(pauses.num_rows), np.diff(starts))
    found = _last_commits(pauses, row, partition.astype(np.int64), commits)
    is_open = pc.equal(pauses["basis"], OPEN).to_numpy(zero_copy_only=False)
    wanted = is_open[row] & (found >= 0)
    seen = commits.take(pa.array(np.unique(found[wanted])))
    row, partition, found = row[~is_open[row]], partition[~is_open[row]], found[~is_open[row]]
    return _bounded(pauses, row, partition, _times(commits, found)), seen


def told(rows: pa.Table) -> pa.Table:
    """How the members that went from whole groups did so, by the last commits of what they owned.

    Parameters
    ----------
    rows : Table of STAGED
        Members that went, and commits in any order.
    """
    left = rows.filter(pc.equal(rows["basis"], LEFT))
    commits = rows.filter(pc.equal(rows["basis"], COMMIT))
    if left.num_rows == 0:
        return arrow_schema("departures").empty_table()
    starts, partition = list_parts(left["partitions"])
    row = np.repeat(np.arange(left.num_rows), np.diff(starts))
    found = _last_commits(left, row, partition.astype(np.int64), commits)
    return how_they_went(left, row, _times(commits, found))


def _times(commits: pa.Table, found: I64) -> I64:
    """Times of commits by their row; 0 for none."""
    if commits.num_rows == 0:
        return np.zeros(len(found), np.int64)
    return np.where(found >= 0, ints(commits, "timestamp")[np.maximum(found, 0)], 0)


def _bounded(pauses: pa.Table, row: I64, partition: I64, seen: I64) -> pa.Table:
    """Rows of ``pauses``: partitions of a pause with the same last sign stay together."""
    until = ints(pauses, "timestamp")
    since = np.where(
        pauses["unowned_since"].is_null().to_numpy(), until, ints(pauses, "unowned_since")
    )
    last_seen = np.maximum(ints(pauses, "last_seen")[row], np.minimum(seen, since[row]))
    order = np.lexsort((partition, last_seen, row))
    row, partition, last_seen = row[order], partition[order], last_seen[order]
    first = np.flatnonzero(new_runs(row, last_seen))
    at = row[first]
    picked = pauses.take(pa.array(at))
    columns: dict[str, Any] = {name: picked[name] for name in pauses.column_names}
    columns["partitions"] = make_lists(partition, first)
    columns["last_seen"] = pa.array(last_seen[first]).cast(TIMESTAMP)
    columns["pause_upper_seconds"] = np.maximum(until[at] - last_seen[first], 0) / 1e6
    return from_columns("pauses", columns)


def _last_commits(pauses: pa.Table, row: I64, partition: I64, commits: pa.Table) -> I64:
    """Row of the last commit of each partition before the place of its pause; -1 for none."""
    topic = [pauses[name].take(pa.array(row)) for name in ("group", "topic")]
    other = [commits[name] for name in ("group", "topic")]
    pair = [
        codes(pa.chunked_array([*a.chunks, *b.chunks], pa.string()))
        for a, b in zip(topic, other, strict=True)
    ]
    n = len(row)
    _, commit_partition = list_parts(commits["partitions"])
    number = np.concatenate([partition, commit_partition.astype(np.int64)])
    place = np.concatenate([ints(pauses, "log_offset")[row], ints(commits, "log_offset")])
    is_commit = np.arange(len(number)) >= n
    order = np.lexsort((is_commit, place, number, pair[1], pair[0]))
    new_key = new_runs(*(column[order] for column in (*pair, number)))
    rank = np.arange(len(order))
    # Forward fill inside each partition: the start of the partition stops what came before it.
    found = np.maximum.accumulate(np.where(is_commit[order], rank, -1))
    begin = np.maximum.accumulate(np.where(new_key, rank, 0))
    which = np.where(found >= begin, order[np.maximum(found, 0)] - n, -1)
    result = np.empty(len(order), np.int64)
    result[order] = which
    return result[:n]
