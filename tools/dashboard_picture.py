"""Draw ``docs/grafana.png``: ``python -m tools.dashboard_picture``.

Grafana is in no package registry that set-up uses, so the picture is a sketch: Prometheus (with
promtool; Debian: ``prometheus``) evaluates the queries of ``docs/examples/grafana.json`` over an
hour of a scripted fleet, and this program draws panels at Grafana's positions. Colours, fonts and
axes are not Grafana's.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from tests.ports import free_port
from tests.report.browser import browser
from tests.report.fleet import START_MS, Script, examine_all, tables

from holdfast.fleet.report.metrics import exposition
from holdfast.fleet.tables.reading import read_tables

DOCS = Path(__file__).parents[1] / "docs"
MINUTES = 60
COLOURS = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#b877d9", "#56a64b", "#5794f2")
UNIT = 50
"""Width of a column of Grafana's grid of 24, in pixels."""


def fleet_at(minute: int) -> list[Script]:
    """A deploy of one group, a crash loop of another one, and a group without events."""
    found = []
    for group, rounds in (
        ("payments", [(at, 0.4, 2.0) for at in (12, 13, 14, 15, 16, 17)]),
        ("orders-etl", [(30 + 2 * at, 4.0, 20.0) for at in range(10)]),
        ("audit", []),
    ):
        members = [f"{group}-{i}" for i in range(3)]
        partitions = [("orders", p) for p in range(6)]
        script = Script(group, {"orders": 6})
        script.settle(0, members, {tp: members[i % 3] for i, tp in enumerate(partitions)})
        for n, (at, low, high) in enumerate(rounds):
            if at <= minute:
                some = members if n % 2 else members[1:]
                owners = {tp: some[(i + n) % len(some)] for i, tp in enumerate(partitions)}
                cause = "join" if n % 2 else "leave"
                script.settle(60 * at, some, owners, cause=cause, gap=(low, high))
        behind = sum(high for at, _, high in rounds if at <= minute < at + 6)
        script.lag(dict.fromkeys(partitions, 20 + round(40 * behind)), lag_seconds=1 + behind)
        for i, row in enumerate(script.rows["lag"]):
            row["current_offset"] = 1000 + (300 + 40 * i) * minute
        found.append(script)
    return found


def write_samples(target: Path) -> None:
    """Write an hour of /metrics as OpenMetrics with times, one metric after the other."""
    lines: dict[str, dict[str, list[str]]] = {}
    for minute in range(MINUTES + 1):
        held = read_tables(tables(*fleet_at(minute)))
        at_ms = START_MS + 60_000 * minute
        text = exposition(held, examine_all(held, last_ms=at_ms))
        text += f"holdfast_tables_timestamp_seconds {at_ms / 1000 - 7}\n"
        for family in text_string_to_metric_families(text):
            for s in family.samples:
                labels = ",".join(f"{key}={json.dumps(value)}" for key, value in s.labels.items())
                line = f"{s.name}{{{labels}}} {s.value} {at_ms // 1000}"
                lines.setdefault(s.name, {}).setdefault(labels, []).append(line)
    every = [line for series in lines.values() for some in series.values() for line in some]
    target.write_text("\n".join([*every, "# EOF\n"]), encoding="utf-8")


