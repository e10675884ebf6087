"""The configuration of a member: Kafka's keys, spelled exactly, and keys of ``holdfast.``.

**Rules.** A key that is not in :data:`KEYS` is passed on to the data plane or refused, by
:mod:`holdfast.cluster.client_keys`. A value is parsed once, here; other modules get typed values. A
secret never appears in a text: :class:`Settings` prints it as ``[hidden]``.

**Strategy.** One table holds type, default and range of every key.
:mod:`holdfast.cluster.client_configs` converts the result for each client library.

References: Kafka consumer configuration; KIP-429, KIP-345 (group.instance.id), KIP-415
(scheduled.rebalance.max.delay.ms).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.cluster import client_keys, credentials
from holdfast.core.assignors.registry import AssignorInfo, Named, canonical, find
from holdfast.core.machine.policies import DEFAULTS, POLICIES, PolicyInfo
from holdfast.core.machine.policy import When
from holdfast.core.model.limits import INT32_MAX
from holdfast.errors import ConfigError, nearest

_HIDDEN = "[hidden]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One configuration key: how to parse it, its default, and whether it may be shown."""

    parse: Callable[[object], object]
    default: object = None
    secret: bool = False


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a string, found {type(value).__name__}")
    return value


def _name(value: object) -> str:
    if not (text := _text(value)):
        raise ValueError("an empty string is not a name")
    return text


