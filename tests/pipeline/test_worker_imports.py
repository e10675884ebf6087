"""The modules of Spark's tasks: a worker has NumPy, PyArrow and pandas, and no client library."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import importlib, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("kafka", "confluent_kafka", "aiokafka", "rich", "click"):
            raise ModuleNotFoundError(f"no {name} on a worker", name=name)

sys.meta_path.insert(0, Missing())
importlib.import_module(sys.argv[1])
"""


@pytest.mark.parametrize(
    "module",
    ["batches.examined", "batches.history", "batches.jobs", "plan", "replay.run", "steps"],
)
def test_a_task_imports_no_client(module: str) -> None:
    command = [sys.executable, "-c", BLOCKED, f"holdfast.fleet.pipeline.{module}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
