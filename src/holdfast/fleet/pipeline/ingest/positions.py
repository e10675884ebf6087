"""The position of every group: the last commit of each partition, and since when its offset stands.

**Rules.** The latest record of a partition in the log counts, whatever its time. ``since`` is the
time of the first commit of the unbroken run, up to the latest commit, that names the same offset.
The result does not depend on how the log was cut: reducing the positions of parts gives the
positions of the whole.

**Strategy.** A task that reads commits reduces them at once, so later jobs read one row per group
and partition instead of every commit. Group, topic and partition become one small number; a few
array assignments by that number find the last row and the run before it, without a sort.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import I64, Mask
from holdfast.fleet.pipeline.arrow_types import Arrays
from holdfast.fleet.pipeline.ingest.arrow_columns import filled_table
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.columns.values import ints, numbered

POSITIONS: Final = "_positions"
"""Staged: rows of :data:`POSITION`."""

LATEST: Final = "_latest"
"""Kept by a stream between its batches: one row of :data:`POSITION` per group and partition."""

POSITION: Final = arrow_schema("positions")
"""``offset`` is null in a tombstone; ``goes_back``: earlier records may name the same offset."""


def from_commits(commits: pa.Table) -> pa.Table:
    """Every row of ``offset_commits`` as a position of its own."""
    time = pc.coalesce(commits["commit_timestamp"], commits["timestamp"])
    columns: Arrays = {n: commits[n] for n in POSITION.names if n in commits.column_names}
    columns |= {"commit_timestamp": time, "since": time}
    columns["goes_back"] = pa.repeat(True, commits.num_rows)
    return filled_table(columns, POSITION, commits.num_rows)


def reduced(rows: pa.Table) -> pa.Table:
    """One row for each group and partition, of positions in any order.

    Notes
    -----
    Cost: O(n) where the rows are in the order of the log; else a sort by their places.
    """
    if rows.num_rows < 2:
        return rows
    key = _keys(rows)
    order = _log_order(rows)
    offset, goes_back = ints(rows, "offset"), rows["goes_back"].to_numpy()
    if order is not None:
        key, offset, goes_back = key[order], offset[order], goes_back[order]
    first, last, reaches = _runs(key, offset, goes_back)
    if order is not None:
        first, last = order[first], order[last]
    found = rows.take(pa.array(last))
    since = rows["since"].take(pa.array(first))
    for name, values in (("since", since), ("goes_back", pa.array(reaches))):
        found = found.set_column(POSITION.get_field_index(name), name, values)
    return found


def _runs(key: I64, offset: I64, goes_back: Mask) -> tuple[I64, I64, Mask]:
    """First and last row of the last run of equal offsets of each key, and if it is all there is.

    Where an index stands more than once in an assignment, the last value counts.
    """
    at = np.arange(len(key))
    last = np.full(int(key.max()) + 1, -1, np.int64)
    last[key] = at
    other = np.flatnonzero(offset != offset[last][key])
    low = np.zeros(len(last), np.int64)
    low[key[other]] = other + 1
    if not goes_back.all():
        final = np.flatnonzero(~goes_back)
        begin = np.zeros(len(last), np.int64)
        begin[key[final]] = final
        low = np.maximum(low, begin)
    inside = np.flatnonzero(at >= low[key])[::-1]
    first = np.zeros(len(last), np.int64)
    first[key[inside]] = inside
    eldest = np.zeros(len(last), np.int64)
    eldest[key[::-1]] = at[::-1]
    there = last >= 0
    first, last, eldest = first[there], last[there], eldest[there]
    return first, last, (first == eldest) & goes_back[first]


def _keys(rows: pa.Table) -> I64:
    """A small number for each group, topic and partition, int64[n]."""
    group, topic, partition = (
        numbered(rows["group"]),
        numbered(rows["topic"]),
        ints(rows, "partition"),
    )
    pair = group * (int(topic.max()) + 1) + topic
    width = int(partition.max()) + 1
    low = int(partition.min())
    if low >= 0 and (int(pair.max()) + 1) * width <= 4 * len(pair) + 1_000_000:
        return pair * width + partition
    pair = np.unique(pair, return_inverse=True)[1].astype(np.int64)
    found: I64 = np.unique(pair << 32 | (partition & 0xFFFFFFFF), return_inverse=True)[1]
    return found.astype(np.int64)


def _log_order(rows: pa.Table) -> I64 | None:
    """What sorts the rows by their place in the log; None where each partition is in order."""
    log_partition, log_offset = ints(rows, "log_partition"), ints(rows, "log_offset")
    order = np.argsort(log_partition.astype(np.int16), kind="stable")  # a radix sort
    falls = (np.diff(log_offset[order]) < 0) & (np.diff(log_partition[order]) == 0)
    if not falls.any():
        return None
    found: I64 = np.lexsort((log_offset, log_partition))
    return found