def _one_of(*allowed: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        text = _text(value)
        if text not in allowed:
            hint = nearest(repr(text), map(repr, allowed))
            raise ValueError(f"expected one of {', '.join(allowed)}, found {text!r}{hint}")
        return text

    return parse


def _mechanism(value: object) -> str:
    text = _text(value).upper()
    if text in credentials.MECHANISMS:
        raise ValueError(f"{text}: {credentials.MECHANISMS[text]}")
    return _one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")(text)


def _protocol(value: object) -> str:
    return _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")(_text(value).upper())


def _integer(low: int, high: int = INT32_MAX) -> Callable[[object], int]:
    def parse(value: object) -> int:
        return client_keys.whole(value, low, high)

    return parse


def _ms(low: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        return client_keys.whole(value, low, unit="ms")

    return parse


def _reset(value: object) -> str:
    text = _text(value).lower()
    if text.startswith("by_duration"):
        raise ValueError(
            "KIP-1106's duration is not supported; seek to offsets_for_times() instead"
        )
    return _one_of("latest", "earliest", "none")(client_keys.RESETS.get(text, text))


def _names(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not parts:
        raise ValueError(f"expected a list or a comma-separated string, found {value!r}")
    return tuple(_name(part.strip() if isinstance(part, str) else part) for part in parts)


def _strategies(value: object) -> tuple[object, ...]:
    """Parse names, and assignors themselves; a single one needs no list."""
    if not isinstance(value, (str, list, tuple)):
        return (value,)
    parts = value.split(",") if isinstance(value, str) else value
    if not parts:
        raise ValueError(f"expected a list or a comma-separated string, found {value!r}")
    return tuple(canonical(_name(p.strip())) if isinstance(p, str) else p for p in parts)


def _target(value: object) -> Named | Callable[..., object]:
    """Parse a registry name, an assignor or a function of the user, or ``module:name``."""
    if isinstance(value, AssignorInfo) or callable(value):
        return value
    if isinstance(value, str) and ":" in value:
        return value
    return find(_name(value)).name


def _policy(value: object) -> object:
    """Parse a name of the table, a policy or a function of the user, or ``module:name``."""
    if isinstance(value, PolicyInfo) or callable(value):
        return value
    if isinstance(value, str) and ":" in value:
        return value
    return _one_of(*POLICIES)(value)


def _callable(value: object) -> Callable[..., Any]:
    if not callable(value):
        raise ValueError(f"expected a function, found {type(value).__name__}")
    return value


def _lag_source(value: object) -> object:
    return _one_of("broker", "none")(value) if isinstance(value, str) else _callable(value)


def _ssl_context(value: object) -> ssl.SSLContext:
    if not isinstance(value, ssl.SSLContext):
        raise ValueError(f"expected an ssl.SSLContext, found {type(value).__name__}")
    return value


def _options(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a mapping of options, found {type(value).__name__}")
    return dict(value)


_OF_KINDS = ("holdfast.policy", "scheduled.rebalance.max.delay.ms", "weight")


def _kinds(value: object) -> Mapping[str, Mapping[str, Any]]:
    """Parse what differs for single topics, or for kinds of a worker's resources."""
    return {kind: _of_kind(kind, given) for kind, given in _options(value).items()}


def _of_kind(kind: str, given: object) -> Mapping[str, Any]:
    parsed = {}
    for key, value in _options(given).items():
        if key not in _OF_KINDS:
            raise ValueError(f"{kind}: found {key!r}, expected {', '.join(_OF_KINDS)}")
        parse = _integer(1) if key == "weight" else KEYS[key].parse
        try:
            parsed[key] = parse(value)
        except ValueError as error:
            raise ValueError(f"{kind}: {key}: {error}") from None
    return parsed


KEYS: dict[str, Key] = {
    "bootstrap.servers": Key(parse=_names),
    "group.id": Key(parse=_name),
    "group.instance.id": Key(parse=_name),
    "client.id": Key(parse=_text, default="holdfast"),
    "client.rack": Key(parse=_text, default=""),
    "session.timeout.ms": Key(parse=_ms(1), default=45_000),
    "heartbeat.interval.ms": Key(parse=_ms(1), default=3_000),
    "max.poll.interval.ms": Key(parse=_ms(1), default=300_000),
    "auto.offset.reset": Key(parse=_reset, default="latest"),
    "enable.auto.commit": Key(parse=client_keys.boolean, default=True),
    "auto.commit.interval.ms": Key(parse=_ms(0), default=5_000),
    "partition.assignment.strategy": Key(parse=_strategies, default=("cooperative-sticky",)),
    "isolation.level": Key(
        parse=_one_of("read_uncommitted", "read_committed"), default="read_uncommitted"
    ),
    "fetch.min.bytes": Key(parse=_integer(0), default=1),
    "fetch.max.bytes": Key(parse=_integer(0), default=52_428_800),
    "fetch.max.wait.ms": Key(parse=_ms(0), default=500),
    "max.partition.fetch.bytes": Key(parse=_integer(0), default=1_048_576),
    "max.poll.records": Key(parse=_integer(1), default=500),
    "metadata.max.age.ms": Key(parse=_ms(0), default=300_000),
    "request.timeout.ms": Key(parse=_ms(1), default=30_000),
    "default.api.timeout.ms": Key(parse=_ms(1)),
    "retry.backoff.ms": Key(parse=_ms(0), default=100),
    "retry.backoff.max.ms": Key(parse=_ms(0), default=1_000),
    "reconnect.backoff.ms": Key(parse=_ms(0), default=50),
    "reconnect.backoff.max.ms": Key(parse=_ms(0), default=1_000),
    "scheduled.rebalance.max.delay.ms": Key(parse=_ms(0), default=DEFAULTS.delay_ms),
    "security.protocol": Key(parse=_protocol, default="PLAINTEXT"),
    "sasl.mechanism": Key(parse=_mechanism),
    "sasl.username": Key(parse=_text),
    "sasl.password": Key(parse=_text, secret=True),
    "ssl.ca.location": Key(parse=_name),
    "ssl.certificate.location": Key(parse=_name),
    "ssl.key.location": Key(parse=_name),
    "ssl.key.password": Key(parse=_text, secret=True),
    "ssl.ca.pem": Key(parse=_name),
    "ssl.certificate.pem": Key(parse=_name),
    "ssl.key.pem": Key(parse=_name, secret=True),
    "ssl.endpoint.identification.algorithm": Key(
        parse=_one_of("https", "none", ""), default="https"
    ),
    "holdfast.policy": Key(parse=_policy, default="simple"),
    "holdfast.target.assignor": Key(parse=_target),
    "holdfast.assignor.options": Key(parse=_options, default={}),
    "holdfast.error.timeout.ms": Key(parse=_ms(0), default=0),
    "holdfast.handle.signals": Key(parse=client_keys.boolean, default=True),
    "holdfast.drain.timeout.ms": Key(parse=_ms(0)),
    "holdfast.incremental.batch": Key(parse=_integer(1), default=DEFAULTS.batch),
    "holdfast.incremental.group.batch": Key(parse=_integer(0), default=DEFAULTS.group_batch),
    "holdfast.incremental.interval.ms": Key(parse=_ms(0), default=DEFAULTS.interval_ms),
    "holdfast.damped.stabilization.ms": Key(parse=_ms(0), default=DEFAULTS.stabilization_ms),
    "holdfast.first.member": Key(parse=_one_of(*When), default=DEFAULTS.first_member),
    "holdfast.first.member.delay.ms": Key(parse=_ms(0), default=DEFAULTS.first_member_delay_ms),
    "holdfast.successor.delay.ms": Key(parse=_ms(1)),
    "holdfast.clean.leave": Key(parse=_one_of(*When), default=When.DEFERRED),
    "holdfast.memory.limit.bytes": Key(parse=_integer(0), default=DEFAULTS.memory_limit_bytes),
    "holdfast.record.limit.bytes": Key(parse=_integer(0), default=DEFAULTS.record_limit_bytes),
    "holdfast.kinds": Key(parse=_kinds, default={}),
    "holdfast.isolate": Key(parse=client_keys.boolean),
    "holdfast.lag.source": Key(parse=_lag_source, default="broker"),
    "holdfast.lag.timeout.ms": Key(parse=_ms(0), default=2_000),
    "holdfast.oauth.token.provider": Key(parse=_callable, secret=True),
    "holdfast.location": Key(parse=_name),
    "holdfast.ready.file": Key(parse=_name),
    "holdfast.ssl.context": Key(parse=_ssl_context, secret=True),
    "task.shutdown.graceful.timeout.ms": Key(parse=_ms(0), default=5_000),
    "holdfast.restart.backoff.ms": Key(parse=_ms(1), default=1_000),
    "holdfast.restart.backoff.max.ms": Key(parse=_ms(1), default=300_000),
    "holdfast.run.threads": Key(parse=_integer(1), default=500),
}

OF_WORKERS = (
    "task.shutdown.graceful.timeout.ms",
    "holdfast.restart.backoff.ms",
    "holdfast.restart.backoff.max.ms",
    "holdfast.run.threads",
)
"""Keys of a worker only: a consumer refuses them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Parsed configuration; ``settings["group.id"]`` has the type of the table."""

    values: Mapping[str, Any] = field(repr=False)  # every key with its value
    # The keys that the user wrote; the others have their defaults.
    given: frozenset[str] = field(default=frozenset(), repr=False)
    # The keys for the data plane, in holdfast's spelling.
    passed: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # The user's names of keys that the user spelled otherwise; for the log.
    words: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def __repr__(self) -> str:
        shown = {
            key: _HIDDEN if KEYS[key].secret else value
            for key, value in self.values.items()
            if value is not None and value != KEYS[key].default
        }
        return f"Settings({shown})"

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> Settings:
        """Parse a configuration that a user has written.

        Parameters
        ----------
        config : mapping of str to object
            Kafka's keys and ``holdfast.*``; numbers and booleans may be strings.

        Raises
        ------
        ConfigError
            For a key that is unknown (with the nearest known name), missing, out of range, or in
            conflict with another.
        """
        values: dict[str, Any] = {key: entry.default for key, entry in KEYS.items()}
        written: dict[str, str] = {}
        others: dict[str, tuple[str, object]] = {}
        for given, value in credentials.normal(config).items():
            key = client_keys.spelled(given)
            if value is None:
                continue
            if key in written and config[written[key]] != value:
                raise ConfigError(f"{given} and {written[key]} are one key, with two values")
            if key in KEYS:
                values[key] = _parsed(key, given, value)
            elif client_keys.is_known(key):
                others[key] = (given, value)
            else:
                raise ConfigError(_unknown(given))
            written[key] = given
        _check(values)
        passed = {
            key: found
            for key, (given, value) in others.items()
            if (found := client_keys.checked(key, given, value)) is not None
        }
        return cls(values, frozenset(written) & KEYS.keys(), passed)

    def with_login(self, username: str, password: str) -> Settings:
        """Return the same settings with another ``sasl.username`` and ``sasl.password``."""
        login = {"sasl.username": username, "sasl.password": password}
        return replace(self, values={**self.values, **login})

    def word(self, key: str) -> str:
        """Return the user's name of a key."""
        return self.words.get(key, key)

    @property
    def comes_back(self) -> bool:
        """Whether a departed member comes back, unless its program says otherwise."""
        return bool(self.values["holdfast.clean.leave"] == When.DEFERRED)

    @property
    def call_timeout_s(self) -> float:
        """How long a call of the application waits for a broker, in s."""
        ms: int | None = self.values["default.api.timeout.ms"]
        return (self.values["request.timeout.ms"] if ms is None else ms) / 1000


def _parsed(key: str, given: str, value: object) -> object:
    try:
        return KEYS[key].parse(value)
    except ValueError as error:
        shown = "its value cannot be used" if KEYS[key].secret else str(error)
        raise ConfigError(f"{given}: {shown}") from None


def _unknown(key: str) -> str:
    hint = client_keys.meant(key, (*KEYS, *client_keys.others()))
    return f"unknown configuration key {key!r}{hint}"


def _check(values: Mapping[str, Any]) -> None:
    for key in ("bootstrap.servers", "group.id"):
        if values[key] is None:
            raise ConfigError(f"{key}: it is required")
    session, beat = values["session.timeout.ms"], values["heartbeat.interval.ms"]
    if beat >= session:
        raise ConfigError(
            f"heartbeat.interval.ms ({beat}) must be below session.timeout.ms ({session}); "
            "a third of it is usual"
        )
    _check_tls(values)
    protocol, mechanism = values["security.protocol"], values["sasl.mechanism"]
    if protocol.startswith("SASL") and mechanism is None:
        raise ConfigError(f"sasl.mechanism: security.protocol {protocol} needs one")
    if mechanism is not None and not protocol.startswith("SASL"):
        raise ConfigError(
            "sasl.mechanism: security.protocol must be SASL_PLAINTEXT or SASL_SSL, "
            f"found {protocol}"
        )
    if mechanism == "OAUTHBEARER":
        if values["holdfast.oauth.token.provider"] is None:
            raise ConfigError(
                "sasl.mechanism: OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url, or a "
                "function that returns a token as holdfast.oauth.token.provider"
            )
    elif mechanism is not None and (
        values["sasl.username"] is None or values["sasl.password"] is None
    ):
        raise ConfigError(f"sasl.username and sasl.password: {mechanism} needs both")


def _check_tls(values: Mapping[str, Any]) -> None:
    if values["holdfast.ssl.context"] is not None:
        for key in ("ssl.ca.location", "ssl.certificate.location", "ssl.ca.pem"):
            if values[key] is not None:
                raise ConfigError(f"{key} and holdfast.ssl.context: one of them is enough")
    for name in ("ssl.ca", "ssl.certificate", "ssl.key"):
        if values[f"{name}.location"] is not None and values[f"{name}.pem"] is not None:
            raise ConfigError(f"{name}.location and {name}.pem: one of them is enough")
    if values["ssl.key.pem"] is not None and values["ssl.certificate.pem"] is None:
        raise ConfigError("ssl.key.pem: expected its certificate as ssl.certificate.pem")
