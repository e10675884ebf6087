"""A dead broker does not remove the others' groups and partitions from ``lag``."""

from __future__ import annotations

import time

import pytest
from tests.cli.running import run
from tests.live.crew import Topic, commit_alone

from holdfast.local.broker import Broker, BrokerSettings

pytestmark = [pytest.mark.broker, pytest.mark.every]

GROUPS = [f"group-{i}" for i in range(8)]
"""Some of them have the node that dies as their coordinator."""
PATIENCE_S = 40
"""Far more than the few seconds for which a node is tried, far less than a time-out each."""


@pytest.fixture(scope="module")
def cluster():
    """Three nodes; the controller takes a node for alive for minutes after its death."""
    session = {"broker.session.timeout.ms": "600000"}
    with Broker.start(settings=BrokerSettings(brokers=3, properties=session)) as broker:
        topic = Topic(broker.bootstrap, 3, name="t", placed=[[1], [2], [3]])
        topic.produce(10)
        for group in GROUPS:
            commit_alone(broker.bootstrap, group, {("t", p): 4 for p in range(3)})
        yield broker


def lag(bootstrap, *words):
    began = time.monotonic()
    done = run("lag", "-b", bootstrap, *words, "--format", "json")
    return done, time.monotonic() - began


def test_what_the_living_brokers_know_is_shown_and_the_dead_one_is_named(cluster):
    done, _ = lag(cluster.bootstrap)
    assert {row["lag"] for row in done.rows()} == {6}
    dead = cluster.bootstrap.split(",")[2]
    cluster.stop_node(3, orderly=False)
    done, seconds = lag(cluster.bootstrap)
    assert done.code == 0, done.err
    assert seconds < PATIENCE_S
    rows = done.rows()
    groups = {row["group"] for row in rows}
    assert groups and groups < set(GROUPS)
    assert {(row["partition"], row["lag"]) for row in rows} == {(0, 6), (1, 6), (2, None)}
    assert f"groups of 1 broker are not listed: broker 3 ({dead}): " in done.err
    assert "1 partition without lags: t-2 (" in done.err
    assert "KafkaConnectionError: KafkaConnectionError" not in done.err
    total, _ = lag(cluster.bootstrap, "--total")
    sums = total.rows()
    assert {(row["lag"], row["n_unknown"]) for row in sums} == {(12, 1)}
    assert "are unknown and in no sum" in total.err
    hidden = min(set(GROUPS) - groups)
    done, _ = lag(cluster.bootstrap, "--group", hidden)
    assert done.code == 3 and f"not listed are groups of broker 3 ({dead})" in done.err
