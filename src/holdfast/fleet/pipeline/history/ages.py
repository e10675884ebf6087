"""How old the oldest unread record is, by the record's own time, where a cluster can be asked.

**Rules.** ``lag_seconds_basis`` says what ``lag_seconds`` is: the age of the oldest unread record
(``record``), or how long the group has stood at its position (``position``). Only partitions with
lag and a commit are asked for. A record from the future is 0 seconds old.

**Strategy.** At most :data:`MOST_ASKED` partitions are asked for, those furthest behind first: a
cluster answers a few thousand of them in a second, and a fleet may have millions. Tasks of Spark
ask no cluster. There a step finds the records first, this process asks for their times at once
(:func:`times_in_advance`), and the tasks that make the table are given the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import I64
from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.columns.values import ints

MOST_ASKED: Final = 5_000

OLDEST_UNREAD: Final = arrow_schema("oldest_unread")
"""Records to be asked for, and how far behind their groups are."""

Wanted = tuple[str, int, int, int]
"""Topic, partition, the offset of a record, and a time near the record's own in milliseconds."""
Times = Callable[[Sequence[Wanted]], Sequence[int | None]]
"""Times of records in milliseconds since 1970; None where one is not known."""


def with_record_ages(rows: pa.Table, times: Times, taken_at_us: int) -> pa.Table:
    """The table ``lag`` with ages of records in place of times at positions, where they are known.

    Parameters
    ----------
    rows : Table
        The table ``lag``, whole or in part.
    times : callable
        Asks the cluster, or knows what it said.
    taken_at_us : int
        When the log ends were read, in microseconds since 1970.
    """
    at = _furthest_behind(rows)
    if not len(at):
        return rows
    found = times(_wanted(_records(rows, at, taken_at_us)))
    known = [(i, time) for i, time in zip(at.tolist(), found, strict=True) if time is not None]
    seconds = rows["lag_seconds"].to_pylist()
    basis = rows["lag_seconds_basis"].to_pylist()
    for i, time in known:
        seconds[i] = max(taken_at_us / 1000 - time, 0.0) / 1000
        basis[i] = "record"
    for name, values in (("lag_seconds", seconds), ("lag_seconds_basis", basis)):
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), pa.array(values, rows[name].type))
    return rows


def oldest_unread(rows: pa.Table, taken_at_us: int) -> pa.Table:
    """The records of the table ``lag`` that :func:`with_record_ages` asks for, in its order."""
    return _records(rows, _furthest_behind(rows), taken_at_us)


def times_in_advance(records: pa.Table, times: Times) -> Times:
    """Ask for the times of the records furthest behind; the answers can be sent to tasks.

    Parameters
    ----------
    records : Table of OLDEST_UNREAD
        Of all parts of the table ``lag``.
    """
    order = np.argsort(-ints(records, "lag"), kind="stable")[:MOST_ASKED]
    wanted = _wanted(records.take(pa.array(order)))
    return partial(_said, dict(zip(wanted, times(wanted) if wanted else (), strict=True)))


def _said(known: Mapping[Wanted, int | None], wanted: Sequence[Wanted]) -> list[int | None]:
    return [known.get(record) for record in wanted]


def _furthest_behind(rows: pa.Table) -> I64:
    """Rows of ``lag`` whose oldest unread record is asked for, the largest lag first."""
    lag = ints(rows, "lag")
    asked = pc.equal(rows["status"], "committed").to_numpy(zero_copy_only=False) & (lag > 0)
    at = np.flatnonzero(asked)
    return at[np.argsort(-lag[at], kind="stable")[:MOST_ASKED]]


def _records(rows: pa.Table, at: I64, taken_at_us: int) -> pa.Table:
    """The oldest unread record of each of these rows of ``lag``."""
    stood = np.nan_to_num(rows["lag_seconds"].to_numpy(zero_copy_only=False)[at])
    first = np.maximum(ints(rows, "current_offset")[at], ints(rows, "log_start_offset")[at])
    picked = rows.select(["topic", "partition", "lag"]).take(pa.array(at))
    columns = {
        "topic": picked["topic"],
        "partition": picked["partition"],
        "offset": pa.array(first),
        "near_ms": pa.array(taken_at_us // 1000 - (stood * 1000).astype(np.int64)),
        "lag": picked["lag"],
    }
    return pa.table(columns, schema=OLDEST_UNREAD)


def _wanted(records: pa.Table) -> list[Wanted]:
    names = ("topic", "partition", "offset", "near_ms")
    return list(zip(*(records[name].to_pylist() for name in names), strict=True))
