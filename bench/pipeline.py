"""Measure CPU of the pipeline's stages per million rows of the process tree, as JSON lines.

``python bench/pipeline.py [--stages ...] [--commits N...] [--assignments N...] [--generations N...]
[--work DIR] [--master local[1]]`` makes its data once with ``pipeline_fleet.py``, in every given
size. Every stage runs ``--repeat`` times in one session. The first run of each is cold (the JVM
compiles); the minimum of the others is the cost in a long job. The tables are compared with the
generator's numbers.

=====================  ==========================================================================
stage                  from Parquet of the offsets topic
=====================  ==========================================================================
commits                to ``offset_commits``
assignments            to ``assignments`` alone
groups                 to generations, members, assignments, movements, rebalances, gaps, ...
history                all of a history: the last one, with commits, lag and bounds of gaps
whale, small, both     ``groups`` over one group of 1M partitions, 3,000 small ones, and both
streams, share, ...    ``groups`` over copies of a captured group of a kind (``--copies N...``)
...-by-...             peers: ``pipeline_peers.py``
=====================  ==========================================================================
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.fleet.pipeline.batches.history import run, topic_names
from holdfast.fleet.pipeline.batches.jobs import Job, remove_staged
from holdfast.fleet.pipeline.ingest import decode_classic
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.generations import assignment_table
from holdfast.fleet.pipeline.ingest.source import Dump, read_pieces
from holdfast.fleet.pipeline.session import get_session
from holdfast.fleet.pipeline.steps import Pieces, named, numbers, pieces
from holdfast.fleet.tables.columns.schemas import ddl_of
from holdfast.fleet.tables.folder.files import FILES_SCHEMA, BatchWriter
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables
from pipeline_cpu import Usage, Watcher
from pipeline_kinds import KINDS
from pipeline_peers import PEERS

HERE = Path(__file__).parent
WHALE = ("whale", "small", "both")


def data_for(stage: str, args: argparse.Namespace) -> list[list[str]]:
    """Return arguments of the generator for the data of a stage, in every given size."""
    fleets = [
        ["--groups", str(max(1, rows // (1000 * n))), "--generations", str(n)]
        for rows, n in product(args.assignments, args.generations)
    ]
    commits = [["--commits", str(n)] for n in args.commits]
    if stage.startswith("commits"):
        return commits
    if stage == "history":
        return [[*fleet, *more] for fleet, more in product(fleets, commits)]
    if stage in KINDS:
        return [[stage, str(n)] for n in args.copies]
    small = ["--groups", "3000", "--generations", "2", "--members", "10", "--partitions", "50"]
    if stage in WHALE:
        return [[*(small if stage != "whale" else ["--groups", "0"]), *_whale(stage)]]
    return fleets


def _whale(stage: str) -> list[str]:
    return [] if stage == "small" else ["--whale", "1000000"]


def run_stage(name: str, spark: Any, dump: Dump, out: Path) -> None:
    """Run one stage, from the dump's Parquet to committed tables."""
    if name in PEERS:
        PEERS[name](spark, dump, out)
        return
    if name == "history":
        run(lambda: spark, dump, out)
        return
    tables = Tables(out)
    job = Job(session=lambda: spark, tables=tables, batch=tables.next_batch())
    if name == "assignments":
        size = sum(file.stat().st_size for file in dump.record_files())
        parts = pieces([str(file) for file in dump.record_files()], max(1, size >> 24))
        task = assignments_task(str(out), job.batch, parts)
        job.collect(numbers(spark, len(parts)).mapInArrow(task, ddl_of(FILES_SCHEMA)).toArrow())
    else:
        job.read(dump.rows(), Selection(), topic_names(dump))
    files = {table: found for table, found in job.files.items() if not table.startswith("_")}
    tables.commit(Batch(id=job.batch, files=files), replace=True)
    remove_staged(out)


