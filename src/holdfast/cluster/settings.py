r"""The settings of connections to a cluster: addresses, time-outs, logins, TLS; and files of them.

**Rules.** A value is parsed once, here; other modules get typed values. A secret never appears in a
text: :class:`ConnectionSettings` prints it as ``[hidden]``.

A file of client properties (``--command-config``) is read as Java's ``Properties`` and Kafka's
configuration read it. ``#`` and ``!`` begin a comment, and a line that ends with an odd number of
backslashes continues in the next one. A key ends at the first blank, ``=`` or ``:`` without a
backslash before it. The last value of a key counts. Variables ``${name:key}`` are replaced by
Kafka's own providers of the environment, of files and of folders, if ``config.providers`` names
them. Java reads ISO 8859-1; a file in UTF-8 is accepted, too, and :func:`oddities` names it.

**Strategy.** One table holds type, default and range of every key. A member has more keys
(:mod:`holdfast.members.config.settings`) and parses them with the same functions.

References: Kafka consumer configuration; java.util.Properties, ``load``; KIP-297 (providers of
configuration), KIP-421 (their use by clients), KIP-887 (environment), KIP-993 (allowed paths).
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from holdfast.cluster import kerberos
from holdfast.core.model.constants import INT32_MAX
from holdfast.errors import ConfigError, nearest

_HIDDEN = "[hidden]"

PROVIDERS = "config.providers"
_PACKAGE = "org.apache.kafka.common.config.provider."
_ENVIRONMENT, _FILE, _FOLDER = (
    f"{_PACKAGE}{name}ConfigProvider" for name in ("EnvVar", "File", "Directory")
)
# Texts, because a member never reads such a file: ``re`` compiles each when it is first used.
_VARIABLE = r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}"
_ESCAPE = r"(?s)\\(u[0-9a-fA-F]{4}|.)"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE = r"(?s)((?:[^\\\s=:]|\\.)*)\s*([=:]?)\s*(.*)"
_MARKS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One configuration key: how to parse it, its default, and whether it may be shown."""

    parse: Callable[[object], object]
    default: object = None
    secret: bool = False


def parse_text(value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ValueError(f"expected a string, found {type(value).__name__}")
    return value


def parse_name(value: object) -> str:
    """Return a text that is not empty."""
    if not (text := parse_text(value)):
        raise ValueError("an empty string is not a name")
    return text


def one_of(*allowed: str, upper: bool = False) -> Callable[[object], str]:
    """Return a parser of the texts ``allowed`` alone, with ``upper`` in small letters too."""

    def parse(value: object) -> str:
        text = parse_text(value)
        text = text.upper() if upper else text
        if text not in allowed:
            hint = nearest(repr(text), map(repr, allowed))
            raise ValueError(f"expected one of {', '.join(allowed)}, found {text!r}{hint}")
        return text

    return parse


def parse_whole(value: object, low: int, high: int = INT32_MAX, unit: str = "") -> int:
    """Return a whole number, also from a text; the ValueError says what to write instead."""
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int):
        of = f" of {unit}" if unit else ""
        raise ValueError(f"expected a whole number{of}, found {value!r}{_in_ms(value, unit)}")
    if not low <= number <= high:
        raise ValueError(f"{number} is outside {low} to {high}{f' {unit}' if unit else ''}")
    return number


_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_WITH_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)")


def _in_ms(value: object, unit: str) -> str:
    found = _WITH_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    if unit != "ms" or found is None:
        return ""
    return f"; in ms it is {round(float(found[1]) * _MS[found[2]])}"


def parse_boolean(value: object) -> bool:
    """Return a boolean, also from a text."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError(f"expected true or false, found {value!r}")


def integer(low: int, high: int = INT32_MAX) -> Callable[[object], int]:
    """Return a parser of whole numbers from ``low`` to ``high``."""
    return partial(parse_whole, low=low, high=high)


def milliseconds(low: int) -> Callable[[object], int]:
    """Return a parser of whole numbers of ms, at least ``low``."""
    return partial(parse_whole, low=low, unit="ms")


def parse_names(value: object) -> tuple[str, ...]:
    """Return texts that are not empty, from a list or a text with commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not parts:
        raise ValueError(f"expected a list or a comma-separated string, found {value!r}")
    return tuple(parse_name(part.strip() if isinstance(part, str) else part) for part in parts)


def parse_function(value: object) -> Callable[..., Any]:
    """Return a function."""
    if not callable(value):
        raise ValueError(f"expected a function, found {type(value).__name__}")
    return value


