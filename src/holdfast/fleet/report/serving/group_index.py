"""The index of a fleet in a time range: one row a group, found, sorted and cut into pages.

**Rules.** A number of a group is the one that its page and the doctor show
(:mod:`holdfast.fleet.analysis.group.overview`). Facts of groups that the doctor has not
examined yet are unknown, and not zero. Rows with equal sort keys are in the order of their names.

A moment in an address (``from``, ``to``) is ISO 8601 (UTC without a zone), milliseconds since 1970
as Grafana writes them, or a duration such as ``6h``, which counts back from the end of the tables.
``to`` is that end by default.

**Strategy.** The numbers come from whole columns of the tables, so every group has them at once;
findings come later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.core.model.columns import F64, I32, I64, Mask
from holdfast.errors import ConfigError
from holdfast.fleet.analysis.findings.examination import GroupVerdict
from holdfast.fleet.analysis.findings.finding import Severity
from holdfast.fleet.analysis.group.lag import NEVER
from holdfast.fleet.analysis.group.lag_over_time import LagOverTime, lag_of_groups
from holdfast.fleet.analysis.group.overview import Overview, joined, overview
from holdfast.fleet.analysis.group.rebalances import downtime_bounds_s
from holdfast.fleet.analysis.times import window_end_ms
from holdfast.fleet.columnar import ArrowTable, times_ms
from holdfast.fleet.report.metrics import oldest_unread_s
from holdfast.fleet.tables.columns.schemas import held_ms, to_us
from holdfast.fleet.tables.reading import SomeGroups, Tables

PAGE_ROWS = 100
NO_LAG = -1
SLICES = 24
"""Parts of the covered time that a small picture shows."""
NOT_EXAMINED = -1
"""Value instead of the worst severity of a group that was not examined, as for one without
findings."""
SEVERITIES: tuple[str, ...] = tuple(Severity)
SORTS = {
    "group": "Group",
    "state": "State",
    "members": "Members",
    "lag": "Lag",
    "lag_seconds": "Time lag",
    "rebalances": "Rebalances",
    "downtime": "Downtime",
    "findings": "Findings",
}
"""Columns that sort the index, in the order of the page, and their heads."""
RANGES: Final[Mapping[str, str]] = {
    "15m": "15 min",
    "1h": "1 h",
    "6h": "6 h",
    "24h": "24 h",
    "7d": "7 d",
    "all": "all",
}
"""Ranges that pages offer, and their names."""
DURATION: Final = r"[0-9]{1,4}[smhd]"
MILLIS: Final = r"[0-9]{5,14}"
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """A part of the covered time."""

    # ``from_ms``, ``to_ms``: first and last moment in UTC milliseconds; None for no limit.
    from_ms: int | None = None
    to_ms: int | None = None


ALL: Final = TimeRange()


def read_range(words: Mapping[str, str], end_ms: int) -> TimeRange:
    """Return the range of a query, by the end of the tables in UTC milliseconds; all without one.

    Raises
    ------
    ConfigError
        A value is no moment.
    """
    begin, end = words.get("from", ""), words.get("to", "")
    return TimeRange(
        from_ms=None if begin in ("", "all") else moment_ms(begin, "from", end_ms),
        to_ms=None if not end else moment_ms(end, "to", end_ms),
    )


def moment_ms(text: str, name: str, end_ms: int) -> int:
    """Return a moment in UTC milliseconds; raise ConfigError with the parameter's name."""
    if re.fullmatch(DURATION, text):
        return end_ms - int(text[:-1]) * _UNITS_MS[text[-1]]
    if re.fullmatch(MILLIS, text):
        return held_ms(int(text))
    us = to_us(text)
    if us is None:
        raise ConfigError(
            f"{name}: expected a moment such as 2026-11-22T10:00:00Z, milliseconds since 1970, or "
            "how long ago it was, such as 6h"
        )
    return held_ms(round(us / 1000))


