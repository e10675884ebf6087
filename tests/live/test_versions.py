"""What a broker's version decides, without a broker of that version.

Every version that is pinned, with members, a Worker and the commands, is
``python -m tests.live.versions`` (`make soak`).
"""

from __future__ import annotations

import logging
import ssl

import pytest
from tests.live.waiting import until

from holdfast.cluster.diagnosis import known_requests
from holdfast.confluent import Consumer
from holdfast.members.clients.confluent import config
from holdfast.members.config.settings import Settings

pytestmark = pytest.mark.broker


def test_a_native_member_on_an_older_broker_is_reported(broker, caplog, monkeypatch):
    """librdkafka's own member of KIP-848 waits there without a word."""
    monkeypatch.setattr(config, "known_requests", lambda _: {0})
    native = {"bootstrap.servers": broker.bootstrap, "group.id": "new"}
    native["group.protocol"] = "consumer"
    with caplog.at_level(logging.WARNING, "holdfast.member"), Consumer(native):
        until(lambda: "group new: group.protocol=consumer needs Kafka 4.0" in caplog.text, "a word")


def test_a_broker_says_what_it_knows_without_a_login(broker):
    for listener, protocol in (("PLAINTEXT", "PLAINTEXT"), ("PLAIN", "SASL_SSL")):
        at = {"bootstrap.servers": broker.bootstrap_of(listener), "group.id": "g"}
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
        secured = {**login, "security.protocol": protocol} if protocol != "PLAINTEXT" else {}
        secured |= {"holdfast.ssl.context": unchecked()} if secured else {}
        known = known_requests(Settings.parse({**at, **secured}))
        assert config.CONSUMER_GROUP_HEARTBEAT in known


def unchecked():
    """TLS without a look at the certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
