"""What stood still in words, and small pictures of it, for the tops and the rows of pages.

**Rules.** What is known stands first. A bound that is ten times the other says nothing: it stands
behind, with its reason. A picture is an element of SVG whose numbers are attributes, so the
policy of the page needs no exception; its label says the same in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from holdfast.core.model.columns import I64
from holdfast.fleet.report.drawing.markup import Markup, name_of, tag

NONE = "–"
VAGUE = 10.0
"""So many times the lower bound the upper one says nothing."""
UNSURE = "the records bound it no better: they say when a rebalance ended, not when it began"
WIDE, HIGH = 96, 18
_DURING: Mapping[str, str] = {
    "restart": "while members restarted",
    "join": "as members joined",
    "leave": "as members left",
    "leave_or_timeout": "after members left or timed out",
    "join_and_leave": "as members came and went",
    "announced_leave": "as members left in order",
    "cooperative_follow_up": "in rounds that followed",
}


def number(value: float | None, digits: int = 0) -> str:
    """Count or amount for people; a dash where it is not known."""
    if value is None or math.isnan(value):
        return NONE
    return f"{value:,.{digits}f}"


def seconds(value: float | None) -> str:
    """Seconds with three significant places or so."""
    if value is None or math.isnan(value):
        return NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 1 else f"{value:.1f}"


def span(value_s: float) -> str:
    """A length of time in the unit that suits it."""
    if value_s < 120:
        return f"{seconds(value_s)} s"
    if value_s < 7200:
        return f"{value_s / 60:.0f} min"
    return f"{value_s / 3600:.1f} h" if value_s < 172800 else f"{value_s / 86400:.1f} days"


def is_vague(lower: float, upper: float) -> bool:
    """Whether two bounds are too far from each other to be one headline."""
    return upper > 1.0 and upper > VAGUE * lower


def bounds(lower: float, upper: float) -> str:
    """A lower and an upper bound in one cell; a lower one of 0 says nothing and is left out."""
    if math.isnan(upper):
        return NONE
    low, high = seconds(lower), seconds(upper)
    if low == high:
        return high
    return f"{low} to {high}" if lower > 0 else f"at most {high}"


def headline(lower: float, upper: float) -> tuple[str, str]:
    """A figure of partition-seconds, and its remark: of vague bounds the lower one stands alone."""
    if math.isnan(upper):
        return NONE, "partition-seconds"
    if not is_vague(lower, upper):
        return f"{bounds(lower, upper)} s", "partition-seconds, at least to at most, inferred"
    known = f"{seconds(lower)} s or more" if lower > 0 else "not known"
    return known, f"partition-seconds, at most {seconds(upper)}: {UNSURE}"


def stood_still(
    group: str,
    lower: float,
    upper: float,
    by_cause: Mapping[str, float],
    covered_s: float,
    *,
    n_rebalances: int,
    found: str = "",
) -> Markup:
    """The first words of a page: how long the partitions of a group stood still, when, and why.

    Parameters
    ----------
    lower, upper : float
        Partition-seconds, at least and at most.
    by_cause : mapping of str to float
        Cause of a rebalance -> what of ``lower`` lies in such ones.
    covered_s : float
        Seconds that the tables cover.
    n_rebalances : int
        Rebalances in them, told where ``lower`` is 0.
    found : str
        Name of the group's first finding; empty where it has none, or is not examined yet.
    """
    who = tag("strong", name_of(group))
    within = f" in {span(covered_s)}"
    first = f" The first finding: {found}." if found else ""
    if upper <= 0 or math.isnan(upper):
        return tag("p", "No partition of ", who, f" is known to have stood still{within}.{first}")
    if lower <= 0:
        times = f"{number(n_rebalances)} time{'' if n_rebalances == 1 else 's'}"
        told = f" rebalanced {times}{within}; its partitions stood still for {span(upper)} together"
        return tag("p", who, f"{told} at most.{first}", class_="first")
    least = "at least " if is_vague(lower, upper) else ""
    told = f" stood still for {least}{span(lower)} together{within}"
    cause = max(by_cause, key=lambda name: by_cause[name], default="")
    if cause and by_cause[cause] > 0:
        when = _DURING.get(cause, f"with the cause {cause.replace('_', ' ')}")
        told += f", {span(by_cause[cause])} of it {when}"
    return tag("p", "Partitions of ", who, f"{told}.{first}", class_="first")


def spark(values: Sequence[int] | I64, label: str, *, line: bool = False) -> Markup:
    """A small picture of counts over time: bars, or a line; a value below 0 is not known."""
    told = np.asarray(values).tolist()
    most = max(1, *told)
    step = WIDE / max(len(told), 1)
    if line:
        points = [
            f"{i * step + step / 2:.0f} {HIGH - 1 - (HIGH - 2) * value / most:.0f}"
            for i, value in enumerate(told)
            if value >= 0
        ]
        d = f"M{'L'.join(points)}" if len(points) > 1 else ""
    else:
        d = "".join(
            f"M{i * step:.0f} {HIGH}v-{max(2, HIGH * value / most):.0f}h{step - 1:.0f}V{HIGH}z"
            for i, value in enumerate(told)
            if value > 0
        )
    drawn = tag("path", d=d, class_="line" if line else None)
    more = {"width": WIDE, "height": HIGH, "role": "img", "aria_label": label}
    return tag("svg", tag("title", label), drawn, class_="spark", **more)


def cost_bar(lower: float, upper: float, most: float) -> Markup:
    """Both bounds of what stood still as one bar, in the unit and the scale of their column."""
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
