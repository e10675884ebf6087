"""A program that forks: calls in the child raise at once, the member continues in the parent."""

from __future__ import annotations

import json

import pytest
from tests.cli.running import run_python
from tests.live.crew import Topic
from tests.live.forking import CODE
from tests.suites import further

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("client", further(["consumer", "confluent", "aiokafka", "kafka"]))
def test_a_fork_says_where_its_member_lives_and_ends_without_touching_it(broker, client):
    topic = Topic(broker.bootstrap, 1, 5)
    done = run_python("-m", "tests.live.forking", client, broker.bootstrap, topic.name).passed()
    found = json.loads(done.out.splitlines()[-1])
    took_s = found["child"].pop("seconds")
    for call, error in found["child"].items():
        assert "this member runs in process" in error, (call, error)
    assert took_s < 5.0, "a poll of 20 s was waited for"
    assert {name: code for name, (code, _) in found["ends"].items()} == dict.fromkeys(
        found["ends"], CODE
    )
    _, nothing_s = found["ends"]["nothing"]
    for name, (_, seconds) in found["ends"].items():
        assert seconds < nothing_s + 4, f"{name}: it has waited 5 s for a thread of its parent's"
    assert found["members"][0] == found["members"][1]
    assert found["committed"]