def _ssl_context(value: object) -> ssl.SSLContext:
    if not isinstance(value, ssl.SSLContext):
        raise ValueError(f"expected an ssl.SSLContext, found {type(value).__name__}")
    return value


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", kerberos.MECHANISM)
KEYS: Mapping[str, Key] = {
    "bootstrap.servers": Key(parse=parse_names),
    "client.id": Key(parse=parse_text, default="holdfast"),
    "isolation.level": Key(
        parse=one_of("read_uncommitted", "read_committed"), default="read_uncommitted"
    ),
    "metadata.max.age.ms": Key(parse=milliseconds(0), default=300_000),
    "request.timeout.ms": Key(parse=milliseconds(1), default=30_000),
    "retry.backoff.ms": Key(parse=milliseconds(0), default=100),
    "retry.backoff.max.ms": Key(parse=milliseconds(0), default=1_000),
    "reconnect.backoff.ms": Key(parse=milliseconds(0), default=50),
    "reconnect.backoff.max.ms": Key(parse=milliseconds(0), default=1_000),
    "security.protocol": Key(parse=one_of(*_PROTOCOLS, upper=True), default="PLAINTEXT"),
    "sasl.mechanism": Key(parse=one_of(*_MECHANISMS, upper=True)),
    "sasl.username": Key(parse=parse_text),
    "sasl.password": Key(parse=parse_text, secret=True),
    kerberos.SERVICE: Key(parse=parse_name, default="kafka"),
    kerberos.KEYTAB: Key(parse=parse_name),
    kerberos.PRINCIPAL: Key(parse=parse_name),
    "ssl.ca.location": Key(parse=parse_name),
    "ssl.certificate.location": Key(parse=parse_name),
    "ssl.key.location": Key(parse=parse_name),
    "ssl.key.password": Key(parse=parse_text, secret=True),
    "ssl.ca.pem": Key(parse=parse_name),
    "ssl.certificate.pem": Key(parse=parse_name),
    "ssl.key.pem": Key(parse=parse_name, secret=True),
    "ssl.endpoint.identification.algorithm": Key(
        parse=one_of("https", "none", ""), default="https"
    ),
    "holdfast.oauth.token.provider": Key(parse=parse_function, secret=True),
    "holdfast.ssl.context": Key(parse=_ssl_context, secret=True),
}
"""The keys of connections."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Parsed configuration; ``settings["client.id"]`` has the type of the table."""

    TABLE: ClassVar[Mapping[str, Key]] = KEYS

    values: Mapping[str, Any] = field(repr=False)  # every key with its value
    # The keys for the data plane, in holdfast's spelling.
    passed: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown()})"

    def shown(self) -> dict[str, Any]:
        """Return the values that are no defaults, for people: no secret is shown."""
        return {
            key: _HIDDEN if self.TABLE[key].secret else value
            for key, value in self.values.items()
            if value is not None and value != self.TABLE[key].default
        }

    @classmethod
    def of(cls, config: Mapping[str, object]) -> ConnectionSettings:
        """Return the settings of a connection without a member."""
        values: dict[str, Any] = {key: entry.default for key, entry in KEYS.items()}
        values |= {key: parsed(KEYS[key], key, value) for key, value in config.items()}
        check_login(values)
        return cls(values)

    def with_login(self, username: str, password: str) -> Self:
        """Return the same settings with another ``sasl.username`` and ``sasl.password``."""
        login = {"sasl.username": username, "sasl.password": password}
        return replace(self, values={**self.values, **login})


def parsed(entry: Key, given: str, value: object) -> object:
    """Return the parsed value of the key that the user has written as ``given``; show no secret."""
    try:
        return entry.parse(value)
    except ValueError as error:
        shown = "its value cannot be used" if entry.secret else str(error)
        raise ConfigError(f"{given}: {shown}") from None


