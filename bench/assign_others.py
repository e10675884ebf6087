"""Every assignor on the workloads of leader turns, with lags and with racks, as JSON lines.

usage: python -m bench.assign_others [--seconds 1] [--assignors NAME,...] [CASE ...]

A case is one of :mod:`bench.assign_workloads`, with ``+racks`` behind it for three racks and two
replicas of each partition. Measured is ``assign`` alone, from a group to its result, without bytes
and without the numbers of ``quality``: the smallest and the median CPU time, and the quality of the
result. No client has these assignors, so there are no peers; ``bench.assign`` has the turns with
peers.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
from bench import assign_workloads as workloads

from holdfast.core.assignors.registry import ASSIGNORS, assign
from holdfast.core.machine.leader.leader_round import read_group
from holdfast.core.model import measure
from holdfast.core.model.group import Group
from holdfast.core.model.topics import Topics
from holdfast.errors import InfeasibleError

CASES = ("W1.leave1", "W2m1000.leave1", "W3p50.leave1", "W5a.mix5", "W5b.mix5", "W5c.mix5")
RACKS = ("W5a.mix5+racks", "W5b.mix5+racks", "W5c.mix5+racks", "W5cx4.mix5+racks")
MAX_ROUNDS = 200


def main() -> None:
    """Run the chosen cases."""
    parser = argparse.ArgumentParser(description="Every assignor on every kind of group.")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--assignors", default=",".join(ASSIGNORS))
    options = parser.parse_args()
    for case in options.cases or (*CASES, *RACKS):
        group = read(case)
        for name in options.assignors.split(","):
            line = {"case": case, "assignor": name, **measured(group, name, options.seconds)}
            sys.stdout.write(json.dumps({**line, **_context()}) + "\n")
            sys.stdout.flush()


def read(case: str) -> Group:
    """Build the group of a case, with lags, and racks if it says so."""
    name, _, racks = case.partition("+")
    built = workloads.build(name)
    members = [(member, None, data) for member, data in workloads.messages(built, eager=False)]
    group = read_group("cooperative-sticky", members, built.partitions)
    rng = np.random.default_rng(5337)
    lags = rng.exponential(1000, group.topics.n_tps).astype(np.int64)
    if not racks:
        return replace(group, lags=lags)
    zones = ("a", "b", "c")
    replicas = {
        topic: [[zones[(p + i) % 3], zones[(p + i + 1) % 3]] for p in range(count)]
        for i, (topic, count) in enumerate(built.partitions.items())
    }
    topics = Topics.from_counts(built.partitions, racks=replicas)
    rack = (np.arange(group.n_members) % 3).astype(np.int32)
    return replace(group, topics=topics, rack=rack, lags=lags)


def measured(group: Group, name: str, seconds: float) -> dict[str, Any]:
    """CPU time of one assignor, and what came out."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    result = None
    while len(times) < 2 or (time.perf_counter() < end and len(times) < MAX_ROUNDS):
        fresh = replace(group)  # nothing of the round before is kept
        gc.collect()
        used = time.process_time()
        try:
            result = assign(fresh, name)
        except InfeasibleError:
            return {"refused": "unequal subscriptions"}
        times.append(1e3 * (time.process_time() - used))
    assert result is not None
    load = measure.loads(result.target, group.n_members)
    return {
        "min_cpu_ms": round(min(times), 3),
        "median_cpu_ms": round(sorted(times)[len(times) // 2], 3),
        "turns": len(times),
        "balance_score": measure.balance_score(load),
        "kept": measure.count_kept(result.claims.owner, result.target),
        "moved": measure.count_moved(result.claims.owner, result.target),
        "cross_rack": measure.count_cross_rack(group, result.target),
        "proven": result.proven,
    }


def _context() -> dict[str, str]:
    return {"python": platform.python_version(), "numpy": np.__version__}


if __name__ == "__main__":
    main()
