"""CPU seconds of each test, its fixtures and the children that it waits for, as JSON lines.

``make test ARGS="-p tools.cpu_of_tests"`` writes the file; ``python -m tools.cpu_of_tests`` prints
the sums of the packages and the most expensive tests. A broker, a browser and Spark's JVM end with
the run, so their seconds are in no test.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

FILE = Path("build") / "cpu-of-tests.jsonl"
MOST = 40


def pytest_configure(config: pytest.Config) -> None:
    """Begin a new file, once in a run."""
    if not hasattr(config, "workerinput"):
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text("")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure a test in the worker that runs it."""
    before = sum(os.times()[:4])
    done = yield
    with FILE.open("a", encoding="utf-8") as file:
        file.write(json.dumps([item.nodeid, sum(os.times()[:4]) - before]) + "\n")
    return done


def main() -> None:
    """Print the sums, the largest first."""
    packages: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for line in FILE.read_text(encoding="utf-8").splitlines():
        name, seconds = json.loads(line)
        packages[name.split("::")[0].split("/")[1]] += seconds
        tests[name.split("[")[0]] += seconds
    for name, seconds in [*packages.most_common(), *tests.most_common(MOST)]:
        print(f"{seconds:8.1f} {name}")
    print(f"{sum(packages.values()):8.1f} together")


if __name__ == "__main__":
    main()
