"""How the drop-ins of aiokafka and kafka-python connect to a broker, or fail to."""

from __future__ import annotations

import gc
import logging
import threading
import time
from contextlib import closing

import kafka
import pytest
from kafka.errors import KafkaError
from tests.live.crew import fresh
from tests.live.waiting import until

from holdfast.cluster.kafka_python_repairs import mend_connects
from holdfast.errors import ConfigError
from holdfast.kafka import KafkaConsumer
from holdfast.members.clients.drop_in import servers
from holdfast.members.clients.kafka import coordinator

NOWHERE = "127.0.0.1:1"
KINDS = pytest.mark.parametrize("kind", [kafka.KafkaConsumer, KafkaConsumer])
LONGEST_POLL_S = 10  # of 0.2 s; the connections wait 30 s for a broker


@pytest.fixture(autouse=True)
def _sockets():
    mend_connects()  # kafka-python's own leaves those open that are refused


def begun(kind=KafkaConsumer, at=NOWHERE):
    """A consumer that has subscribed; with a version it asks no broker for one."""
    return kind("orders", bootstrap_servers=at, api_version=(2, 6), group_id=fresh("starts"))


def connecting():
    return [t for t in threading.enumerate() if t.name == "holdfast-connect"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("localhost", ["localhost:9092"]),
        ("a:1, b,,", ["a:1", "b:9092"]),
        (["a", ("b", 2)], ["a:9092", "b:2"]),
        ("SASL_SSL://a:1", ["a:1"]),
        ("::1", ["[::1]:9092"]),
        ("[::1]", ["[::1]:9092"]),
        ("[::1]:1", ["[::1]:1"]),
    ],
)
def test_an_address_without_a_port_has_kafkas(given, found):
    assert servers(given) == found


@KINDS
@pytest.mark.parametrize("at", [NOWHERE, "127.0.0.1"])
def test_a_poll_waits_for_no_broker(kind, at, caplog):
    with caplog.at_level(logging.CRITICAL), closing(begun(kind, at)) as consumer:
        begins = time.monotonic()
        assert [consumer.poll(200) for _ in range(2)] == [{}, {}]
        assert consumer.assignment() == set()
        assert time.monotonic() - begins < LONGEST_POLL_S
        begins = time.monotonic()
    assert time.monotonic() - begins < LONGEST_POLL_S
    until(lambda: not connecting(), "nobody waits for a broker any more")


def test_unsubscribing_ends_the_wait_for_a_broker():
    with closing(begun()) as consumer:
        assert consumer.poll(0) == {}
        assert connecting()
        consumer.unsubscribe()
        until(lambda: not connecting(), "nobody waits for a broker any more")
        consumer.subscribe(["orders"])
        assert consumer.poll(0) == {}
        assert connecting()


def test_a_consumer_that_is_forgotten_waits_for_no_broker(caplog):
    with caplog.at_level(logging.CRITICAL):
        consumer = begun()
        assert consumer.poll(200) == {}
        assert connecting()
        client = consumer._client
        consumer = None
        gc.collect()
        until(lambda: not connecting(), "its thread has ended")
        client.close()  # kafka-python leaves it open


def test_what_no_later_attempt_can_mend_is_raised(monkeypatch):
    def refused(*_, **__):
        raise ConfigError("no such file")

    monkeypatch.setattr(coordinator, "Connections", refused)
    with closing(begun()) as consumer:
        for _ in range(2):
            with pytest.raises(KafkaError, match="no such file"):
                consumer.poll(500)