Verdicts = Mapping[str, GroupVerdict]
"""By group; a group that was not examined is missing."""


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: `row_of` is cached
class GroupIndex:
    """One row a group, by name."""

    names: tuple[str, ...]
    figures: Overview  # its lag is NO_LAG without a known one
    # float64[n]: age of the oldest unread record in seconds, as in the metrics; NaN if unknown.
    lag_s: F64
    # UTC milliseconds of the first rebalance or generation and of the last record, commits
    # included; 0 without records.
    covered_ms: tuple[int, int]
    recent: I64  # int64[n, SLICES]: rebalances in each of as many parts of the covered time
    # ``cause``, ``cause_share``: the cause whose rebalances cost most, and its fraction of the
    # downtime, 0 to 1.
    cause: tuple[str, ...]
    cause_share: F64
    # int64[n, SLICES]: the last lag in each part of the covered time; NO_LAG without a reading.
    lags: I64
    lag_over_time: LagOverTime  # the lag of all groups together
    # False if only lags are known: then 0 in the other columns means unknown.
    has_history: bool = True

    @property
    def total_downtime_s(self) -> tuple[float, float]:
        """Partition-seconds of downtime in all groups, at least and at most."""
        figures = self.figures
        return float(figures.downtime_lower_s.sum()), float(figures.downtime_upper_s.sum())

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """Row of each group by its name."""
        return {name: i for i, name in enumerate(self.names)}

    @property
    def states(self) -> tuple[str, ...]:
        """Every state of a group, sorted."""
        return tuple(sorted(set(self.figures.state)))


def read_index(tables: Tables, within: TimeRange = ALL) -> GroupIndex:
    """Return the index of all groups, with the rebalances of a time range.

    The tables have events up to the end of the range. Cost: that of
    :func:`~holdfast.fleet.analysis.group.overview.overview`, and one pass over ``rebalances`` and
    ``lag``, in parts.
    """
    names, covered = tables.groups, _covered(tables, within)
    since_ms = NEVER if within.from_ms is None else within.from_ms
    causes, figures, parts = set[str](), list[Overview](), list[dict[str, Any]]()
    for some in tables.parts(names):
        figures.append(overview(some, None, since_ms))
        oldest_s = dict(oldest_unread_s(some.table("lag").rows))
        lag_s = np.asarray([oldest_s.get(name, np.nan) for name in some.groups], np.float64)
        parts.append({"lag_s": lag_s, **_rebalances(some, since_ms, covered, causes)})
    first_cause = min(causes, default="")  # of a group without downtime
    columns: dict[str, Any] = {
        name: np.concatenate([part[name] for part in parts]) if parts else np.zeros(0)
        for name in ("lag_s", "recent", "cause", "cause_share")
    }
    columns["cause"] = tuple(one or first_cause for one in columns["cause"].tolist())
    lags, lag_over_time = lag_of_groups(
        tables, within.from_ms, within.to_ms, names, (*covered, SLICES)
    )
    return GroupIndex(
        names=names,
        figures=joined(figures),
        covered_ms=covered,
        lags=lags,
        lag_over_time=lag_over_time,
        **columns,
    )


def _rebalances(
    some: SomeGroups, since_ms: int, covered: tuple[int, int], causes: set[str]
) -> dict[str, Any]:
    """Return the columns of some groups about rebalances since a moment; add their causes."""
    n = len(some.groups)
    rows, of = some.rows("rebalances")
    at_ms = rows.times_ms("timestamp")
    inside = at_ms >= since_ms
    of, at_ms = of[inside], at_ms[inside]
    cause, names = rows.codes("cause")
    cause, is_real = cause[inside], ~rows.equal("cause", "first_seen")[inside]
    causes.update(names[i] for i in np.unique(cause).tolist())
    most_s = np.nan_to_num(downtime_bounds_s(rows)[1][inside])
    costliest, share = _costliest(cause, names, most_s, of, n)
    recent = _count_recent(at_ms, covered, is_real, of, n)
    return {"recent": recent, "cause": costliest, "cause_share": share}


def rows_within(rows: ArrowTable, within: TimeRange) -> ArrowTable:
    """Return the rows of events in a time range."""
    if within == ALL:
        return rows
    at_ms = times_ms(rows, "timestamp")
    inside: Mask = at_ms >= (at_ms if within.from_ms is None else within.from_ms)
    inside &= at_ms <= (at_ms if within.to_ms is None else within.to_ms)
    return rows.filter(pa.array(inside))


def _costliest(
    cause: I32, names: Sequence[str], most_s: F64, of: I64, n: int
) -> tuple[npt.NDArray[np.object_], F64]:
    """Return each group's cause whose rebalances cost most, and its fraction of all costs.

    The cause of a group without costs is empty.
    """
    k = max(len(names), 1)
    cost_s = np.bincount(of * k + cause % k, weights=most_s, minlength=n * k).reshape(n, k)
    total = cost_s.sum(axis=1)
    share = np.divide(cost_s.max(axis=1, initial=0.0), total, out=np.zeros(n), where=total > 0)
    found = np.full(n, "", object)
    found[total > 0] = np.asarray([*names, ""], object)[cost_s.argmax(axis=1)[total > 0]]
    return found, share


