"""The configuration of a member: Kafka's keys, spelled exactly, and keys of ``holdfast.``.

**Rules.** A key that is not in :data:`KEYS` is passed on to the fetching client or refused, by
:mod:`holdfast.members.config.client_keys`. A value is parsed once, here; other modules get typed
values.

**Strategy.** One table holds type, default and range of every key. The names of a policy and of
assignors are resolved once, into fields of :class:`Settings`
(:mod:`holdfast.members.config.own_assignors`).
Connections have their keys, and the functions that parse, in :mod:`holdfast.cluster.settings`.

References: Kafka consumer configuration; KIP-429, KIP-345 (group.instance.id), KIP-415
(scheduled.rebalance.max.delay.ms).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.cluster import credentials, kerberos, settings
from holdfast.cluster.client_configs import oauth_callback, spelled
from holdfast.cluster.settings import (
    ConnectionSettings,
    Key,
    check_login,
    integer,
    milliseconds,
    one_of,
    parse_boolean,
    parse_function,
    parse_name,
    parse_text,
    parsed,
)
from holdfast.core.assignors.registry import AssignorInfo, Named, canonical, find
from holdfast.core.machine.policy import DEFAULTS, POLICIES, KindPolicy, PolicyInfo, When
from holdfast.errors import ConfigError
from holdfast.members.config import client_keys

if TYPE_CHECKING:
    from holdfast.core.machine.supported_protocols import AssignorSpec


def _reset(value: object) -> str:
    text = parse_text(value).lower()
    if text.startswith("by_duration"):
        raise ValueError(
            "KIP-1106's duration is not supported; seek to offsets_for_times() instead"
        )
    return one_of("latest", "earliest", "none")(client_keys.RESETS.get(text, text))


def _strategies(value: object) -> tuple[object, ...]:
    """Parse names, and assignors themselves; a single one needs no list."""
    if not isinstance(value, (str, list, tuple)):
        return (value,)
    parts = value.split(",") if isinstance(value, str) else value
    if not parts:
        raise ValueError(f"expected a list or a comma-separated string, found {value!r}")
    return tuple(canonical(parse_name(p.strip())) if isinstance(p, str) else p for p in parts)


def _target(value: object) -> Named | Callable[..., object]:
    """Parse a registry name, an assignor or a function of the user, or ``module:name``."""
    if isinstance(value, AssignorInfo) or callable(value):
        return value
    if isinstance(value, str) and ":" in value:
        return value
    return find(parse_name(value)).name


def _policy(value: object) -> object:
    """Parse a name of the table, a policy or a function of the user, or ``module:name``."""
    if isinstance(value, PolicyInfo) or callable(value):
        return value
    if isinstance(value, str) and ":" in value:
        return value
    return one_of(*POLICIES)(value)


def _lag_source(value: object) -> object:
    return one_of("broker", "none")(value) if isinstance(value, str) else parse_function(value)


def _options(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a mapping of options, found {type(value).__name__}")
    return dict(value)


_LIST = "partition.assignment.strategy"
_OF_KINDS = ("holdfast.policy", "scheduled.rebalance.max.delay.ms", "weight")


def _kinds(value: object) -> Mapping[str, Mapping[str, Any]]:
    """Parse what differs for single topics, or for kinds of a worker's resources."""
    return {kind: _of_kind(kind, given) for kind, given in _options(value).items()}


def _of_kind(kind: str, given: object) -> Mapping[str, Any]:
    parsed = {}
    for key, value in _options(given).items():
        if key not in _OF_KINDS:
            raise ValueError(f"{kind}: found {key!r}, expected {', '.join(_OF_KINDS)}")
        parse = integer(1) if key == "weight" else KEYS[key].parse
        try:
            parsed[key] = parse(value)
        except ValueError as error:
            raise ValueError(f"{kind}: {key}: {error}") from None
    return parsed


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

