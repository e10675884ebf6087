"""How old the oldest unread record is, by the record's own time, where a cluster can be asked.

**Rules.** ``lag_seconds_basis`` says what ``lag_seconds`` is: the age of the oldest unread record
(``record``), or how long the group has stood at its position (``position``). Only partitions with
lag and a commit are asked for. A record from the future is 0 seconds old.

**Strategy.** At most :data:`MOST_ASKED` partitions are asked for, those furthest behind first: a
cluster answers a few thousand of them in a second, and a fleet may have millions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.tables.columns.values import ints

MOST_ASKED: Final = 5_000

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
        Asks the cluster.
    taken_at_us : int
        When the log ends were read, in microseconds since 1970.
    """
    lag = ints(rows, "lag")
    asked = pc.equal(rows["status"], "committed").to_numpy(zero_copy_only=False) & (lag > 0)
    at = np.flatnonzero(asked)
    at = at[np.argsort(-lag[at], kind="stable")[:MOST_ASKED]]
    if not len(at):
        return rows
    stood = np.nan_to_num(rows["lag_seconds"].to_numpy(zero_copy_only=False)[at])
    first = np.maximum(ints(rows, "current_offset")[at], ints(rows, "log_start_offset")[at])
    near = taken_at_us // 1000 - (stood * 1000).astype(np.int64)
    topics = rows["topic"].take(pa.array(at)).to_pylist()
    columns = (ints(rows, "partition")[at].tolist(), first.tolist(), near.tolist())
    found = times(list(zip(topics, *columns, strict=True)))
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
