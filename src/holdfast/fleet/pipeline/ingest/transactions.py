"""Records of a log that count, and records that wait for the end of their transaction.

**Rules.** As in the group coordinator: a record of a transaction waits until a marker ends the
transaction. It counts if the marker commits, and is dropped if the marker aborts. Every other
record counts at once. A record that counts late keeps its offset as its position: of two commits
of a partition the later record counts, in whatever order their transactions ended
(``tests/live/test_open_transactions.py`` compares with brokers).

**Strategy.** A producer has one open transaction, so waiting records are keyed by their producer
id. If no record waits and none is transactional, as nearly always, records pass without work.

References: KIP-98, KIP-890 (a marker may have a newer epoch of the same producer id); ``replay``
and ``replayEndTransactionMarker`` of Kafka's ``OffsetMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import I64, Mask
from holdfast.core.wire.many.columns import Slices
from holdfast.core.wire.many.record_batches import ABORT, COMMIT, DATA, LogRecords
from holdfast.errors import SourceError
from holdfast.fleet.columnar import new_runs
from holdfast.fleet.pipeline.ingest.decode import Selection, binary_column, group_names
from holdfast.fleet.tables.columns.schemas import FIRST_US, LAST_US, TIMESTAMP, arrow_schema

RECORDS: Final = arrow_schema("records")
WAITING: Final = arrow_schema("waiting")
"""Records of open transactions: those of :data:`RECORDS` and the id of their producer."""

GROUPS_NAMED: Final = 5
"""Of an open transaction so many groups are named at most."""

_Piece: TypeAlias = "pa.Table | range"
"""Waiting records: stored ones, or rows of the present read."""


class OpenTransactions:
    """The records that wait in each partition of a log; at first those of an earlier read."""

    def __init__(self, waiting: pa.Table | None = None):
        self._waiting: dict[int, dict[int, list[_Piece]]] = {}
        for partition, producer_id, rows in _by_transaction(waiting):
            self._waiting.setdefault(partition, {})[producer_id] = [rows]

    def take(self, partition: int, records: LogRecords) -> Iterator[pa.Table]:
        """Add the next records of a partition; yield tables of RECORDS of those that count."""
        data = records.marker == DATA
        waiting = self._waiting.pop(partition, {})
        if not waiting and not records.transactional.any():
            yield rows_of(partition, records, None if data.all() else np.flatnonzero(data))
            return
        counts = data & ~records.transactional
        yield from _ended(waiting, records, counts)
        yield rows_of(partition, records, np.flatnonzero(counts))
        kept = {
            producer_id: [_kept(partition, records, piece) for piece in pieces]
            for producer_id, pieces in waiting.items()
        }
        if kept:
            self._waiting[partition] = kept

    def table(self) -> pa.Table:
        """Return waiting records, as WAITING."""
        found = [WAITING.empty_table()]
        for of_partition in self._waiting.values():
            for producer_id, pieces in of_partition.items():
                rows = pa.concat_tables(pieces)
                ids = pa.repeat(pa.scalar(producer_id, pa.int64()), rows.num_rows)
                found.append(rows.append_column("producer_id", ids).select(WAITING.names))
        return pa.concat_tables(found)


def _ended(
    waiting: dict[int, list[_Piece]], records: LogRecords, counts: Mask
) -> Iterator[pa.Table]:
    """Follow the transactions through ``records``; records that still wait stay in ``waiting``.

    Rows that count now are marked in ``counts``; earlier records that count now are yielded.
    """
    for first, last in _runs(records):
        producer_id, marker = int(records.producer_id[first]), int(records.marker[first])
        if marker == DATA:
            if records.transactional[first]:
                waiting.setdefault(producer_id, []).append(range(first, last))
        elif marker == ABORT:
            waiting.pop(producer_id, None)
        elif marker == COMMIT:
            for piece in waiting.pop(producer_id, ()):
                if isinstance(piece, range):
                    counts[piece.start : piece.stop] = True
                else:
                    yield piece


def _runs(records: LogRecords) -> Iterator[tuple[int, int]]:
    """Return first and end row of each run of rows of one producer and of one kind."""
    kinds = records.transactional.astype(np.int64), records.marker
    first = np.flatnonzero(new_runs(records.producer_id, *kinds))
    return pairwise([*first.tolist(), len(records)])


def _kept(partition: int, records: LogRecords, piece: _Piece) -> pa.Table:
    if isinstance(piece, range):
        return rows_of(partition, records, np.arange(piece.start, piece.stop))
    return piece


def _by_transaction(waiting: pa.Table | None) -> Iterator[tuple[int, int, pa.Table]]:
    """Yield partition, producer id and records of each transaction."""
    if waiting is None or not waiting.num_rows:
        return
    names = ["partition", "producer_id"]
    for one in waiting.select(names).group_by(names).aggregate([]).to_pylist():
        own = pc.and_(*(pc.equal(waiting[name], one[name]) for name in names))
        yield one["partition"], one["producer_id"], waiting.filter(own).select(RECORDS.names)


# Records as Arrow has them


def rows_of(partition: int, records: LogRecords, rows: I64 | None = None) -> pa.Table:
    """Return some or all records of a partition as RECORDS."""
    offset, time_ms, key, value = (
        records.offset,
        records.timestamp_ms,
        records.key,
        records.value,
    )
    if rows is not None:
        offset, time_ms = offset[rows], time_ms[rows]
        key, value = key.take(rows), value.take(rows)
    # A time beyond microseconds is one that no table accepts: it stays invalid.
    time_us = np.clip(time_ms, FIRST_US // 1000 - 1, LAST_US // 1000 + 1) * 1000
    columns = [
        pa.array(np.full(len(offset), partition, np.int32)),
        pa.array(offset),
        pa.array(time_us).cast(TIMESTAMP),
        _binary(key),
        _binary(value),
    ]
    return pa.Table.from_arrays(columns, schema=RECORDS)


def _binary(column: Slices) -> pa.Array:
    data, start = column.gather()
    if int(start[-1]) >= 1 << 31:
        raise SourceError(f"{int(start[-1])} bytes of records at once, expected less than 2 GiB")
    valid = None if column.valid is None else pa.array(column.valid).buffers()[1]
    buffers = [valid, pa.py_buffer(start.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(column), buffers)


# For people


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """An open transaction of a partition, as notes and a dump name it."""

    partition: int
    producer_id: int
    first_offset: int
    since_us: int  # time of its first record, microseconds since 1970
    n_records: int
    groups: tuple[str, ...]  # at most GROUPS_NAMED of them

    def as_note(self) -> dict[str, Any]:
        """Return a value for JSON."""
        return asdict(self)


def described(waiting: pa.Table, selection: Selection) -> list[OpenTransaction]:
    """Return the open transactions that have records of the chosen groups."""
    found = []
    for partition, producer_id, rows in _by_transaction(waiting):
        keep = selection.keep(rows["key"].combine_chunks())
        own = rows if keep is None else rows.filter(pa.array(keep))
        if not own.num_rows:
            continue
        groups = group_names(binary_column(own["key"])).unique().to_pylist()
        names = sorted(name.decode("utf-8", "replace") for name in groups)
        found.append(
            OpenTransaction(
                partition=partition,
                producer_id=producer_id,
                first_offset=pc.min(own["offset"]).as_py(),
                since_us=pc.min(own["timestamp"].cast(pa.int64())).as_py(),
                n_records=own.num_rows,
                groups=tuple(names[:GROUPS_NAMED]),
            )
        )
    return sorted(found, key=lambda one: (one.partition, one.first_offset))


def from_notes(notes: Sequence[Any]) -> list[OpenTransaction]:
    """Read :meth:`OpenTransaction.as_note` back; a TypeError or a ValueError if a note is none."""
    return [
        OpenTransaction(
            groups=tuple(map(str, note["groups"])),
            **{
                name: int(note[name])
                for name in ("partition", "producer_id", "first_offset", "since_us", "n_records")
            },
        )
        for note in notes
    ]
