"""Rate of change of lags, and time until groups have caught up, by an earlier reading of the lag.

**Rules.** Lags rise and fall with every commit, so the slope is smoothed: an earlier reading
counts less the older it is, ``exp(-age / SMOOTHING_S)``. The slope is null if one of two readings
is unknown, if the log ends before the earlier end (another topic of that name), and if the commit
is outside of the log: records deleted there are not read. The time until caught up is 0 if no
record is unread, and null unless the lag falls by :data:`~holdfast.core.model.lag.LEAST_FALL`:
less may be the rest of an earlier fall.

References: exponential smoothing over uneven intervals, as of load averages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import F64, I64, index_in
from holdfast.core.model.lag import LEAST_FALL
from holdfast.fleet.columnar import floats, ints, numbered_together, replaced
from holdfast.fleet.tables.columns.holdable import to_us
from holdfast.fleet.tables.reading import Tables

SMOOTHING_S: Final = 60.0
"""After so many seconds a reading counts for a third of what it did."""
READ: Final = ("group", "topic", "partition", "lag", "log_end_offset", "lag_per_second")


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierLag:
    """An earlier reading of the lag: the columns READ of the table, and when log ends were read."""

    rows: pa.Table
    taken_at_us: int

    @classmethod
    def of(cls, tables: Tables) -> EarlierLag | None:
        """Return the reading of a stream's newest batch; None without a batch."""
        if not tables.committed():
            return None
        taken_at_us = to_us(str(tables.newest_notes().get("taken_at")))
        if taken_at_us is None:
            return None
        return cls(rows=tables.stored("lag", columns=READ), taken_at_us=taken_at_us)


def with_slopes(lag: pa.Table, earlier: EarlierLag | None, taken_at_us: int) -> pa.Table:
    """Return the table ``lag`` with the columns ``lag_per_second`` and ``catch_up_seconds``."""
    slope = np.full(lag.num_rows, np.nan)
    if earlier is not None and lag.num_rows and earlier.rows.num_rows:
        slope = _slopes(lag, earlier, (taken_at_us - earlier.taken_at_us) / 1e6)
    falls = slope <= -LEAST_FALL
    behind = ints(lag, "lag")
    seconds = np.where(falls, behind / np.where(falls, -slope, 1.0), np.nan)
    seconds[pc.equal(lag["has_unread"], pa.scalar(False)).fill_null(False).to_numpy()] = 0.0
    return replaced(
        lag,
        lag_per_second=pa.array(slope, mask=np.isnan(slope)),
        catch_up_seconds=pa.array(seconds, mask=np.isnan(seconds) | (behind < 0)),
    )


def _slopes(lag: pa.Table, earlier: EarlierLag, seconds: float) -> F64:
    at = _earlier_rows(lag, earlier.rows)
    past = np.maximum(at, 0)
    before = np.where(at >= 0, floats(earlier.rows, "lag_per_second")[past], np.nan)
    behind, end = ints(lag, "lag"), ints(lag, "log_end_offset")
    behind_then = ints(earlier.rows, "lag")[past]
    inside = pc.equal(lag["clamped"], "none").to_numpy()
    same = (at >= 0) & (end >= ints(earlier.rows, "log_end_offset")[past])
    known = same & inside & (behind >= 0) & (behind_then >= 0)
    if seconds <= 0:
        return np.where(known, before, np.nan)
    new = (behind - behind_then) / seconds
    left = np.where(np.isnan(before), 0.0, np.exp(-seconds / SMOOTHING_S))
    return np.where(known, left * np.nan_to_num(before) + (1 - left) * new, np.nan)


def _earlier_rows(lag: pa.Table, rows: pa.Table) -> I64:
    """Return the row of ``rows`` for the partition of each row of ``lag``, -1 for none."""
    group, topic = (numbered_together(lag, rows, name) for name in ("group", "topic"))
    both = group * (int(topic.max()) + 1) + topic
    _, pair = np.unique(both, return_inverse=True)
    partition = np.concatenate([ints(lag, "partition"), ints(rows, "partition")])
    key = pair.astype(np.int64) << 32 | partition
    return index_in(key[: lag.num_rows], key[lag.num_rows :])