def check_login(values: Mapping[str, Any]) -> None:
    """Refuse keys of logins and TLS that contradict each other or are incomplete."""
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
    elif mechanism not in (None, kerberos.MECHANISM) and (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Property:
    key: str
    value: str
    line: int


def read_properties(path: Path) -> dict[str, str]:
    """Read a file of client properties: the last value of each key, with those of its variables."""
    return resolved({one.key: one.value for one in _properties(path, _text(path)[0])})


def oddities(path: Path) -> Iterator[str]:
    """Yield what a reader of the file may not expect, line by line."""
    text, encoding = _text(path)
    if encoding == "utf-8":
        yield (
            "it has characters outside of ASCII in UTF-8: Kafka's tools read ISO 8859-1, where "
            "\\u00e9 is one of them for certain"
        )
    for number, line in enumerate(text.splitlines(), start=1):
        if re.search(r"\\[ \t]+$", line) and line.lstrip()[0] not in "#!":
            yield f"line {number} ends with a backslash and blanks: the next line is not part of it"
    lines: dict[str, int] = {}
    for one in _properties(path, text):
        if one.key in lines:
            yield f"line {one.line} replaces {one.key} of line {lines[one.key]}"
        lines[one.key] = one.line
        if "${" in one.value and not re.search(_VARIABLE, one.value):
            yield f"{one.key} contains ${{, which only {PROVIDERS} replaces"


def _text(path: Path) -> tuple[str, str]:
    """Return the text of a file and its encoding."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--command-config {path} cannot be read: {error}") from error
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            raise ConfigError(
                f"--command-config {path} begins with a byte order mark ({encoding}), which Java "
                "reads as part of the first key: save it without"
            )
    for encoding in ("ascii", "utf-8"):
        try:
            return data.decode(encoding), encoding
        except ValueError:
            continue
    return data.decode("latin-1"), "latin-1"


def _properties(path: Path, content: str) -> Iterator[_Property]:
    begins, text = 0, ""
    for number, raw in enumerate([*re.split(r"\r\n|\n|\r", content), ""], start=1):
        line = raw.lstrip(" \t\f")
        if not text:
            begins = number
            if not line or line[0] in "#!":
                continue
        text += line
        if (len(text) - len(text.rstrip("\\"))) % 2:
            text = text[:-1]
            continue
        if text:
            where = f"{path} line {begins}"
            key, _, value = re.fullmatch(_LINE, text.rstrip()).groups()  # type: ignore[union-attr]
            yield _Property(key=_plain(key, where), value=_plain(value, where), line=begins)
        text = ""


def _plain(text: str, where: str) -> str:
    def meant(escape: re.Match[str]) -> str:
        what = escape[1]
        if what == "u":
            raise ConfigError(rf"{where}: malformed \uxxxx")
        return chr(int(what[1:], 16)) if len(what) == 5 else _ESCAPES.get(what, what)

    return re.sub(_ESCAPE, meant, text)


def resolved(config: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration without its providers, and with the values of its variables."""
    named = [name.strip() for name in config.get(PROVIDERS, "").split(",") if name.strip()]
    classes = {name: config.get(f"{PROVIDERS}.{name}.class", "") for name in named}
    for name, class_ in classes.items():
        if class_ not in (_ENVIRONMENT, _FILE, _FOLDER):
            raise ConfigError(
                f"{PROVIDERS}.{name}.class: {class_ or 'nothing'} cannot be called here; it may be "
                f"{_ENVIRONMENT}, {_FILE} or {_FOLDER}"
            )
    rest = {key: one for key, one in config.items() if not key.startswith(PROVIDERS)}

    def value_of(key: str, variable: re.Match[str]) -> str:
        name, path, wanted = variable.groups()
        if name not in classes:
            return variable[0]
        limits = f"{PROVIDERS}.{name}.param."
        try:
            if classes[name] == _ENVIRONMENT:
                pattern = config.get(f"{limits}allowlist.pattern", ".*")
                return {k: v for k, v in os.environ.items() if re.fullmatch(pattern, k)}[wanted]
            return _of_files(
                classes[name], Path(path or ""), wanted, config.get(f"{limits}allowed.paths", "")
            )
        except (KeyError, OSError, ValueError):
            raise ConfigError(f"{key}: {variable[0]} has no value") from None

    return {
        key: re.sub(_VARIABLE, lambda found, key=key: value_of(key, found), value)  # type: ignore[misc]
        for key, value in rest.items()
    }


def _of_files(class_: str, path: Path, wanted: str, allowed: str) -> str:
    """Return a value of a file of properties, or the text of a file in a folder."""
    roots = [Path(one.strip()) for one in allowed.split(",") if one.strip()]
    if roots and not any(path.resolve().is_relative_to(root.resolve()) for root in roots):
        raise ValueError
    if class_ == _FILE:
        return {one.key: one.value for one in _properties(path, _text(path)[0])}[wanted]
    if Path(wanted).name != wanted:
        raise ValueError
    return (path / wanted).read_text(encoding="utf-8")
