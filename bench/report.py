"""Report page: size, first draw and zoom in headless Chromium, as JSON lines.

``python bench/report.py [--runs 5] [--sizes 9900,99900]``. The script makes a fleet of one group
with a known number of owned intervals, and writes its page as ``holdfast report`` does. Each run
opens the page from ``file://`` in a new browser context. First draw is the time from navigation to
the frame after the picture, zoom the time from the call to the next frame.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.report.browser import Opened, browser

from holdfast.fleet.report.drawing.writing import write
from holdfast.fleet.tables.reading import read_tables

START_MS = 1_763_712_000_000
N_MEMBERS = 32
DAY_MS = 86_400_000


def fleet(n_rows: int, per_row: int, seed: int = 1) -> dict[str, Any]:
    """Return one group with ``per_row`` intervals of every partition, most after a gap."""
    chance = np.random.default_rng(seed)
    n_generations = per_row * 5
    at = START_MS + np.sort(chance.choice(DAY_MS - 60_000, n_generations, replace=False))
    at[0] = START_MS
    changes = np.zeros((n_generations, n_rows), dtype=bool)
    changes[0] = True
    for row in range(n_rows):
        changes[1 + chance.choice(n_generations - 1, per_row - 1, replace=False), row] = True
    shift = np.where(changes, chance.integers(1, N_MEMBERS, changes.shape), 0)
    owner = np.cumsum(shift, axis=0) % N_MEMBERS
    members = [f"worker-{i}-{i:032x}" for i in range(N_MEMBERS)]
    return {
        "generations": _generations(at, n_rows),
        "assignments": _assignments(at, owner, members),
        "ownership_gaps": _gaps(at, changes, chance),
    }


def _generations(at: Any, n_rows: int) -> dict[str, Any]:
    n = len(at)
    return {
        "group": ["bench"] * n,
        "generation": np.arange(1, n + 1),
        "group_type": ["classic"] * n,
        "state": ["Stable"] * n,
        "n_members": np.full(n, N_MEMBERS),
        "n_partitions": np.full(n, n_rows),
        "timestamp": at,
        "log_partition": np.zeros(n, int),
        "log_offset": np.arange(n),
    }


def _assignments(at: Any, owner: Any, members: list[str]) -> dict[str, Any]:
    rows = []
    for g, owners in enumerate(owner):
        order = np.argsort(owners, kind="stable")
        edges = np.searchsorted(owners[order], np.arange(N_MEMBERS + 1))
        for m in range(N_MEMBERS):
            mine = order[edges[m] : edges[m + 1]]
            if len(mine):
                rows.append((g + 1, members[m], mine, int(at[g])))
    return {
        "group": ["bench"] * len(rows),
        "generation": [r[0] for r in rows],
        "member_id": [r[1] for r in rows],
        "topic": ["orders"] * len(rows),
        "partitions": [r[2] for r in rows],
        "timestamp": [r[3] for r in rows],
    }


def _gaps(at: Any, changes: Any, chance: Any) -> dict[str, Any]:
    generation, row = np.nonzero(changes[1:])
    again = at[1:][generation]
    seen = np.maximum(again - chance.integers(200, 9000, len(row)), at[:-1][generation])
    n = len(row)
    return {
        "group": ["bench"] * n,
        "generation": generation + 2,
        "topic": ["orders"] * n,
        "partitions": [[r] for r in row],
        "gap_lower_seconds": np.zeros(n),
        "gap_upper_seconds": (again - seen) / 1000,
        "last_seen": seen,
        "timestamp": again,
        "basis": ["handover"] * n,
    }


ZOOM = """async () => {
  const button = document.getElementById('zoom-in'), frame = () => new
  Promise(requestAnimationFrame); await frame(); await frame();
  const start = performance.now();
  button.click();
  const drawn = performance.now() - start;
  await frame();
  return [drawn, performance.now() - start];
}"""


NAMES = ("first_draw", "first_draw_from_navigation", "main_thread_cpu", "zoom", "zoom_frame")


def measure(chromium: Any, path: Path) -> tuple[float, ...]:
    """Measure first draw, the same from navigation, processor time, zoom and zoom frame, in ms."""
    opened = Opened(chromium, path)
    first = opened.measures("holdfast-first-draw")[0]
    whole = opened.measures("holdfast-first-draw-from-navigation")[0]
    opened.page.wait_for_timeout(500)
    cpu = opened.cpu_ms()
    zooms = [opened.page.evaluate(ZOOM) for _ in range(4)]
    assert not opened.said, opened.said
    opened.close()
    return first, whole, cpu, min(z[0] for z in zooms), min(z[1] for z in zooms)


def _commit() -> str:
    told = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return told.stdout.strip()


def main() -> None:
    """Print one JSON line per size and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sizes", default="9900,99900")
    options = parser.parse_args()
    about = {
        "commit": _commit(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }
    with browser() as chromium, tempfile.TemporaryDirectory() as folder:
        about["chromium"] = chromium.version
        for size in (int(word) for word in options.sizes.split(",")):
            path = Path(folder) / f"{size}.html"
            tables = read_tables(fleet(max(size // 99, 1), 99))
            start = time.perf_counter()
            write(tables, path, last_ms=START_MS + DAY_MS)
            seconds = time.perf_counter() - start
            runs = [measure(chromium, path) for _ in range(options.runs)]
            n = max(size // 99, 1) * 99
            line = {"bench": "report", "intervals": n, "size_kb": round(path.stat().st_size / 1000)}
            line["write_s"] = round(seconds, 2)
            for name, values in zip(NAMES, zip(*runs, strict=True), strict=True):
                line[f"{name}_ms_min"] = round(min(values), 1)
                line[f"{name}_ms_median"] = round(statistics.median(values), 1)
            print(json.dumps({**line, **about}), flush=True)


if __name__ == "__main__":
    main()
