"""The same rows in two processes with different hash seeds."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import json
from holdfast.core.assignors.registry import ASSIGNORS, assign
from holdfast.core.model.group import Group

topics = [f"t{i}" for i in range(6)]
group = {
    "partitions": {topic: 5 for topic in topics},
    "racks": {topic: [["a"], ["b"], ["c"], ["a", "b"], []] for topic in topics},
    "lags": {topic: [7 * i, 90, 3, 0, 50] for i, topic in enumerate(topics)},
    "members": [
        {"id": f"m{i}", "topics": topics, "rack": "abc"[i % 3], "generation": 2,
         "owned": [[topics[i], p] for p in range(5)], "instance_id": "x" * i or None}
        for i in range(4)
    ],
}
for name in ASSIGNORS:
    print(name, json.dumps(assign(Group.from_dict(group), name).to_json()))
"""


def output(seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_rows_do_not_depend_on_the_hash_seed() -> None:
    first = output("0")
    assert len(first.splitlines()) >= 10
    assert first == output("4711")