def assignments_task(root: str, batch: int, parts: list[Pieces]) -> Any:
    """Turn pieces of a dump into ``assignments``, without the other tables."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = BatchWriter(root, batch)
        for rows in read_pieces(named(batches, parts)):
            for gens in decode_classic.generations(rows):
                writer.write("assignments", assignment_table(gens))
        yield from writer.close().to_batches()

    return task


def check(name: str, out: Path, truth: dict[str, int]) -> dict[str, int]:
    """Compare the rows of the tables with what the generator wrote."""
    if name in PEERS:
        return {}
    tables = Tables(out)
    found = {table: rows for table in tables.batches()[0].rows if (rows := tables.rows(table))}
    if name in KINDS:
        odd = {table: rows for table, rows in found.items() if rows % truth["n_groups"]}
        assert found["generations"] and not odd, found
        assert not {"anomalies", "bad_records"} & found.keys(), found
        return found
    if name in ("commits", "history"):
        assert found["offset_commits"] == truth["commits"], found
    if name != "commits":
        lists = [pq.read_table(f, columns=["partitions"]) for f in tables.files("assignments")]
        sizes = [pc.sum(pc.list_value_length(rows["partitions"])).as_py() for rows in lists]
        assert sum(sizes) == truth["assignments"], found
    if name not in ("commits", "assignments"):
        assert found.get("movements", 0) == truth["moved"], (found, truth)
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--assignments", type=int, nargs="+", default=[4_000_000])
    parser.add_argument("--generations", type=int, nargs="+", default=[20])
    parser.add_argument("--copies", type=int, nargs="+", default=[4_000])
    parser.add_argument("--work", type=Path)
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--stages", nargs="*", default=["commits", "assignments", "groups"])
    args = parser.parse_args()
    work = args.work or Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    runs = [(name, size) for name in args.stages for size in data_for(name, args)]
    dumps = [made(work, size) for _, size in runs]
    usage = Usage(os.getsid(0))
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]  # workers find the peers there
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    spark = get_session(master=args.master)
    for (name, size), dump in zip(runs, dumps, strict=True):
        out = work / f"out-{name}"
        found = measured(name, spark, dump, out, repeat=args.repeat, usage=usage)
        more = {"master": args.master, "size": " ".join(size)}
        sys.stdout.write(json.dumps(found | more) + "\n")
        sys.stdout.flush()
    spark.stop()


def made(work: Path, size: list[str]) -> Path:
    """Return a dump of a size, generated once."""
    dump = work / ("dump" + "".join(size).replace("--", "-"))
    if not (dump / "dump.json").is_file():
        script = "pipeline_kinds.py" if size[0] in KINDS else "pipeline_fleet.py"
        command = [sys.executable, str(HERE / script), str(dump), *size]
        subprocess.run(command, check=True)
    return dump


def measured(
    name: str, spark: Any, dump: Path, out: Path, *, repeat: int, usage: Usage
) -> dict[str, Any]:
    """Run one stage ``repeat`` times; return its CPU, memory and rows."""
    truth = json.loads((dump / "dump.json").read_text())
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    cpu, wall = [], []
    with Watcher(usage):
        for _ in range(repeat):
            before, started = usage.total(), time.monotonic()
            run_stage(name, spark, Dump.open(dump), out)
            cpu.append(usage.total() - before)
            wall.append(time.monotonic() - started)
    what = "commits" if name.startswith("commits") else "assignments"
    millions = truth["n_records" if name in KINDS else what] / 1e6
    found = check(name, out, truth)
    shutil.rmtree(out)
    return {
        "stage": name,
        "commit": commit_id(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "commits": truth["commits"],
        "assignments": truth["assignments"],
        "records": truth.get("n_records"),
        "cpu_seconds": [round(seconds, 2) for seconds in cpu],
        "wall_seconds": [round(seconds, 2) for seconds in wall],
        "cpu_seconds_per_million": round(min(cpu[1:] or cpu) / millions, 3),
        "peak_mib": round(usage.peak_bytes / 2**20),
        "rows": found,
    }


def commit_id() -> str:
    """Return the measured commit."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    if os.getsid(0) != os.getpid():
        os.setsid()  # a session of our own, so that all in it is ours
    main()
