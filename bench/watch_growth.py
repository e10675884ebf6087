"""Measure the cost of a commit as batches grow: CPU and bytes, and the time to open a folder.

``python bench/watch_growth.py --batches 10000 [--groups 20] [--rows 5]`` writes the batches of a
small fleet into all tables, with the maintenance of ``watch``, and prints a JSON line at 100,
200, 500, ... batches: CPU milliseconds and bytes read and written per commit, maintenance
included, and the CPU milliseconds of the files of a batch. Then it measures opening the folder,
merges all of it, measures again, and times ``doctor`` and ``report`` as commands. With ``--rows
500``, 1,000 batches leave what 100,000 of 5 rows leave once they are merged.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.fleet.tables.columns.schemas import arrow_schema
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.files import BatchWriter, files_of
from holdfast.fleet.tables.folder.maintenance import MAINTENANCE_EVERY, RETENTION_DAYS, maintain
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables, open_tables, read_tables

MARKS = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
START_US = time.time_ns() // 1_000
FILL = {"string": "x", "bool": True, "double": 0.5}


def rows(name: str, batch: int, groups: int, n: int) -> pa.Table:
    """Return rows of a table: one for each of n groups, or for all of them several."""
    columns: list[Any] = []
    for field in arrow_schema(name):
        if field.name == "group":
            columns.append(
                pa.array([f"group-{(batch * 7 + i * 3) % groups:05d}" for i in range(n)])
            )
        elif pa.types.is_timestamp(field.type):
            at = [START_US + batch * 30_000_000 + i for i in range(n)]
            columns.append(pa.array(at, pa.int64()).cast(field.type))
        elif pa.types.is_list(field.type):
            values = ["a"] if pa.types.is_string(field.type.value_type) else [1, 2]
            columns.append(pa.array([values] * n, field.type))
        else:
            fill = FILL.get(str(field.type), batch)
            columns.append(pa.array([fill] * n, field.type))
    return pa.table(columns, schema=arrow_schema(name))


def cpu_s() -> float:
    """Return CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def moved_bytes() -> tuple[int, int]:
    """Return bytes that this process has read and written."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    found = dict(line.split(": ") for line in lines)
    return int(found["rchar"]), int(found["wchar"])


def grow(root: Path, n_batches: int, groups: int, n_rows: int) -> None:
    """Commit the batches, and print what they cost since the line before."""
    tables = Tables(root)
    cost = {"files": 0.0, "commit": 0.0, "maintenance": 0.0, "read": 0.0, "written": 0.0}
    since = 0
    with tables.writing():
        for batch in range(n_batches):
            t0 = cpu_s()
            out = BatchWriter(str(root), batch)
            for name in TABLES:
                out.write(name, rows(name, batch, groups, n_rows))
            files = files_of(out.close())
            t1, before = cpu_s(), moved_bytes()
            tables.commit(Batch(id=batch, files=files), anew=["lag"])
            t2 = cpu_s()
            if batch % MAINTENANCE_EVERY == MAINTENANCE_EVERY - 1:
                maintain(tables.folder, retention_days=RETENTION_DAYS)
            t3, after = cpu_s(), moved_bytes()
            for name, more in (
                ("files", t1 - t0),
                ("commit", t2 - t1),
                ("maintenance", t3 - t2),
                ("read", after[0] - before[0]),
                ("written", after[1] - before[1]),
            ):
                cost[name] += more
            if batch + 1 in MARKS or batch + 1 == n_batches:
                n = batch + 1 - since
                millis = ("files", "commit", "maintenance")
                line = {f"{name}_cpu_ms": round(cost[name] / n * 1000, 2) for name in millis}
                line |= {f"{name}_bytes": round(cost[name] / n) for name in ("read", "written")}
                say(batches=batch + 1, over=n, **line)
                cost, since = dict.fromkeys(cost, 0.0), batch + 1


def opened(root: Path) -> None:
    """Print the cost of opening the folder, and of reading every table of it."""
    t0, w0 = cpu_s(), time.perf_counter()
    n_files = sum(len(open_tables(root).files(name)) for name in TABLES)
    t1, w1 = cpu_s(), time.perf_counter()
    read_tables(root)
    t2, w2 = cpu_s(), time.perf_counter()
    say(
        files=n_files,
        open_cpu_s=round(t1 - t0, 3),
        open_s=round(w1 - w0, 3),
        read_all_cpu_s=round(t2 - t1, 3),
        read_all_s=round(w2 - w1, 3),
    )


def commands(root: Path) -> None:
    """Merge everything, and time the commands that read the folder."""
    line = (sys.executable, "-m", "holdfast")
    report = str(root.parent / "report.html")
    for name, *more in (
        ("compact", "tables", "compact", str(root)),
        ("doctor", "doctor", "--input", str(root)),
        ("report", "report", "--input", str(root), "-o", report),
        ("report_one", "report", "--input", str(root), "--group", "group-00001", "-o", report),
    ):
        before, started = os.times(), time.perf_counter()
        ended = subprocess.run([*line, *more], capture_output=True, check=False, text=True)
        wall, after = time.perf_counter() - started, os.times()
        cpu = sum(after[2:4]) - sum(before[2:4])
        said = ended.stderr.strip().splitlines()[-1:] if ended.returncode > 2 else []
        say(command=name, s=round(wall, 2), cpu_s=round(cpu, 2), code=ended.returncode, said=said)
        if name == "compact":
            opened(root)


def say(**line: Any) -> None:
    """Print a line."""
    about = {"python": platform.python_version(), "pyarrow": pa.__version__}
    sys.stdout.write(json.dumps({**line, "load": os.getloadavg()[0], **about}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--rows", type=int, default=5, help="of a table in a batch")
    parser.add_argument("--keep", type=Path, help="folder to leave behind")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as scratch:
        root = given.keep or Path(scratch) / "tables"
        grow(root, given.batches, given.groups, given.rows)
        opened(root)
        commands(root)


if __name__ == "__main__":
    main()
