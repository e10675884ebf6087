"""``holdfast.ready.file`` on a broker: every client of holdfast keeps it, polled or not."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.live.clients import CLIENTS
from tests.live.crew import QUICK, Topic, fresh
from tests.live.waiting import until

from holdfast import Consumer, Worker
from holdfast.confluent import Consumer as ConfluentConsumer

pytestmark = pytest.mark.broker
BEATS = {key: QUICK[key] for key in ("session.timeout.ms", "heartbeat.interval.ms")}


def generation(path):
    """What the file says; -1 without a file."""
    try:
        return int(path.read_text().removeprefix("generation "))
    except FileNotFoundError:
        return -1


def worker(config, topic):
    made = Worker(config, {"shard": 4})
    return made, made.start


def consumer(config, topic):
    made = Consumer(config)
    return made, lambda: made.subscribe([topic])


def confluent(config, topic):
    made = ConfluentConsumer(config)
    return made, lambda: made.subscribe([topic])


@pytest.mark.parametrize("make", [worker, consumer, confluent], ids=lambda make: make.__name__)
def test_a_member_that_nobody_polls_is_ready_once_it_is_stable(broker, tmp_path, make):
    topic, path = Topic(broker.bootstrap, 4), tmp_path / "ready"
    path.write_text("generation 99\n")  # of a process that was killed
    config = {"bootstrap.servers": broker.bootstrap, "group.id": fresh("group"), **BEATS}
    config["holdfast.policy"] = "simple"  # an eager one waits for a poll to hand over
    config["holdfast.drain.timeout.ms"] = 2_000  # confluent's waits for one in any case
    made, join = make({**config, "holdfast.ready.file": str(path)}, topic.name)
    with closing(made):
        assert generation(path) == -1
        join()
        until(lambda: generation(path) >= 1, "the member is stable")
        first, other = generation(path), tmp_path / "other"
        second, join = make({**config, "holdfast.ready.file": str(other)}, topic.name)
        with closing(second):
            join()
            until(lambda: generation(other) > first, "the second one is in")
            until(lambda: generation(path) > first, "the first one is stable again")
        assert generation(other) == -1
    assert generation(path) == -1


@pytest.mark.parametrize("name", ["aiokafka", "kafka"])
def test_the_consumers_with_keywords_keep_it_too(broker, tmp_path, name):
    topic, path = Topic(broker.bootstrap, 4), tmp_path / "ready"
    config = {"bootstrap.servers": broker.bootstrap, "group.id": fresh("group")}
    with closing(CLIENTS[name](topic.name, {**config, "holdfast.ready.file": str(path)})) as client:
        client.subscribe([topic.name])
        until(lambda: client.poll() == [] and generation(path) >= 1, "the member is stable")
    assert generation(path) == -1
