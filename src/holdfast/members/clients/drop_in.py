"""What the drop-ins share: a client's names and errors, its keywords, ``install()``.

**Rules.** A program changes the module in its import, so every public name of the client exists:
holdfast's where it has one, else the client's. A consumer class of the client that holdfast does
not replace is not forwarded: every consumer of a drop-in is a member of holdfast.

A keyword of the client keeps its meaning. Keywords of holdfast begin with ``holdfast_`` and are the
``holdfast.*`` keys with underscores; :data:`DELAY` and Kafka's keys of logins that the clients lack
(:data:`LOGINS`) are the only other ones. A key that a drop-in cannot honour is refused
(:data:`CONSUMER_ONLY`).

``install()`` is for a program whose framework makes the consumer. Every loaded module that has the
client's class as a global gets holdfast's, under the same name. Modules of holdfast keep the
original, and so do modules that the caller names. A class already derived from the original stays
as it is, and a warning names it. Installations may be nested: they are undone in reverse order.

**Strategy.** :meth:`ClassReplacement.install` looks through ``sys.modules`` once. Modules that are
loaded later find holdfast's class in the client's package. It also holds options for every later
consumer, because many frameworks pass only the options that they know.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

from holdfast.cluster import credentials, kerberos
from holdfast.cluster.client_configs import ssl_context
from holdfast.cluster.settings import ConnectionSettings
from holdfast.cluster.tokens import AWS_MECHANISM
from holdfast.errors import ConfigError, RemoteProtocolError, SourceError
from holdfast.members.config.client_keys import RESETS
from holdfast.members.config.settings import Settings

_PORT = 9092
_IN_TEXTS = ("holdfast.drain.timeout.ms", "holdfast.location")  # named in texts of a member
DELAY = "scheduled_rebalance_max_delay_ms"
STRATEGY = "partition_assignment_strategy"
MEMBER_KEYS = {
    "group_id": "group.id",
    "group_instance_id": "group.instance.id",
    "client_id": "client.id",
    "client_rack": "client.rack",
    "session_timeout_ms": "session.timeout.ms",
    "heartbeat_interval_ms": "heartbeat.interval.ms",
    "max_poll_interval_ms": "max.poll.interval.ms",
    "enable_auto_commit": "enable.auto.commit",
    "metadata_max_age_ms": "metadata.max.age.ms",
    "request_timeout_ms": "request.timeout.ms",
    "retry_backoff_ms": "retry.backoff.ms",
    "isolation_level": "isolation.level",
}
"""Keyword of both clients -> key of the member."""

CONSUMER_ONLY = {
    "holdfast.handle.signals": "as with the original, the program handles SIGTERM and closes",
}
"""Keys of ``holdfast.Consumer`` that no drop-in can honour, and the reasons."""

LOGINS = (
    *("sasl_oauthbearer_", "sasl_jaas_config", "sasl_login_", "sasl_client_callback_"),
    *("ssl_keystore_", "ssl_truststore_", "ssl_key_password", "https_ca_location"),
    *("sasl_kerberos_keytab", "sasl_kerberos_principal", "sasl_kerberos_kinit_"),
    *("holdfast_oauth_token_provider", "holdfast_aws_region"),
)
"""Beginnings of keywords: keys of a login, with underscores, that become keywords of the client."""

_NO_LOGIN = {kerberos.SERVICE: "kafka", kerberos.KEYTAB: None, kerberos.PRINCIPAL: None}
_SERVICE = "sasl_kerberos_service_name"
_LOGIN_WORDS = {
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}


def module_attribute(module: str, name: str, late: Mapping[str, str], client: ModuleType) -> Any:
    """Return the object of a drop-in's ``module`` for a name that is not a global.

    Names in ``late`` are holdfast's, each imported on first use from its ``module:name``.

    Raises
    ------
    AttributeError
        If the name does not exist, or this version of the client lacks what it needs.
    """
    missing = f"module {module!r} has no attribute {name!r}"
    if name in late:
        home, _, own = late[name].partition(":")
        try:
            return getattr(import_module(home), own)
        except (ImportError, AttributeError) as error:
            raise AttributeError(missing) from error
    if name not in client.__all__ or name.endswith("Consumer"):
        raise AttributeError(missing)
    if hasattr(client, name):
        return getattr(client, name)
    return import_module(f"{client.__name__}.{name}")  # some of the names are modules


class ClassReplacement:
    """Replaced classes, and options that override those of every consumer of a group.

    If the option ``policy`` is installed, the assignors that a framework names by default, the
    option ``strategy``, are dropped.
    """

    def __init__(self, *, policy: str, strategy: str):
        self.options: Mapping[str, Any] = {}
        self._policy = policy
        self._strategy = strategy

    def override(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of one consumer, overridden by the installed ones."""
        dropped = {self._strategy} if self._policy in self.options else set()
        kept = {key: value for key, value in options.items() if key not in dropped}
        return {**kept, **self.options}

    def install(
        self,
        ours: Mapping[type, type],
        options: Mapping[str, Any],
        *,
        keeps_original: Callable[[str], bool] = lambda _: False,
    ) -> Callable[[], None]:
        """Replace classes in every loaded module, and the previously installed options.

        ``ours`` maps a client's class to holdfast's. A module for whose name ``keeps_original`` is
        True keeps the originals. The returned function restores everything.

        Warns
        -----
        RuntimeWarning
            For each class of another module already derived from an original.
        """
        changed = _replace_classes(ours, keeps_original)
        before = [self.options]
        self.options = dict(options)
        for original, mine in ours.items():
            _warn_of_derived(original, mine, keeps_original)

        def undo() -> None:
            while changed:
                module, key, value = changed.pop()
                setattr(module, key, value)
            while before:
                self.options = before.pop()

        return undo