def query(address: str, expression: str, *, now_only: bool) -> list[Mapping[str, Any]]:
    """Evaluate a query of the dashboard, over the hour or at its end."""
    end = START_MS // 1000 + 60 * MINUTES
    words = {"query": expression.replace("$group", ".*")}
    words |= {"time": str(end)} if now_only else {}
    words |= {} if now_only else {"start": str(START_MS // 1000), "end": str(end), "step": "30"}
    path = "query" if now_only else "query_range"
    with urllib.request.urlopen(f"{address}/api/v1/{path}?{urllib.parse.urlencode(words)}") as got:
        found: list[Mapping[str, Any]] = json.load(got)["data"]["result"]
    return found


def legend(series: Mapping[str, Any], form: str) -> str:
    """Return the name of a series by Grafana's form, such as ``{{group}}``."""
    return re.sub(r"\{\{(\w+)\}\}", lambda m: str(series["metric"].get(m[1], "")), form)


def chart(found: list[tuple[str, list[list[Any]]]], width: int, height: int) -> str:
    """Draw lines over the hour, and name the greatest ones."""
    found.sort(key=lambda one: -max(float(v) for _, v in one[1]))
    most = max((float(v) for _, values in found for _, v in values), default=0) or 1
    top = f"{most:,.{0 if most >= 10 else 2}f}"
    parts = [f'<text x="4" y="12">{top}</text><text x="4" y="{height - 30}">0</text>']
    for i, (_, values) in enumerate(found[:8]):
        points = " ".join(
            f"{50 + (t - START_MS / 1000) / (60 * MINUTES) * (width - 60):.1f},"
            f"{height - 34 - float(v) / most * (height - 46):.1f}"
            for t, v in values
        )
        parts.append(f'<polyline points="{points}" stroke="{COLOURS[i]}"/>')
    names = [
        f'<tspan fill="{COLOURS[i]}">━ {escape(name[:26])}</tspan>  '
        for i, (name, _) in enumerate(found[:4])
    ]
    parts.append(f'<text x="50" y="{height - 8}">{"".join(names)}</text>')
    return f'<svg width="{width}" height="{height}">{"".join(parts)}</svg>'


def panel_of(panel: Mapping[str, Any], address: str) -> str:
    """Draw a panel."""
    at, is_table = panel["gridPos"], panel["type"] == "table"
    found = [
        (target, series)
        for target in panel["targets"]
        for series in query(address, target["expr"], now_only=is_table)
    ]
    width, height = at["w"] * UNIT - 10, at["h"] * 30 - 10
    if is_table:
        rows = (
            f"<tr><td>{escape(' '.join(v for k, v in s['metric'].items() if k != '__name__'))}"
            f"<td>{float(s['value'][1]):,.4g}"
            for _, s in found[:8]
        )
        inside = f"<table>{''.join(rows)}</table>"
    else:
        named = [(legend(s, target["legendFormat"]), s["values"]) for target, s in found]
        inside = chart(named, width - 16, height - 30)
    return (
        f'<div style="left:{at["x"] * UNIT}px;top:{at["y"] * 30}px;width:{width}px;'
        f'height:{height}px"><b>{escape(panel["title"])}</b>{inside}</div>'
    )


STYLE = """body{background:#111217;color:#ccccdc;font:12px sans-serif;margin:10px;position:relative}
div{position:absolute;background:#181b1f;border:1px solid #2c2f34;padding:6px 8px;
box-sizing:border-box;overflow:hidden}b{display:block;font-weight:500;font-size:13px}
svg{display:block}text{fill:#9a9da5;font-size:11px}polyline{fill:none;stroke-width:1.5}
table{font-size:12px}td{padding:1px 14px 1px 0;border-bottom:1px solid #2c2f34}"""


def served(folder: Path) -> Iterator[str]:
    """Run Prometheus over an hour of samples; yield its address."""
    write_samples(folder / "samples.txt")
    made = ["tsdb", "create-blocks-from", "openmetrics", "samples.txt", "data"]
    subprocess.run(["promtool", *made], cwd=folder, check=True, capture_output=True)
    (folder / "empty.yml").write_text("", encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    options = ["--config.file=empty.yml", "--storage.tsdb.path=data"]
    options += ["--storage.tsdb.retention.time=100y", f"--web.listen-address={address}"]
    with subprocess.Popen(
        ["prometheus", *options], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(f"http://{address}/-/ready").close()
                    break
                except urllib.error.URLError:
                    time.sleep(0.1)
            yield f"http://{address}"
        finally:
            process.terminate()


def main() -> None:
    """Draw the picture."""
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"not on PATH: {', '.join(missing)} (Debian: prometheus)")
    panels = json.loads((DOCS / "examples" / "grafana.json").read_text())["panels"]
    with tempfile.TemporaryDirectory() as made, browser() as chromium:
        for address in served(Path(made)):
            body = "".join(panel_of(panel, address) for panel in panels if panel["id"] < 13)
        page = chromium.new_context(viewport={"width": 1220, "height": 1480}).new_page()
        page.set_content(f"<style>{STYLE}</style>{body}")
        page.screenshot(path=str(DOCS / "grafana.png"))


if __name__ == "__main__":
    main()
