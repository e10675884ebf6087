"""Texts of a broker's refusals: what was refused, and what to do about it."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AclPermissionType
from tests.live.crew import QUICK, Topic, fresh
from tests.live.security import DENY, entries
from tests.live.waiting import until

from holdfast import Consumer, Worker
from holdfast.errors import RemoteProtocolError

pytestmark = pytest.mark.broker


MAY = {"nothing": ("READ", DENY), "describe it": ("DESCRIBE", AclPermissionType.ALLOW)}
may = pytest.mark.parametrize(("operation", "permission"), MAY.values(), ids=MAY)


def refusal(consumer, topic):
    """Subscribe and poll until it is refused."""
    with consumer, pytest.raises(RemoteProtocolError) as caught:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1) and False, "a refusal")
    return caught.value


@may
def test_no_right_to_the_group(broker, security, operation, permission):
    """Without any right the coordinator is not told; with DESCRIBE alone the join is refused."""
    topic, config = Topic(broker.bootstrap, 1), security.login(broker, "PLAIN")
    group = config["group.id"]
    with entries(broker, [("group", group, operation)], permission):
        error = refusal(Consumer(config), topic.name)
        assert error.error_code == 30
        assert "grant READ on the group" in str(error)
        with (
            Worker(config, {"shard": 1}) as worker,
            pytest.raises(RemoteProtocolError, match="grant READ on the group"),
        ):
            worker.run(60)


@may
def test_no_right_to_the_topic(broker, security, operation, permission):
    """Without any right its partitions are not told; with DESCRIBE alone the fetch is refused."""
    topic, config = Topic(broker.bootstrap, 1, 1), security.login(broker, "PLAIN")
    with entries(broker, [("topic", topic.name, operation)], permission):
        error = refusal(Consumer(config), topic.name)
        assert error.error_code == 29
        assert "grant READ on it" in str(error)
        assert topic.name in str(error)


def test_a_session_time_out_that_the_broker_does_not_allow(broker):
    topic = Topic(broker.bootstrap, 1)
    short = {"session.timeout.ms": 500, "heartbeat.interval.ms": 100}
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": fresh("group"), **QUICK, **short}
    error = refusal(Consumer(settings), topic.name)
    assert error.error_code == 26
    assert "group.min/max.session.timeout.ms" in str(error)
