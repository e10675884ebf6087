"""A drawing of simulated runs: who owned each partition when, one panel a policy.

**Rules.** All panels have one scale of time, so the widths compare. One row is one partition; of
more than ``MOST_ROWS`` the drawing shows evenly spaced ones and says so. A slot has one colour: a
process that returns has the colour that it had. Full colour is processing, pale colour is
rebuilding state, blank is without an owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from holdfast.sim.scenarios import Report
from holdfast.sim.world.ownership_log import Ownership

MOST_ROWS = 24
WIDTH, LEFT, RIGHT = 960, 12, 12
ROW, HEADING, GAP, AXIS, TOP = 8, 34, 18, 26, 44
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a7d00", "#7f3c8d")
"""Colours that people with any colour vision tell apart (Okabe and Ito); repeated after eight."""
TICKS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)


def draw(reports: Sequence[Report]) -> str:
    """Return an SVG document with one panel for each run.

    Parameters
    ----------
    reports : sequence of Report
        Runs with a timeline (``Setup.timeline``); at least one.
    """
    longest_ms = max(max((o.end_ms for o in r.timeline), default=0) - r.begin_ms for r in reports)
    longest_ms = max(longest_ms, 1)
    panels, y = [], TOP
    for report in reports:
        panel, height = _panel(report, y, longest_ms)
        panels += panel
        y += height + GAP
    first = reports[0]
    title = (
        f"{first.scenario}: {first.members} members, {first.partitions} partitions. "
        "Full colour: processing; pale: rebuilding state; blank: no owner."
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + AXIS}" '
            'font-family="sans-serif" font-size="13">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{y + AXIS}" fill="#fff"/>',
            _text(LEFT, 24, title),
            *panels,
            *_axis(y - GAP, longest_ms),
            "</svg>\n",
        ]
    )


def _panel(report: Report, y: int, longest_ms: int) -> tuple[list[str], int]:
    """Return the elements of one run, and its height."""
    resources = sorted({o.resource for o in report.timeline})
    n_rows = min(MOST_ROWS, len(resources))
    shown = {resources[i * len(resources) // n_rows]: i for i in range(n_rows)}
    says = (
        f"{report.policy}: {report.partition_seconds_stopped:,.0f} partition-seconds stopped, "
        f"{report.moved:,} moves, longest stop {report.longest_stop_seconds:,.0f} s"
    )
    if len(resources) > n_rows:
        says += f" ({n_rows} of {len(resources)} partitions drawn)"
    lines = [
        _text(LEFT, y + 16, says, weight="bold"),
        f'<rect x="{LEFT}" y="{y + HEADING - 10}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{n_rows * ROW}" fill="#eee"/>',
    ]
    for owned in report.timeline:
        if (row := shown.get(owned.resource)) is not None:
            lines += _interval(owned, y + HEADING - 10 + row * ROW, report.begin_ms, longest_ms)
    return lines, HEADING + n_rows * ROW


def _interval(owned: Ownership, y: int, begin_ms: int, longest_ms: int) -> list[str]:
    """Return the bars of one interval: rebuilding, then processing."""
    colour = COLOURS[owned.slot % len(COLOURS)]
    parts = (
        (owned.begin_ms, owned.ready_ms, ' opacity=".35"'),
        (owned.ready_ms, owned.end_ms, ""),
    )
    return [
        f'<rect x="{_x(begin - begin_ms, longest_ms):.1f}" y="{y}" '
        f'width="{_x(end - begin, longest_ms) - LEFT:.1f}" height="{ROW - 1}" '
        f'fill="{colour}"{opacity}/>'
        for begin, end, opacity in parts
        if end > begin
    ]


def _axis(y: int, longest_ms: int) -> list[str]:
    """Return the axis of time below the panels, in seconds or minutes."""
    step_s = next((t for t in TICKS_S if longest_ms / 1000 / t <= 10), TICKS_S[-1])
    lines = []
    for at_s in range(0, longest_ms // 1000 + 1, step_s):
        x = _x(at_s * 1000, longest_ms)
        label = f"{at_s // 60} min" if step_s >= 60 else f"{at_s} s"
        anchor = "start" if at_s == 0 else "middle"
        lines += [
            f'<path d="M{x:.1f} {TOP}V{y + 4}" stroke="#0003"/>',
            _text(x, y + 20, label, anchor=anchor),
        ]
    return lines


def _x(ms: int, longest_ms: int) -> float:
    return LEFT + ms / longest_ms * (WIDTH - LEFT - RIGHT)


def _text(x: float, y: int, text: str, *, weight: str = "normal", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="#222">{escape(text)}</text>'
    )
