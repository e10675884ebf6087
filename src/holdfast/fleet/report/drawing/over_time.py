"""Charts of the lag and of the rebalances over time, of a fleet or of one group by topic."""

from __future__ import annotations

import numpy as np

from holdfast.core.model.columns import I64
from holdfast.fleet.analysis.group.lag_over_time import LagOverTime
from holdfast.fleet.report.drawing.charts import (
    RECORDS,
    SECONDS,
    Line,
    ShownTime,
    column_chart,
    line_chart,
)
from holdfast.fleet.report.drawing.markup import Markup, tag


def charts(lag: LagOverTime, rebalances_ms: I64, begin_ms: int, end_ms: int) -> Markup:
    """Draw the lag in records and in time, and the rebalances.

    Parameters
    ----------
    lag : LagOverTime
        Without two readings it is not drawn: one is no development.
    rebalances_ms : int64[n]
        Moments of the rebalances in UTC milliseconds.
    begin_ms, end_ms : int
        The time that is shown; it has every reading.
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
