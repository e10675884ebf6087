"""Routes each key of a ``confluent_kafka.Consumer`` configuration.

**Rules.** Every key is passed to librdkafka, which fetches and knows all its keys, unless it is in
:data:`TAKEN`: then the member honours it and librdkafka does not get it. Keys in :data:`SHARED` are
honoured by both. A key that the member cannot honour is refused with the reason (:data:`REFUSED`,
and :mod:`holdfast.cluster.credentials` for logins and TLS). An unknown key, or a value out of
range, is librdkafka's error in librdkafka's text.

``group.protocol=consumer`` selects a broker's own assignor: then holdfast has no member, and
everything is as with ``confluent_kafka.Consumer``. Together with a key of holdfast it is a
contradiction, and refused. On a broker before Kafka 4.0 librdkafka then waits for ever silently, so
the log reports it (:func:`warn_if_unsupported`). No call waits for that check.

**Strategy.** :func:`route` splits the configuration before librdkafka sees it; the member's part
becomes :class:`~holdfast.members.config.settings.Settings`.

References: librdkafka, CONFIGURATION.md; KIP-848 (``group.protocol``,
ConsumerGroupHeartbeat).
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

from holdfast.cluster import credentials, kerberos
from holdfast.cluster.client_configs import oauth_callback
from holdfast.cluster.diagnosis import known_requests
from holdfast.cluster.tokens import AWS_MECHANISM, AWS_REGION
from holdfast.errors import ConfigError
from holdfast.members.clients.drop_in import CONSUMER_ONLY, ClassReplacement, servers
from holdfast.members.config.settings import KEYS, Settings
from holdfast.members.runtime.member_status import NAME

STRATEGY = "partition.assignment.strategy"
DEFAULT_STRATEGY = "range,roundrobin"
"""librdkafka's default, so members with and without holdfast share a group during a rollout."""

INSTALLED = ClassReplacement(policy="holdfast.policy", strategy=STRATEGY)
"""Options that ``holdfast.confluent.install`` gives every consumer."""

TAKEN = {
    STRATEGY: "any assignor of the registry, which the member proposes to the group",
    "scheduled.rebalance.max.delay.ms": "Design II: how long the group waits for a departed member",
    "enable.auto.commit": "the member commits stored offsets; librdkafka commits nothing by itself",
}
"""Keys that the member honours and librdkafka does not get, besides ``holdfast.*``."""

SHARED = (
    *("bootstrap.servers", "group.id", "group.instance.id", "client.id", "client.rack"),
    *("session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms"),
    *("auto.commit.interval.ms", "isolation.level"),
    *("retry.backoff.ms", "retry.backoff.max.ms"),
    *("reconnect.backoff.ms", "reconnect.backoff.max.ms"),
)
"""Keys that both honour, under one name; the keys of a login and of TLS are shared as well."""

RENAMED = {
    "metadata.broker.list": "bootstrap.servers",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "socket.timeout.ms": "request.timeout.ms",
}
"""Keys that the member honours under another name."""

REFUSED = {
    "ssl_ca": "give the CA as ssl.ca.location or ssl.ca.pem",
    "ssl_certificate": "give the certificate as ssl.certificate.location or ssl.certificate.pem",
    "ssl_key": "give the key as ssl.key.location or ssl.key.pem",
    "ssl.certificate.verify_cb": "the member's connections check certificates by the CA alone",
    "ssl.ca.certificate.stores": "give the CA as ssl.ca.location or ssl.ca.pem",
    "ssl.engine.location": "the member's connections have no engine of OpenSSL",
    "ssl.engine.id": "the member's connections have no engine of OpenSSL",
    "ssl.crl.location": "the member's connections do not read lists of revoked certificates",
    "group.remote.assignor": "a broker's assignor needs group.protocol=consumer",
    **CONSUMER_ONLY,
}
"""Keys that the member cannot honour, and what to do instead."""

_NOT_LIBRDKAFKAS = {
    *("sasl.jaas.config", "ssl.truststore.location", "ssl.keystore.type", AWS_REGION),
    *("sasl.login.callback.handler.class", "sasl.client.callback.handler.class"),
    credentials.PROVIDER,
}
"""Keys of logins that librdkafka does not know."""

