"""The configuration of a member."""

import pytest

import holdfast
from holdfast.cluster import client_configs
from holdfast.errors import ConfigError
from holdfast.members.config.policy import assignors_of, policy_of
from holdfast.members.config.settings import KEYS, Settings, librdkafka_fetch

MINIMAL = {"bootstrap.servers": "a:1,b:2", "group.id": "g"}


def parse(**extra):
    return Settings.parse({**MINIMAL, **{k.replace("_", "."): v for k, v in extra.items()}})


def test_defaults_are_kafkas():
    settings = Settings.parse(MINIMAL)
    assert settings["bootstrap.servers"] == ("a:1", "b:2")
    assert settings["session.timeout.ms"] == 45_000
    assert settings["heartbeat.interval.ms"] == 3_000
    assert settings["max.poll.interval.ms"] == 300_000
    assert settings["auto.offset.reset"] == "latest"
    assert settings["partition.assignment.strategy"] == ("cooperative-sticky",)
    assert settings["holdfast.policy"] == "simple"


def test_a_factory_is_called_once_for_all_that_a_client_makes_of_its_settings():
    made = []

    def mine():
        made.append(holdfast.assignor("mine", lambda claims: claims.owner))
        return made[-1]

    settings = parse(partition_assignment_strategy=[mine], holdfast_policy="deferred")
    (design,) = assignors_of(settings)
    assert settings.listed[0].name == policy_of(settings).assignor.name == "mine"
    assert design.policy.assignor is settings.listed[0]
    assert len(made) == 1


def test_numbers_and_booleans_may_be_strings():
    settings = parse(session_timeout_ms="10000", enable_auto_commit="False")
    assert settings["session.timeout.ms"] == 10_000
    assert settings["enable.auto.commit"] is False


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"group.id": "g"}, ["bootstrap.servers", "required"]),
        ({"bootstrap.servers": "a:1"}, ["group.id", "required"]),
        ({**MINIMAL, "group_instance_id": "x"}, ["unknown", "'group.instance.id'"]),
        ({**MINIMAL, "holdfast.polcy": "simple"}, ["unknown", "'holdfast.policy'"]),
        ({**MINIMAL, "zzz": 1}, ["unknown configuration key 'zzz'"]),
        ({**MINIMAL, "holdfast.policy": "defered"}, ["did you mean 'deferred'"]),
        ({**MINIMAL, "session.timeout.ms": "ten"}, ["session.timeout.ms", "whole number"]),
        ({**MINIMAL, "session.timeout.ms": True}, ["session.timeout.ms", "whole number"]),
        ({**MINIMAL, "session.timeout.ms": 0}, ["outside 1"]),
        ({**MINIMAL, "session.timeout.ms": 3000}, ["heartbeat.interval.ms", "below"]),
        ({**MINIMAL, "enable.auto.commit": "yes"}, ["true or false"]),
        ({**MINIMAL, "group.id": ""}, ["empty"]),
        ({**MINIMAL, "group.id": 7}, ["expected a string"]),
        ({**MINIMAL, "bootstrap.servers": []}, ["list"]),
        ({**MINIMAL, "holdfast.lag.source": 1}, ["function"]),
        ({**MINIMAL, "holdfast.assignor.options": 1}, ["mapping"]),
        ({**MINIMAL, "security.protocol": "SASL_SSL"}, ["sasl.mechanism"]),
        ({**MINIMAL, "sasl.mechanism": "PLAIN"}, ["security.protocol"]),
        (
            {**MINIMAL, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            ["sasl.username", "sasl.password"],
        ),
        (
            {**MINIMAL, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
            ["holdfast.oauth.token.provider"],
        ),
        ({**MINIMAL, "sasl.jaas.config": "nonsense"}, ["sasl.jaas.config", "username"]),
    ],
)
def test_what_is_refused(config, words):
    with pytest.raises(ConfigError) as caught:
        Settings.parse(config)
    for word in words:
        assert word in str(caught.value)


SASL = {**MINIMAL, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "scram-sha-256"}


def test_a_secret_is_in_no_text():
    settings = Settings.parse({**SASL, "sasl.username": "u", "sasl.password": "hunter2"})
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings)
    with pytest.raises(ConfigError) as caught:
        Settings.parse({**SASL, "sasl.username": "u", "sasl.password": 12345})
    assert "12345" not in str(caught.value)


def test_each_client_gets_its_own_spelling():
    settings = Settings.parse({**SASL, "sasl.username": "u", "sasl.password": "p"})
    ours, theirs = (
        client_configs.kafka_python_connection(settings),
        librdkafka_fetch(settings),
    )
    assert ours["sasl_mechanism"] == theirs["sasl.mechanism"] == "SCRAM-SHA-256"
    assert ours["sasl_plain_password"] == theirs["sasl.password"] == "p"
    assert theirs["enable.auto.commit"] is False
    assert theirs["bootstrap.servers"] == "a:1,b:2"


def test_no_reset_is_an_error_in_librdkafkas_spelling():
    settings = parse(auto_offset_reset="none")
    assert librdkafka_fetch(settings)["auto.offset.reset"] == "error"


def test_oauth_tokens_are_asked_for_when_needed():
    config = {
        **MINIMAL,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "holdfast.oauth.token.provider": lambda: ("token", 99.0),
    }
    settings = Settings.parse(config)
    assert librdkafka_fetch(settings)["oauth_cb"](None)[:2] == ("token", 99.0)
    provider = client_configs.kafka_python_connection(settings)["sasl_oauth_token_provider"]
    assert provider.token() == "token"
    bare = Settings.parse({**config, "holdfast.oauth.token.provider": lambda: "bare"})
    token, expiry, *_ = librdkafka_fetch(bare)["oauth_cb"](None)
    assert token == "bare"
    assert expiry > 0


def test_an_unreadable_certificate_is_named():
    config = {**MINIMAL, "security.protocol": "SSL", "ssl.ca.location": "no-such-file.pem"}
    with pytest.raises(ConfigError, match="no-such-file"):
        client_configs.ssl_context(Settings.parse(config))


def test_host_names_are_checked_unless_told_otherwise():
    config = {**MINIMAL, "security.protocol": "SSL"}
    assert client_configs.ssl_context(Settings.parse(config)).check_hostname
    config["ssl.endpoint.identification.algorithm"] = "none"
    assert not client_configs.ssl_context(Settings.parse(config)).check_hostname


def test_every_default_passes_its_own_parser():
    for key, entry in KEYS.items():
        if entry.default is not None:
            assert entry.parse(entry.default) == entry.default, key
