"""TLS and logins in the spelling of any Kafka client's configuration.

**Rules.** Java's keys are converted to librdkafka's, which holdfast uses. Two spellings that
contradict each other are refused. So are keys that cannot be honoured, before anything connects,
with the reason, such as disabled checks of certificates. No error contains a secret.

**Strategy.** :func:`normal` translates a configuration before :class:`Settings` parses it: stores
of Java become PEM (:mod:`~holdfast.cluster.keystores`), and the keys of a token endpoint or of AWS
become a provider of tokens (:mod:`~holdfast.cluster.tokens`). Keys of Kerberos are librdkafka's
(:mod:`~holdfast.cluster.kerberos`). :func:`java` writes the result for Spark, whose client is
Java's.

References: Kafka security configuration; KIP-651 (PEM), KIP-768 (OIDC), KIP-1139 (its newer keys).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.cluster import kerberos
from holdfast.cluster.settings import KEYS as SETTINGS
from holdfast.cluster.tokens import (
    AWS_HANDLER,
    AWS_MECHANISM,
    AWS_OAUTH_HANDLER,
    AWS_OPTIONS,
    AWS_REGION,
    HANDLER,
    URL,
    TokenEndpoint,
    Tokens,
    aws_region,
    aws_tokens,
    oidc_tokens,
    quoted,
)
from holdfast.errors import ConfigError

PROVIDER = "holdfast.oauth.token.provider"
_BEGINNINGS = ("security.", "sasl.", "ssl.")
KEYS = frozenset({PROVIDER, *(key for key in SETTINGS if key.startswith(_BEGINNINGS))})
"""The keys of credentials that :func:`normal` returns."""

SAME = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
"""Other spellings of a key, with the same value."""

_OIDC = (
    *("sasl.oauthbearer.method", URL, "sasl.oauthbearer.client.id"),
    *("sasl.oauthbearer.client.secret", "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions"),
    *("sasl.oauthbearer.header.urlencode", "https.ca.location", "sasl.login.connect.timeout.ms"),
)
"""Keys of a token endpoint, in librdkafka's spelling where librdkafka has the key."""

_JAAS_OIDC = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_EXTENSION = "extension_"

_STORES = {
    "truststore": ("ssl.ca.location",),
    "keystore": ("ssl.certificate.location", "ssl.key.location"),
}
_CLASSES = {
    "sasl.login.callback.handler.class": (
        HANDLER,
        HANDLER.replace(".OAuthBearerLogin", ".secured.OAuthBearerLogin"),
        AWS_OAUTH_HANDLER,
    ),
    "sasl.client.callback.handler.class": (AWS_HANDLER,),
    "sasl.oauthbearer.jwt.retriever.class": tuple(
        HANDLER.replace("OAuthBearerLoginCallbackHandler", name)
        for name in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever")
    ),
    "sasl.oauthbearer.grant.type": ("client_credentials",),
}
"""Keys of classes -> values whose work is done here; another value is refused."""

_WITHOUT_EFFECT = (
    *("sasl.login.refresh.", "sasl.login.retry.backoff.", "sasl.login.read.timeout.ms"),
    *("sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.scope.claim.name"),
    *("sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.jwt.validator.class"),
    *("sasl.kerberos.ticket.renew.", "sasl.kerberos.min.time.before.relogin"),
)
"""Keys that tune how other clients renew tokens and tickets, or prefixes of such keys."""

SPELLINGS = (
    *SAME,
    *_OIDC,
    *_CLASSES,
    AWS_REGION,
    *("sasl.jaas.config", "sasl.kerberos.kinit.cmd", "enable.ssl.certificate.verification"),
    *(f"ssl.{store}.{part}" for store in _STORES for part in ("location", "type", "password")),
)
"""Other clients' keys that :func:`normal` translates or refuses."""

_SECRET = frozenset(
    {"sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"}
)