_RESETS = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), OFFSET_BEGINNING),
    **dict.fromkeys(("largest", "latest", "end"), OFFSET_END),
}
TOPICS = "default.topic.config"
_LEAST_REQUEST_MS = 10_000
_TRUE, _FALSE = frozenset({"true", "t", "1"}), frozenset({"false", "f", "0"})
CONSUMER_GROUP_HEARTBEAT = 68
_log = logging.getLogger(NAME)
_NOWHERE = {"bootstrap.servers": "localhost:9092"}  # only to read the other keys


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedConfig:
    """A configuration, routed to librdkafka and to the member."""

    client_config: dict[str, Any] = field(repr=False)  # for ``confluent_kafka.Consumer``
    # For :meth:`Settings.parse`; None without a member of holdfast.
    member: dict[str, Any] | None = field(repr=False)
    # Addresses, login and group of a member of librdkafka's own; None without one.
    native: dict[str, Any] | None = field(repr=False)
    is_automatic: bool  # ``enable.auto.commit``
    stores: bool  # ``enable.auto.offset.store``
    interval_s: float  # ``auto.commit.interval.ms``, in seconds
    # ``auto.offset.reset`` as a logical offset; None for ``error``, and if it is not at the top
    # of the configuration.
    reset: int | None

    @property
    def has_brokers(self) -> bool:
        """Whether the configuration names a broker; librdkafka accepts one without."""
        return self.member is not None and bool(self.member.get("bootstrap.servers"))

    def settings(self) -> Settings:
        """Return the member's settings."""
        return Settings.parse({**(self.member or {}), **({} if self.has_brokers else _NOWHERE)})


def route(config: Mapping[Any, Any]) -> RoutedConfig:
    """Split a configuration; a key that is not a text is left to librdkafka, which refuses it.

    Raises
    ------
    ConfigError
        For a refused key, and for keys that contradict each other.
    """
    config = _with_login(config)
    client_config = {
        key: value
        for key, value in config.items()
        if not (key in TAKEN or str(key).startswith("holdfast."))
    }
    if client_config.get("group.id") is None or not str(client_config["group.id"]).strip():
        client_config.pop(
            "group.id", None
        )  # confluent-kafka refuses a missing one, and aborts at an empty one
    flag = config.get("enable.auto.commit", True)
    automatic = _boolean(flag)
    # librdkafka refuses anything but a boolean in its own text
    client_config["enable.auto.commit"] = flag if automatic is None else False
    interval = config.get("auto.commit.interval.ms", 5_000)
    is_number = str(interval).isdigit()
    is_native = str(config.get("group.protocol", "classic")).lower() == "consumer"
    config = {key: value for key, value in config.items() if isinstance(key, str)}
    if is_native:
        _check_native(config)
        client_config["enable.auto.commit"] = flag
    return RoutedConfig(
        client_config=client_config,
        member=None if is_native else _member(config),
        native=_connection(config) if is_native else None,
        is_automatic=bool(automatic) and not is_native and str(interval) != "0",
        stores=_boolean(config.get("enable.auto.offset.store", True)) is not False,
        interval_s=int(interval) / 1000 if is_number else 5.0,
        reset=_reset(config),
    )


