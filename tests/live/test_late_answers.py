"""Members whose connections take long to stand, as on a busy machine: they get there all the same.

A proxy holds every answer back for longer than a connection has for its set-up at first.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from kafka.net.manager import KafkaConnectionManager
from tests.live.crew import Topic, fresh
from tests.live.waiting import until

import holdfast
import holdfast.confluent
import holdfast.kafka
from holdfast.cluster.connections import Connections
from holdfast.cluster.lookup import Lookup
from holdfast.cluster.settings import Settings
from holdfast.errors import HoldfastError

pytestmark = pytest.mark.broker
SET_UP_MS, LATE_S = 500, 1.2


@pytest.fixture
def topic(broker):
    made = Topic(broker.bootstrap, 1)
    made.produce(3)
    return made


@pytest.fixture
def short_set_up(monkeypatch):
    """A connection has half a second for its first set-up, where it has ten."""
    defaults = {**KafkaConnectionManager.DEFAULT_CONFIG}
    defaults["socket_connection_setup_timeout_ms"] = SET_UP_MS
    monkeypatch.setattr(KafkaConnectionManager, "DEFAULT_CONFIG", defaults)


def opened(cut, **keys):
    config = {"bootstrap.servers": f"127.0.0.1:{cut.port}", "group.id": "g", **keys}
    connections = Connections(Settings.parse(config))
    connections.open()
    return connections


def ask_until_answered(connections, topic):
    failures = []

    def is_answered():
        try:
            return Lookup(connections).partitions([topic.name]).result().counts == {topic.name: 1}
        except HoldfastError as error:
            failures.append(str(error))

    try:
        until(is_answered, lambda: f"an answer; {failures[-3:]}")
    finally:
        connections.close()
    return failures


def test_a_set_up_that_was_too_short_gets_more_time(cut, topic, short_set_up):
    connections = opened(cut)
    cut.late_s = LATE_S
    failures = ask_until_answered(connections, topic)
    assert "RequestTimedOutError" in failures[0]


def test_the_time_of_an_answer_begins_when_its_connection_stands(cut, topic):
    """Set-up and answer take 3 s each, and a request has 5 s."""
    connections = opened(cut, **{"request.timeout.ms": 5_000})
    cut.late_s = 3.0
    ask_until_answered(connections, topic)


def ours(servers, group):
    config = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = holdfast.Consumer(config)
    return consumer, lambda: list(consumer.poll(0.1))


def confluent(servers, group):
    config = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = holdfast.confluent.Consumer(config)
    return consumer, lambda: consumer.consume(100, 0.1)


def kafka_python(servers, group):
    consumer = holdfast.kafka.KafkaConsumer(
        bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
    )
    return consumer, lambda: [r for batch in consumer.poll(100).values() for r in batch]


@pytest.mark.every
def test_a_member_of_each_client_joins_and_reads(cut, topic, short_set_up):
    cut.late_s = LATE_S

    def reads(kind):
        consumer, poll = kind(f"127.0.0.1:{cut.port}", fresh("late"))
        try:
            consumer.subscribe([topic.name])
            found = []
            until(lambda: found.extend(poll()) or len(found) >= 3, lambda: f"records, not {found}")
        finally:
            consumer.close()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(reads, (ours, confluent, kafka_python)))


@pytest.mark.parametrize("asked_ms", [300, 2**23])
def test_a_wait_that_no_quota_asks_for_does_not_silence_a_member(broker, topic, asked_ms):
    """A short one is waited for; of two hours, as one flipped bit makes them, nobody is left."""
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "request.timeout.ms": 5_000}
    connections = Connections(Settings.parse(config))
    connections.open()
    Lookup(connections).partitions([topic.name]).result()
    answer = SimpleNamespace(throttle_time_ms=asked_ms)

    async def throttle():
        (connection,) = connections._manager._conns.values()
        connection._maybe_throttle(answer)
        return connection.paused

    assert connections.future(throttle).result() == {"throttle"}
    ask_until_answered(connections, topic)