KEYS: dict[str, Key] = {
    **settings.KEYS,
    "group.id": Key(parse=parse_name),
    "group.instance.id": Key(parse=parse_name),
    "client.rack": Key(parse=parse_text, default=""),
    "session.timeout.ms": Key(parse=milliseconds(1), default=45_000),
    "heartbeat.interval.ms": Key(parse=milliseconds(1), default=3_000),
    "max.poll.interval.ms": Key(parse=milliseconds(1), default=300_000),
    "auto.offset.reset": Key(parse=_reset, default="latest"),
    "enable.auto.commit": Key(parse=parse_boolean, default=True),
    "auto.commit.interval.ms": Key(parse=milliseconds(0), default=5_000),
    _LIST: Key(parse=_strategies, default=("cooperative-sticky",)),
    "fetch.min.bytes": Key(parse=integer(0), default=1),
    "fetch.max.bytes": Key(parse=integer(0), default=52_428_800),
    "fetch.max.wait.ms": Key(parse=milliseconds(0), default=500),
    "max.partition.fetch.bytes": Key(parse=integer(0), default=1_048_576),
    "max.poll.records": Key(parse=integer(1), default=500),
    "default.api.timeout.ms": Key(parse=milliseconds(1)),
    "scheduled.rebalance.max.delay.ms": Key(parse=milliseconds(0), default=DEFAULTS.delay_ms),
    "holdfast.policy": Key(parse=_policy, default="simple"),
    "holdfast.target.assignor": Key(parse=_target),
    "holdfast.assignor.options": Key(parse=_options, default={}),
    "holdfast.error.timeout.ms": Key(parse=milliseconds(0), default=0),
    "holdfast.handle.signals": Key(parse=parse_boolean, default=True),
    "holdfast.drain.timeout.ms": Key(parse=milliseconds(0)),
    "holdfast.incremental.batch": Key(parse=integer(1), default=DEFAULTS.batch),
    "holdfast.incremental.group.batch": Key(parse=integer(0), default=DEFAULTS.group_batch),
    "holdfast.incremental.interval.ms": Key(parse=milliseconds(0), default=DEFAULTS.interval_ms),
    "holdfast.damped.stabilization.ms": Key(
        parse=milliseconds(0), default=DEFAULTS.stabilization_ms
    ),
    "holdfast.first.member": Key(parse=one_of(*When), default=DEFAULTS.first_member),
    "holdfast.first.member.delay.ms": Key(
        parse=milliseconds(0), default=DEFAULTS.first_member_delay_ms
    ),
    "holdfast.successor.delay.ms": Key(parse=milliseconds(1)),
    "holdfast.clean.leave": Key(parse=one_of(*When), default=When.DEFERRED),
    "holdfast.leader.state.limit.bytes": Key(
        parse=integer(0), default=DEFAULTS.leader_state_limit_bytes
    ),
    "holdfast.record.limit.bytes": Key(parse=integer(0), default=DEFAULTS.record_limit_bytes),
    "holdfast.kinds": Key(parse=_kinds, default={}),
    "holdfast.isolate": Key(parse=parse_boolean),
    "holdfast.lag.source": Key(parse=_lag_source, default="broker"),
    "holdfast.lag.timeout.ms": Key(parse=milliseconds(0), default=2_000),
    "holdfast.location": Key(parse=parse_name),
    "holdfast.ready.file": Key(parse=parse_name),
    "task.shutdown.graceful.timeout.ms": Key(parse=milliseconds(0), default=5_000),
    "holdfast.restart.backoff.ms": Key(parse=milliseconds(1), default=1_000),
    "holdfast.restart.backoff.max.ms": Key(parse=milliseconds(1), default=300_000),
    "holdfast.run.threads": Key(parse=integer(1), default=500),
}

OF_WORKERS = (
    "task.shutdown.graceful.timeout.ms",
    "holdfast.restart.backoff.ms",
    "holdfast.restart.backoff.max.ms",
    "holdfast.run.threads",
)
"""Keys of a worker only: a consumer refuses them."""


