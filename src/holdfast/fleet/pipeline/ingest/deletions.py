"""Deleted keys without a tombstone: recognized by their missing record.

**Rules.** Compaction deletes a record when a later one has its key, and a tombstone when it is old
(``delete.retention.ms``). So a key whose last known record is missing, and that has no later
record, was deleted. It gets a tombstone of ours at the offset from which the log was read on,
behind the key's last record. The members of a group are deleted right there, before later records
of the group. A commit is deleted at the first offset from there on that has no record, so that
each row of ``offset_commits`` has a position of its own.

Of two dumps the later one is the one that read a partition further, or, if both read as far, the
one that was taken later. A dump proves that a key was deleted if it read the position of the key's
last record and does not have the record, and no later dump has it. A record of a transaction that
was open during a dump is in a later dump, so it does not count as deleted. A dump of named groups
proves something about their keys alone.

**Strategy.** State has the position of a key's last record. A reader of the log checks the
positions first, which needs no key, and then the keys of missing records.

References: KIP-534 (how long a tombstone stays).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.kinds import BY_RECORD
from holdfast.core.model.columns import I64, Mask
from holdfast.core.wire.layouts.offsets_schemas import RecordType
from holdfast.fleet.columnar import ints, numbered
from holdfast.fleet.pipeline.ingest.decode import Selection, key_types
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC, TopicReader
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.pipeline.ingest.transactions import RECORDS
from holdfast.fleet.tables.columns.schemas import arrow_schema, filled_table
from holdfast.fleet.tables.storage.parquet import batches_of

KNOWN_KEYS: Final = arrow_schema("known_keys")
"""The last known record of a key: its position and the key."""

_COMMITS: Final = (RecordType.LEGACY_OFFSET_COMMIT, RecordType.OFFSET_COMMIT)


def deletions(
    reader: TopicReader, known: pa.Table, done: Mapping[int, int], time_us: int
) -> pa.Table:
    """Return tombstones of the keys of ``known`` that have no record now, as RECORDS.

    ``known`` has last records, KNOWN_KEYS, all before ``done``: partition -> behind the last record
    that was read. ``reader`` has the waiting records at ``done``. ``time_us`` is now, in
    microseconds since 1970. Raises SourceError if the cluster cannot be read.
    """
    left = known.filter(pa.array(_missing(reader, known, done)))
    pairs = [*zip(left["partition"].to_pylist(), left["key"].to_pylist(), strict=True)]
    lost = dict(zip(pairs, left["offset"].to_pylist(), strict=True))
    parts = [RECORDS.empty_table()]
    if lost:
        parts += reader.to_end({p: done[p] for p, _ in pairs})
        for rows in parts:
            newest = rows.group_by(["partition", "key"]).aggregate([("offset", "max")])
            for row in newest.to_pylist():
                pair = row["partition"], row["key"]
                # A record that waited for its transaction may be older than the lost one.
                if row["offset_max"] > lost.get(pair, row["offset_max"]):
                    del lost[pair]
        if reader.missing_until:  # a later record of a key may be among the missing ones
            lost.clear()
    found = left.filter(pa.array([pair in lost for pair in pairs], pa.bool_()))
    taken = pa.concat_tables([*parts, reader.transactions.table().select(RECORDS.names)])
    begin = np.array([done[p] for p in found["partition"].to_pylist()], np.int64)
    return tombstones(found, begin, np.full(len(begin), time_us), partial(offsets_of, taken))


def _missing(reader: TopicReader, known: pa.Table, done: Mapping[int, int]) -> Mask:
    """Return which last records are missing, superseded or not."""
    partition, offset = ints(known, "partition"), ints(known, "offset")
    missing = np.zeros(known.num_rows, np.bool_)
    for one, end in reader.ends(np.unique(partition).tolist()).items():
        rows = np.flatnonzero((partition == one) & (offset >= end.begin))
        if len(rows):
            missing[rows] = ~_there(reader, one, offset[rows], done[one])
    return missing


def _there(reader: TopicReader, partition: int, wanted: I64, done: int) -> Mask:
    """Return which offsets of a partition still have a record."""
    found = np.zeros(len(wanted), np.bool_)
    order = np.argsort(wanted)
    ascending = wanted[order]
    for _, records in reader.parts({partition: (int(ascending[0]), done)}):
        at = np.searchsorted(ascending, records.offset)
        hit = at < len(ascending)
        at = at[hit]
        found[order[at[ascending[at] == records.offset[hit]]]] = True
    return found


def tombstones(keys: pa.Table, begin: I64, time_us: I64, taken: Callable[[int], I64]) -> pa.Table:
    """Return records that delete keys, as RECORDS in the order of their positions.

    ``keys`` has ``partition`` and ``key``; ``begin`` is the first offset at which each may be
    deleted, and ``time_us`` when each was known to be deleted. ``taken`` returns the offsets of a
    partition's records, ascending. The record of a whole group is deleted behind its members.
    """
    rank, kind = _rank(keys["key"].combine_chunks())
    partition, position = ints(keys, "partition"), begin.copy()
    is_commit = np.isin(kind, _COMMITS)
    for one in np.unique(partition[is_commit]).tolist():
        used = taken(one)
        own = is_commit & (partition == one)
        for low in np.unique(begin[own]).tolist():
            rows = np.flatnonzero(own & (begin == low))
            position[rows] = free_offsets(used, low, len(rows))
            used = np.union1d(used, position[rows])
    columns = {
        "partition": keys["partition"],
        "key": keys["key"],
        "offset": pa.array(position),
        "timestamp": pa.array(time_us),
    }
    order = np.lexsort((-kind, rank, position, partition))
    return filled_table(columns, RECORDS, keys.num_rows).take(pa.array(order))


def offsets_of(rows: pa.Table, partition: int) -> I64:
    """Return offsets of a partition's records, ascending."""
    own = rows.filter(pc.equal(rows["partition"], partition))
    return np.unique(ints(own, "offset"))


