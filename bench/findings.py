"""Measure the doctor of a fleet: findings made by the pipeline, read and printed by the command.

``python -m bench.findings TABLES`` with tables of ``bench.pipeline_fleet`` prints seconds of CPU
and of the clock: of ``holdfast doctor --format json`` in a process of its own, and of the
examination of every group, which a batch does as a step.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from holdfast.fleet.analysis.findings.examination import examine, finding_rows
from holdfast.fleet.analysis.group.group_history import read_groups
from holdfast.fleet.analysis.times import window_end_ms
from holdfast.fleet.tables.columns.stored import NOT_LOADED
from holdfast.fleet.tables.reading import open_tables


def doctor(folder: Path) -> tuple[float, float]:
    """Return seconds of CPU and of the clock of the command, with all of its processes."""
    words = ["doctor", "--input", str(folder), "--format", "json", "-q", "-o", os.devnull]
    before, begin = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "holdfast", *words], check=True)
    after = os.times()
    cpu = after.children_user + after.children_system
    return cpu - before.children_user - before.children_system, time.perf_counter() - begin


def examination(folder: Path) -> tuple[float, float, int]:
    """Return seconds of CPU and of the clock to examine every group, and the findings."""
    tables = open_tables(folder).load(without=NOT_LOADED)
    cpu, begin = time.process_time(), time.perf_counter()
    histories = read_groups(tables, tables.groups, last_ms=window_end_ms(tables))
    rows = finding_rows(map(examine, histories))
    return time.process_time() - cpu, time.perf_counter() - begin, rows.num_rows


def main() -> None:
    """Print one line for each measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", type=Path)
    asked = parser.parse_args()
    cpu, clock = doctor(asked.tables)
    print(f"doctor --format json: {cpu:.1f} s of CPU, {clock:.1f} s")
    cpu, clock, n_findings = examination(asked.tables)
    print(f"examination: {cpu:.1f} s of CPU, {clock:.1f} s, {n_findings} findings")


if __name__ == "__main__":
    main()
