"""Measure a batch of ``watch`` in a fleet whose groups all commit, and a few of which rebalance.

``python -m bench.watch_fleet DUMP TABLES [--rebalances 100] [--commits 20]`` takes a dump of
``bench.pipeline_fleet`` as the first batch of a stream (kept in TABLES for the next measurement)
and adds batches: ten seconds later every group has committed some of its partitions, and every
hundredth group has a new generation. It prints a JSON line a batch: seconds of CPU of this process
and of its children, seconds of the clock, groups that were examined anew, and findings.

``--spark`` gives the stream a session, as ``watch`` without a bound; else all steps run here.
``--profile FILE`` writes the profile of the last batch.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench.pipeline_cpu import Usage
from bench.pipeline_fleet import N_LOG_PARTITIONS, START_MS, Form, Writer, write_commits

from holdfast.cluster.snapshot import ClusterSnapshot
from holdfast.fleet.pipeline.batches.watch import Stream
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.offsets_topic import LogPart
from holdfast.fleet.pipeline.ingest.source import RECORDS, Dump
from holdfast.fleet.pipeline.steps import InMemoryRows
from holdfast.fleet.tables.columns.schemas import moment_text
from holdfast.fleet.tables.folder.manifest import Manifest
from holdfast.fleet.tables.reading import Tables

BATCH_MS = 10_000
N_MEMBERS, N_PARTITIONS, N_GENERATIONS = 4, 5, 6


def snapshot(at_ms: int, behind: int) -> ClusterSnapshot:
    """Return log ends of the fleet's topics, beyond every commit by at least ``behind``."""
    end = (1 << 40) + behind
    names = [(f"orders-{topic:02d}", n) for topic in range(4) for n in range(25)]
    names += [("orders", n) for n in range(N_MEMBERS * N_PARTITIONS)]
    return ClusterSnapshot(
        cluster_id="bench",
        topics=(),
        share_state=(),
        taken_at=moment_text(at_ms * 1000),
        offsets=[(topic, n, 0, end) for topic, n in names],
    )


def records_of_batch(folder: Path, n: int, groups: int, commits: int, rebalances: int) -> pa.Table:
    """Return the records of the n-th batch, with their offsets behind those of all before."""
    shutil.rmtree(folder, ignore_errors=True)
    writer = Writer(folder)
    writer.heads = [10_000_000 * n] * N_LOG_PARTITIONS
    write_commits(writer, groups * commits, groups, np.random.default_rng(n))
    owner = np.repeat(np.arange(N_MEMBERS), N_PARTITIONS)
    owner = np.roll(owner, n)
    order = np.argsort(owner, kind="stable").astype(">i4")
    given = np.split(order, N_MEMBERS)
    for group in range(0, groups, max(groups // max(rebalances, 1), 1)) if rebalances else ():
        form = Form.of(group, N_MEMBERS)
        value = form.fill(N_GENERATIONS + n, START_MS, [one.tobytes() for one in given])
        writer.add(group, START_MS, form.key, value)
    writer.close()
    (folder / "dump.json").write_text('{"schema_version": 1}\n')
    files = sorted((folder / "records").iterdir())
    rows = pa.concat_tables([pa.parquet.read_table(file) for file in files]).cast(RECORDS)
    later = rows["timestamp"].cast(pa.int64())
    moved = pc.add(later, 1000 * later_ms(n)).cast(rows.schema.field("timestamp").type)
    return rows.set_column(rows.schema.get_field_index("timestamp"), "timestamp", moved)


def later_ms(n: int) -> int:
    """Return how long after the fleet's begin the n-th batch was."""
    return 3_600_000 + n * BATCH_MS


def add(tables: Tables, part: LogPart, at_ms: int, session: Callable[[], Any] | None) -> None:
    """Add a batch, as ``watch`` does."""
    now = snapshot(at_ms, 5)
    stream = Stream(
        tables=tables,
        snapshot=lambda: now,
        selection=Selection(),
        complete_us=at_ms * 1000,
        every_seconds=10.0,
    )
    with tables.writing():
        stream.process(part, session)


def measured(run: Callable[[], None]) -> dict[str, float]:
    """Return seconds of CPU by program, and of the clock, of a function."""
    usage = Usage(os.getsid(0))
    usage.look()
    before, began = dict(usage.cpu_ticks), time.perf_counter()
    own = time.process_time()
    run()
    wall, own = time.perf_counter() - began, time.process_time() - own
    usage.look()
    ticks = sum(n - before.get(pid, 0) for pid, n in usage.cpu_ticks.items())
    total = ticks / os.sysconf("SC_CLK_TCK")
    return {"cpu_s": round(max(total, own), 2), "here_cpu_s": round(own, 2), "s": round(wall, 2)}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dump", type=Path)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--commits", type=int, default=20, help="of a group in a batch")
    parser.add_argument("--rebalances", type=int, default=100)
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--profile", type=Path)
    asked = parser.parse_args()
    session = None
    if asked.spark:
        from holdfast.fleet.pipeline.session import get_session

        session = get_session
    tables = Tables(asked.tables.absolute())
    if tables.manifest() == Manifest() or not tables.committed():
        dump = Dump.open(asked.dump)
        ends = dict.fromkeys(range(N_LOG_PARTITIONS), 1_000_000)
        first = LogPart(rows=dump.rows(), upto=ends)
        say(batch=0, **measured(partial(add, tables, first, START_MS + later_ms(0), session)))
    for _ in range(asked.batches):
        n = tables.next_batch()
        scratch = asked.tables.with_name(f"{asked.tables.name}-records")
        rows = records_of_batch(scratch, n, asked.groups, asked.commits, asked.rebalances)
        ends = dict.fromkeys(range(N_LOG_PARTITIONS), 10_000_000 * (n + 1))
        part = LogPart(rows=InMemoryRows(rows=rows, cost_rows=rows.num_rows), upto=ends)
        at_ms = START_MS + later_ms(n) + BATCH_MS
        profile = cProfile.Profile()
        if asked.profile:
            profile.enable()
        cost = measured(partial(add, tables, part, at_ms, session))
        profile.disable()
        if asked.profile:
            profile.dump_stats(asked.profile)
        say(batch=n, records=rows.num_rows, findings=tables.rows("findings"), **cost)


def say(**line: Any) -> None:
    """Print a line."""
    sys.stdout.write(json.dumps({**line, "load": os.getloadavg()[0]}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
