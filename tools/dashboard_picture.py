"""Draw ``docs/grafana.png``: ``python -m tools.dashboard_picture http://127.0.0.1:9090 [END]``.

The address is that of a Prometheus that scrapes a ``holdfast serve``, as docs/grafana.md says; END
is in seconds since 1970, by default now. The picture has the queries of
``docs/examples/grafana.json`` over ten minutes, as that Prometheus answers them, at Grafana's
positions. Grafana itself is in no package registry that set-up uses: colours, fonts and axes are
not Grafana's.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from tests.report.browser import browser

DOCS = Path(__file__).parents[1] / "docs"
SECONDS, STEP = 600, 10
COLOURS = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#b877d9", "#56a64b", "#5794f2")
COLUMN, ROW = 50, 28
"""Width of a column of Grafana's grid of 24, and height of a row, in pixels."""
LEFT, BELOW = 52, 46
"""Space for the labels of the axes and for the legend, in pixels."""
LAST_PANEL = 12
"""Panels below it are empty without share groups."""


def query(address: str, expression: str, end: int, *, now_only: bool) -> list[Mapping[str, Any]]:
    """Evaluate a query of the dashboard, over the ten minutes or at their end."""
    words = {"query": expression.replace("$group", ".*")}
    span = {"start": str(end - SECONDS), "end": str(end), "step": str(STEP)}
    words |= {"time": str(end)} if now_only else span
    path = "query" if now_only else "query_range"
    with urllib.request.urlopen(f"{address}/api/v1/{path}?{urllib.parse.urlencode(words)}") as got:
        found: list[Mapping[str, Any]] = json.load(got)["data"]["result"]
    return found


def legend(series: Mapping[str, Any], form: str) -> str:
    """Return the name of a series by Grafana's form, such as ``{{group}}``."""
    return re.sub(r"\{\{(\w+)\}\}", lambda m: str(series["metric"].get(m[1], "")), form)


def ticks(most: float) -> list[float]:
    """Return three to six round numbers from 0 to the first one that is no less than ``most``."""
    rough = most / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in (1, 2, 2.5, 5, 10) if one * power >= rough)
    return [step * i for i in range(math.ceil(most / step) + 1)]


def shown(value: float, unit: str) -> str:
    """Return a number with the unit of its panel."""
    return f"{value:,.4g}{' s' if unit == 's' else ''}{' /s' if unit == 'ops' else ''}"


def chart(
    found: list[tuple[str, list[list[Any]]]], width: int, height: int, end: int, unit: str
) -> str:
    """Draw lines over the ten minutes with both axes, and name the greatest ones."""
    found.sort(key=lambda one: (-max(float(v) for _, v in one[1]), one[0]))
    found = [(name, values) for name, values in found if max(float(v) for _, v in values) > 0]
    marks = ticks(max((float(v) for _, values in found for _, v in values), default=1))
    wide, high = width - LEFT - 12, height - BELOW - 8

    def x(at: float) -> float:
        return LEFT + (at - end + SECONDS) / SECONDS * wide

    def y(value: float) -> float:
        return 8 + high - value / marks[-1] * high

    parts = [
        f'<path d="M{LEFT} {y(mark):.1f}h{wide}"/>'
        f'<text x="{LEFT - 6}" y="{y(mark) + 4:.1f}" text-anchor="end">{shown(mark, unit)}</text>'
        for mark in marks
    ]
    for at in range(-(-(end - SECONDS) // 120) * 120, end, 120):
        clock = time.strftime("%H:%M", time.gmtime(at))
        parts.append(f'<text x="{x(at):.1f}" y="{high + 24}" text-anchor="middle">{clock}</text>')
    for i, (_, values) in enumerate(found[: len(COLOURS)]):
        points = " ".join(f"{x(at):.1f},{y(float(value)):.1f}" for at, value in values)
        parts.append(f'<polyline points="{points}" stroke="{COLOURS[i]}"/>')
    names = [
        f'<tspan fill="{COLOURS[i]}">━ {escape(name[:24])}</tspan>  '
        for i, (name, _) in enumerate(found[:5])
    ]
    parts.append(f'<text x="{LEFT}" y="{height - 6}">{"".join(names)}</text>')
    return f'<svg width="{width}" height="{height}">{"".join(parts)}</svg>'


def tables_of(found: list[Mapping[str, Any]]) -> str:
    """Draw the rows of a table, the labels that differ and the value, as columns of nine rows."""
    hidden = {"__name__", "instance", "job"}
    rows = [
        "".join(f"<td>{escape(v)}" for k, v in sorted(s["metric"].items()) if k not in hidden)
        + f"<td>{float(s['value'][1]):,.4g}"
        for s in found
        if float(s["value"][1]) > 0
    ]
    columns = (rows[i : i + 9] for i in range(0, len(rows), 9))
    return "".join(f"<table><tr>{'<tr>'.join(column)}</table>" for column in columns)


def panel_of(panel: Mapping[str, Any], address: str, end: int) -> str:
    """Draw a panel."""
    at, is_table = panel["gridPos"], panel["type"] == "table"
    width, height = at["w"] * COLUMN - 10, at["h"] * ROW - 10
    answers = [
        (target, query(address, target["expr"], end, now_only=is_table))
        for target in panel["targets"]
    ]
    if is_table:
        inside = "".join(tables_of(found) for _, found in answers)
    else:
        named = [(legend(s, t["legendFormat"]), s["values"]) for t, found in answers for s in found]
        unit = panel["fieldConfig"]["defaults"]["unit"]
        inside = chart(named, width - 16, height - 30, end, unit)
    return (
        f'<div style="left:{at["x"] * COLUMN}px;top:{at["y"] * ROW}px;width:{width}px;'
        f'height:{height}px"><b>{escape(panel["title"])}</b>{inside}</div>'
    )


STYLE = """body{background:#111217;color:#ccccdc;font:12px sans-serif;margin:10px;position:relative}
div{position:absolute;background:#181b1f;border:1px solid #2c2f34;padding:6px 8px;
box-sizing:border-box;overflow:hidden}b{display:block;font-weight:500;font-size:13px}
svg{display:block}text{fill:#9a9da5;font-size:11px}polyline{fill:none;stroke-width:1.5}
path{stroke:#2c2f34}table{display:inline-table;font-size:12px;margin-right:24px;vertical-align:top}
td{padding:1px 12px 1px 0;border-bottom:1px solid #2c2f34}"""


def main(address: str, until: str = "") -> None:
    """Draw the picture from a Prometheus."""
    end = int(until or time.time()) // STEP * STEP
    panels = json.loads((DOCS / "examples" / "grafana.json").read_text())["panels"]
    body = "".join(panel_of(one, address, end) for one in panels if one["id"] <= LAST_PANEL)
    with browser() as chromium:
        page = chromium.new_context(viewport={"width": 1220, "height": 1360}).new_page()
        page.set_content(f"<style>{STYLE}</style>{body}")
        page.screenshot(path=str(DOCS / "grafana.png"))


if __name__ == "__main__":
    main(*sys.argv[1:])
