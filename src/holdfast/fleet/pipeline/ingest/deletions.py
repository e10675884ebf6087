"""Keys that were deleted, of which no tombstone is left: known by the record that is gone.

**Rules.** Compaction takes a record away when a later one has its key, and a tombstone when it is
old (``delete.retention.ms``). So a key whose last known record is gone, and that has no record
behind it, was deleted. It gets a tombstone of ours, at a place behind its last record and before
whatever was read later.

**Strategy.** What is known of a key is the place of its last record. Whoever read the log again may
look for the places first, which needs no key, and then for the keys of those that are gone.

References: KIP-534 (how long a tombstone stays).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.kinds.rows import BY_RECORD
from holdfast.core.model.columns import I64, Mask
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.fleet.pipeline.ingest.decode import key_types
from holdfast.fleet.pipeline.ingest.topic_reader import TopicReader
from holdfast.fleet.pipeline.ingest.transactions import RECORDS
from holdfast.fleet.tables.columns.schemas import arrow_schema, filled_table
from holdfast.fleet.tables.columns.values import ints

KEPT: Final = arrow_schema("kept")
"""The last record known of a key: its place and the key."""

_COMMITS: Final = (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT)


def gone(reader: TopicReader, kept: pa.Table, done: Mapping[int, int]) -> pa.Table:
    """Return the rows of ``kept`` whose keys have no record now.

    Parameters
    ----------
    reader : TopicReader
        Of the topic, with what waits at ``done``.
    kept : Table of KEPT
        Last records, all before ``done``.
    done : mapping of int to int
        Partition -> behind the last record that was read.

    Raises
    ------
    SourceError
        The cluster cannot be read.
    """
    partition, offset = ints(kept, "partition"), ints(kept, "offset")
    missing = np.zeros(kept.num_rows, np.bool_)
    ends = reader.ends(np.unique(partition).tolist())
    for one, end in ends.items():
        rows = np.flatnonzero((partition == one) & (offset >= end.begin))
        if len(rows):
            missing[rows] = ~_there(reader, one, offset[rows], done[one])
    left = kept.filter(pa.array(missing))
    lost = set(zip(left["partition"].to_pylist(), left["key"].to_pylist(), strict=True))
    if lost:
        for rows in reader.to_end({p: done[p] for p in {p for p, _ in lost}}):
            for one in rows["partition"].unique().to_pylist():  # none where there is no row
                keys = rows["key"].combine_chunks().unique().to_pylist()
                lost.difference_update((one, key) for key in keys)
        if reader.missing_until:  # a later record of a key may be among those that are missing
            lost.clear()
    pairs = zip(left["partition"].to_pylist(), left["key"].to_pylist(), strict=True)
    return left.filter(pa.array([pair in lost for pair in pairs], pa.bool_()))


def _there(reader: TopicReader, partition: int, wanted: I64, done: int) -> Mask:
    """Which offsets of a partition still have a record."""
    found = np.zeros(len(wanted), np.bool_)
    order = np.argsort(wanted)
    ascending = wanted[order]
    for _, records in reader.parts({partition: (int(ascending[0]), done)}):
        at = np.searchsorted(ascending, records.offset)
        hit = at < len(ascending)
        at = at[hit]
        found[order[at[ascending[at] == records.offset[hit]]]] = True
    return found


def tombstones(keys: pa.Table, place: I64, time_us: I64 | int) -> pa.Table:
    """Records that delete keys, in the order in which a coordinator writes them.

    Parameters
    ----------
    keys : Table
        With the columns ``partition`` and ``key``.
    place : int64[n]
        Offset of each.
    time_us : int or int64[n]
        When each was known to be deleted, microseconds since 1970.

    Returns
    -------
    Table of RECORDS
        Commits of a group before its members, and the record of the whole group last.
    """
    rank, kind = _rank(keys["key"].combine_chunks())
    order = np.lexsort((-kind, rank, place, ints(keys, "partition")))
    columns = {
        "partition": keys["partition"],
        "key": keys["key"],
        "offset": pa.array(place),
        "timestamp": pa.array(np.broadcast_to(np.asarray(time_us, np.int64), place.shape)),
    }
    return filled_table(columns, RECORDS, keys.num_rows).take(pa.array(order))


def is_read(keys: pa.Array) -> Mask:
    """Whether the pipeline reads records of a key's type."""
    there, types = key_types(keys)
    there[there] = np.isin(types, [*_COMMITS, RecordType.GROUP_METADATA, *BY_RECORD])
    return there


def _rank(keys: pa.Array) -> tuple[I64, I64]:
    """What is deleted first, by the types of keys, and the types."""
    there, types = key_types(keys)
    kind = np.full(len(keys), -1, np.int64)
    kind[there] = types
    last = [one for one, (_, records) in BY_RECORD.items() if one == records.epoch]
    whole = np.isin(kind, [*last, RecordType.GROUP_METADATA])
    return np.where(np.isin(kind, _COMMITS), 0, np.where(whole, 2, 1)), kind


def free_offsets(taken: I64, begin: int, n: int) -> I64:
    """Return the first ``n`` offsets from ``begin`` on that are not among the sorted ``taken``."""
    low = int(np.searchsorted(taken, begin))
    end = begin + n
    while True:
        n_taken = int(np.searchsorted(taken, end)) - low
        if end - begin - n_taken >= n:
            break
        end = begin + n + n_taken
    free = np.ones(end - begin, np.bool_)
    free[taken[low : low + n_taken] - begin] = False
    return np.flatnonzero(free)[:n] + begin
