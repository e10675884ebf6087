"""Measure how soon ``holdfast serve -b`` shows a cluster: seconds from the command to its pages.

``python bench/serve.py --groups 100`` starts a broker with so many groups and then the command, in
a state directory of its own, ``--repeat`` times. One JSON line a run: wall seconds until the first
page is answered, until it lists a group, and until everything was read; CPU seconds of the
command's process tree until then.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.lag import fill

LONGEST_S = 300.0
BEFORE_ALL = ("asking the cluster", "starting Spark", "first read", "as of coordinators")
"""Texts of a page until everything was read."""
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """Return CPU seconds of a process and its running descendants, and of their dead children."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        spent[int(folder.name)] = sum(map(int, fields[11:15])) / TICKS
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return round(sum(spent.get(pid, 0.0) for pid in family), 1)


def page(address: str) -> str:
    """Return the page of the groups."""
    with urllib.request.urlopen(address + "/", timeout=30) as answer:
        return str(answer.read().decode())


def run(bootstrap: str, state: str) -> dict[str, float]:
    """Start the command once; return when its page showed what."""
    command = [sys.executable, "-m", "holdfast", "serve", "-b", bootstrap]
    began, took = time.monotonic(), dict[str, float]()

    def note(what: str) -> None:
        took.setdefault(what, round(time.monotonic() - began, 2))

    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": state},
    ) as process:
        assert process.stderr is not None
        try:
            lines = (re.findall(r"(http://\S+)/ until", line) for line in process.stderr)
            address = next(found[0] for found in lines if found)
            while "all_read_s" not in took:
                if time.monotonic() > began + LONGEST_S:
                    raise RuntimeError(f"nothing more after {LONGEST_S:g} s: {took}")
                told = page(address)
                note("answered_s")
                if '"g0"' in told or ">g0<" in told:
                    note("listed_s")
                    if not any(words in told for words in BEFORE_ALL):
                        note("all_read_s")
                time.sleep(0.1)
            took["cpu_s"] = cpu_seconds(process.pid)
        finally:
            process.terminate()
            process.stderr.read()
    return took


def main() -> int:
    """Measure, and print."""
    from holdfast.local.broker import Broker

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=24)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with Broker.start() as broker:
        fill(broker.bootstrap, options.groups, options.partitions)
        for _ in range(options.repeat):
            with tempfile.TemporaryDirectory() as state:
                took = run(broker.bootstrap, state)
            print(json.dumps({"groups": options.groups, **took}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
