"""Charts over time with axes, as SVG: lines of measurements, and columns of counts.

**Rules.** Moments are UTC. Lines have a gap where nothing was measured. A chart has a title, a
description, a legend where it has several lines, and a table of its values; where a pointer rests
on it, the values of that moment are shown. Numbers are attributes of SVG, so the policy of the page
needs no exception, and colours come from the style, in light and dark.

**Strategy.** Horizontal positions are percentages and the plot is stretched, so a chart is as wide
as its page lets it be while its texts keep their size; labels are few enough for a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np

from holdfast.core.model.columns import F64, I64
from holdfast.core.names import shorten, shown_name
from holdfast.fleet.analysis.group.lag_over_time import LagOverTime
from holdfast.fleet.analysis.times import NONE, span
from holdfast.fleet.report.drawing.markup import Markup, join, name_of, number, tag
from holdfast.fleet.tables.columns.schemas import held_ms

LEFT, WIDE = 14.0, 83.0
"""Begin and width of the plot, in percent of the chart."""
TOP, HIGH, FOOT = 8, 104, 18
"""Pixels above the plot, of the plot, and below it."""
UNITS: Final = 1000
"""Width of the plot in units of its own coordinates."""
MOST_TIMES = 5
"""Labels of the time axis, at most."""
SAMPLES = 24
"""Rows of the table, and parts of the plot that show values, at most."""
COLUMNS = 60
"""Columns of a chart of counts, at most."""
GAP_STEPS = 3.0
"""Readings that are so many usual distances from each other have a gap between them."""
_S, _MIN, _H, _D = 1000, 60_000, 3_600_000, 86_400_000
TIME_STEPS_MS: Final = (
    *(n * _S for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MIN for n in (1, 2, 5, 10, 15, 30)),
    *(n * _H for n in (1, 2, 3, 6, 12)),
    *(n * _D for n in (1, 2, 7, 14, 28, 56, 112, 364, 728)),
)
"""Round steps of a time axis, and of durations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTime:
    """The time that a chart shows, in UTC milliseconds."""

    begin_ms: int
    end_ms: int

    def share(self, at_ms: I64) -> F64:
        """Return moments as shares of the span, 0 to 1."""
        found: F64 = (at_ms - self.begin_ms) / max(self.end_ms - self.begin_ms, 1)
        return found

    @property
    def words(self) -> str:
        """Both ends for people."""
        return f"{_moment(self.begin_ms)} to {_moment(self.end_ms)} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """How values are written on an axis and elsewhere, and the round steps between them."""

    text: Callable[[float], str]
    value: Callable[[float], str]
    steps: Callable[[float], float]


def _round_step(least: float) -> float:
    """Return the least of 1, 2, 5, 10, 20, ... that is not below ``least``."""
    power = 10.0 ** math.floor(math.log10(max(least, 1.0)))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= least * (1 - 1e-9))


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def short_number(value: float) -> str:
    """Format a number of an axis: ``900``, ``1.5k``, ``20M``."""
    for size, mark in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{_short(value / size)}{mark}"
    return f"{value:.3g}"


def _round_seconds(least: float) -> float:
    last = TIME_STEPS_MS[-1] / 1000
    return next(
        (ms / 1000 for ms in TIME_STEPS_MS if ms / 1000 >= least), last * math.ceil(least / last)
    )


def _axis_span(value_s: float) -> str:
    for size, mark in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if value_s >= size:
            return f"{_short(value_s / size)} {mark}"
    return f"{value_s:.3g} s"


RECORDS: Final = Unit(text=short_number, value=number, steps=_round_step)
SECONDS: Final = Unit(text=_axis_span, value=span, steps=_round_seconds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """One line: a name, which may be of the cluster, and a value or NaN at each moment."""

    name: str
    values: F64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """A chart without its content: title, description, axes."""

    title: str
    words: str
    top: float
    unit: Unit
    shown: ShownTime


Rows = Sequence[tuple[str, Sequence[str]]]
"""Moments, and the values of each."""


def charts(lag: LagOverTime, rebalances_ms: I64, begin_ms: int, end_ms: int) -> Markup:
    """Draw the lag in records and in time, and the rebalances, between two moments.

    A lag without two readings is not drawn: one is no development.
    """
    shown = ShownTime(
        begin_ms=begin_ms, end_ms=max(end_ms, begin_ms + 1000, *lag.at_ms[-1:].tolist())
    )
    records = [Line(name=line.name, values=line.lag) for line in lag.lines]
    seconds = [Line(name=line.name, values=line.seconds) for line in lag.lines]
    drawn = [
        line_chart(title, lag.at_ms, lines, shown, unit)
        for title, lines, unit in (
            ("Lag, records", records, RECORDS),
            ("Time lag", seconds, SECONDS),
        )
        if sum(int((~np.isnan(line.values)).sum()) for line in lines) > 1
    ]
    drawn.append(column_chart("Rebalances", rebalances_ms, shown))
    return tag("div", *drawn, class_="charts", tabindex="0", role="region", aria_label="over time")


def line_chart(
    title: str, at_ms: I64, lines: Sequence[Line], shown: ShownTime, unit: Unit
) -> Markup:
    """Draw lines over time; ``at_ms`` are their moments, ascending, in UTC milliseconds."""
    known = [line.values[~np.isnan(line.values)] for line in lines]
    most = max((float(values.max(initial=0.0)) for values in known), default=0.0)
    top, gaps, x = _top(most, unit), _gaps(at_ms), shown.share(at_ms) * UNITS
    paths = [
        tag("path", d=_path(x, (1 - line.values / top) * HIGH, gaps), class_=f"l c{i}")
        for i, line in enumerate(lines)
    ]
    picked = _samples(len(at_ms))
    rows = [
        (_moment(int(at_ms[i])), [_or_none(float(line.values[i]), unit) for line in lines])
        for i in picked
    ]
    heads = [line.name or title for line in lines]
    words = f"{shown.words}, at most {unit.value(most)}"
    if len(lines) == 1 and len(known[0]):
        words += f", at last {unit.value(float(known[0][-1]))}"
    hints = _hints(x[picked], [_hint(at, heads, cells) for at, cells in rows])
    frame = _Frame(title=title, words=words, top=top, unit=unit, shown=shown)
    legend = _legend(heads) if len(lines) > 1 else None
    return _figure(frame, [*paths, *hints], legend, _table(title, heads, rows))


def column_chart(title: str, at_ms: I64, shown: ShownTime) -> Markup:
    """Draw how many events each part of a time has; ``at_ms`` are their moments."""
    step_ms = _time_step_ms(shown, COLUMNS)
    first = shown.begin_ms // step_ms
    n = max((shown.end_ms - 1) // step_ms - first + 1, 1)
    inside = at_ms[(at_ms >= shown.begin_ms) & (at_ms <= shown.end_ms)]
    counts = np.bincount(np.minimum(inside // step_ms - first, n - 1), minlength=n)
    edges = (first + np.arange(n + 1)) * step_ms
    top, x = _top(float(counts.max(initial=0)), RECORDS), shown.share(edges) * UNITS
    bars: list[Markup] = []
    rows: list[tuple[str, list[str]]] = []
    for i in np.flatnonzero(counts).tolist():
        words = f"{_moment(int(edges[i]))} to {_moment(int(edges[i + 1]))}"
        rows.append((words, [number(int(counts[i]))]))
        left, right = max(float(x[i]), 0.0) + 1, min(float(x[i + 1]), float(UNITS)) - 1
        high = HIGH * float(counts[i]) / top
        label = tag("title", f"{words} UTC: {number(int(counts[i]))}")
        box = {"x": f"{left:.0f}", "y": f"{HIGH - high:.1f}", "height": f"{high:.1f}"}
        bars.append(tag("rect", label, width=f"{max(right - left, 3.0):.0f}", **box))
    words = f"{shown.words}: {number(len(inside))}, in parts of {_axis_span(step_ms / 1000)}"
    frame = _Frame(title=title, words=words, top=top, unit=RECORDS, shown=shown)
    return _figure(frame, [tag("g", *bars, class_="columns")], None, _table(title, [title], rows))


def _figure(frame: _Frame, body: Sequence[Markup], legend: Markup | None, table: Markup) -> Markup:
    """Return a plot with its axes, its words and its table."""
    plot = tag(
        "svg",
        _grid(frame.top, frame.unit),
        *body,
        x=f"{LEFT:.0f}%",
        y=TOP,
        width=f"{WIDE:.0f}%",
        height=HIGH,
        viewBox=f"0 0 {UNITS} {HIGH}",
        preserveAspectRatio="none",
    )
    whole = tag(
        "svg",
        tag("title", frame.title),
        tag("desc", frame.words),
        *_labels(frame.top, frame.unit),
        *_times(frame.shown),
        plot,
        width="100%",
        height=TOP + HIGH + FOOT,
        role="img",
        aria_label=f"{frame.title}: {frame.words}",
    )
    return tag("figure", tag("figcaption", frame.title), whole, legend, table, class_="chart")


def _table(title: str, heads: Sequence[str], rows: Rows) -> Markup:
    """Return the values of a chart, which a line opens."""
    names = [tag("th", "Time (UTC)", scope="col")]
    names += [tag("th", name_of(name, 40), scope="col", class_="n") for name in heads]
    lines = (
        tag("tr", tag("td", at, class_="t"), *(tag("td", text, class_="n") for text in cells))
        for at, cells in rows
    )
    table = tag("table", tag("thead", tag("tr", *names)), tag("tbody", join(lines)))
    box = tag("div", table, class_="wide", tabindex="0", role="region", aria_label=title)
    return tag("details", tag("summary", f"{title}: values"), box)


def _hint(at: str, heads: Sequence[str], cells: Sequence[str]) -> str:
    """Return the values of a moment in one line."""
    if len(heads) == 1:
        return f"{at} UTC: {cells[0]}"
    named = (f"{shorten(shown_name(h), 40)}: {v}" for h, v in zip(heads, cells, strict=True))
    return f"{at} UTC: {'; '.join(named)}"


def _top(most: float, unit: Unit) -> float:
    """Return the value at the upper end of the axis: two to five round steps."""
    step = unit.steps(max(most, 1.0) / 4)
    return step * max(math.ceil(most / step - 1e-9), 1)


def _ticks(top: float, unit: Unit) -> list[float]:
    step = unit.steps(top / 4)
    return [i * step for i in range(round(top / step) + 1)]


def _grid(top: float, unit: Unit) -> Markup:
    d = "".join(f"M0 {HIGH * (1 - v / top):.1f}H{UNITS}" for v in _ticks(top, unit))
    return tag("path", d=d, class_="grid")


def _labels(top: float, unit: Unit) -> Iterator[Markup]:
    """Yield the labels of the axis of values."""
    for v in _ticks(top, unit):
        y = TOP + HIGH * (1 - v / top) + 4
        text = unit.text(v) if v else "0"
        yield tag("text", text, x=f"{LEFT - 1.5:.1f}%", y=f"{y:.0f}", class_="y")


def _times(shown: ShownTime) -> Iterator[Markup]:
    """Yield the labels of the time axis; a label at midnight names the day."""
    step_ms = _time_step_ms(shown, MOST_TIMES)
    at = np.arange(-(-shown.begin_ms // step_ms), shown.end_ms // step_ms + 1) * step_ms
    form, day = ("%H:%M" if step_ms >= _MIN else "%H:%M:%S"), "%m-%d"
    if step_ms >= 112 * _D:
        day = "%Y-%m-%d"
    for moment, share in zip(at.tolist(), shown.share(at).tolist(), strict=True):
        text = _calendar(moment).strftime(form if moment % _D else day)
        x = LEFT + WIDE * share
        yield tag("text", text, x=f"{x:.1f}%", y=TOP + HIGH + FOOT - 3, class_="x")


def _time_step_ms(shown: ShownTime, most: int) -> int:
    least, longest = -(-(shown.end_ms - shown.begin_ms) // most), TIME_STEPS_MS[-1]
    return next((step for step in TIME_STEPS_MS if step >= least), -(-least // longest) * longest)


def _gaps(at_ms: I64) -> set[int]:
    """Return the moments, as indices, before which nothing was measured for long."""
    apart = np.diff(at_ms)
    if not len(apart):
        return set()
    return {*(np.flatnonzero(apart > GAP_STEPS * np.median(apart)) + 1).tolist()}


def _path(x: F64, y: F64, gaps: set[int]) -> str:
    """Return the path of a line; a value alone is a dot."""
    parts: list[list[str]] = [[]]
    for i, (left, down) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        if i in gaps or math.isnan(down):
            parts.append([])
        if not math.isnan(down):
            parts[-1].append(f"{left:.0f} {down:.1f}")
    return "".join(f"M{'L'.join(part)}{'h1' if len(part) == 1 else ''}" for part in parts if part)


def _samples(n: int) -> list[int]:
    """Return at most SAMPLES of ``n`` indices, evenly chosen; the last one is among them."""
    return sorted({n - 1 - i * n // min(n, SAMPLES) for i in range(min(n, SAMPLES))})


def _hints(x: F64, words: Sequence[str]) -> Iterator[Markup]:
    """Yield parts of the plot that show the values of a moment where a pointer rests."""
    edges = np.concatenate([[0.0], (x[1:] + x[:-1]) / 2, [float(UNITS)]])
    for i, text in enumerate(words):
        wide = max(float(edges[i + 1] - edges[i]), 0.0)
        box = {"x": f"{edges[i]:.0f}", "width": f"{wide:.0f}", "height": HIGH}
        yield tag("rect", tag("title", text), class_="hint", **box)


def _legend(names: Sequence[str]) -> Markup:
    swatch = [
        tag(
            "svg",
            tag("path", d="M0 5H18", class_=f"l c{i}"),
            width=18,
            height=10,
            aria_hidden="true",
        )
        for i in range(len(names))
    ]
    return tag(
        "ul", *(tag("li", swatch[i], " ", name_of(name, 40)) for i, name in enumerate(names))
    )


def _or_none(value: float, unit: Unit) -> str:
    return NONE if math.isnan(value) else unit.value(value)


def _moment(ms: int) -> str:
    return _calendar(ms).isoformat(" ", "seconds").removesuffix("+00:00")


def _calendar(ms: int) -> datetime:
    """Return a moment; records may state any time, and years end at 9999."""
    held = held_ms(ms)
    return datetime.fromtimestamp(held / 1000, UTC)
