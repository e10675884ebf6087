"""Converts the settings of connections for kafka-python, for Java's client and for Python's TLS.

**Rules.** Secrets pass through and are stored nowhere. kafka-python carries the control plane
(group requests and queries), so it gets connection and security settings only.

:func:`hide_logins` keeps logins out of what kafka-python and aiokafka log at DEBUG. It is called
wherever the settings of a client are made; the assignors for stock clients call it when they are
imported, because their clients are the application's. It recognises a login by the subject of a
record (the class of a request, the key of a setting), never by its text: quotes, escapes and other
spellings of a password have no effect.

**Strategy.** The two libraries log a request as an object before it is text, so its class is in the
record's arguments. Raw bytes do not show their kind, so a record gets only their number. A filter
on a logger does not reach its children: each logger is named.

References: KIP-152 (SaslAuthenticate); KIP-554 (SCRAM users).
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from holdfast.cluster import kerberos
from holdfast.cluster.settings import ConnectionSettings
from holdfast.cluster.tokens import Tokens, token_of
from holdfast.errors import ConfigError

ALIASES: Mapping[str, str] = {
    "auto.commit.enable": "enable.auto.commit",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "metadata.broker.list": "bootstrap.servers",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
"""Another client's spelling -> the key's name here, which is Java's where Java has the key."""

LIBRDKAFKAS = frozenset(
    {
        *("broker.address.family", "broker.address.ttl", "debug", "fetch.error.backoff.ms"),
        *("fetch.queue.backoff.ms", "log.connection.close", "log_level", "message.max.bytes"),
        *("max.in.flight.requests.per.connection", "message.copy.max.bytes"),
        *("queued.max.messages.kbytes", "queued.min.messages", "receive.message.max.bytes"),
        *("socket.keepalive.enable", "socket.max.fails", "socket.nagle.disable"),
        *("statistics.interval.ms", "stats_cb", "throttle_cb"),
        *(f"topic.metadata.{end}" for end in ("propagation.max.ms", "refresh.sparse")),
        "topic.metadata.refresh.fast.interval.ms",
    }
)
"""Keys of consumers that librdkafka knows and Java's client does not."""

KAFKA_PYTHON_LOOP = {"slow_task_threshold_secs": 0}
"""For the event loop of holdfast's kafka-python clients: log no warning about slow tasks, which are
normal on a busy machine. The application has no task there, and could do nothing about it.
"""

LOGGERS = (
    "kafka.admin.client",
    "kafka.net.connection",
    "kafka.net.manager",
    "kafka.net.compat",
    "kafka.net.transport",
    "kafka.protocol.parser",
    "aiokafka",
    "aiokafka.conn",
)
"""Loggers that get requests, bytes or settings."""

HIDDEN = "[hidden]"
_KINDS = ("Sasl", "AlterUserScramCredentials", "DelegationToken")
_SETTINGS = ("password", "token", "secret", "ssl_context", "jaas")


def ssl_context(settings: ConnectionSettings) -> ssl.SSLContext | None:
    """Return the TLS context of the ``ssl.*`` keys, None without TLS."""
    if not settings["security.protocol"].endswith("SSL"):
        return None
    ready: ssl.SSLContext | None = settings["holdfast.ssl.context"]
    if ready is not None:
        return ready
    try:
        context = ssl.create_default_context(
            cafile=settings["ssl.ca.location"], cadata=settings["ssl.ca.pem"]
        )
        if settings["ssl.endpoint.identification.algorithm"] != "https":
            context.check_hostname = False
        with _certificate(settings) as files:
            if files is not None:
                context.load_cert_chain(*files, settings["ssl.key.password"])
    except (OSError, ssl.SSLError) as error:
        keys = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
        named = ", ".join(f"{key}={settings[key]}" for key in keys if settings[key] is not None)
        raise ConfigError(
            f"the TLS {'files' if named else 'texts'} cannot be used ({named or 'PEM'}): {error}"
        ) from None
    return context


