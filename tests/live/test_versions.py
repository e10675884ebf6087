"""Kafka 3.6, on which most clusters run: members of every client, a Worker, the commands.

Every version that is pinned, with more of each, is ``python -m tests.live.versions``.
"""

from __future__ import annotations

import logging
import ssl

import pytest
from tests.cli.running import run
from tests.live.chaos import cluster
from tests.live.versions import FAULTS, commands, members, workers
from tests.live.waiting import until

from holdfast.cluster.diagnosis import known_requests
from holdfast.cluster.settings import Settings
from holdfast.confluent import Consumer
from holdfast.members.clients.confluent.config import CONSUMER_GROUP_HEARTBEAT

pytestmark = [pytest.mark.broker, pytest.mark.spark]

KAFKA = "3.6.2"


def native_member_is_told(bootstrap, caplog):
    """librdkafka's own member of KIP-848 waits without a word."""
    native = {"bootstrap.servers": bootstrap, "group.id": "new", "group.protocol": "consumer"}
    with caplog.at_level(logging.WARNING, "holdfast.member"), Consumer(native):
        until(lambda: "group new: group.protocol=consumer needs Kafka 4.0" in caplog.text, "a word")


def test_a_broker_says_what_it_knows_without_a_login(broker):
    for listener, protocol in (("PLAINTEXT", "PLAINTEXT"), ("PLAIN", "SASL_SSL")):
        at = {"bootstrap.servers": broker.bootstrap_of(listener), "group.id": "g"}
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
        secured = {**login, "security.protocol": protocol} if protocol != "PLAINTEXT" else {}
        secured |= {"holdfast.ssl.context": unchecked()} if secured else {}
        assert CONSUMER_GROUP_HEARTBEAT in known_requests(Settings.parse({**at, **secured}))


def unchecked():
    """TLS without a look at the certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.slow
def test_an_older_broker(spark, tmp_path, caplog):
    with cluster(1, KAFKA) as (broker, cut):
        sizes = {"n_members": 4, "n_partitions": 8, "session_ms": 4_000, "delay_ms": 3_000}
        found = members(broker, cut, tmp_path / "journals", FAULTS[:2], **sizes)
        print(found)
        assert found["violations"] == []
        assert found["records"] > 0
        native_member_is_told(broker.bootstrap, caplog)
        workers(broker.bootstrap)
        commands(broker.bootstrap, tmp_path, run)
