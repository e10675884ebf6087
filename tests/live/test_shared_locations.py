"""Members of one host with their client's default ``client.id``: the leader warns once."""

import logging

import pytest
from tests.live.all_clients import WITH_KEYWORDS, Stage
from tests.live.waiting import until
from tests.suites import further

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("client", further(["confluent", "aiokafka", "kafka", "consumer"]))
def test_a_leader_names_the_key_that_tells_processes_of_one_host_apart(broker, caplog, client):
    keys = {"holdfast.policy": "deferred"}
    wanted = "one client.id:", "Set holdfast.location,"
    if client in WITH_KEYWORDS:
        wanted = tuple(text.replace(".", "_") for text in wanted)

    def told():
        return [r.getMessage() for r in caplog.records if "one host name" in r.getMessage()]

    with caplog.at_level(logging.WARNING, "holdfast.member"):
        with Stage(broker.bootstrap, client) as apart:
            topic = apart.topic(2)
            first = apart.member(topic, **keys, holdfast_location="first")
            apart.share(topic, first, apart.member(topic, **keys, holdfast_location="second"))
            assert not told()
        with Stage(broker.bootstrap, client) as alike:
            topic = alike.topic(3)
            members = [alike.owner(topic, **keys)]
            for _ in range(2):
                members.append(alike.member(topic, **keys))
                alike.until(lambda: all(m.owns() for m in members), "each owns some", *members)
            until(told, "a warning")
            (said,) = told()
            assert all(text in said for text in wanted)
