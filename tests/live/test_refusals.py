"""What a broker refuses is said to people: what, and what to do about it."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.live.crew import QUICK, Topic, fresh
from tests.live.security import PASSWORD, USER
from tests.live.waiting import until

from holdfast import Consumer, Worker
from holdfast.errors import RemoteProtocolError

pytestmark = pytest.mark.broker


@contextmanager
def acl(broker, kind, name, operation, permission):
    """One entry of an access list for our user, while it lasts."""
    rule = (kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, permission)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.create_acls([AclBinding(*rule)]).values():
        future.result(60)
    try:
        yield
    finally:
        for future in admin.delete_acls([AclBindingFilter(*rule)]).values():
            future.result(60)


def config(broker, security, group, **extra):
    return {
        "bootstrap.servers": broker.bootstrap_of("PLAIN"),
        "group.id": group,
        **QUICK,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": security.ca,
        **extra,
    }


def refusal(consumer, topic):
    """Subscribe and poll until it is refused."""
    with consumer, pytest.raises(RemoteProtocolError) as caught:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1) and False, "a refusal")
    return caught.value


@pytest.mark.parametrize("may", ["nothing", "describe it"])
def test_no_right_to_the_group(broker, security, may):
    """Without any right the coordinator is not told; with DESCRIBE alone the join is refused."""
    topic, group = Topic(broker.bootstrap, 1), fresh("forbidden")
    rule = (
        (AclOperation.READ, AclPermissionType.DENY)
        if may == "nothing"
        else (AclOperation.DESCRIBE, AclPermissionType.ALLOW)
    )
    with acl(broker, ResourceType.GROUP, group, *rule):
        error = refusal(Consumer(config(broker, security, group)), topic.name)
        assert error.error_code == 30
        assert "grant READ on the group" in str(error)
        with (
            Worker(config(broker, security, group), {"shard": 1}) as worker,
            pytest.raises(RemoteProtocolError, match="grant READ on the group"),
        ):
            worker.run(60)


@pytest.mark.parametrize("may", ["nothing", "describe it"])
def test_no_right_to_the_topic(broker, security, may):
    """Without any right its partitions are not told; with DESCRIBE alone the fetch is refused."""
    topic, group = Topic(broker.bootstrap, 1), fresh("group")
    topic.produce(1)
    rule = (
        (AclOperation.READ, AclPermissionType.DENY)
        if may == "nothing"
        else (AclOperation.DESCRIBE, AclPermissionType.ALLOW)
    )
    with acl(broker, ResourceType.TOPIC, topic.name, *rule):
        error = refusal(Consumer(config(broker, security, group)), topic.name)
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
