"""No login in a log, whatever the password: recognised by class and key, never by text."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from aiokafka.protocol.admin import SaslAuthenticateRequest_v0
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse

from holdfast.cluster.client_configs import LOGGERS, hide_logins, kafka_python_connection
from holdfast.cluster.cluster import client_settings
from holdfast.fleet.pipeline import session

SECRETS = ["plain", 'it\'s "quoted"', "back\\slash", "ümlaut\n", "'", '"']


@pytest.fixture(autouse=True)
def _hidden(caplog: pytest.LogCaptureFixture) -> None:
    hide_logins()
    for name in session.CALL_LOGS:
        logging.getLogger(name).addFilter(session.without_logins)
    caplog.set_level(logging.DEBUG)
    for name in (*LOGGERS, *session.CALL_LOGS):  # a command may have set its level
        caplog.set_level(logging.DEBUG, name)


def told(caplog: pytest.LogCaptureFixture) -> str:
    assert caplog.records, "nothing was logged"
    return caplog.text


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("name", LOGGERS)
def test_a_login_is_reported_by_its_class(
    secret: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    log, data = logging.getLogger(name), f"\0user\0{secret}".encode()
    for said in (
        SaslAuthenticateRequest(auth_bytes=data, max_version=2),
        SaslAuthenticateResponse(auth_bytes=data, version=2),
        SaslAuthenticateRequest_v0(data),
    ):
        log.debug("%s Request %d: %s", "conn", 7, said)
        log.debug("only %s", said)
    for raw in (data, bytearray(data)):
        log.debug("%s Send: %r", "conn", raw)
    assert "user" not in told(caplog)
    assert f"[{len(data)} bytes]" in told(caplog)


@pytest.mark.parametrize("secret", SECRETS)
def test_the_parser_of_kafka_python_logs_no_login(
    secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    parser = KafkaProtocol()
    login = SaslAuthenticateRequest(auth_bytes=f"\0user\0{secret}".encode(), max_version=2)
    login.API_VERSION = 2
    parser.send_request(login)
    parser.send_bytes()
    assert "SaslAuthenticateRequest [hidden]" in told(caplog)
    assert "user" not in told(caplog)


def test_settings_are_logged_without_their_secrets(caplog: pytest.LogCaptureFixture) -> None:
    secret = 'it\'s "quoted"'
    jaas = f'x required username="bob" password="{secret.replace(chr(34), chr(92) + chr(34))}";'
    settings: dict[str, Any] = {
        **kafka_python_connection(
            client_settings(
                "h:1",
                {
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.jaas.config": jaas,
                },
                1_000,
            )[0]
        ),
        "ssl_password": secret,
        "sasl_oauth_token_provider": secret,
        "inner": {"ssl_password": secret},
    }
    assert settings["sasl_plain_password"] == settings["ssl_password"] == secret
    log = logging.getLogger("kafka.admin.client")
    log.debug("Starting KafkaAdminClient with configuration: %s", settings)
    log.debug("%s and %s", settings, 1)
    assert "quoted" not in told(caplog)
    assert "'sasl_plain_username': 'bob'" in told(caplog)


def test_other_requests_are_logged_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    request = MetadataRequest(topics=None, max_version=4)
    logging.getLogger("kafka.net.connection").debug("%s Request %d: %s", "conn", 7, request)
    assert str(request) in told(caplog)


@pytest.mark.parametrize("name", session.CALL_LOGS)
def test_a_call_into_the_jvm_that_names_a_secret_is_not_shown(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger(name)
    log.debug("Command to send: c\no1\noption\nskafka.sasl.jaas.config\nsit\\'s planted\ne\n")
    log.debug("Command to send: c\no1\noption\nskafka.group.id\nsorders\ne\n")
    assert "planted" not in told(caplog)
    assert session.HIDDEN in told(caplog)
    assert "orders" in told(caplog)