def _with_login(config: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return a configuration whose login is in librdkafka's words, and in holdfast's."""
    mechanism = str(config.get("sasl.mechanism", config.get("sasl.mechanisms"))).upper()
    if mechanism == kerberos.MECHANISM or kerberos.MODULE in str(config.get("sasl.jaas.config")):
        kerberos.check_librdkafka()
    if not (config.keys() & _NOT_LIBRDKAFKAS or mechanism == AWS_MECHANISM):
        return config
    names = {*credentials.KEYS, *credentials.SPELLINGS, "bootstrap.servers"}
    login = credentials.normal({key: value for key, value in config.items() if key in names})
    if (provide := login.get(credentials.PROVIDER)) is not None:
        login["oauth_cb"] = config.get("oauth_cb", oauth_callback(provide))  # type: ignore[arg-type]
    return {**{key: value for key, value in config.items() if key not in names}, **login}


def _reset(config: Mapping[str, Any]) -> int | None:
    """Return the logical offset at which librdkafka starts without a committed offset."""
    if TOPICS in config:
        return None
    return _RESETS.get(_reset_of(config).lower())


def _reset_of(config: Mapping[str, Any]) -> str:
    """Return ``auto.offset.reset``, in librdkafka's words."""
    given = config.get(TOPICS)
    whole = {**config, **given} if isinstance(given, Mapping) else config
    return str(whole.get("auto.offset.reset", "largest"))


def _check_native(config: Mapping[str, Any]) -> None:
    for key in config:
        if key in (STRATEGY, "scheduled.rebalance.max.delay.ms") or key.startswith("holdfast."):
            raise ConfigError(
                f"{key}: with group.protocol=consumer the broker assigns, not holdfast; "
                "remove one of the two"
            )


def _connection(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return addresses, login and group of a configuration; None if the member cannot use them."""
    chosen = {
        key: value
        for key, value in config.items()
        if _is_for_us(key) or RENAMED.get(key, key) in ("bootstrap.servers", "group.id")
    }
    try:
        member = _member(chosen)
    except ConfigError:
        return None
    names = {*credentials.KEYS, "bootstrap.servers", "group.id"}
    connection = {key: value for key, value in member.items() if key in names}
    return connection if connection.keys() >= {"bootstrap.servers", "group.id"} else None


def _boolean(value: object) -> bool | None:
    text = str(value).lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _member(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the member's configuration, in the spelling of :class:`Settings`."""
    member: dict[str, Any] = {}
    for given, value in config.items():
        key = RENAMED.get(given, given)
        if value is None or value == "":
            continue
        if given in REFUSED and str(value) not in ("default", "Root"):
            raise ConfigError(f"{given}: {REFUSED[given]}")
        if key in SHARED or given in RENAMED:
            member[key] = _as_text(value)
        elif key in TAKEN or _is_for_us(key):
            member[key] = value
    # For lags alone: librdkafka looks positions up, with its own value.
    member["auto.offset.reset"] = _reset_of(config)
    member["enable.auto.commit"] = _boolean(config.get("enable.auto.commit", True)) is not False
    if STRATEGY not in member and "holdfast.policy" not in member:
        member[STRATEGY] = DEFAULT_STRATEGY
    _fit_times(member)
    if "bootstrap.servers" in member:
        member["bootstrap.servers"] = ",".join(servers(str(member["bootstrap.servers"])))
    if callback := config.get("oauth_cb"):
        argument = config.get("sasl.oauthbearer.config", "")
        member.setdefault("holdfast.oauth.token.provider", _provider(callback, argument))
    return member


def _as_text(value: Any) -> Any:
    """Convert a value as librdkafka does: to its text, a number to its whole part."""
    if isinstance(value, bool) or callable(value):
        return value
    return str(int(value) if isinstance(value, float) else value)


def _is_for_us(key: str) -> bool:
    if key.startswith("holdfast."):
        return True
    if key in ("sasl.oauthbearer.config", "enable.sasl.oauthbearer.unsecure.jwt"):
        return False
    if key.startswith("sasl.oauthbearer.") or key == "https.ca.location":
        return True
    security = key in credentials.KEYS or key in ("sasl.mechanisms", "sasl.jaas.config")
    return security or key.startswith(("ssl.keystore.", "sasl.kerberos.", "enable.ssl."))


def _fit_times(member: dict[str, Any]) -> None:
    """Change times that librdkafka takes and the member refuses to the nearest accepted ones."""
    session, beat = (
        _number(member.get(f"{name}.ms", KEYS[f"{name}.ms"].default))
        for name in ("session.timeout", "heartbeat.interval")
    )
    if session is not None and beat is not None and beat >= session:
        member["heartbeat.interval.ms"] = max(1, session // 3)
    request = _number(member.get("request.timeout.ms", 30_000))
    member["request.timeout.ms"] = max(_LEAST_REQUEST_MS, request or 0)
    refresh = _number(member.get("metadata.max.age.ms", 0))
    if refresh is None or refresh <= 0:  # -1 never refreshes, which would miss partitions
        member.pop("metadata.max.age.ms", None)


def _number(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def _provider(callback: Callable[..., Any], argument: str) -> Callable[[], Any]:
    """Convert confluent-kafka's ``oauth_cb`` to a function that returns a token and its expiry."""
    return lambda: callback(argument)


def subscription_of(topics: Sequence[str]) -> tuple[tuple[str, ...], Callable[[str], bool] | None]:
    """Return the names, or a predicate that matches any of the names and patterns.

    Raises
    ------
    ValueError
        For a list that librdkafka refuses: without a topic, with an empty name, with a name twice,
        or with an invalid pattern.
    """
    names = tuple(topics)
    if not names or not all(names) or len(set(names)) < len(names):
        raise ValueError("at least one topic, and each once")
    patterns = [name for name in names if name.startswith("^")]
    if not patterns:
        return tuple(sorted(names)), None
    try:
        compiled = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise ValueError(str(error)) from None
    plain = frozenset(names) - set(patterns)
    return (), lambda name: name in plain or any(p.match(name) for p in compiled)


def warn_if_unsupported(connection: Mapping[str, Any]) -> None:
    """Check on a thread whether the brokers support the protocol, and warn if not."""
    threading.Thread(
        target=_warn_if_unsupported, args=(connection,), name="holdfast-look", daemon=True
    ).start()


def _warn_if_unsupported(connection: Mapping[str, Any]) -> None:
    try:
        settings = Settings.parse(connection)
        known = known_requests(settings)
    except (ConfigError, OSError):
        return  # librdkafka reports what is wrong with the configuration
    if known and CONSUMER_GROUP_HEARTBEAT not in known:
        _log.warning(
            "group %s: group.protocol=consumer needs Kafka 4.0 (KIP-848), and the broker is older: "
            "this consumer gets no partitions; group.protocol=classic works there",
            settings["group.id"],
        )
