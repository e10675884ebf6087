"""Downtime in words, and small pictures of it, for the tops and the rows of pages.

**Rules.** One number represents a downtime: its upper bound, a partition. Both bounds, in
partition-seconds, are in details and in the table of rebalances. A picture is an element of SVG
whose numbers are attributes, so the policy of the page needs no exception; its label says the same
in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from holdfast.core.model.columns import I64
from holdfast.fleet.analysis.spans import NONE, seconds, span
from holdfast.fleet.report.drawing.markup import Markup, name_of, tag

UP_TO = (
    "up to: Kafka does not record when a rebalance starts, so downtime counts from the owner's "
    "last evidence"
)
"""How an upper bound comes about, in a line."""
WIDE, HIGH = 96, 18
_DURING: Mapping[str, str] = {
    "restart": "while members restarted",
    "join": "as members joined",
    "leave": "as members left",
    "leave_or_timeout": "after members left or timed out",
    "poll_timeout": "after members polled too rarely",
    "join_and_leave": "as members came and went",
    "announced_leave": "as members left in order",
    "cooperative_follow_up": "in rounds that followed",
}


def number(value: float | None, digits: int = 0) -> str:
    """Count or amount for people; a dash where it is not known."""
    if value is None or math.isnan(value):
        return NONE
    return f"{value:,.{digits}f}"


def downtime(lower_s: float, upper_s: float) -> str:
    """Return one number for two bounds of a downtime in seconds: ``up to 1 h 49 min``, ``75 s``."""
    if math.isnan(upper_s):
        return NONE
    most = span(upper_s)
    return most if span(lower_s) == most else f"up to {most}"


def bounds(lower: float, upper: float) -> str:
    """Format a lower and an upper bound in one cell; a lower bound of 0 is omitted."""
    if math.isnan(upper):
        return NONE
    low, high = seconds(lower), seconds(upper)
    if low == high:
        return high
    return f"{low} to {high}" if lower > 0 else f"at most {high}"


def first_words(
    group: str,
    downtime_s: tuple[float, float],
    by_cause: Mapping[str, float],
    covered_s: float,
    *,
    n_rebalances: int,
    found: str = "",
) -> Markup:
    """Return the first sentence of a page: the problem of the presently worst group.

    Parameters
    ----------
    downtime_s : (float, float)
        Seconds a partition, at least and at most.
    by_cause : mapping of str to float
        Cause of a rebalance -> its part of the downtime, in any unit.
    covered_s : float
        Seconds of the window.
    found : str
        Name of the group's first active finding; empty if it has none, or is not examined yet.
    """
    counted = f"{number(n_rebalances) if n_rebalances else 'no'} rebalance"
    counted += f"{'' if n_rebalances == 1 else 's'} in {span(covered_s)}"
    if downtime_s[1] > 0:
        counted += f" and downtime of {downtime(*downtime_s)} a partition{_mostly(by_cause)}"
    shown = f": {found + ', with ' if found else ''}{counted}."
    return tag("p", tag("strong", name_of(group)), shown, class_="first")


def _mostly(by_cause: Mapping[str, float]) -> str:
    """Return when most of a downtime was; empty if no cause has more than half of it."""
    total = sum(by_cause.values())
    cause = max(by_cause, key=lambda name: by_cause[name], default="")
    if not cause or 2 * by_cause[cause] <= total:
        return ""
    return f", mostly {_DURING.get(cause, 'with the cause ' + cause.replace('_', ' '))}"


def spark(values: Sequence[int] | I64, label: str, *, line: bool = False) -> Markup:
    """Draw counts over time: bars, or a line; a value below 0 is unknown."""
    shown = np.asarray(values).tolist()
    most = max(1, *shown)
    step = WIDE / max(len(shown), 1)
    if line:
        points = [
            f"{i * step + step / 2:.0f} {HIGH - 1 - (HIGH - 2) * value / most:.0f}"
            for i, value in enumerate(shown)
            if value >= 0
        ]
        d = f"M{'L'.join(points)}" if len(points) > 1 else ""
    else:
        d = "".join(
            f"M{i * step:.0f} {HIGH}v-{max(2, HIGH * value / most):.0f}h{step - 1:.0f}V{HIGH}z"
            for i, value in enumerate(shown)
            if value > 0
        )
    drawn = tag("path", d=d, class_="line" if line else None)
    more = {"width": WIDE, "height": HIGH, "role": "img", "aria_label": label}
    return tag("svg", tag("title", label), drawn, class_="spark", **more)


def cost_bar(lower: float, upper: float, most: float) -> Markup:
    """Draw both bounds of a downtime as one bar, in the unit and the scale of their column."""
    if math.isnan(upper) or most <= 0:
        return Markup("")
    low, high = (WIDE * min(value / most, 1.0) for value in (lower, upper))
    label = f"{bounds(lower, upper)} of {seconds(most)} partition-seconds"
    return tag(
        "svg",
        tag("title", label),
        tag("rect", width=f"{high:.1f}", height=6, class_="may"),
        tag("rect", width=f"{low:.1f}", height=6),
        class_="spark",
        width=WIDE,
        height=6,
        role="img",
        aria_label=label,
    )
