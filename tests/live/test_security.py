"""TLS and SASL by Kafka's own keys, against a broker that wants them; and how refusal looks."""

from __future__ import annotations

import gc
import logging

import pytest
from tests.live.crew import QUICK, Topic, fresh
from tests.live.security import PASSWORD, USER, unsecured_token
from tests.live.waiting import until

from holdfast import Consumer
from holdfast.errors import HoldfastError

pytestmark = pytest.mark.broker

LOGIN = {"sasl.username": USER, "sasl.password": PASSWORD}
WAYS = {
    "TLS": {"security.protocol": "SSL"},
    "SCRAM-256": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", **LOGIN},
    "SCRAM-512": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", **LOGIN},
    "PLAIN": {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **LOGIN},
    "OAUTH": {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "holdfast.oauth.token.provider": unsecured_token,
    },
}


def settings(broker, security, way, **extra):
    found = {
        "bootstrap.servers": broker.bootstrap_of(way.split("-")[0]),
        "group.id": fresh("group"),
        **QUICK,
        **WAYS[way],
        **extra,
    }
    if way != "OAUTH":
        found.setdefault("ssl.ca.location", security.ca)
    return found


@pytest.fixture(autouse=True)
def _collect():
    """A socket that was left open fails the test that left it."""
    yield
    gc.collect()


@pytest.mark.parametrize("way", WAYS)
def test_records_come_through(broker, security, way):
    topic = Topic(broker.bootstrap, 2)
    topic.produce(3)
    with Consumer(settings(broker, security, way)) as consumer:
        consumer.subscribe([topic.name])
        got = []
        until(lambda: got.extend(consumer.poll(0.2)) or len(got) == 6, "records", 90)


@pytest.mark.parametrize(
    ("way", "change", "words"),
    [
        ("SCRAM-512", {"sasl.password": "not-the-password"}, "sasl.password"),
        ("PLAIN", {"sasl.password": "not-the-password"}, "sasl.password"),
        ("TLS", {"ssl.ca.location": "wrong"}, "ssl.ca.location"),
        ("TLS", {"security.protocol": "PLAINTEXT"}, "TLS"),
    ],
    ids=["scram password", "plain password", "wrong CA", "plaintext to a TLS port"],
)
def test_a_refusal_says_what_to_look_at_and_no_secret(broker, security, way, change, words, caplog):
    if change.get("ssl.ca.location") == "wrong":
        change = {"ssl.ca.location": security.wrong_ca}
    config = {**settings(broker, security, way), "request.timeout.ms": 3_000, **change}
    consumer = Consumer(config)
    with caplog.at_level(logging.DEBUG), pytest.raises(HoldfastError) as caught:
        consumer.subscribe(["t"])
    consumer.close()
    text = f"{caught.value}{caught.value!r}{caplog.text}{consumer.__dict__}"
    assert words in str(caught.value)
    assert "not-the-password" not in text
    assert PASSWORD not in text
