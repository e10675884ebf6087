"""The tables of a large dump from a standalone Spark cluster, compared with those of ``local[2]``.

``python -m bench.pipeline_fleet DUMP --commits 2000000 --groups 10000 --generations 6 --members 4
--partitions 5``, then ``python -m bench.cluster_fleet DUMP FOLDER``: submits ``jobs/history.py`` to
``local[2]`` and to a master with two workers, each with an executor of one core and a Python of its
own. It prints a JSON line a run, with seconds of the clock, and one with the number of rows of each
table and whether the rows of each table, and the document of ``holdfast doctor --format json``, are
equal.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
from tests.cluster import standalone

from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import open_tables

HISTORY = Path(__file__).resolve().parents[1] / "jobs" / "history.py"


def sorted_rows(folder: Path, name: str) -> pa.Table:
    """Return the rows of a table in one order, whatever tasks wrote them."""
    rows = open_tables(folder).stored(name).combine_chunks()
    keys = [
        (field.name, "ascending")
        for field in rows.schema
        if not pa.types.is_nested(field.type) and not pa.types.is_null(field.type)
    ]
    return rows.sort_by(keys) if keys and rows.num_rows else rows


def doctor_digest(folder: Path) -> str:
    """Return the SHA-256 of the doctor's document, without the name of the folder."""
    command = [sys.executable, "-m", "holdfast", "doctor", "--input", str(folder)]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, check=False)
    assert done.stdout, done.stderr[-2000:]
    return hashlib.sha256(done.stdout.replace(str(folder).encode(), b"OUT")).hexdigest()


def submitted(kind: str, master: str, wheel: Path, dump: Path, out: Path) -> None:
    """Run the job, and print what it took."""
    began = time.perf_counter()
    done = standalone.submit(master, wheel, HISTORY, dump, out, conf={}, env={})
    assert done.returncode == 0, done.stderr[-3000:]
    took = round(time.perf_counter() - began, 1)
    print(json.dumps({"run": kind, "seconds": took, "said": done.stdout.strip()}), flush=True)


def main() -> int:
    """Submit, compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dump", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    dump, local, remote = (
        path.resolve()
        for path in (options.dump, options.folder / "local", options.folder / "cluster")
    )
    with standalone.standalone(options.folder.resolve(), {}) as cluster:
        submitted("local[2]", "local[2]", cluster.wheel, dump, local)
        submitted("two workers", cluster.master, cluster.wheel, dump, remote)
    rows = {name: sorted_rows(remote, name) for name in TABLES}
    equal = {name: found.equals(sorted_rows(local, name)) for name, found in rows.items()}
    answer = {
        "rows": {name: found.num_rows for name, found in rows.items()},
        "unequal": sorted(name for name in TABLES if not equal[name]),
        "doctor_equal": doctor_digest(local) == doctor_digest(remote),
    }
    print(json.dumps(answer), flush=True)
    return 0 if answer["doctor_equal"] and not answer["unequal"] else 1


if __name__ == "__main__":
    sys.exit(main())
