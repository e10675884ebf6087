"""CPU seconds of an import, beside the import of the client that it replaces.

``python bench/imports.py`` starts each statement in a process of its own, ``--repeat`` times, in
turns. It prints one JSON line a statement: the median of the CPU seconds that the statement took
inside its process, what that is above the client's own import, its ratio to that, and how many
modules are loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from importlib.metadata import version

MEASURED = """
import sys, time
begin = time.process_time()
{statement}
print(time.process_time() - begin, len(sys.modules))
"""
HELP = """
import contextlib, os
from holdfast.cli.app import main
sys.argv = ["holdfast", "--help"]
with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
    with contextlib.suppress(SystemExit):
        main()
"""
BESIDE = {
    "import confluent_kafka": "",
    "import holdfast.confluent": "import confluent_kafka",
    "import aiokafka": "",
    "import holdfast.aiokafka": "import aiokafka",
    "import kafka": "",
    "import holdfast.kafka": "import kafka",
    "from holdfast import Consumer": "",
    "from holdfast import Worker": "",
    "import click": "",
    "holdfast --help": "import click",
}
"""Statement -> the one that it is compared with, "" for none."""


def measured(statement: str) -> tuple[float, int]:
    """CPU seconds and modules of one process."""
    program = MEASURED.format(statement=HELP if statement == "holdfast --help" else statement)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    seconds, modules = done.stdout.split()
    return float(seconds), int(modules)


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    found: dict[str, list[tuple[float, int]]] = {statement: [] for statement in BESIDE}
    for _ in range(options.repeat):
        for statement, runs in found.items():
            runs.append(measured(statement))
    medians = {name: statistics.median(s for s, _ in runs) for name, runs in found.items()}
    clients = ("confluent-kafka", "aiokafka", "kafka-python")
    about = {
        "python": sys.version.split()[0],
        **{name: version(name) for name in clients},
        "load": round(os.getloadavg()[0], 1),
    }
    for statement, beside in BESIDE.items():
        line = {"statement": statement, "cpu_s": round(medians[statement], 3)}
        if beside:
            line["above_s"] = round(medians[statement] - medians[beside], 3)
            line["ratio"] = round(medians[statement] / medians[beside], 2)
        line["modules"] = found[statement][0][1]
        print(json.dumps({**line, **about}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
