"""Narrow the bounds of pauses by commits: an owner that committed was still there.

**Rules.** The lower bound comes from the group's records alone. The upper bound is the time from
the last sign of the old owner: its last commit of that partition before the partition had an owner
again, but never later than the record that says that it has none.

**Strategy.** Commits and pauses of a group come to one task. All pairs are matched at once: one
sort by (partition, time), then the last commit seen is carried forward.
"""

# mypy: disable-error-code="arg-type, assignment, call-overload, index, union-attr"
# (The stubs inside pyarrow 26 refuse calls that pyarrow takes.)

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.model.columns import I64
from holdfast.pipeline.dense import codes
from holdfast.pipeline.generations import ints, list_parts, make_lists
from holdfast.pipeline.schemas import arrow_schema, from_columns
from holdfast.pipeline.storage import BatchWriter

Batches = Iterator[pa.RecordBatch]

INPUT_DDL: Final = (
    "`group` string, `generation` int, `topic` string, `partitions` array<int>, "
    "`pause_lower_seconds` double, `unowned_since` timestamp, `last_seen` timestamp, "
    "`timestamp` timestamp, `basis` string"
)
"""Pauses as they are, and commits: basis ``commit``, one partition, their time in ``timestamp``."""

COMMIT: Final = "commit"
_FLUSH_ROWS: Final = 500_000


def pauses_task(root: str, batch: int) -> Callable[[Batches], Batches]:
    """Rows of :data:`INPUT_DDL`, sorted by group, to ``pauses``."""

    def run(batches: Batches) -> Batches:
        writer = BatchWriter(root, batch)
        waiting: list[pa.Table] = []
        for rows in batches:
            waiting.append(pa.Table.from_batches([rows]))
            if sum(part.num_rows for part in waiting) >= _FLUSH_ROWS:
                whole = pa.concat_tables(waiting)
                # The last group may go on: it waits.
                last = whole["group"][whole.num_rows - 1]
                open_rows = pc.equal(whole["group"], last)
                writer.write("pauses", narrow(whole.filter(pc.invert(open_rows))))
                waiting = [whole.filter(open_rows)]
        if waiting:
            writer.write("pauses", narrow(pa.concat_tables(waiting)))
        yield from writer.close().to_batches()

    return run


def narrow(rows: pa.Table) -> pa.Table:
    """The table ``pauses`` of whole groups, with upper bounds by commits.

    Parameters
    ----------
    rows : Table
        Columns of :data:`INPUT_DDL`.
    """
    is_commit = pc.equal(rows["basis"], COMMIT)
    commits = rows.filter(is_commit)
    pauses = rows.filter(pc.invert(is_commit))
    if pauses.num_rows == 0:
        return arrow_schema("pauses").empty_table()
    starts, partition = list_parts(pauses["partitions"])
    row = np.repeat(np.arange(pauses.num_rows), np.diff(starts))
    seen = _last_commits(pauses, row, partition.astype(np.int64), commits)
    until = ints(pauses, "timestamp")
    since = np.where(
        pauses["unowned_since"].is_null().to_numpy(), until, ints(pauses, "unowned_since")
    )
    last_seen = np.maximum(ints(pauses, "last_seen")[row], np.minimum(seen, since[row]))
    same = (np.diff(row) == 0) & (np.diff(last_seen) == 0)
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    at = row[first]
    picked = pauses.take(pa.array(at))
    columns = {name: picked[name] for name in pauses.column_names}
    columns["partitions"] = make_lists(partition, first)
    columns["last_seen"] = pa.array(last_seen[first]).cast(pa.timestamp("us", tz="UTC"))
    columns["pause_upper_seconds"] = np.maximum(until[at] - last_seen[first], 0) / 1e6
    return from_columns("pauses", columns)


def _last_commits(pauses: pa.Table, row: I64, partition: I64, commits: pa.Table) -> I64:
    """Time of the last commit of each paused partition up to the end of its pause; 0 for none."""
    topic = [pauses[name].take(pa.array(row)) for name in ("group", "topic")]
    other = [commits[name] for name in ("group", "topic")]
    pair = [
        codes(pa.chunked_array([*a.chunks, *b.chunks], pa.string()))
        for a, b in zip(topic, other, strict=True)
    ]
    n = len(row)
    _, commit_partition = list_parts(commits["partitions"])
    number = np.concatenate([partition, commit_partition.astype(np.int64)])
    time = np.concatenate([ints(pauses, "timestamp")[row], ints(commits, "timestamp")])
    is_pause = np.arange(len(number)) < n
    # A commit at the very time of the record counts: it stands before the pause in this order.
    order = np.lexsort((is_pause, time, number, pair[1], pair[0]))
    keys = [column[order] for column in (*pair, number)]
    new_key = np.concatenate([[True], np.any([np.diff(key) != 0 for key in keys], axis=0)])
    place = np.arange(len(order))
    found = np.where(~is_pause[order], place, -1)
    # Forward fill inside each partition: the start of the partition stops what came before it.
    found = np.maximum.accumulate(found)
    begin = np.maximum.accumulate(np.where(new_key, place, 0))
    when = np.where((found >= begin) & (found >= 0), time[order][np.maximum(found, 0)], 0)
    result = np.empty(len(order), np.int64)
    result[order] = when
    return result[:n]
