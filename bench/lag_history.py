"""Measure what lag over time costs: a batch of many groups with a long history, and its reading.

``python bench/lag_history.py [--groups 10000] [--days 90]`` writes readings of that many groups,
one topic each, as a ``watch`` of 10 s leaves them after so many days: first those that stay one in
6 hours, then one an hour, ... Then it measures batches of 10 s with the maintenance of ``watch``
(CPU milliseconds, rows and bytes written, the longest one), and what pages read: the index of each
range, and one group. It prints JSON lines.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.fleet.analysis.group.lag_over_time import lag_of_fleet, lag_of_group, read_readings
from holdfast.fleet.tables.columns.schemas import from_columns
from holdfast.fleet.tables.folder.files import BatchWriter, files_of
from holdfast.fleet.tables.folder.maintenance import (
    KEPT_S,
    MAINTENANCE_EVERY,
    RETENTION_DAYS,
    expired,
    maintain,
    resolution_s,
)
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables, open_tables

EVERY_S = 10
MEASURED = 320


def moments_us(days: float, now_us: int) -> Iterator[int]:
    """Yield the moments of readings that are left after so many days, oldest first."""
    steps = [(step or EVERY_S, kept or round(days * 86_400)) for step, kept in KEPT_S.items()]
    ends = [0, *(kept for _, kept in steps)]
    for (step, kept), end in reversed(list(zip(steps, ends, strict=False))):
        for ago_s in range(min(kept, round(days * 86_400)), end, -step):
            yield now_us - ago_s * 1_000_000


def commit(tables: Tables, batch: int, groups: pa.Array, now_us: int) -> tuple[int, int]:
    """Add a reading as a batch does; return its rows, and the files that it took out."""
    n = len(groups)
    newest_ms = tables.newest_ms("lag_history") if tables.committed() else None
    rng = np.random.default_rng(batch)
    lag = rng.integers(0, 100_000, n) * (rng.random(n) < 0.3)
    resolution = resolution_s(now_us, None if newest_ms is None else 1000 * newest_ms)
    rows = from_columns(
        "lag_history",
        {
            "group": groups,
            "topic": pa.array(["orders"] * n),
            "timestamp": [now_us] * n,
            "lag": lag,
            "lag_seconds": lag / 1000,
            "n_partitions": [12] * n,
            "n_unknown": [0] * n,
            "resolution_seconds": [resolution] * n,
        },
    )
    out = BatchWriter(str(tables.root), batch)
    out.write("lag_history", rows)
    gone = expired(tables.data_files("lag_history"), now_us)
    tables.commit(Batch(id=batch, files=files_of(out.close())), without=gone)
    if batch % MAINTENANCE_EVERY == 0:
        maintain(tables.folder, retention_days=RETENTION_DAYS, now_us=now_us)
    return n, len(gone)


def cpu_s() -> float:
    """Return CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def written_bytes() -> int:
    """Return bytes that this process has written."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def measure(root: Path, n_groups: int, days: float) -> None:
    """Write the history, and print what a batch and a page cost."""
    tables, groups = Tables(root), pa.array([f"group-{i:05d}" for i in range(n_groups)])
    begin_us = time.time_ns() // 1000
    with tables.writing():
        batch = 0
        for batch, now_us in enumerate(moments_us(days, begin_us)):
            commit(tables, batch, groups, now_us)
        show(root, history=batch + 1)
        costs, before = [], written_bytes()
        for i in range(1, MEASURED + 1):
            t0 = cpu_s()
            commit(tables, batch + i, groups, begin_us + i * EVERY_S * 1_000_000)
            costs.append(1000 * (cpu_s() - t0))
        say(
            batches=MEASURED,
            cpu_ms_mean=round(sum(costs) / len(costs), 1),
            cpu_ms_most=round(max(costs)),
            kb_written_mean=round((written_bytes() - before) / len(costs) / 1000),
        )
    show(root, history=batch + MEASURED)
    pages(root, begin_us // 1000 + MEASURED * EVERY_S * 1000)


def show(root: Path, **about: Any) -> None:
    """Print rows, files and bytes of the table."""
    files = open_tables(root).data_files("lag_history")
    rows = sum(file.rows for file in files)
    say(rows=rows, files=len(files), mb=round(sum(f.size for f in files) / 1e6, 1), **about)


def pages(root: Path, end_ms: int) -> None:
    """Print what the index reads in each range, and what the page of a group reads."""
    for name, hours in (("15m", 0.25), ("1h", 1), ("6h", 6), ("24h", 24), ("7d", 168), ("all", 0)):
        since_ms = end_ms - round(hours * 3_600_000) if hours else None
        for groups, made in ((None, lag_of_fleet), (["group-00007"], lag_of_group)):
            t0, w0 = cpu_s(), time.perf_counter()
            rows = read_readings(open_tables(root), since_ms, None, groups)
            points = len(made(rows).at_ms)
            say(
                range=name,
                groups="all" if groups is None else 1,
                rows=rows.num_rows,
                points=points,
                cpu_s=round(cpu_s() - t0, 2),
                s=round(time.perf_counter() - w0, 2),
            )


def say(**line: Any) -> None:
    """Print a line."""
    sys.stdout.write(json.dumps({**line, "load": round(os.getloadavg()[0], 1)}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--days", type=float, default=90)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as scratch:
        measure(Path(scratch) / "tables", given.groups, given.days)


if __name__ == "__main__":
    main()
