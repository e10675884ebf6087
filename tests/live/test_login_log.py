"""A password in no log: every command and every kind of member, on a broker with logins."""

from __future__ import annotations

import base64
import logging
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from tests.live.clients import keywords
from tests.live.crew import Topic, fresh
from tests.live.every_command import CODES, OF_ITS_OWN, commands_of_clusters, run_all
from tests.live.security import PLANTED, QUOTED_PASSWORD, QUOTED_USER
from tests.live.small_group import small_group
from tests.live.waiting import until

from holdfast import Consumer, Worker
from holdfast.members.clients.kafka import assignors as kafka_assignors

_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_TOLD = base64.b64encode(f"\0{QUOTED_USER}\0{QUOTED_PASSWORD}".encode()).decode()
LOG4J = """rootLogger.level = debug
rootLogger.appenderRef.file.ref = file
logger.repl.name = org.apache.spark.repl.Main
logger.repl.level = debug
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c{{1}}: %m%n
"""


def holds_no_secret(text: str) -> bool:
    return PLANTED not in text and _TOLD not in text


def test_every_command_that_takes_credentials_is_run_below() -> None:
    assert OF_ITS_OWN.keys() == commands_of_clusters()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.broker
def test_no_command_logs_the_password(broker, security, tmp_path: Path) -> None:
    jaas = QUOTED_PASSWORD.replace('"', '\\\\"')  # for the login module, then for the file
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={_LOGIN} required username="{QUOTED_USER}" password="{jaas}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={security.ca}\n"
    )
    logs = [tmp_path / "python.log", tmp_path / "java.log"]
    (tmp_path / "log4j2.properties").write_text(LOG4J.format(log=logs[1]))
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.driver.extraJavaOptions "
        f"-Dlog4j2.configurationFile={(tmp_path / 'log4j2.properties').as_uri()}\n"
        "spark.master local[1]\nspark.sql.codegen.wholeStage false\n"
        "spark.sql.shuffle.partitions 1\n"
    )
    with small_group(broker.bootstrap, fresh("group")):
        codes, ended = run_all(
            broker.bootstrap_of("PLAIN"),
            properties,
            tmp_path / "out",
            logs[0],
            SPARK_CONF_DIR=str(tmp_path),
        )
    assert codes == CODES, ended.stderr
    python, java = (log.read_text(errors="replace") for log in logs)
    assert "kafka.protocol.parser" in python and "py4j" in python
    assert "SaslAuthenticateRequest [hidden]" in python
    assert "sasl.jaas.config = [hidden]" in java
    for text in (python, java, ended.stdout, ended.stderr):
        assert holds_no_secret(text), [t for t in text.splitlines() if not holds_no_secret(t)][:3]


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