def _covered(tables: Tables, within: TimeRange) -> tuple[int, int]:
    """Return the covered time: from the first record to the window's end, or to the limits."""
    known = list[int]()
    for name in ("generations", "rebalances"):
        for rows in tables.each_file(name, ["timestamp"]):
            at_ms = times_ms(rows, "timestamp")
            known += [int(at_ms[at_ms > 0].min())] if (at_ms > 0).any() else []
    last = window_end_ms(tables)
    if not known or last is None:
        return 0, 0
    first = max(min(known), within.from_ms or 0)
    return first, last if within.to_ms is None else min(last, within.to_ms)


def _count_recent(at_ms: I64, covered: tuple[int, int], is_real: Mask, of: I64, n: int) -> I64:
    """Count the rebalances of each group in each part of the covered time."""
    first, last = covered
    part = np.clip((at_ms - first) * SLICES // max(last - first, 1), 0, SLICES - 1)
    counted = np.bincount((of * SLICES + part)[is_real], minlength=n * SLICES)
    return counted.reshape(n, SLICES).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexView:
    """A request for a view of the index."""

    find: str = ""  # part of a group's name, or a finding's code; case is ignored
    state: str = ""  # only groups in this state; empty for any
    least: str = ""  # only groups with a finding of this severity or a worse one; empty for any
    # A column of the index; by findings, the presently worst group comes first.
    sort: str = "findings"
    falls: bool = True  # whether the greatest comes first
    page: int = 1  # counted from 1; a larger number means the last page
    # ``begin``, ``end``: the time range as the address has it
    # (:mod:`holdfast.fleet.report.serving.group_index`); empty for the usual one.
    begin: str = ""
    end: str = ""

    @property
    def words(self) -> dict[str, str]:
        """The query of an address that shows this view, without usual values."""
        order = "down" if self.falls else "up"
        every = {
            "find": self.find,
            "state": self.state,
            "least": self.least,
            "sort": "" if self.sort == "findings" else self.sort,
            "order": "" if self.falls else order,
            "page": "" if self.page == 1 else str(self.page),
            "from": self.begin,
            "to": self.end,
        }
        return {key: value for key, value in every.items() if value}


USUAL_VIEW = IndexView()


def select(index: GroupIndex, verdicts: Verdicts, view: IndexView) -> I64:
    """Return rows of the index for a view, in its order, on all of its pages."""
    known = [verdicts[n].rank if n in verdicts else NOT_EXAMINED for n in index.names]
    rank = np.asarray(known, np.int64)
    hit = np.ones(len(index.names), bool)
    if view.state:
        hit &= np.asarray([state == view.state for state in index.figures.state], bool)
    if view.least in SEVERITIES:
        hit &= rank >= SEVERITIES.index(view.least)
    if view.find:
        hit &= np.asarray(_found(index.names, verdicts, view.find.casefold()), bool)
    keys = _sort_keys(index, rank, view.sort)
    if view.falls:
        keys = [-key for key in keys]
    order = np.lexsort((np.arange(len(index.names)), *reversed(keys)))
    return order[hit[order]]


def cut(rows: I64, page: int) -> tuple[I64, int, int]:
    """Return rows of one page, the number of this page, and the number of pages."""
    n_pages = max(1, -(-len(rows) // PAGE_ROWS))
    page = min(max(page, 1), n_pages)
    return rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], page, n_pages


def _found(names: Sequence[str], verdicts: Verdicts, text: str) -> list[bool]:
    return [
        text in name.casefold()
        or (name in verdicts and any(text == one.code.casefold() for one in verdicts[name].codes))
        for name in names
    ]


def _sort_keys(index: GroupIndex, worst: I64, sort: str) -> list[F64]:
    """Return sort keys of rows, the most important one first."""
    if sort == "findings":  # as worst_first of the doctor
        return [worst.astype(np.float64), index.figures.downtime_s]
    rank = {state: i for i, state in enumerate(index.states)}
    columns = {
        "group": np.arange(len(index.names)),
        "state": np.asarray([rank[state] for state in index.figures.state], np.int64),
        "members": index.figures.n_members,
        "rebalances": index.figures.n_rebalances,
        "downtime": index.figures.downtime_s,
        "lag": index.figures.lag,
        "lag_seconds": np.nan_to_num(index.lag_s, nan=-1.0),
    }
    return [columns[sort].astype(np.float64)]