def _replace_classes(
    ours: Mapping[type, type], keeps_original: Callable[[str], bool]
) -> list[tuple[ModuleType, str, type]]:
    """Replace the classes; return the module, name and previous class of each replacement."""
    changed: list[tuple[ModuleType, str, type]] = []
    for name, module in list(sys.modules.items()):
        if (
            name.startswith("holdfast.")
            or keeps_original(name)
            or not isinstance(module, ModuleType)
        ):
            continue  # None where an import is blocked
        for key, value in list(vars(module).items()):
            if isinstance(value, type) and (mine := ours.get(value)) is not None:
                setattr(module, key, mine)
                changed.append((module, key, value))
    return changed


def _warn_of_derived(original: type, mine: type, keeps_original: Callable[[str], bool]) -> None:
    derived: list[type] = original.__subclasses__()
    for kind in derived:
        home = kind.__module__
        if not (issubclass(kind, mine) or home.startswith("holdfast.") or keeps_original(home)):
            warnings.warn(
                f"{home}.{kind.__qualname__} was derived from {original.__qualname__} before "
                f"install(), so its consumers do not use holdfast: call install() before "
                f"{home} is imported",
                RuntimeWarning,
                stacklevel=4,
            )


def to_client_error(classes: Any, error: BaseException) -> Any:
    """Convert an error of holdfast to the client's class with the same code."""
    if isinstance(error, classes.KafkaError):
        return error
    if isinstance(error, RemoteProtocolError) and error.error_code > 0:
        return classes.for_code(error.error_code)(str(error))
    if isinstance(error, SourceError):
        return classes.KafkaConnectionError(str(error))
    return classes.KafkaError(str(error))


def to_connection_error(classes: Any, error: BaseException) -> Any:
    """Convert an error; one without a class of its own means that no broker has answered."""
    client_error = to_client_error(classes, error)
    if type(client_error) is classes.KafkaError:
        return classes.KafkaConnectionError(str(error))
    return client_error


def with_login(
    options: Mapping[str, Any], tokens: Callable[[Callable[[], Any]], Any]
) -> dict[str, Any]:
    """Return keywords of a client, with those of :data:`LOGINS` in the client's own words.

    ``tokens`` makes the client's token provider of one of :mod:`holdfast.cluster.tokens`.

    Raises
    ------
    ConfigError
        For a login that cannot be honoured.
    """
    given = {
        word.replace("_", "."): one for word, one in options.items() if word.startswith(LOGINS)
    }
    mechanism = options.get("sasl_mechanism")
    if not given and mechanism != AWS_MECHANISM:
        return dict(options)
    more = {
        "bootstrap.servers": options.get("bootstrap_servers"),
        "security.protocol": options.get("security_protocol"),
        kerberos.SERVICE: options.get(_SERVICE),
    }
    login = credentials.normal({**more, "sasl.mechanism": mechanism, **given})
    result = {word: one for word, one in options.items() if not word.startswith(LOGINS)}
    result |= {word: login[key] for key, word in _LOGIN_WORDS.items() if key in login}
    if (provide := login.get(credentials.PROVIDER)) is not None:
        result["sasl_oauth_token_provider"] = tokens(provide)  # type: ignore[arg-type]
    if login.get("sasl.mechanism") == kerberos.MECHANISM:
        result[_SERVICE] = kerberos.service_of({**_NO_LOGIN, **login})
        kerberos.use_in_kafka_python()
    if tls := {key: one for key, one in login.items() if key.startswith("ssl.")}:
        base = {"bootstrap.servers": "-", "security.protocol": "SSL"}
        result["ssl_context"] = ssl_context(ConnectionSettings.of({**base, **tls}))
    return result


