"""Lag over time: the readings of ``lag_history`` in a time range, of all groups or of one by topic.

**Rules.** A moment without a reading has no value: nobody knows the lag between two readings that
are far from each other. A sum is that of the known lags; a moment at which none is known is NaN.

**Strategy.** A range is read in the finest resolution in which it has at most MOST_READINGS, so
its cost does not depend on its length; files of other resolutions are not opened. The newest
reading is always there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import F64, I64, Mask
from holdfast.fleet.columnar import codes, floats, ints, times_ms
from holdfast.fleet.tables.columns.holdable import to_us
from holdfast.fleet.tables.folder.delta_log import DataFile
from holdfast.fleet.tables.folder.thinning import COARSEST_S, KEPT_S
from holdfast.fleet.tables.reading import Tables

MOST_READINGS: Final = 400
"""Readings of a range: about one for every point of a picture."""
FLEET_READINGS: Final = 300
"""The same for all groups: 6 hours are read in steps of 5 minutes then, and not of one."""
SHORTEST_S: Final = 5
"""Assumed interval of readings where every one of them stays."""
MOST_TOPICS: Final = 7
"""Topics with a line of their own; all others are one line together."""
_COLUMNS: Final = ("group", "topic", "timestamp", "lag", "lag_seconds", "resolution_seconds")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LagLine:
    """The lag of some topics over time.

    Parameters
    ----------
    name : str
        The topic; empty for all of them.
    lag, seconds : float64[n]
        Records, and the largest time lag in seconds; NaN where unknown.
    """

    name: str
    lag: F64
    seconds: F64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LagOverTime:
    """Lag over time.

    Parameters
    ----------
    at_ms : int64[n]
        Moments of the readings, ascending, in UTC milliseconds.
    lines : sequence of LagLine
        One for all groups; of a group one for each topic, the greatest first.
    n_others : int
        Topics that the last line sums up; 0 without such a line.
    """

    at_ms: I64
    lines: Sequence[LagLine]
    n_others: int = 0


def read_readings(
    tables: Tables,
    since_ms: int | None,
    until_ms: int | None,
    groups: Sequence[str] | None = None,
) -> pa.Table:
    """Return rows of ``lag_history`` in a time range, in one resolution.

    Parameters
    ----------
    since_ms, until_ms : int, optional
        First and last moment in UTC milliseconds; None for no limit.
    groups : sequence of str, optional
        By default all groups.
    """
    first_ms, newest_ms = tables.span_ms("lag_history") or (0, -1)
    begin_ms = first_ms if since_ms is None else max(first_ms, since_ms)
    end_ms = newest_ms if until_ms is None else min(newest_ms, until_ms)
    most = FLEET_READINGS if groups is None else MOST_READINGS
    step_s = _resolution_s(begin_ms, end_ms, newest_ms, most)

    def is_needed(file: DataFile) -> bool:
        low_ms, high_ms = (_bound_ms(bounds) for bounds in (file.lowest, file.highest))
        overlaps = low_ms is None or high_ms is None or (low_ms <= end_ms and high_ms >= begin_ms)
        fine = file.highest.get("resolution_seconds", COARSEST_S) >= step_s
        return overlaps and (fine or high_ms is None or high_ms >= newest_ms)

    rows = tables.stored("lag_history", groups=groups, columns=_COLUMNS, only=is_needed)
    at_ms = times_ms(rows, "timestamp")
    inside = (at_ms >= begin_ms) & (at_ms <= end_ms)
    inside &= (ints(rows, "resolution_seconds") >= step_s) | (at_ms >= newest_ms - 1)
    return rows.filter(pa.array(inside & _some_of(at_ms, inside)))


def _bound_ms(bounds: Any) -> int | None:
    found_us = to_us(str(bounds.get("timestamp")))
    return None if found_us is None else found_us // 1000


def _resolution_s(begin_ms: int, end_ms: int, newest_ms: int, most: int) -> int:
    """Return the finest resolution that reaches back to the begin, with ``most`` readings."""
    for step_s, kept_s in KEPT_S.items():
        reaches = kept_s is None or (newest_ms - begin_ms) / 1000 <= kept_s
        n_readings = (end_ms - begin_ms) / 1000 / max(step_s, SHORTEST_S)
        if reaches and n_readings <= most:
            return step_s
    return COARSEST_S


def _some_of(at_ms: I64, inside: Mask) -> Mask:
    """Return the rows of MOST_READINGS moments, evenly chosen of those inside; the last stays."""
    moments = np.unique(at_ms[inside])
    stride = -(-len(moments) // MOST_READINGS)
    chosen: Mask = np.isin(at_ms, moments[::-1][:: max(stride, 1)])
    return chosen


def lag_of_fleet(readings: pa.Table) -> LagOverTime:
    """Return the lag of all groups together: their records, and the largest time lag."""
    at_ms, moment = np.unique(times_ms(readings, "timestamp"), return_inverse=True)
    return LagOverTime(at_ms=at_ms, lines=[_line("", readings, moment, len(at_ms))])


def lag_of_group(readings: pa.Table) -> LagOverTime:
    """Return the lag of a group by topic, those with the most records first."""
    at_ms, moment = np.unique(times_ms(readings, "timestamp"), return_inverse=True)
    topic, names = codes(readings, "topic")
    most = np.zeros(len(names), np.int64)
    np.maximum.at(most, topic, ints(readings, "lag"))
    order = np.argsort(-most, kind="stable")
    # One topic more is a line of its own as well: "1 other topic" would not be shorter.
    own = order if len(order) <= MOST_TOPICS + 1 else order[:MOST_TOPICS]
    parts = [(names[i], topic == i) for i in own]
    n_others = len(order) - len(own)
    if n_others:
        parts.append((f"{n_others:,} other topics", ~np.isin(topic, own)))
    lines = [
        _line(name, readings.filter(pa.array(rows)), moment[rows], len(at_ms))
        for name, rows in parts
    ]
    return LagOverTime(at_ms=at_ms, lines=lines, n_others=n_others)


def _line(name: str, rows: pa.Table, moment: I64, n: int) -> LagLine:
    """Return sums of the lags, and the largest time lags, at ``n`` moments."""
    known = pc.is_valid(rows["lag"]).to_numpy(zero_copy_only=False)
    lag = np.zeros(n)
    np.add.at(lag, moment[known], floats(rows, "lag")[known])
    lag[np.bincount(moment[known], minlength=n) == 0] = np.nan
    seconds = np.full(n, np.nan)
    np.fmax.at(seconds, moment, floats(rows, "lag_seconds"))
    return LagLine(name=name, lag=lag, seconds=seconds)


def lag_by_part(
    readings: pa.Table, names: Sequence[str], begin_ms: int, end_ms: int, n_parts: int
) -> I64:
    """Return the last lag of each group in each part of a time range, int64[groups, parts].

    -1 without a reading.
    """
    found = np.full((len(names), n_parts), -1, np.int64)
    moments = np.unique(times_ms(readings, "timestamp"))
    part = np.clip((moments - begin_ms) * n_parts // max(end_ms - begin_ms, 1), 0, n_parts - 1)
    is_last = np.ones(len(part), np.bool_)
    is_last[:-1] = part[1:] != part[:-1]
    rows = readings.filter(readings["lag"].is_valid())
    at = np.searchsorted(moments, times_ms(rows, "timestamp"))
    code, known = codes(rows, "group")
    row_of = {name: i for i, name in enumerate(names)}
    group = np.asarray([row_of.get(name, -1) for name in known], np.int64)[code]
    shown = is_last[at] & (group >= 0)
    where = (group[shown], part[at[shown]])
    np.maximum.at(found, where, 0)
    np.add.at(found, where, ints(rows, "lag")[shown])
    return found
