"""The long runs: faulty runs, laws, search, fuzzing, real groups, frameworks, old clients.

``make soak ARGS="--only seeds --seeds 20000"``. Nothing here is in `make test` or `make test-all`;
of a drawn law these have 30 examples, and 5,000 are drawn here.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

PARTS = {
    "seeds": ["-m", "tests.proof.soak", "--runs", "{seeds}"],
    "fuzz": ["-m", "tests.fuzz.fuzz_wire", "--runs", "{runs}"],
    "slow": ["-m", "pytest", "-q", "-m", "slow", "--ignore", "tests/frameworks"],
    "frameworks": ["-m", "pytest", "-q", "-m", "slow", "tests/frameworks"],
    "laws": [
        *("-m", "pytest", "-q", "--hypothesis-profile", "exhaustive"),
        *("-m", "hypothesis and not spark and not broker"),
    ],
    "versions": ["-m", "tests.live.versions"],
    "clients": ["-m", "tests.live.oldest_and_newest"],
    "chaos": ["-m", "tests.live.chaos"],
    "chaos-clients": [
        *("-m", "tests.live.chaos", "--brokers", "1", "--members", "6", "--partitions", "24"),
        *("--client", "confluent", "--client", "aiokafka", "--client", "kafka"),
        *("--design", "eager", "--design", "simple", "--design", "deferred"),
    ],
}


def main() -> int:
    """Run the chosen parts; return the worst exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(PARTS), action="append")
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=10_000_000)
    options = parser.parse_args()
    worst = 0
    for name in options.only or sorted(PARTS):
        words = [w.format(seeds=options.seeds, runs=options.runs) for w in PARTS[name]]
        print(f"soak: {name}: {' '.join(words)}", file=sys.stderr)
        worst = max(worst, subprocess.call([sys.executable, *words]))
    return worst


if __name__ == "__main__":
    sys.exit(main())
