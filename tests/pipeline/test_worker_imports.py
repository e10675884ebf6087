"""The modules of Spark's tasks: a worker has NumPy, PyArrow and pandas, and no client library."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = """
import importlib, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("kafka", "confluent_kafka", "aiokafka", "rich", "click"):
            raise ModuleNotFoundError(f"no {name} on a worker", name=name)

sys.meta_path.insert(0, Missing())
for module in sys.argv[1:]:
    importlib.import_module(f"holdfast.fleet.pipeline.{module}")
"""
TASKS = ("batches.examined", "batches.history", "batches.jobs", "plan", "replay.run", "steps")


def test_a_task_imports_no_client() -> None:
    command = [sys.executable, "-c", BLOCKED, *TASKS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
