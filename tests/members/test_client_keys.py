"""Keys of other clients: passed on, translated, or refused with the reason."""

import pytest

from holdfast.cluster import client_configs, credentials
from holdfast.cluster.cluster import LiveCluster, client_settings
from holdfast.errors import ConfigError
from holdfast.members.config import client_keys
from holdfast.members.config.settings import KEYS, Settings, librdkafka_fetch

MINIMAL = {"bootstrap.servers": "a:1", "group.id": "g"}

FAMILIAR = {
    "allow.auto.create.topics": "false",
    "api.version.request": "true",
    "auto.commit.enable": "false",
    "auto.commit.interval.ms": "1000",
    "auto.offset.reset": "smallest",
    "broker.address.family": "v4",
    "broker.address.ttl": "1000",
    "check.crcs": "true",
    "client.dns.lookup": "use_all_dns_ips",
    "client.id": "orders",
    "client.rack": "a",
    "connections.max.idle.ms": "540000",
    "debug": "cgrp,topic",
    "default.api.timeout.ms": "60000",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "true",
    "enable.metrics.push": "false",
    "enable.partition.eof": "false",
    "exclude.internal.topics": "true",
    "fetch.error.backoff.ms": "500",
    "fetch.max.bytes": "52428800",
    "fetch.max.wait.ms": "500",
    "fetch.message.max.bytes": "1048576",
    "fetch.min.bytes": "1",
    "fetch.queue.backoff.ms": "100",
    "fetch.wait.max.ms": "500",
    "group.instance.id": "i",
    "group.protocol": "classic",
    "group.protocol.type": "consumer",
    "heartbeat.interval.ms": "3000",
    "isolation.level": "read_committed",
    "log.connection.close": "false",
    "log_level": "6",
    "max.in.flight": "5",
    "max.in.flight.requests.per.connection": "5",
    "max.partition.fetch.bytes": "1048576",
    "max.poll.interval.ms": "300000",
    "max.poll.records": "500",
    "message.max.bytes": "1000000",
    "metadata.max.age.ms": "300000",
    "metadata.recovery.strategy": "rebootstrap",
    "offset.store.method": "broker",
    "queued.max.messages.kbytes": "65536",
    "queued.min.messages": "100000",
    "receive.buffer.bytes": "65536",
    "receive.message.max.bytes": "100000000",
    "reconnect.backoff.max.ms": "1000",
    "reconnect.backoff.ms": "50",
    "request.timeout.ms": "30000",
    "retry.backoff.max.ms": "1000",
    "retry.backoff.ms": "100",
    "send.buffer.bytes": "131072",
    "session.timeout.ms": "45000",
    "socket.connection.setup.timeout.ms": "10000",
    "socket.keepalive.enable": "true",
    "socket.nagle.disable": "true",
    "socket.receive.buffer.bytes": "65536",
    "socket.timeout.ms": "30000",
    "statistics.interval.ms": "1000",
    "topic.metadata.refresh.interval.ms": "300000",
}


@pytest.mark.parametrize("key", FAMILIAR)
def test_a_familiar_key_is_taken_alone(key):
    Settings.parse({**MINIMAL, key: FAMILIAR[key]})


def test_librdkafka_takes_what_it_is_passed():
    library = pytest.importorskip("confluent_kafka")
    settings = Settings.parse({**MINIMAL, **FAMILIAR, "debug": "conf", "stats_cb": print})
    config = librdkafka_fetch(settings)
    assert config["socket.receive.buffer.bytes"] == 65_536
    assert config["queued.min.messages"] == 100_000
    library.Consumer(config).close()


def test_every_passed_key_is_one_of_librdkafkas():
    library = pytest.importorskip("confluent_kafka")
    for key in client_keys.PASSED.values():
        name = key.name
        if not name.endswith("_cb"):
            with pytest.raises(Exception) as caught:
                library.Consumer({"group.id": "g", name: "\0no value\0"})
            assert "No such configuration" not in str(caught.value), name


def test_each_client_gets_its_own_spelling():
    config = {**MINIMAL, "check.crcs": False, "connections.max.idle.ms": 9_000}
    settings = Settings.parse(config)
    assert librdkafka_fetch(settings)["check.crcs"] is False
    assert client_configs.kafka_python_connection(settings)["connections_max_idle_ms"] == 9_000


@pytest.mark.parametrize(
    ("given", "ours", "value"),
    [
        ("fetch.wait.max.ms", "fetch.max.wait.ms", 7),
        ("socket.timeout.ms", "request.timeout.ms", 7),
        ("fetch.message.max.bytes", "max.partition.fetch.bytes", 7),
        ("topic.metadata.refresh.interval.ms", "metadata.max.age.ms", 7),
    ],
)
def test_librdkafkas_names_mean_the_same(given, ours, value):
    assert Settings.parse({**MINIMAL, given: value})[ours] == value
    with pytest.raises(ConfigError, match="one key, with two values"):
        Settings.parse({**MINIMAL, given: value, ours: value + 1})


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("group.protocol", "consumer", ["the broker assigns", "holdfast.confluent"]),
        ("group.remote.assignor", "uniform", ["group.protocol=consumer"]),
        ("enable.partition.eof", True, ["only false", "end_offsets()"]),
        ("enable.auto.offset.store", False, ["enable.auto.commit=false"]),
        ("auto.offset.reset", "by_duration:PT1H", ["offsets_for_times"]),
        ("session.timeout.ms", "10s", ["whole number of ms", "in ms it is 10000"]),
        ("fetch.error.backoff.ms", "1.5s", ["in ms it is 1500"]),
        ("value.deserializer", "x", ["bytes", "holdfast.confluent"]),
        ("interceptor.classes", "x", ["Java"]),
        ("linger.ms", 5, ["producer"]),
        ("check.crcs", "maybe", ["true or false"]),
    ],
)
def test_what_cannot_be_honoured_says_why(key, value, words):
    with pytest.raises(ConfigError) as caught:
        Settings.parse({**MINIMAL, key: value})
    for word in (key, *words):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("group.protocl", "group.protocol"),
        ("enable.partition", "enable.partition.eof"),
        ("group_instance_id", "group.instance.id"),
        ("sasl.user", "sasl.username"),
        ("ssl.truststor.location", "ssl.truststore.location"),
        ("isolation", "isolation.level"),
        ("rebalance.delay", "scheduled.rebalance.max.delay.ms"),
        ("bootstrap.server", "bootstrap.servers"),
    ],
)
def test_a_hint_names_the_key_that_was_meant(given, meant):
    with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
        Settings.parse({**MINIMAL, given: "x"})


def test_no_key_has_two_answers():
    tables = (
        KEYS,
        client_keys.PASSED,
        client_configs.ALIASES,
        client_keys.FIXED_VALUES,
        client_keys.REFUSED,
    )
    names = [name for table in tables for name in table] + list(credentials.SPELLINGS)
    assert len(names) == len(set(names))


def test_spark_gets_javas_names():
    config = {"socket.timeout.ms": "9", "queued.min.messages": "5", "some.key": "x"}
    options = LiveCluster(bootstrap="a:1", config=config).spark_options
    assert options["request.timeout.ms"] == "9"
    assert options["some.key"] == "x"
    assert "queued.min.messages" not in options


def test_a_misspelt_login_of_a_command_is_refused():
    """Left out, it would connect in plain text."""
    with pytest.raises(ConfigError, match=r"did you mean 'security\.protocol'"):
        client_settings("a:1", {"securty.protocol": "SASL_SSL"}, 1)
