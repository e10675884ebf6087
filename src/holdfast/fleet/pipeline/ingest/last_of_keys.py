"""The last record of each key in several dumps, and which dump proves its deletion.

**Rules.** Of two dumps the later one is the one that read a partition further, or, if both read as
far, the one that was taken later. A dump proves that a key was deleted if it read the position of
the key's last record and does not have the record, and no later dump has it. A record of a
transaction that was open during a dump is in a later dump, so it does not count as deleted. A dump
of named groups proves something about their keys alone.

**Strategy.** The records come partition by partition, in the order of the log, so the last record
of a key comes last; the keys of one partition at a time are in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import I64, Mask
from holdfast.fleet.columnar import ints, numbered
from holdfast.fleet.pipeline.ingest.deletions import is_read
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC
from holdfast.fleet.pipeline.ingest.selection import Selection
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.tables.columns.schemas import arrow_schema, filled_table
from holdfast.fleet.tables.storage.parquet import batches_of

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
        """Take in the next records.

        Parameters
        ----------
        rows : Table of RECORDS
            Sorted by partition and offset, each once, none without them.
        parts : sequence of Table of RECORDS
            The same records, as each dump has them.
        """
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
            reads = (offset >= first) & (offset < end) & self._means(number, rows)
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

    def _means(self, number: int, rows: pa.Table) -> Mask:
        """Return which records are of the groups of a dump."""
        keep = self._chosen[number].keep(rows["key"].combine_chunks())
        return np.ones(rows.num_rows, np.bool_) if keep is None else keep

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
