"""Threads of the member load modules that an import does not: no poll or loop waits."""

from __future__ import annotations

import ast

import pytest
from tests.cli.running import run_python
from tests.live.crew import Topic, fresh
from tests.suites import further

pytestmark = pytest.mark.broker

CONNECTS = {"confluent": "holdfast-connect", "aiokafka": "holdfast-connect", "kafka": "the import"}
"""Client -> the thread that loads kafka-python."""


@pytest.mark.parametrize("client", further(CONNECTS))
def test_kafka_python_and_numpy_are_loaded_beside_the_application(broker, client):
    topic, group = Topic(broker.bootstrap, 1, 1), fresh("loading")
    words = ["-m", "tests.live.loading_member", client, broker.bootstrap, topic.name, group]
    loaded_by = ast.literal_eval(run_python(*words).passed().out.splitlines()[-1])
    assert loaded_by.pop("kafka") == CONNECTS[client]
    (planner,) = loaded_by.values()
    assert planner.startswith(f"holdfast-{group}-") and "-leader" in planner
