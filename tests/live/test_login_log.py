"""A password in no log: every command and every kind of member, on a broker with logins."""

from __future__ import annotations

import base64
import logging
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from tests.live.clients import keywords
from tests.live.crew import Topic
from tests.live.every_command import OF_ITS_OWN, commands_of_clusters
from tests.live.logins import Login, every_command_works, member_reads, worker_works
from tests.live.security import PLANTED, QUOTED_PASSWORD, QUOTED_USER, WAYS
from tests.live.waiting import until

from holdfast.members.clients.kafka import assignors as kafka_assignors

_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_TOLD = base64.b64encode(f"\0{QUOTED_USER}\0{QUOTED_PASSWORD}".encode()).decode()


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


def stock_reads(login: Login) -> None:
    """Join with kafka-python's own consumer and our assignor, until there is a record."""
    topic = Topic(login.plain, 1, 1)
    ours = [kafka_assignors.CooperativeSticky()]
    words = keywords({**login.member(), "auto.offset.reset": "earliest"}, is_original=True)
    with closing(KafkaConsumer(topic.name, **words, partition_assignment_strategy=ours)) as one:
        until(lambda: one.partitions_for_topic(topic.name), "the topic's metadata")
        until(lambda: one.poll(200), "a record", 90)


@pytest.mark.broker
@pytest.mark.parametrize(
    "joins", [partial(member_reads, name="consumer"), worker_works, stock_reads]
)
def test_no_member_logs_the_password(broker, security, caplog, joins) -> None:
    quoted = {"sasl.username": QUOTED_USER, "sasl.password": QUOTED_PASSWORD}
    config = {**WAYS["PLAIN"], **quoted, "ssl.ca.location": security.ca}
    at = broker.bootstrap_of("PLAIN")
    login = Login(broker.bootstrap, at, config, lambda: (PLANTED, _TOLD))
    with caplog.at_level(logging.DEBUG):
        joins(login)
    assert "SaslAuthenticateRequest [hidden]" in caplog.text
    assert not login.shown_in(caplog.text)
