"""Versions of requests: which broker gets which, and which broker is refused.

Answers of old brokers to ApiVersions are kafka-python's own record of them
(``BROKER_API_VERSIONS``, copied from brokers).
"""

from __future__ import annotations

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import pytest
from kafka.protocol.api_key import ApiKey
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS, BrokerVersionData

from holdfast.cluster.versions import OLDEST_KAFKA, REQUESTS, why_too_old
from holdfast.core.machine.codes import FATAL, ErrorCode
from holdfast.errors import RemoteProtocolError
from holdfast.local.jars import OLDEST_KAFKA as OLDEST_SERVER

OLDEST = tuple(map(int, OLDEST_KAFKA.split(".")))
BY_IDS = {"OffsetCommit": 1, "OffsetFetch": 1, "Fetch": 6}
"""How many of the newest versions of a request name topics by their ids."""


def request_class(name):
    for module in (kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.admin):
        if hasattr(module, f"{name}Request"):
            return getattr(module, f"{name}Request")
    raise AssertionError(name)


@pytest.mark.parametrize("name", REQUESTS)
def test_the_newest_version_is_the_newest_that_names_topics(name):
    span, known = REQUESTS[name], request_class(name)
    assert span.key == known.API_KEY == ApiKey[name].value
    assert span.newest == known.max_version - BY_IDS.get(name, 0)


@pytest.mark.parametrize("name", REQUESTS)
def test_the_oldest_version_came_with_the_release_that_is_named(name):
    span = REQUESTS[name]
    since = tuple(map(int, span.since.split(".")))
    have = [
        release
        for release, known in BROKER_API_VERSIONS.items()
        if known.get(span.key, (0, -1))[1] >= span.oldest
    ]
    assert min(have)[:2] == since


@pytest.mark.parametrize("release", BROKER_API_VERSIONS)
def test_a_release_is_refused_if_it_is_older_than_the_oldest(release):
    known = BROKER_API_VERSIONS[release]
    text = why_too_old(known, "it")
    assert (text is None) == (release >= OLDEST)
    if text is None:
        for name, span in REQUESTS.items():
            version = BrokerVersionData(release).api_version(request_class(name)(**span.bounds))
            assert version == min(span.newest, known[span.key][1])


def test_the_servers_that_can_be_run_are_those_that_are_not_refused():
    assert OLDEST_SERVER == OLDEST


def test_a_broker_that_is_too_old_is_refused_by_name(connections, monkeypatch):
    monkeypatch.setattr(connections._manager, "bootstrap", lambda *_: None)
    connections._manager.broker_version_data = BrokerVersionData((2, 4))
    with pytest.raises(RemoteProtocolError) as caught:
        connections.open()
    assert str(caught.value) == (
        "127.0.0.1:1 cannot be used: it is Kafka 2.4 by the requests that it supports, and has no "
        "OffsetFetch of version 7 (Kafka 2.5); holdfast needs Kafka 2.5 or newer"
    )
    assert caught.value.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert caught.value.error_code in FATAL
