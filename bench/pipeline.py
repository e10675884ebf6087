"""CPU of the pipeline's stages per million, as JSON lines; the whole process tree counts.

``python bench/pipeline.py [--commits N] [--assignments N] [--work DIR] [--master local[1]]`` makes
the data once with ``pipeline_fleet.py``. Every stage runs ``--repeat`` times in one session; the
first run of each is cold (the JVM compiles), the minimum of the others is what a long job pays.
The tables are held against the generator's truth.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast.pipeline.jobs import Job, group_bytes, is_commit
from holdfast.pipeline.lag import OWNERS
from holdfast.pipeline.session import get_session
from holdfast.pipeline.source import Dump
from holdfast.pipeline.storage import FILES_DDL, Batch, Tables
from holdfast.pipeline.tasks import commits_task, groups_task
from pipeline_cpu import Usage

HERE = Path(__file__).parent
STAGES = ("commits", "groups")


def run_stage(name: str, spark: Any, dump: Dump, out: Path) -> None:
    """One stage of a history, from the dump's Parquet to committed tables."""
    job = Job(spark=spark, tables=Tables(out), batch=0)
    records = dump.records(spark)
    if name == "commits":
        done = records.where(is_commit()).mapInArrow(commits_task(str(out), 0), FILES_DDL)
    else:
        keyed = records.where(~is_commit()).withColumn("_group", group_bytes())
        ordered = keyed.repartition("_group").sortWithinPartitions("_group", "partition", "offset")
        done = ordered.drop("_group").mapInArrow(groups_task(str(out), 0, {}), FILES_DDL)
    job.collect(done.toArrow())
    job.files.pop(OWNERS, None)
    job.tables.commit(Batch(id=0, files=job.files), replace=True)


def check(name: str, out: Path, truth: dict[str, int]) -> dict[str, int]:
    """Rows of the tables, held against what the generator wrote."""
    tables = Tables(out)
    if name == "commits":
        rows = {"offset_commits": tables.rows("offset_commits")}
        assert rows["offset_commits"] == truth["commits"], rows
        return rows
    rows = {t: tables.rows(t) for t in ("generations", "movements", "rebalances", "pauses")}
    flat = tables.table("assignments").num_rows if truth["assignments"] <= 20_000_000 else -1
    assert flat in (-1, truth["assignments"]), flat
    assert rows["movements"] == truth["moved"], (rows, truth)
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--assignments", type=int, default=2_000_000)
    parser.add_argument("--generations", type=int, default=20)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--stages", nargs="*", default=list(STAGES))
    args = parser.parse_args()
    work = args.work or Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    dump = work / f"dump-{args.commits}-{args.assignments}-{args.generations}"
    if not (dump / "dump.json").is_file():
        groups = max(1, args.assignments // (1000 * args.generations))
        size = ["--groups", str(groups), "--generations", str(args.generations)]
        command = [sys.executable, str(HERE / "pipeline_fleet.py"), str(dump), *size]
        subprocess.run([*command, "--commits", str(args.commits)], check=True)
    truth = json.loads((dump / "dump.json").read_text())
    usage = Usage(os.getsid(0))
    spark = get_session(master=args.master)
    for name in args.stages:
        out = work / f"out-{name}"
        cpu, wall = [], []
        for _ in range(args.repeat):
            before, started = usage.total(), time.monotonic()
            run_stage(name, spark, Dump.open(dump), out)
            cpu.append(usage.total() - before)
            wall.append(time.monotonic() - started)
        millions = truth["commits" if name == "commits" else "assignments"] / 1e6
        line = {
            "stage": name,
            "commit": commit_id(),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "master": args.master,
            "millions": millions,
            "cpu_seconds": [round(seconds, 2) for seconds in cpu],
            "wall_seconds": [round(seconds, 2) for seconds in wall],
            "cpu_seconds_per_million": round(min(cpu[1:] or cpu) / millions, 3),
            "peak_mib": round(usage.peak_bytes / 2**20),
            "rows": check(name, out, truth),
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    spark.stop()


def commit_id() -> str:
    """The commit that was measured."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    if os.getsid(0) != os.getpid():
        os.setsid()  # a session of our own, so that all in it is ours
    main()