@contextmanager
def _certificate(settings: ConnectionSettings) -> Iterator[tuple[str, str | None] | None]:
    """Yield files with the certificate and its key; Python reads neither from text."""
    if settings["ssl.certificate.pem"] is None:
        at = settings["ssl.certificate.location"]
        yield None if at is None else (at, settings["ssl.key.location"])
        return
    import tempfile  # which loads shutil, random and their own

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # mode 0600
        file.write(f"{settings['ssl.key.pem'] or ''}\n{settings['ssl.certificate.pem']}\n")
        file.flush()
        yield file.name, settings["ssl.key.location"]


def kafka_python_connection(settings: ConnectionSettings) -> dict[str, Any]:
    """Return the keyword arguments of kafka-python's connection layer."""
    hide_logins()
    context = ssl_context(settings)
    result: dict[str, Any] = {
        "bootstrap_servers": list(settings["bootstrap.servers"]),
        "client_id": settings["client.id"],
        "request_timeout_ms": settings["request.timeout.ms"],
        "reconnect_backoff_ms": settings["reconnect.backoff.ms"],
        "reconnect_backoff_max_ms": settings["reconnect.backoff.max.ms"],
        "metadata_max_age_ms": settings["metadata.max.age.ms"],
        "security_protocol": settings["security.protocol"],
        "ssl_context": context,
        "ssl_check_hostname": context is None or context.check_hostname,
    }
    if (idle_ms := settings.passed.get("connections.max.idle.ms")) is not None:
        result["connections_max_idle_ms"] = idle_ms
    mechanism = settings["sasl.mechanism"]
    if mechanism is None:
        return result
    result["sasl_mechanism"] = mechanism
    if mechanism == "OAUTHBEARER":
        result["sasl_oauth_token_provider"] = kafka_python_tokens(
            settings["holdfast.oauth.token.provider"]
        )
    elif mechanism == kerberos.MECHANISM:
        result["sasl_kerberos_service_name"] = kerberos.service_of(settings.values)
        kerberos.use_in_kafka_python()
    else:
        result["sasl_plain_username"] = settings["sasl.username"]
        result["sasl_plain_password"] = settings["sasl.password"]
    return result


def oauth_callback(provide: Callable[[], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the ``oauth_cb`` of confluent-kafka for a provider of tokens.

    A token endpoint that gives none is an error here: librdkafka would wait for 10 s, and lose the
    reason.
    """
    check_tokens(provide)

    def callback(_: Any) -> tuple[str, float, str, dict[str, str]]:
        token = token_of(provide())
        return token.value, token.expires_s, token.principal, dict(token.extensions)

    return callback


def check_tokens(provide: Callable[[], Any]) -> None:
    """Fetch a first token, if tokens come from an endpoint or from AWS; else do nothing."""
    if isinstance(provide, Tokens):
        provide()


def kafka_python_tokens(provide: Callable[[], Any]) -> Any:
    """Return the token provider of kafka-python for a provider of tokens."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # the base class is untyped
        def token(self) -> str:
            self._token = token_of(provide())
            return self._token.value

        def extensions(self) -> dict[str, str]:
            return dict(self._token.extensions)  # requested after the token that they belong to

    return Provider()


def spelled(given: str) -> str:
    """Return a key in holdfast's spelling."""
    return ALIASES.get(given, given)


def for_java(config: Mapping[str, Any]) -> dict[str, str]:
    """Return properties for Java's client: its names, without keys that only librdkafka knows."""
    named = {spelled(key): value for key, value in config.items()}
    return {key: str(value) for key, value in named.items() if key not in LIBRDKAFKAS}


def hide_logins() -> None:
    """Keep logins out of the logs of clients; calling it again changes nothing."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(without_logins)  # which adds a filter once


def without_logins(record: logging.LogRecord) -> bool:
    """Replace logins in a record; the record itself stays."""
    if isinstance(record.args, Mapping):
        record.args = _plain(record.args)
    elif record.args:
        record.args = tuple(map(_plain, record.args))
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"[{len(value)} bytes]"
    if isinstance(value, Mapping):
        secret = {key for key in value if any(word in str(key).lower() for word in _SETTINGS)}
        return {key: HIDDEN if key in secret else _plain(held) for key, held in value.items()}
    if any(kind in cls.__name__ for cls in type(value).__mro__ for kind in _KINDS):
        return f"{type(value).__name__} {HIDDEN}"
    return value
