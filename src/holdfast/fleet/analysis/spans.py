"""Lengths of time for people, in the units that suit them."""

from __future__ import annotations

import math
from typing import Final

NONE: Final = "–"
"""Text for an unknown number."""


def seconds(value: float | None) -> str:
    """Format seconds with about three significant digits."""
    if value is None or math.isnan(value):
        return NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 1 else f"{value:.1f}"


def span(value_s: float) -> str:
    """Format a duration: ``75 s``, ``12 min``, ``1 h 49 min``."""
    if value_s < 120:
        return f"{value_s:.0f} s" if value_s >= 10 else f"{seconds(value_s)} s"
    minutes = round(value_s / 60)
    if minutes < 60:
        return f"{minutes} min"
    if value_s >= 172_800:
        return f"{value_s / 86_400:.1f} days"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"