def is_ours(keyword: str) -> bool:
    """Return whether a keyword is one of holdfast, which neither client has."""
    return keyword.startswith("holdfast_") or keyword == DELAY


def settings_of(
    options: Mapping[str, Any],
    ours: Mapping[str, Any],
    *,
    written: Container[str],
    member_keys: Mapping[str, str],
    assignor_of: Callable[[Any], Any],
    more: Mapping[str, Any] = {},
) -> Settings:
    """Return the member's settings.

    Parameters
    ----------
    options, ours : mapping of str to object
        The client's keywords, all of them, and those of :func:`is_ours`.
    written : container of str
        The client's keywords that the program has written; the others have the client's defaults.
        A policy without a written :data:`STRATEGY` chooses the assignors itself.
    member_keys : mapping of str to str
        Keyword of the client -> key of the member.
    assignor_of : callable
        Converts an element of :data:`STRATEGY` to a name or an assignor of holdfast.
    more : mapping of str to object
        More keys of the member; a keyword of holdfast overrides them.

    Raises
    ------
    ConfigError
        For a keyword that is unknown, out of range, or in conflict with another.
    """
    config: dict[str, Any] = {
        "bootstrap.servers": servers(options["bootstrap_servers"]),
        # aiokafka has client_rack since 0.14
        **{key: options[word] for word, key in member_keys.items() if word in options},
        "auto.offset.reset": _reset(options["auto_offset_reset"]),
        **more,
    }
    listed: list[Any] = []
    if STRATEGY in written or "holdfast_policy" not in ours:
        listed = list(options[STRATEGY])
        config["partition.assignment.strategy"] = list(map(assignor_of, listed))
    given = _lag_keys(listed) | _our_keys(ours)
    named = {key: word for word, key in member_keys.items()}
    named |= {key: key.replace(".", "_") for key in _IN_TEXTS}
    return replace(Settings.parse(config | given), user_names=named)


def _reset(given: object) -> str:
    reset = str(given).lower()
    reset = RESETS.get(reset, reset)
    return reset if reset in ("earliest", "latest") else "none"


def _our_keys(ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the member's keys for the keywords of :func:`is_ours`."""
    keys = {word.replace("_", "."): value for word, value in ours.items()}
    for key in keys.keys() & CONSUMER_ONLY.keys():
        raise ConfigError(f"{key}: {CONSUMER_ONLY[key]}")
    return keys


def _lag_keys(strategies: Iterable[Any]) -> dict[str, Any]:
    """Return the member's keys for the lag source of assignors made for the stock client."""
    with_lags = [one for one in strategies if getattr(one, "lag_source", None) is not None]
    if any(one.lag_source is not with_lags[0].lag_source for one in with_lags):
        raise ConfigError(
            "partition_assignment_strategy: its assignors have several lag sources, and a member "
            "uses one: give it as holdfast_lag_source"
        )
    if not with_lags:
        return {}
    one = with_lags[0]
    return {"holdfast.lag.source": one.lag_source, "holdfast.lag.timeout.ms": one.lag_timeout_ms}


def servers(given: Any) -> list[str]:
    """Return addresses with a port, from what clients take: a text, a list, or pairs."""
    parts = filter(str.strip, given.split(",")) if isinstance(given, str) else given
    return [_server(part if isinstance(part, str) else ":".join(map(str, part))) for part in parts]


def _server(given: str) -> str:
    address = given.strip().rpartition("://")[2]
    if address.count(":") > 1 and not address.startswith("["):
        return f"[{address}]:{_PORT}"
    has_port = ":" in address.rpartition("]")[2]
    return address if has_port else f"{address}:{_PORT}"
