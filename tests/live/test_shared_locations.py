"""Members of one host with their client's default ``client.id``: the leader warns once."""

import logging

import pytest
from tests.live.all_clients import Stage, play_one
from tests.live.waiting import until
from tests.suites import further

pytestmark = pytest.mark.broker


@pytest.mark.parametrize(
    ("client", "key", "own"),
    further(
        [
            ("confluent", "holdfast.location", "client.id"),
            ("aiokafka", "holdfast_location", "client_id"),
            ("kafka", "holdfast_location", "client_id"),
            ("consumer", "holdfast.location", "client.id"),
        ]
    ),
)
def test_a_leader_names_the_key_that_tells_processes_of_one_host_apart(
    broker, caplog, client, key, own
):
    keys = {"holdfast.policy": "deferred"}

    def told():
        return [r.getMessage() for r in caplog.records if "one host name" in r.getMessage()]

    def apart(stage):
        topic = stage.topic(2)
        first = stage.member(topic, **keys, holdfast_location="first")
        stage.share(topic, first, stage.member(topic, **keys, holdfast_location="second"))
        assert not told()

    def alike(stage):
        topic = stage.topic(3)
        members = [stage.owner(topic, **keys)]
        for _ in range(2):
            members.append(stage.member(topic, **keys))
            stage.until(lambda: all(m.owns() for m in members), "each owns some", *members)
        until(told, "a warning")
        (said,) = told()
        assert f"one {own}:" in said and f"Set {key}," in said

    with caplog.at_level(logging.WARNING, "holdfast.member"):
        play_one(apart, Stage(broker.bootstrap, client))
        play_one(alike, Stage(broker.bootstrap, client))
