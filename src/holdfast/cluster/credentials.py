"""TLS and logins in the spelling of any Kafka client's configuration.

**Rules.** Java's keys are converted to librdkafka's, which holdfast uses. Two spellings that
contradict each other are refused. So are keys that cannot be honoured, before anything connects,
with the reason: a store that is not PEM, Kerberos, disabled checks of certificates. No error
contains a secret.

**Strategy.** :func:`normal` translates a configuration before :class:`Settings` parses it;
:func:`java` writes the result for Spark, whose client is Java's.

References: Kafka security configuration; KIP-651 (PEM instead of JKS and PKCS #12).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError

KEYS = frozenset(
    {
        *("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password"),
        *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
        *("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"),
        *("ssl.endpoint.identification.algorithm", "holdfast.oauth.token.provider"),
    }
)
"""The keys of credentials that :func:`normal` returns."""

SAME = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
"""Other spellings of a key, with the same value."""

_STORES = {
    "truststore": ("ssl.ca.location",),
    "keystore": ("ssl.certificate.location", "ssl.key.location"),
}
SPELLINGS = (
    *SAME,
    *("sasl.jaas.config", "sasl.kerberos.service.name", "enable.ssl.certificate.verification"),
    *(f"ssl.{store}.{part}" for store in _STORES for part in ("location", "type", "password")),
)
"""Other clients' keys that :func:`normal` translates or refuses."""

_SECRET = frozenset({"sasl.password", "ssl.key.password", "ssl.key.pem"})

_NOT_HERE = {
    "sasl.kerberos.": "holdfast has no Kerberos (GSSAPI): use SCRAM or TLS",
    "sasl.login.callback.handler.class": "a class of Java cannot be called here",
    "sasl.client.callback.handler.class": "a class of Java cannot be called here",
    "sasl.login.class": "a class of Java cannot be called here",
    "sasl.oauthbearer.": (
        "a member takes a function as holdfast.oauth.token.provider; the command line has no way "
        "to get a token"
    ),
    "ssl.engine.factory.class": "a class of Java cannot be called here",
    "ssl.keymanager.algorithm": "only PEM is supported",
    "ssl.trustmanager.algorithm": "only PEM is supported",
}
MECHANISMS = {
    "GSSAPI": "holdfast has no Kerberos (GSSAPI): use SCRAM or TLS",
    "AWS_MSK_IAM": (
        "a member uses OAUTHBEARER, with a function that signs the token as "
        "holdfast.oauth.token.provider; the command line has no way to get a token"
    ),
}
"""Mechanisms that other clients support and holdfast does not, with the reasons."""

