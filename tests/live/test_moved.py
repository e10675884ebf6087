"""All brokers have moved: a member returns to its bootstrap servers (KIP-899)."""

from __future__ import annotations

import socket

import pytest
from tests.live.clients import CLIENTS
from tests.live.crew import Topic, fresh
from tests.live.member_group import CUT
from tests.live.waiting import until
from tests.suites import further

pytestmark = pytest.mark.broker


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
