"""Lag over time is thinned: how long a reading of ``lag_history`` stays.

**Rules.** The older a reading, the fewer stay (:data:`KEPT_S`): of each period of N seconds, the
first one.

**Strategy.** All rows of a reading have the same moment, so whether it is the first of a period is
known when it is written: ``resolution_seconds`` says so, and every file has one resolution. So
thinning takes whole files out of the table, in the commit of a batch, and rewrites none, however
many groups there are. Each resolution lasts for less than 32 merges of 32 readings at a poll
interval of 5 s or more, so a row is rewritten once.

References: Thanos and RRDtool keep resolutions (``raw``, ``5m``, ``1h``) in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.fleet.tables.columns.holdable import to_us
from holdfast.fleet.tables.folder.delta_log import DataFile

MINUTE_S: Final = 60
HOUR_S: Final = 3_600
DAY_S: Final = 86_400

KEPT_S: Final = {
    0: 75 * MINUTE_S,
    MINUTE_S: 8 * HOUR_S,
    5 * MINUTE_S: 2 * DAY_S,
    HOUR_S: 14 * DAY_S,
    6 * HOUR_S: None,
}
"""How long a reading stays that is the first of so many seconds; None: like rows of other tables.

The ranges of a page decide: 1 h has every reading, 6 h one a minute (360 points), 24 h one in 5
minutes (288), 7 d one an hour (168), and the 90 days of ``watch`` one in 6 hours (360), each with a
quarter more, so that the oldest part of a picture is not empty.
"""
COARSEST_S: Final = max(KEPT_S)


def resolution_s(taken_at_us: int, newest_us: int | None) -> int:
    """Return the longest period of :data:`KEPT_S` of which a reading is the first, in seconds.

    Parameters
    ----------
    newest_us : int, optional
        Moment of the newest reading in the table; None without one.
    """
    if newest_us is None:
        return COARSEST_S
    firsts = [s for s in KEPT_S if s and taken_at_us // (s * 10**6) != newest_us // (s * 10**6)]
    return max(firsts, default=0)


def expired(files: Sequence[DataFile], now_us: int) -> list[str]:
    """Return the names of files of ``lag_history`` whose readings have all stayed long enough."""
    names = []
    for file in files:
        kept_s = KEPT_S.get(file.highest.get("resolution_seconds", COARSEST_S))
        newest_us = to_us(str(file.highest.get("timestamp")))
        if kept_s and newest_us is not None and newest_us < now_us - kept_s * 10**6:
            names.append(file.name)
    return names
