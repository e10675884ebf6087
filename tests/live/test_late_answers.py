"""Members behind a proxy that delays answers, or that names addresses where nobody is.

Members whose connections are slow to establish, as on a busy machine, connect nevertheless. A
member all of whose brokers have moved returns to its bootstrap servers (KIP-899).
"""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace

import pytest
from kafka.net.manager import KafkaConnectionManager
from tests.live.clients import CLIENTS
from tests.live.crew import Topic, fresh
from tests.live.member_group import CUT
from tests.live.waiting import until
from tests.suites import further

from holdfast.cluster.connections import Connections
from holdfast.cluster.lookup import Lookup
from holdfast.errors import HoldfastError
from holdfast.members.config.settings import Settings

pytestmark = pytest.mark.broker
SET_UP_MS, LATE_S = 500, 1.2


@pytest.fixture
def topic(broker):
    return Topic(broker.bootstrap, 1, 3)


@pytest.fixture
def short_set_up(monkeypatch):
    """A connection has half a second for its first set-up, where it has ten."""
    defaults = {**KafkaConnectionManager.DEFAULT_CONFIG}
    defaults["socket_connection_setup_timeout_ms"] = SET_UP_MS
    monkeypatch.setattr(KafkaConnectionManager, "DEFAULT_CONFIG", defaults)


def opened(servers, **keys):
    config = {"bootstrap.servers": servers, "group.id": "g", **keys}
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
    connections = opened(f"127.0.0.1:{cut.port}")
    cut.late_s = LATE_S
    failures = ask_until_answered(connections, topic)
    assert "RequestTimedOutError" in failures[0]


@pytest.mark.every
def test_the_time_of_an_answer_begins_when_its_connection_stands(cut, topic):
    """Set-up and answer take 3 s each, and a request has 5 s."""
    connections = opened(f"127.0.0.1:{cut.port}", **{"request.timeout.ms": 5_000})
    cut.late_s = 3.0
    ask_until_answered(connections, topic)


@pytest.mark.slow
def test_a_member_of_each_client_joins_and_reads(cut, topic, short_set_up):
    cut.late_s = LATE_S
    servers = {"bootstrap.servers": f"127.0.0.1:{cut.port}"}

    def reads(name):
        with closing(CLIENTS[name](topic.name, {**servers, "group.id": fresh("late")})) as client:
            client.subscribe([topic.name])
            until(lambda: client.poll() and len(client.records) >= 3, lambda: str(client.records))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(reads, ("consumer", "confluent", "kafka")))


@pytest.mark.parametrize("queried_ms", [300, 2**23])
def test_a_wait_that_no_quota_asks_for_does_not_silence_a_member(broker, topic, queried_ms):
    """A short one is waited for; of two hours, as one flipped bit makes them, nobody is left."""
    connections = opened(broker.bootstrap, **{"request.timeout.ms": 5_000})
    Lookup(connections).partitions([topic.name]).result()
    answer = SimpleNamespace(throttle_time_ms=queried_ms)

    async def throttle():
        (connection,) = connections._manager._conns.values()
        connection._maybe_throttle(answer)
        return connection.paused

    assert connections.future(throttle).result() == {"throttle"}
    ask_until_answered(connections, topic)


def nobody():
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.mark.parametrize("name", further(["consumer", "confluent"]))
def test_a_member_whose_brokers_have_all_moved_comes_back(broker, cut, name):
    """Every address that it has been told leads nowhere, and its connections break."""
    topic = Topic(broker.bootstrap, 1, 5)
    servers = {"bootstrap.servers": broker.bootstrap_of(CUT), "group.id": fresh("moved")}
    client = CLIENTS[name](topic.name, {**servers, "session.timeout.ms": 6_000})
    client.subscribe([topic.name])
    until(lambda: client.poll() and len(client.records) >= 5, "the first records")
    right, wrong = (port.to_bytes(4, "big") for port in (cut.port, nobody()))
    n_told = 0

    def misled(data):
        nonlocal n_told
        n_told += right in data
        return data.replace(right, wrong)

    cut.spoils = misled
    try:
        until(lambda: client.poll() is not None and n_told >= 4, "it was told the wrong address")
        cut.reset()
        until(lambda: client.poll() is not None and client.snapshot is not None, "it polls on")
    finally:
        cut.spoils = bytes
        cut.mend()
    topic.produce(5)
    until(
        lambda: client.poll() is not None and len(client.records) >= 10,
        lambda: f"the records after the move, not {client.records}",
    )
    generation = client.snapshot.identity.generation
    client.commit()
    assert client.committed(0) == 10
    assert generation >= 1
    client.close()