@dataclass(frozen=True, slots=True)
class Settings(ConnectionSettings):
    """Parsed configuration of a member; ``settings["group.id"]`` has the type of the table."""

    TABLE: ClassVar[Mapping[str, Key]] = KEYS

    # The keys that the user wrote; the others have their defaults.
    given: frozenset[str] = field(default=frozenset(), repr=False)
    # The user's names of keys that the user spelled otherwise; for the log.
    user_names: Mapping[str, str] = field(default_factory=dict, repr=False)
    # What ``holdfast.policy``, ``partition.assignment.strategy`` (empty if the user wrote none),
    # ``holdfast.target.assignor`` and ``holdfast.kinds`` name.
    policy: PolicyInfo = field(default=POLICIES["simple"], repr=False)
    listed: tuple[AssignorSpec, ...] = field(default=(), repr=False)
    target: Named | None = field(default=None, repr=False)
    kinds: Mapping[str, KindPolicy] = field(default_factory=dict, repr=False)

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
            key = spelled(given)
            if value is None:
                continue
            if key in written and config[written[key]] != value:
                raise ConfigError(f"{given} and {written[key]} are one key, with two values")
            if key in KEYS:
                values[key] = parsed(KEYS[key], given, value)
            elif client_keys.is_known(key):
                others[key] = (given, value)
            else:
                raise ConfigError(_unknown(given))
            written[key] = given
        _check(values)
        passed = {
            key: accepted
            for key, (given, value) in others.items()
            if (accepted := client_keys.checked(key, given, value)) is not None
        }
        return cls(values, passed, frozenset(written) & KEYS.keys(), **_resolved(values, written))

    def user_name(self, key: str) -> str:
        """Return the user's name of a key."""
        return self.user_names.get(key, key)

    @property
    def returns(self) -> bool:
        """Whether a departed member comes back, unless its program says otherwise."""
        return bool(self.values["holdfast.clean.leave"] == When.DEFERRED)

    @property
    def call_timeout_s(self) -> float:
        """How long a call of the application waits for a broker, in s."""
        ms: int | None = self.values["default.api.timeout.ms"]
        return (self.values["request.timeout.ms"] if ms is None else ms) / 1000


def _unknown(key: str) -> str:
    hint = client_keys.suggestion(key, (*KEYS, *client_keys.handled_keys()))
    return f"unknown configuration key {key!r}{hint}"


def _resolved(values: Mapping[str, Any], written: Container[str]) -> dict[str, Any]:
    """Return the policy and the assignors that the user named, as fields of :class:`Settings`."""
    # The designs are loaded with the first member, not with the client's module.
    from holdfast.members.config.own_assignors import (
        resolve,
        resolve_kind,
        resolve_policy,
        resolve_target,
    )

    target = values["holdfast.target.assignor"]
    is_listed = _LIST in written
    return {
        "listed": tuple(map(resolve, values[_LIST])) if is_listed else (),
        "target": None if target is None else resolve_target(target),
        "kinds": {kind: resolve_kind(kind, own) for kind, own in values["holdfast.kinds"].items()},
        "policy": resolve_policy(values["holdfast.policy"]),
    }


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
    check_login(values)


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
        **{client_keys.PASSED[key].name: value for key, value in settings.passed.items()},
    }
    if settings["security.protocol"].endswith("SSL"):
        algorithm = settings["ssl.endpoint.identification.algorithm"] or "none"
        result["ssl.endpoint.identification.algorithm"] = algorithm
    if settings["sasl.mechanism"] == "OAUTHBEARER":
        provide = settings["holdfast.oauth.token.provider"]
        result["oauth_cb"] = oauth_callback(provide)
    if settings["sasl.mechanism"] == kerberos.MECHANISM:
        result |= {key: settings[key] for key in kerberos.KEYS if settings[key] is not None}
        if settings[kerberos.KEYTAB] is None:
            result["sasl.kerberos.kinit.cmd"] = ""  # the tickets of the cache, as they are
    return result