_JAAS_OPTION = re.compile(r"""(\w[\w.]*)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def normal(config: Mapping[str, object]) -> dict[str, object]:
    """Return a configuration with its credentials in holdfast's spelling, otherwise unchanged.

    Parameters
    ----------
    config : mapping of str to object
        Keys in the spelling of Java, librdkafka or holdfast.

    Returns
    -------
    dict of str to object

    Raises
    ------
    ConfigError
        For two spellings with two values, and for keys that cannot be honoured.
    """
    rest = dict(config)
    found: dict[str, object] = {}
    stores = {name: rest.pop(f"ssl.{name}.location", None) for name in _STORES}
    types = {name: rest.pop(f"ssl.{name}.type", None) for name in _STORES}
    for name, location in stores.items():
        if location is None and types[name] in (None, "PEM"):
            continue
        _check_pem(name, location, types[name])
        if rest.pop(f"ssl.{name}.password", None):
            raise ConfigError(f"ssl.{name}.password: a PEM store has no password")
        if location is not None:
            for key in _STORES[name]:
                _put(found, key, location, f"ssl.{name}.location")
    for key, value in rest.items():
        _refuse_foreign(key, value)
        if key == "sasl.jaas.config":
            for name, text in _logins(value).items():
                _put(found, name, text, key)
        elif key != "enable.ssl.certificate.verification":
            _put(found, SAME.get(key, key), value, key)
    return found


def _put(found: dict[str, object], key: str, value: object, given: str) -> None:
    if value is None:
        return
    if found.get(key, value) != value:
        shown = "" if key in _SECRET else f" ({found[key]!r} and {value!r})"
        raise ConfigError(f"{given} contradicts another spelling of {key}{shown}")
    found[key] = value


def _check_pem(name: str, location: object, kind: object) -> None:
    """Refuse a store that is not PEM; Java's default type is JKS, whatever the file is."""
    is_pem = str(kind).upper() == "PEM" if kind is not None else _looks_like_pem(location)
    if not is_pem:
        shown = f"a store of type {kind}" if kind is not None else f"{location}"
        raise ConfigError(
            f"ssl.{name}.location: only PEM is supported, and this is {shown}; "
            "`keytool -exportcert -rfc` or `openssl pkcs12` write PEM, then add "
            f"ssl.{name}.type=PEM"
        )


def _looks_like_pem(location: object) -> bool:
    try:
        return b"-----BEGIN" in Path(str(location)).read_bytes()
    except OSError as error:
        raise ConfigError(f"{location} cannot be read: {error.strerror}") from None


def _refuse_foreign(key: str, value: object) -> None:
    for begin, why in _NOT_HERE.items():
        if key == begin or (begin.endswith(".") and key.startswith(begin)):
            raise ConfigError(f"{key}: {why}")
    if key == "enable.ssl.certificate.verification" and str(value).lower() != "true":
        raise ConfigError(
            f"{key}: certificates are always checked; name the CA that signed the brokers' as "
            "ssl.ca.location"
        )


def _logins(jaas: object) -> dict[str, str]:
    """Return user name and password of a Java client's ``sasl.jaas.config``."""
    if not isinstance(jaas, str):
        raise ConfigError("sasl.jaas.config: expected a string")
    options = {name: _unquoted(text) for name, text in _JAAS_OPTION.findall(jaas)}
    missing = [name for name in ("username", "password") if name not in options]
    if missing:
        there = f" among {', '.join(options)}" if options else ""
        raise ConfigError(
            f"sasl.jaas.config: found no {' and no '.join(missing)}{there}; expected "
            '`... required username="..." password="...";`'
        )
    return {f"sasl.{name}": options[name] for name in ("username", "password")}


def _unquoted(text: str) -> str:
    if text[0] in "\"'":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def java(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the credentials of parsed settings in Java's spelling.

    Parameters
    ----------
    settings : mapping of str to object
        Settings with every key of :data:`KEYS`.

    Returns
    -------
    dict of str to str

    Raises
    ------
    ConfigError
        If a file cannot be read, or its key is in a format that Java does not read.
    """
    found = {"security.protocol": str(settings["security.protocol"])}
    mechanism = settings["sasl.mechanism"]
    if mechanism is not None:
        if mechanism not in _MODULES:
            raise ConfigError(
                f"sasl.mechanism: {mechanism} needs a function, which cannot be written as text"
            )
        login = " ".join(
            f'{name}="{_escaped(settings[f"sasl.{name}"])}"' for name in ("username", "password")
        )
        found["sasl.mechanism"] = mechanism
        found["sasl.jaas.config"] = f"{_MODULES[mechanism]} required {login};"
    if found["security.protocol"].endswith("SSL"):
        found |= _java_tls(settings)
    return found


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _java_tls(settings: Mapping[str, Any]) -> dict[str, str]:
    algorithm = settings["ssl.endpoint.identification.algorithm"]
    found = {"ssl.endpoint.identification.algorithm": algorithm if algorithm == "https" else ""}
    authorities = _text(settings, "ssl.ca")
    if authorities is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    chain, key = _text(settings, "ssl.certificate"), _text(settings, "ssl.key")
    if chain is not None and key is not None:
        if re.search("-----BEGIN (RSA|EC|DSA) PRIVATE KEY", key):
            raise ConfigError(
                "ssl.key.location: Spark's client reads keys in PKCS #8 only; "
                "`openssl pkcs8 -topk8 -in KEY -out NEW` writes it so"
            )
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": "".join(_blocks(chain, "CERTIFICATE")),
            "ssl.keystore.key": "".join(_blocks(key, "PRIVATE KEY")),
        }
        if settings["ssl.key.password"] is not None:
            found["ssl.key.password"] = settings["ssl.key.password"]
    return found


def _text(settings: Mapping[str, Any], name: str) -> str | None:
    """Return PEM text, given as such or by its file."""
    given: str | None = settings[f"{name}.pem"]
    location = settings[f"{name}.location"]
    if given is not None or location is None:
        return given
    try:
        return Path(location).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}.location: {location} cannot be read: {error}") from None


def _blocks(pem: str, kind: str) -> list[str]:
    """Return the blocks of ``kind`` in a PEM text; a file may hold a key and a chain."""
    pattern = rf"-----BEGIN [A-Z ]*{kind}-----.*?-----END [A-Z ]*{kind}-----\n?"
    return re.findall(pattern, pem, re.S)
