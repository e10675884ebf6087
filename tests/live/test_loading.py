"""Threads of the member load modules that an import does not: no poll or loop waits."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from tests.live.crew import Topic, fresh
from tests.suites import further

pytestmark = pytest.mark.broker

CONNECTS = {"confluent": "holdfast-connect", "aiokafka": "holdfast-connect", "kafka": "the import"}
"""Client -> the thread that loads kafka-python."""


@pytest.mark.parametrize("client", further(CONNECTS))
def test_kafka_python_and_numpy_are_loaded_beside_the_application(broker, client):
    topic, group = Topic(broker.bootstrap, 1, 1), fresh("loading")
    words = ["-m", "tests.live.loading_member", client, broker.bootstrap, topic.name, group]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded_by = ast.literal_eval(done.stdout.splitlines()[-1])
    assert loaded_by.pop("kafka") == CONNECTS[client]
    (planner,) = loaded_by.values()
    assert planner.startswith(f"holdfast-{group}-") and "-leader" in planner