_NOT_HERE = {
    "sasl.kerberos.kinit.cmd": (
        f"no kinit is run: tickets come from {kerberos.KEYTAB}, else from the ticket cache"
    ),
    "sasl.login.class": "a class of Java cannot be called here",
    "sasl.oauthbearer.": "only the client credentials grant is supported, by method oidc",
    "enable.sasl.oauthbearer.unsecure.jwt": f"give a function as {PROVIDER}",
    "ssl.engine.factory.class": "a class of Java cannot be called here",
    "ssl.engine.": "the member's connections have no engine of OpenSSL",
    "ssl.ca.certificate.stores": "give the CA as ssl.ca.location or ssl.ca.pem",
    "ssl.keymanager.algorithm": "keys are read by Python, which has no algorithms of Java",
    "ssl.trustmanager.algorithm": "certificates are checked by Python, without Java's algorithms",
}

_JAAS_OPTION = re.compile(r"""(\w[\w.]*)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def normal(config: Mapping[str, object]) -> dict[str, object]:
    """Return a configuration with its credentials in holdfast's spelling, otherwise unchanged.

    Keys may be Java's, librdkafka's or holdfast's. Two spellings with two values, and keys that
    cannot be honoured, are a ConfigError.
    """
    rest = dict(config)
    found: dict[str, object] = {}
    _take_stores(rest, found)
    jaas: dict[str, str] = {}
    for key, value in rest.items():
        if value is None or key.startswith(_WITHOUT_EFFECT):
            continue
        _refuse_foreign(key, value)
        if key == "sasl.jaas.config":
            jaas = _options_of(value)
        elif key not in ("enable.ssl.certificate.verification", *_CLASSES):
            _put(found, SAME.get(key, key), value, key)
    has_module = kerberos.MODULE in str(rest.get("sasl.jaas.config"))
    is_sasl = str(found.get("security.protocol", "")).upper().startswith("SASL")
    if is_sasl and (has_module or kerberos.SERVICE in found):
        found.setdefault("sasl.mechanism", kerberos.MECHANISM)  # the default of Kafka's clients
    handler = rest.get("sasl.login.callback.handler.class")
    is_aws = AWS_REGION in found or handler == AWS_OAUTH_HANDLER
    _take_login(found, jaas, is_aws=is_aws)
    if isinstance(provider := found.get(PROVIDER), str):
        found[PROVIDER] = provider_named(provider)
    return found


def _take_login(found: dict[str, object], jaas: Mapping[str, str], *, is_aws: bool) -> None:
    """Add the login of Java's login module, and make a provider of the keys of tokens."""
    mechanism = str(found.get("sasl.mechanism", "")).upper()
    if is_aws or mechanism == AWS_MECHANISM:
        _take_aws(found, jaas)
    elif mechanism == "OAUTHBEARER":
        _take_oidc(found, jaas)
    elif mechanism == kerberos.MECHANISM:
        for key, value in (kerberos.keys_of(jaas) if jaas else {}).items():
            _put(found, key, value, "sasl.jaas.config")
        if kerberos.KEYTAB in found and kerberos.PRINCIPAL not in found:
            raise ConfigError(f"{kerberos.PRINCIPAL}: {kerberos.KEYTAB} needs it")
    elif jaas:
        for name in ("username", "password"):
            _put(found, f"sasl.{name}", _login(jaas, name), "sasl.jaas.config")
    for key in _OIDC:
        if found.pop(key, None) is not None and key.startswith("sasl.oauthbearer."):
            raise ConfigError(f"{key}: it needs sasl.mechanism OAUTHBEARER, found {mechanism}")
    for key in (kerberos.KEYTAB, kerberos.PRINCIPAL):
        if key in found and mechanism != kerberos.MECHANISM:
            raise ConfigError(f"{key}: it needs sasl.mechanism GSSAPI, found {mechanism or 'none'}")


def _put(found: dict[str, object], key: str, value: object, given: str) -> None:
    if value is None:
        return
    if found.get(key, value) != value:
        shown = "" if key in _SECRET else f" ({found[key]!r} and {value!r})"
        raise ConfigError(f"{given} contradicts another spelling of {key}{shown}")
    found[key] = value


def _take_stores(rest: dict[str, object], found: dict[str, object]) -> None:
    """Move Java's stores from ``rest`` to ``found``, as files of PEM or as PEM."""
    for name, keys in _STORES.items():
        begin = f"ssl.{name}"
        location, kind = rest.pop(f"{begin}.location", None), rest.pop(f"{begin}.type", None)
        password = rest.pop(f"{begin}.password", None)
        if location is None:
            if kind not in (None, "PEM"):
                raise ConfigError(f"{begin}.type: a store of type {kind} needs {begin}.location")
            continue
        from holdfast.cluster.keystores import is_pem, read_keystore  # few logins have a store

        if is_pem(path := Path(str(location)), begin):
            if password:
                raise ConfigError(f"{begin}.password: a PEM store has no password")
            for key in keys:
                _put(found, key, location, f"{begin}.location")
            continue
        key_password = rest.pop("ssl.key.password", None) if name == "keystore" else None
        word, key_word = (None if one is None else str(one) for one in (password, key_password))
        store = read_keystore(path, begin, word, key_word)
        texts = {"ssl.certificate.pem": store.chain, "ssl.key.pem": store.key}
        if name == "truststore":
            texts = {"ssl.ca.pem": store.trusted}
        for key, text in texts.items():
            if not text:
                raise ConfigError(f"{begin}.location: {location} has no {key.split('.')[1]}")
            _put(found, key, text, f"{begin}.location")


def _refuse_foreign(key: str, value: object) -> None:
    if key in _CLASSES:
        if value not in _CLASSES[key]:
            raise ConfigError(f"{key}: {value} cannot be called here; it may be {_CLASSES[key][0]}")
        return
    if key in _OIDC or key in SAME:
        return
    for begin, why in _NOT_HERE.items():
        if key == begin or (begin.endswith(".") and key.startswith(begin)):
            raise ConfigError(f"{key}: {why}")
    if key == "enable.ssl.certificate.verification" and str(value).lower() != "true":
        raise ConfigError(
            f"{key}: certificates are always checked; name the CA that signed the brokers' as "
            "ssl.ca.location"
        )


def _options_of(jaas: object) -> dict[str, str]:
    """Return the options of a Java client's ``sasl.jaas.config``."""
    if not isinstance(jaas, str):
        raise ConfigError("sasl.jaas.config: expected a string")
    return {name: _unquoted(text) for name, text in _JAAS_OPTION.findall(jaas)} or {"": ""}


def _login(options: Mapping[str, str], name: str) -> str:
    if name not in options:
        there = f" among {', '.join(options)}" if options.keys() - {""} else ""
        missing = [one for one in ("username", "password") if one not in options]
        raise ConfigError(
            f"sasl.jaas.config: found no {' and no '.join(missing)}{there}; expected "
            '`... required username="..." password="...";`'
        )
    return options[name]


def _unquoted(text: str) -> str:
    if text[0] in "\"'":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def _take_aws(found: dict[str, object], jaas: Mapping[str, str]) -> None:
    """Replace the keys of AWS by a provider of tokens."""
    if unknown := sorted(jaas.keys() - {*AWS_OPTIONS, "awsDebugCreds", ""}):
        raise ConfigError(f"sasl.jaas.config: {unknown[0]} is not supported with {AWS_MECHANISM}")
    region = aws_region(found.pop(AWS_REGION, None), found.get("bootstrap.servers"))
    options = {name: jaas[name] for name in AWS_OPTIONS if name in jaas}
    found["sasl.mechanism"] = "OAUTHBEARER"
    found.setdefault(PROVIDER, aws_tokens(region, options))


def _take_oidc(found: dict[str, object], jaas: Mapping[str, str]) -> None:
    """Replace the keys of a token endpoint by a provider of tokens."""
    for name, text in jaas.items():
        if name.startswith("unsecured"):
            raise ConfigError(f"sasl.jaas.config: {name}: give a function as {PROVIDER}")
        if name in _JAAS_OIDC:
            _put(found, _JAAS_OIDC[name], text, f"sasl.jaas.config: {name}")
    given = {key: str(found.pop(key)) for key in _OIDC if key in found}
    method = given.pop("sasl.oauthbearer.method", "default").lower()
    if method not in ("oidc", "default"):
        raise ConfigError(f"sasl.oauthbearer.method: expected oidc or default, found {method!r}")
    if URL not in given and method == "default":
        return
    if PROVIDER in found and not isinstance(found[PROVIDER], Tokens):
        raise ConfigError(f"{PROVIDER} and {URL}: one of them is enough")
    for key in (URL, "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"):
        if not given.get(key):
            raise ConfigError(f"{key}: a token endpoint needs it")
    found[PROVIDER] = oidc_tokens(
        TokenEndpoint(
            url=given[URL],
            client_id=given["sasl.oauthbearer.client.id"],
            client_secret=given["sasl.oauthbearer.client.secret"],
            scope=given.get("sasl.oauthbearer.scope", ""),
            extensions=_extensions(given.get("sasl.oauthbearer.extensions", ""), jaas),
            encodes=given.get("sasl.oauthbearer.header.urlencode", "").lower() == "true",
            ca_location=given.get("https.ca.location"),
            timeout_s=_milliseconds(given.get("sasl.login.connect.timeout.ms", "10000")) / 1000,
        )
    )


def _extensions(text: str, jaas: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the SASL extensions of ``name=value,...``, and those of a login module's options."""
    found = {
        name.removeprefix(_EXTENSION): value
        for name, value in jaas.items()
        if name.startswith(_EXTENSION)
    }
    for part in filter(None, map(str.strip, text.split(","))):
        name, sign, value = part.partition("=")
        if not (name and sign):
            raise ConfigError(f"sasl.oauthbearer.extensions: expected name=value, found {part!r}")
        found[name.strip()] = value.strip()
    for name in found:
        if not name.isascii() or not name.isalpha() or name == "auth":
            raise ConfigError(f"sasl.oauthbearer.extensions: {name!r} is not a name of letters")
    return tuple(sorted(found.items()))


def _milliseconds(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise ConfigError(f"sasl.login.connect.timeout.ms: expected milliseconds, found {text!r}")
    return int(text)


def java(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the credentials of parsed settings in Java's spelling.

    A file that cannot be read, a key in a format that Java does not read, and tokens that come from
    a function are a ConfigError.
    """
    found = {"security.protocol": str(settings["security.protocol"])}
    mechanism = settings["sasl.mechanism"]
    if mechanism is not None:
        found |= _java_login(settings, mechanism)
    if found["security.protocol"].endswith("SSL"):
        found |= _java_tls(settings)
    return found


def _java_login(settings: Mapping[str, Any], mechanism: str) -> Mapping[str, str]:
    if mechanism == "OAUTHBEARER":
        made_by = getattr(settings[PROVIDER], "java", None)
        if made_by is None:
            raise ConfigError(
                f"{PROVIDER}: Spark's client is Java and cannot call the function; a token "
                f"endpoint ({URL}) works with both"
            )
        found: Mapping[str, str] = made_by
        return found
    if mechanism == kerberos.MECHANISM:
        return kerberos.java(settings)
    login = " ".join(
        f'{name}="{quoted(settings[f"sasl.{name}"])}"' for name in ("username", "password")
    )
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{_MODULES[mechanism]} required {login};",
    }


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


def client_certificate(settings: Mapping[str, Any]) -> tuple[str, datetime] | None:
    """Return the subject and the end of the client's certificate, if it has one and is readable."""
    from holdfast.cluster.keystores import first_certificate

    chain = _text(settings, "ssl.certificate")
    return None if chain is None else first_certificate(chain)


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


def provider_named(text: str) -> Callable[[], Any]:
    """Return the function of ``module:function``; a ConfigError if it is missing."""
    key = "holdfast.oauth.token.provider"
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise ConfigError(f"{key}: expected module:function, found {text!r}")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key}: {text}: {error}") from error
    if not callable(found):
        raise ConfigError(f"{key}: {text} is not a function")
    return found  # type: ignore[no-any-return]
