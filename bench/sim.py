"""How fast the simulation is: a bounce of 100 members, the goal of 50, the exhaustive search.

``python bench/sim.py [NAME ...]`` prints a JSON line for each: its name, CPU and wall seconds, the
largest memory of the process so far, and the result. Runs are fixed by their seed.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.proof.random_runs import soak
from tests.proof.walk import Bound, Search

from holdfast.core.machine.policy import Policy
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.sim.scenarios import Setup, simulate

POLICIES = ("eager", "holdfast-simple", "deferred", "incremental")


def bounce(policy: str, members: int, partitions: int) -> dict[str, Any]:
    """A rolling bounce under the default cost model."""
    settings = Policy(delay_ms=30_000)
    report = simulate(
        Setup(policy=policy, members=members, partitions=partitions, settings=settings)
    )
    found = report.to_dict()
    return {**found, "violations": len(report.violations)}


def search(policy: str, lost: str = "") -> dict[str, Any]:
    """Every interleaving of the default bound."""
    settings = Policy(delay_ms=20_000, interval_ms=10_000)
    found = Search(assignors_for(policy, settings), Bound(lost=lost)).run()
    return {
        "policy": policy,
        "lost": lost,
        "states": found.states,
        "transitions": found.transitions,
        "settled": found.settled,
        "complete": found.complete,
        "violations": len(found.violations),
    }


def seeds(runs: int) -> dict[str, Any]:
    """Random faulty runs."""
    outcome = soak(0, runs)
    return {"runs": runs, "rounds": outcome.rounds, "violations": len(outcome.failures)}


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "bounce-100x10000": lambda: bounce("deferred", 100, 10_000),
    "goal-50x1000-deferred": lambda: bounce("deferred", 50, 1_000),
    "goal-50x1000-eager": lambda: bounce("eager", 50, 1_000),
    **{f"search-{p}": (lambda p=p: search(p)) for p in POLICIES},
    "seeds-100": lambda: seeds(100),
}
"""Name -> function."""


def main() -> int:
    """Run the chosen cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    for name in parser.parse_args().names or CASES:
        if name not in CASES:
            parser.error(f"{name}: expected one of {', '.join(CASES)}")
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        found = CASES[name]()
        line = {
            "case": name,
            "cpu_seconds": round(time.process_time() - cpu_s, 2),
            "wall_seconds": round(time.perf_counter() - wall_s, 2),
            "max_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "python": platform.python_version(),
            "cpu": platform.processor() or platform.machine(),
            "result": found,
        }
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
