"""A dead broker does not remove the others' groups and partitions from ``lag``."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cli.running import run
from tests.live.waiting import until

from holdfast.local.broker.broker import Broker, BrokerSettings

pytestmark = [pytest.mark.broker, pytest.mark.every]

GROUPS = [f"group-{i}" for i in range(8)]
"""Some of them have the node that dies as their coordinator."""
PATIENCE_S = 40
"""Far more than the few seconds for which a node is tried, far less than a time-out each."""


def is_committed(lone, places) -> bool:
    """Commit; coordinators move while the cluster starts."""
    try:
        return bool(lone.commit(offsets=places, asynchronous=False))
    except KafkaException:
        return False


@pytest.fixture(scope="module")
def cluster():
    """Three nodes; the controller takes a node for alive for minutes after its death."""
    session = {"broker.session.timeout.ms": "600000"}
    with Broker.start(settings=BrokerSettings(brokers=3, properties=session)) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = NewTopic("t", num_partitions=3, replica_assignment=[[1], [2], [3]])
        admin.create_topics([topic])["t"].result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for partition in range(3):
            for _ in range(10):
                producer.produce("t", b"x", partition=partition)
        producer.flush(60)
        for group in GROUPS:
            lone = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
            places = [TopicPartition("t", p, 4) for p in range(3)]
            until(lambda lone=lone, places=places: is_committed(lone, places), group)
            lone.close()
        yield broker


def lag(bootstrap, *words):
    began = time.monotonic()
    done = run("lag", "-b", bootstrap, *words, "--format", "json")
    return done, time.monotonic() - began


def test_what_the_living_brokers_know_is_shown_and_the_dead_one_is_named(cluster):
    done, _ = lag(cluster.bootstrap)
    assert {row["lag"] for row in json.loads(done.out)["rows"]} == {6}
    dead = cluster.bootstrap.split(",")[2]
    cluster.stop_node(3, orderly=False)
    done, seconds = lag(cluster.bootstrap)
    assert done.code == 0, done.err
    assert seconds < PATIENCE_S
    rows = json.loads(done.out)["rows"]
    groups = {row["group"] for row in rows}
    assert groups and groups < set(GROUPS)
    assert {(row["partition"], row["lag"]) for row in rows} == {(0, 6), (1, 6), (2, None)}
    assert f"groups of 1 broker are not listed: broker 3 ({dead}): " in done.err
    assert "1 partition without lags: t-2 (" in done.err
    assert "KafkaConnectionError: KafkaConnectionError" not in done.err
    total, _ = lag(cluster.bootstrap, "--total")
    sums = json.loads(total.out)["rows"]
    assert {(row["lag"], row["n_unknown"]) for row in sums} == {(12, 1)}
    assert "are unknown and in no sum" in total.err
    hidden = min(set(GROUPS) - groups)
    done, _ = lag(cluster.bootstrap, "--group", hidden)
    assert done.code == 3 and f"not listed are groups of broker 3 ({dead})" in done.err
