"""Converts the settings of one configuration for each client library.

**Rules.** The settings of every client come from this module alone. Secrets pass through and are
stored nowhere.

**Strategy.** kafka-python carries the control plane (group requests), so it gets connection and
security settings only. librdkafka, the data plane, gets connection, security and fetch settings.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.cluster import client_keys
from holdfast.cluster.login_log import hide_logins
from holdfast.cluster.settings import Settings
from holdfast.cluster.tokens import token_of
from holdfast.errors import ConfigError

# By default librdkafka pauses a partition for a second once its queue is full, and meanwhile
# the application empties the queue and waits. A short pause needs a smaller queue as well.
_LIBRDKAFKA_QUEUE = {"fetch.queue.backoff.ms": 20, "queued.max.messages.kbytes": 32_768}

# Keys that librdkafka spells as Kafka does.
_LIBRDKAFKA_SAME = (
    *("client.id", "client.rack", "isolation.level", "fetch.max.bytes", "security.protocol"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
    *("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"),
    *("sasl.mechanism", "sasl.username", "sasl.password"),
)

KAFKA_PYTHON_LOOP = {"slow_task_threshold_secs": 0}
"""For the event loop of holdfast's kafka-python clients: log no warning about slow tasks, which are
normal on a busy machine. The application has no task there, and could do nothing about it.
"""


def ssl_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context of the ``ssl.*`` keys, None without TLS.

    Raises
    ------
    ConfigError
        If a certificate or key file cannot be read.
    """
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
def _certificate(settings: Settings) -> Iterator[tuple[str, str | None] | None]:
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


def kafka_python_connection(settings: Settings) -> dict[str, Any]:
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
    else:
        result["sasl_plain_username"] = settings["sasl.username"]
        result["sasl_plain_password"] = settings["sasl.password"]
    return result


def librdkafka_fetch(settings: Settings) -> dict[str, Any]:
    """Return the configuration of a ``confluent_kafka.Consumer`` that only fetches."""
    if settings["holdfast.ssl.context"] is not None:
        raise ConfigError("holdfast.ssl.context: librdkafka takes none; name the files by ssl.*")
    reset = settings["auto.offset.reset"]
    result: dict[str, Any] = {
        **{key: settings[key] for key in _LIBRDKAFKA_SAME if settings[key] is not None},
        "bootstrap.servers": ",".join(settings["bootstrap.servers"]),
        # librdkafka requires one, and requests its coordinator: another name would need an
        # ACL. It neither joins the group nor commits to it.
        "group.id": settings["group.id"],
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error" if reset == "none" else reset,
        "fetch.min.bytes": max(1, settings["fetch.min.bytes"]),
        "fetch.wait.max.ms": settings["fetch.max.wait.ms"],
        "max.partition.fetch.bytes": max(1, settings["max.partition.fetch.bytes"]),
        **_LIBRDKAFKA_QUEUE,
        **client_keys.for_librdkafka(settings.passed),
    }
    if settings["security.protocol"].endswith("SSL"):
        algorithm = settings["ssl.endpoint.identification.algorithm"] or "none"
        result["ssl.endpoint.identification.algorithm"] = algorithm
    if settings["sasl.mechanism"] == "OAUTHBEARER":
        result["oauth_cb"] = oauth_callback(settings["holdfast.oauth.token.provider"])
    return result


def oauth_callback(provide: Callable[[], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the ``oauth_cb`` of confluent-kafka for a provider of tokens."""

    def callback(_: Any) -> tuple[str, float, str, dict[str, str]]:
        token = token_of(provide())
        return token.value, token.expires_s, token.principal, dict(token.extensions)

    return callback


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