def is_read(keys: pa.Array) -> Mask:
    """Return whether the pipeline reads records of a key's type."""
    there, types = key_types(keys)
    there[there] = np.isin(types, [*_COMMITS, RecordType.GROUP_METADATA, *BY_RECORD])
    return there


def _rank(keys: pa.Array) -> tuple[I64, I64]:
    """Return the order of deletion in a group, by the types of keys, and the types."""
    there, types = key_types(keys)
    kind = np.full(len(keys), -1, np.int64)
    kind[there] = types
    last = [one for one, (_, records) in BY_RECORD.items() if one == records.epoch]
    whole = np.isin(kind, [*last, RecordType.GROUP_METADATA])
    return whole.astype(np.int64), kind


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


LAST: Final = arrow_schema("last_of_keys")
Spans = Mapping[int, tuple[int, int]]
"""Partition -> from which offset to which a dump has read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DumpView:
    """What one of several dumps has seen."""

    number: int  # 0 for the dump that was taken first
    groups: tuple[str, ...]
    taken_at_us: int
    spans: Spans
    deleted: pa.Table  # tombstones that an earlier merge has found

    @classmethod
    def of(cls, dump: Dump, number: int, taken_at_us: int) -> DumpView:
        """Return the view of a dump; without its end offsets, up to its last record."""
        return cls(
            number=number,
            groups=dump.groups,
            taken_at_us=taken_at_us,
            spans=_spans_of_records(dump) if dump.read is None else dump.read,
            deleted=dump.deleted(),
        )


def _spans_of_records(dump: Dump) -> Spans:
    last: dict[int, int] = {}
    for file in dump.record_files():
        for batch in batches_of(file, ["partition", "offset"]):
            rows = pa.Table.from_batches([batch]).drop_null()
            found = rows.group_by("partition").aggregate([("offset", "max")])
            for row in found.to_pylist():
                last[row["partition"]] = max(row["offset_max"], last.get(row["partition"], -1))
    own = dump.offsets().filter(pc.field("topic") == OFFSETS_TOPIC).to_pylist()
    listed = {row["partition"]: (row["begin_offset"], row["end_offset"]) for row in own}
    return {
        p: (begin, min(last[p] + 1, end))
        for p, (begin, end) in listed.items()
        if begin <= last.get(p, -1) < end
    }


def joined_spans(views: Sequence[DumpView]) -> Spans:
    """Return the furthest span of each partition that dumps of the same groups have read."""
    whole = [view for view in views if not view.groups]
    same = views if len({view.groups for view in views}) == 1 else ()
    spans: dict[int, tuple[int, int]] = {}
    for view in whole or same:
        for partition, span in view.spans.items():
            if span[1] >= spans.get(partition, (0, 0))[1]:
                spans[partition] = span
    return spans


class LastOfKeys:
    """Follows the records of several dumps through their partitions."""

    def __init__(self, views: Sequence[DumpView]):
        self._views = views
        self._chosen = [Selection(groups=view.groups, all_groups=True) for view in views]
        self._last: dict[int, pa.Table] = {}

    def take(self, rows: pa.Table, parts: Sequence[pa.Table]) -> None:
        """Take in the next records: in order, each once; and in ``parts`` as each dump has them."""
        partition = ints(rows, "partition")
        for one in np.unique(partition).tolist():
            low, high = np.searchsorted(partition, (one, one + 1))
            own = rows.slice(int(low), int(high - low))
            has = [part.filter(pc.equal(part["partition"], one)) for part in parts]
            seen = self._seen(one, own, [ints(part, "offset") for part in has])
            # A partition with more rows to come stays in memory; a complete one has few keys left.
            before = self._last.get(one, LAST.empty_table())
            self._last[one] = _last(pa.concat_tables([before, seen]))

    def _seen(self, partition: int, rows: pa.Table, has: Sequence[I64]) -> pa.Table:
        """Return records of a partition, and whether a later dump proves their deletion."""
        offset, n = ints(rows, "offset"), rows.num_rows
        spans = [view.spans.get(partition, (0, 0)) for view in self._views]
        later = sorted(range(len(spans)), key=lambda number: (spans[number][1], number))
        newest, gone = np.full(n, -1), np.zeros(n, np.bool_)
        begin, time = np.zeros(n, np.int64), np.zeros(n, np.int64)
        for rank, number in enumerate(later):
            first, end = spans[number]
            there = np.isin(offset, has[number])
            newest[there], gone[there], begin[there] = rank, False, end
            reads = (offset >= first) & (offset < end)
            keep = self._chosen[number].keep(rows["key"].combine_chunks())
            reads &= True if keep is None else keep
            proves = reads & ~there & ~gone & (newest >= 0)
            gone |= proves
            time[proves] = self._views[number].taken_at_us
        columns = {
            "partition": rows["partition"],
            "key": rows["key"],
            "offset": rows["offset"],
            "is_tombstone": rows["value"].is_null(),
            "is_gone": pa.array(gone),
            "begin": pa.array(np.maximum(begin, offset + 1)),
            "time_us": pa.array(time),
        }
        return filled_table(columns, LAST, n).filter(rows["key"].is_valid())

    def deleted(self) -> tuple[pa.Table, pa.Table]:
        """Return deleted keys, as LAST, and the tombstones of earlier merges that stay."""
        last = pa.concat_tables([LAST.empty_table(), *self._last.values()])
        found = last.filter(pc.and_(last["is_gone"], pc.invert(last["is_tombstone"])))
        found = found.filter(pa.array(is_read(found["key"].combine_chunks())))
        known = zip(*(last[name].to_pylist() for name in ("partition", "key")), strict=True)
        offset = dict(zip(known, last["offset"].to_pylist(), strict=True))
        kept = {
            (row["partition"], row["key"]): row
            for view in self._views
            for row in view.deleted.to_pylist()
            if row["offset"] > offset.get((row["partition"], row["key"]), -1)
        }
        return found, pa.Table.from_pylist([*kept.values()], schema=self._views[0].deleted.schema)


def _last(rows: pa.Table) -> pa.Table:
    """Return the last row of each key."""
    key = numbered(rows["key"])
    at = np.zeros(int(key.max(initial=-1)) + 1, np.int64)
    at[key] = np.arange(len(key))  # of several values the last one counts
    return rows.take(pa.array(np.sort(at)))
