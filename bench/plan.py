"""Measure groups that ``holdfast plan`` plans per CPU second, as JSON lines.

``python bench/plan.py [--groups 10000] [--partitions 500] [--topics 1] [--members 10]
[--moved 0.05] [--assignors sticky lag-sticky] [--spark local[1]]``. The rows are those that
``plan`` makes of the tables. ``--moved`` is the fraction of each group's partitions whose owner
has one too many.

=========  ========================================================================================
where      what is counted
=========  ========================================================================================
task       the function of the job in this process, Arrow rows in and out: minimum of ``--repeat``
spark      the job in a session: CPU of all processes except the driver's Python (so the JVM,
           which is both driver and executor here, is included)
=========  ========================================================================================
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.fleet.pipeline.plan import FLEET, plan_task
from holdfast.fleet.pipeline.session import get_session
from holdfast.fleet.tables.columns.schemas import arrow_schema, ddl_of
from pipeline import commit_id
from pipeline_cpu import Usage


def fleet(args: argparse.Namespace) -> pa.Table:
    """Return rows of FLEET; the same arguments give the same rows."""
    rng = np.random.default_rng(7)
    n, width = args.groups, args.partitions
    owner = np.tile(np.arange(width, dtype=np.int32) % args.members, (n, 1))
    crooked = rng.random((n, width)) < args.moved
    owner[crooked] = (owner[crooked] // 2).astype(np.int32)
    ids = [f"consumer-{i:04d}-8f14e45f-ceea-467f-a9d9-0f2c1b7e5d3a" for i in range(args.members)]
    n_topics = args.topics
    counts = [width - (n_topics - 1) * (width // n_topics), *[width // n_topics] * (n_topics - 1)]

    def lists(values: Any, size: int, dtype: pa.DataType) -> pa.Array:
        starts = np.arange(n + 1, dtype=np.int32) * size
        return pa.ListArray.from_arrays(pa.array(starts), pa.array(values, dtype))

    topics = [f"orders-{i}" for i in range(n_topics)]
    subscribed = list(range(n_topics)) * (n * len(ids))
    columns = {
        "group": pa.array([f"group-{i:06d}" for i in range(n)]),
        "generation": pa.array(np.full(n, 4, np.int32)),
        "topics": lists(topics * n, n_topics, pa.string()),
        "n_partitions": lists(counts * n, n_topics, pa.int32()),
        "member_ids": lists(ids * n, len(ids), pa.string()),
        "instance_ids": lists([None] * (n * len(ids)), len(ids), pa.string()),
        "n_subscribed": lists([n_topics] * (n * len(ids)), len(ids), pa.int32()),
        "subscribed": lists(subscribed, n_topics * len(ids), pa.int32()),
        "owner": lists(owner.reshape(-1), width, pa.int32()),
        "lag": lists(rng.integers(0, 10_000, n * width), width, pa.int64()),
        "refused": pa.nulls(n, pa.string()),
        "gap_lower_seconds": pa.array(np.zeros(n)),
        "gap_upper_seconds": pa.array(np.full(n, 5.0)),
    }
    return pa.table([columns[field.name] for field in FLEET], schema=FLEET)


def by_task(rows: pa.Table, assignor: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run the job's own function, in batches as from Spark."""
    seconds = []
    for _ in range(args.repeat):
        began = time.process_time()
        batches = iter(rows.to_batches(max_chunksize=args.batch))
        planned = pa.Table.from_batches(plan_task(assignor, {})(batches))
        seconds.append(time.process_time() - began)
    assert planned.num_rows == rows.num_rows
    moved, best = planned["n_moved"].to_numpy(), planned["optimal"].to_numpy()
    return {
        "cpu_seconds": [round(one, 3) for one in seconds],
        "groups_per_cpu_second": round(rows.num_rows / min(seconds)),
        "moved": int(moved.sum()),
        "optimal_share": float(best.mean()),
    }


def by_spark(rows: pa.Table, assignor: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run the job in a session; the first run is warm-up."""
    spark = get_session(master=args.spark)
    usage, cpu, wall = Usage(os.getsid(0)), [], []
    for _ in range(args.repeat):
        before, own, began = usage.total(), time.process_time(), time.monotonic()
        frame = spark.createDataFrame(rows).mapInArrow(
            plan_task(assignor, {}), ddl_of(arrow_schema("plan"))
        )
        assert frame.toArrow().num_rows == rows.num_rows
        cpu.append(usage.total() - before - (time.process_time() - own))
        wall.append(time.monotonic() - began)
    spark.stop()
    return {
        "master": args.spark,
        "cpu_seconds": [round(one, 2) for one in cpu],
        "wall_seconds": [round(one, 2) for one in wall],
        "groups_per_cpu_second": round(rows.num_rows / min(cpu)),
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=500)
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--moved", type=float, default=0.05)
    parser.add_argument("--batch", type=int, default=500, help="groups a batch, of the task")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--assignors", nargs="*", default=["sticky"])
    parser.add_argument("--spark", default="", help="a master, to run the job in a session too")
    args = parser.parse_args()
    rows = fleet(args)
    for assignor in args.assignors:
        found = {"task": by_task(rows, assignor, args)}
        if args.spark:
            found["spark"] = by_spark(rows, assignor, args)
        for where, numbers in found.items():
            line = {
                "where": where,
                "assignor": assignor,
                "commit": commit_id(),
                "python": platform.python_version(),
                "groups": args.groups,
                "partitions": args.partitions,
                "topics": args.topics,
                "members": args.members,
                "moved_share": args.moved,
            }
            sys.stdout.write(json.dumps(line | numbers) + "\n")


if __name__ == "__main__":
    if os.getsid(0) != os.getpid():
        os.setsid()  # a session of our own, so that all in it is ours
    main()
