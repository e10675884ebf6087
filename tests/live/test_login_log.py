"""A password in no log: every command and every kind of member, on a broker with logins."""

from __future__ import annotations

import base64
import logging
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from tests.live.clients import keywords
from tests.live.crew import Topic
from tests.live.every_command import OF_ITS_OWN, commands_of_clusters
from tests.live.logins import Login, every_command_works
from tests.live.security import PLANTED, QUOTED_PASSWORD, QUOTED_USER
from tests.live.waiting import until

from holdfast import Consumer, Worker
from holdfast.members.clients.kafka import assignors as kafka_assignors

_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_TOLD = base64.b64encode(f"\0{QUOTED_USER}\0{QUOTED_PASSWORD}".encode()).decode()


def holds_no_secret(text: str) -> bool:
    return PLANTED not in text and _TOLD not in text


def test_every_command_that_takes_credentials_is_run_below() -> None:
    assert OF_ITS_OWN.keys() == commands_of_clusters()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.broker
def test_no_command_logs_the_password(broker, security, tmp_path: Path) -> None:
    jaas = QUOTED_PASSWORD.replace('"', '\\\\"')  # for the login module, then for the file
    config = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{_LOGIN} required username="{QUOTED_USER}" password="{jaas}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(security.ca),
    }
    at = broker.bootstrap_of("PLAIN")
    login = Login(broker.bootstrap, at, config, lambda: (PLANTED, _TOLD))
    python, java = every_command_works(login, tmp_path)
    assert "kafka.protocol.parser" in python and "py4j" in python
    assert "SaslAuthenticateRequest [hidden]" in python
    assert "sasl.jaas.config = [hidden]" in java


@pytest.fixture
def login(broker, security) -> dict[str, object]:
    """Settings of a member that logs in with the quoted password."""
    quoted = {"sasl.username": QUOTED_USER, "sasl.password": QUOTED_PASSWORD}
    return security.login(broker, "PLAIN", **quoted)


@pytest.mark.broker
def test_no_member_logs_the_password(broker, login, caplog) -> None:
    topic = Topic(broker.bootstrap, 1, 1)
    caplog.set_level(logging.DEBUG)
    with Consumer({**login, "debug": "all"}) as consumer:
        consumer.subscribe([topic.name])
        got: list[object] = []
        until(lambda: got.extend(consumer.poll(0.2)) or len(got) == 1, "a record", 90)
    assert "SaslAuthenticateRequest [hidden]" in caplog.text
    assert holds_no_secret(caplog.text)


@pytest.mark.broker
def test_no_worker_logs_the_password(login, caplog) -> None:
    with caplog.at_level(logging.DEBUG), Worker(login, {"leader": 1}) as worker:
        until(lambda: worker.owned, "it works", 90)
    assert "SaslAuthenticateRequest [hidden]" in caplog.text
    assert holds_no_secret(caplog.text)


@pytest.mark.broker
def test_a_stock_client_with_our_assignor_logs_no_password(broker, login, caplog) -> None:
    topic = Topic(broker.bootstrap, 1, 1)
    caplog.set_level(logging.DEBUG)
    ours = [kafka_assignors.CooperativeSticky()]
    words = keywords(login, is_original=True)
    consumer = KafkaConsumer(topic.name, **words, partition_assignment_strategy=ours)
    with closing(consumer):
        until(lambda: consumer.partitions_for_topic(topic.name), "the topic's metadata")
        until(lambda: consumer.poll(200), "a record", 90)
    assert "SaslAuthenticateRequest [hidden]" in caplog.text
    assert holds_no_secret(caplog.text)
