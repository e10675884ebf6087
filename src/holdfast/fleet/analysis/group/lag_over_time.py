"""Lag over time: the readings of ``lag_history`` in a time range, of all groups or of one by topic.

**Rules.** A moment without a reading has no value: nobody knows the lag between two readings that
are far from each other. A sum is that of the known lags; a moment at which none is known is NaN.

**Strategy.** A range is read in the finest resolution in which it has at most MOST_READINGS, so
its cost does not depend on its length; files of other resolutions are not opened. The newest
reading is always there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.columns import F64, I64, Mask
from holdfast.fleet.columnar import codes, floats, ints, times_ms
from holdfast.fleet.tables.columns.schemas import arrow_schema, to_us
from holdfast.fleet.tables.folder.delta_log import DataFile
from holdfast.fleet.tables.folder.maintenance import COARSEST_S, KEPT_S
from holdfast.fleet.tables.reading import GROUPS_AT_ONCE, ROWS_AT_ONCE, Tables

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
    """The lag of some topics over time."""

    name: str  # the topic; empty for all of them
    # ``lag``, ``seconds`` (float64[n]): records, and the largest time lag in seconds; NaN where
    # unknown.
    lag: F64
    seconds: F64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LagOverTime:
    """Lag over time."""

    at_ms: I64  # int64[n]: moments of the readings, ascending, in UTC milliseconds
    # One for all groups; of a group one for each topic, the greatest first.
    lines: Sequence[LagLine]


def read_readings(
    tables: Tables,
    since_ms: int | None,
    until_ms: int | None,
    groups: Sequence[str] | None = None,
) -> pa.Table:
    """Return rows of ``lag_history`` of some groups, or of all, in one resolution.

    ``since_ms`` and ``until_ms`` are the first and last moment in UTC milliseconds; None for no
    limit.
    """
    most = FLEET_READINGS if groups is None else MOST_READINGS
    span = _Range.of(tables, since_ms, until_ms, most)
    rows = tables.stored("lag_history", groups=groups, columns=_COLUMNS, only=span.is_needed)
    rows = rows.filter(pa.array(span.inside(rows)))
    at_ms = times_ms(rows, "timestamp")
    return rows.filter(pa.array(np.isin(at_ms, _some_of(at_ms))))


def readings_of(
    tables: Tables,
    since_ms: int | None,
    until_ms: int | None,
    groups: Sequence[str],
    shown: Sequence[str],
) -> tuple[pa.Table, LagOverTime | None]:
    """Return the readings of some groups, and the lag of all groups together if these are more.

    Of other groups no reading stays in memory. The time range is as of :func:`read_readings`.
    """
    if len(groups) <= GROUPS_AT_ONCE:
        return read_readings(tables, since_ms, until_ms, groups), None
    span = _Range.of(tables, since_ms, until_ms, MOST_READINGS)
    known, own = (pa.array(list(names), pa.string()) for names in (groups, shown))
    readings = _Readings.of(tables, span, known)
    sums, found = _Sums.of(readings.at_ms), [_NO_ROWS]
    for rows in readings.each():
        sums.add(rows)
        found.append(rows.filter(pc.is_in(rows["group"], own)))
    return pa.concat_tables(found), LagOverTime(at_ms=sums.at_ms, lines=[sums.line("")])


def lag_of_groups(
    tables: Tables,
    since_ms: int | None,
    until_ms: int | None,
    names: Sequence[str],
    parts: tuple[int, int, int],
) -> tuple[I64, LagOverTime]:
    """Return the last lag of each group in each part of a time range, and that of all together.

    The time range is as of :func:`read_readings`; ``names`` are sorted.

    Parameters
    ----------
    parts : (int, int, int)
        Begin and end in UTC milliseconds, and the number of parts.

    Returns
    -------
    lags : int64[groups, parts]
        -1 without a reading.
    """
    readings = _Readings.of(tables, _Range.of(tables, since_ms, until_ms, FLEET_READINGS), None)
    sums = _Sums.of(readings.at_ms)
    by_part = _LagByPart.of(readings.at_ms, pa.array(names, pa.string()), *parts)
    for rows in readings.each():
        sums.add(rows)
        by_part.add(rows)
    return by_part.lags, LagOverTime(at_ms=sums.at_ms, lines=[sums.line("")])


_NO_ROWS: Final = arrow_schema("lag_history").empty_table().select(_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Readings:
    """Readings of a range, which are read file by file where they are many."""

    tables: Tables
    span: _Range
    groups: pa.Array | None  # groups; None for all
    at_ms: I64  # int64[n]: moments of the readings, at most MOST_READINGS, ascending
    held: Sequence[pa.Table] | None

    @classmethod
    def of(cls, tables: Tables, span: _Range, groups: pa.Array | None) -> _Readings:
        """Return the readings of some groups, or of all, in a range."""
        n_rows = sum(f.rows for f in tables.data_files("lag_history") if span.is_needed(f))
        each = _in_range(tables, span, groups)
        held = list(each) if n_rows <= ROWS_AT_ONCE else None
        moments = [np.unique(times_ms(rows, "timestamp")) for rows in held or each]
        at_ms = _some_of(np.concatenate([np.zeros(0, np.int64), *moments]))
        return cls(tables=tables, span=span, groups=groups, at_ms=at_ms, held=held)

    def each(self) -> Iterator[pa.Table]:
        """Yield the readings of these moments."""
        held = self.held
        for rows in _in_range(self.tables, self.span, self.groups) if held is None else held:
            yield rows.filter(pa.array(np.isin(times_ms(rows, "timestamp"), self.at_ms)))


def _in_range(tables: Tables, span: _Range, groups: pa.Array | None) -> Iterator[pa.Table]:
    """Yield the readings of some groups, or of all, in a range, file by file."""
    for rows in tables.each_file("lag_history", _COLUMNS, span.is_needed):
        own = rows if groups is None else rows.filter(pc.is_in(rows["group"], groups))
        yield own.filter(pa.array(span.inside(own)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """A time range in UTC milliseconds, and the resolution in which it is read."""

    begin_ms: int
    end_ms: int
    newest_ms: int
    step_s: int

    @classmethod
    def of(cls, tables: Tables, since_ms: int | None, until_ms: int | None, most: int) -> _Range:
        """Return the range between two moments, with ``most`` readings."""
        first_ms, newest_ms = tables.span_ms("lag_history") or (0, -1)
        begin_ms = first_ms if since_ms is None else max(first_ms, since_ms)
        end_ms = newest_ms if until_ms is None else min(newest_ms, until_ms)
        step_s = _resolution_s(begin_ms, end_ms, newest_ms, most)
        return cls(begin_ms=begin_ms, end_ms=end_ms, newest_ms=newest_ms, step_s=step_s)

    def is_needed(self, file: DataFile) -> bool:
        """Return whether a file may have a reading of the range."""
        low_ms, high_ms = (_bound_ms(bounds) for bounds in (file.lowest, file.highest))
        overlaps = (
            low_ms is None
            or high_ms is None
            or (low_ms <= self.end_ms and high_ms >= self.begin_ms)
        )
        fine = file.highest.get("resolution_seconds", COARSEST_S) >= self.step_s
        return overlaps and (fine or high_ms is None or high_ms >= self.newest_ms)

    def inside(self, rows: pa.Table) -> Mask:
        """Return which readings belong to the range."""
        at_ms = times_ms(rows, "timestamp")
        found = (at_ms >= self.begin_ms) & (at_ms <= self.end_ms)
        fine = ints(rows, "resolution_seconds") >= self.step_s
        return found & (fine | (at_ms >= self.newest_ms - 1))


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


def _some_of(at_ms: I64) -> I64:
    """Return MOST_READINGS moments of readings, evenly chosen; the last stays."""
    moments = np.unique(at_ms)
    stride = -(-len(moments) // MOST_READINGS)
    return moments[::-1][:: max(stride, 1)][::-1]


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
    return LagOverTime(at_ms=at_ms, lines=lines)


def _line(name: str, rows: pa.Table, moment: I64, n: int) -> LagLine:
    """Return sums of the lags, and the largest time lags, at ``n`` moments."""
    sums = _Sums.of(np.arange(n))
    sums.add_at(rows, moment)
    return sums.line(name)


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Sums of lags, and the largest time lags, at some moments."""

    at_ms: I64
    lag: F64
    is_known: Mask
    seconds: F64

    @classmethod
    def of(cls, at_ms: I64) -> _Sums:
        """Return the sums of no reading."""
        n = len(at_ms)
        return cls(at_ms, np.zeros(n), np.zeros(n, np.bool_), np.full(n, np.nan))

    def add(self, rows: pa.Table) -> None:
        """Add readings of these moments."""
        self.add_at(rows, np.searchsorted(self.at_ms, times_ms(rows, "timestamp")))

    def add_at(self, rows: pa.Table, moment: I64) -> None:
        """Add readings, given the index of each one's moment."""
        known = pc.is_valid(rows["lag"]).to_numpy(zero_copy_only=False)
        np.add.at(self.lag, moment[known], floats(rows, "lag")[known])
        self.is_known[moment[known]] = True
        np.fmax.at(self.seconds, moment, floats(rows, "lag_seconds"))

    def line(self, name: str) -> LagLine:
        """Return the line of the sums."""
        lag = np.where(self.is_known, self.lag, np.nan)
        return LagLine(name=name, lag=lag, seconds=self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _LagByPart:
    """The last lag of each group in each part of a time range."""

    at_ms: I64
    part: I64  # int64[moments]: part of each moment, -1 where a later moment is of the same part
    names: pa.Array
    lags: I64  # int64[groups, parts]: -1 without a reading

    @classmethod
    def of(
        cls, at_ms: I64, names: pa.Array, begin_ms: int, end_ms: int, n_parts: int
    ) -> _LagByPart:
        """Return the lags of no reading."""
        part = np.clip((at_ms - begin_ms) * n_parts // max(end_ms - begin_ms, 1), 0, n_parts - 1)
        part[:-1][part[1:] == part[:-1]] = -1
        lags = np.full((len(names), n_parts), -1, np.int64)
        return cls(at_ms=at_ms, part=part, names=names, lags=lags)

    def add(self, rows: pa.Table) -> None:
        """Add readings of these moments."""
        rows = rows.filter(rows["lag"].is_valid())
        part = self.part[np.searchsorted(self.at_ms, times_ms(rows, "timestamp"))]
        code, known = codes(rows, "group")
        found = pc.fill_null(pc.index_in(pa.array(known, pa.string()), self.names), -1)
        group = np.asarray(found, np.int64)[code] if len(known) else np.zeros(0, np.int64)
        shown = (part >= 0) & (group >= 0)
        where = (group[shown], part[shown])
        np.maximum.at(self.lags, where, 0)
        np.add.at(self.lags, where, ints(rows, "lag")[shown])
