"""Logins by Kerberos (``GSSAPI``) in Python, through MIT's library; an extra, ``kerberos``.

**Rules.** Tickets come from a keytab with a principal, else from the ticket cache of the process
(``KRB5CCNAME``). A keytab's tickets are kept in memory, and the library renews them. Nothing
prompts for a password, and no program is run. An error names what failed: the ticket, the KDC, or
the service.

**Strategy.** :func:`exchange` is the whole login, without a socket: it yields bytes for the broker
and is sent the broker's. kafka-python's and aiokafka's connections run it, and so does
:mod:`~holdfast.cluster.diagnosis`. Both clients pass the name of the service to their connections,
so :class:`Service`, a name with its login, says which connections are holdfast's.

References: RFC 4752 (GSSAPI in SASL); RFC 4120 (Kerberos); MIT krb5, "Credential store extensions".
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from holdfast.cluster.tokens import quoted
from holdfast.errors import ClientError, ConfigError

MECHANISM = "GSSAPI"
SERVICE = "sasl.kerberos.service.name"
KEYTAB = "sasl.kerberos.keytab"
PRINCIPAL = "sasl.kerberos.principal"
KEYS = (SERVICE, KEYTAB, PRINCIPAL)
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_NO_PROTECTION = 1  # RFC 4752's bit for a connection without a security layer, Kafka's only one
_FLAGS = {
    *("useKeyTab", "useTicketCache", "storeKey", "doNotPrompt", "renewTGT", "refreshKrb5Config"),
    *("isInitiator", "debug"),
}
_OPTIONS = {*_FLAGS, "keyTab", "principal", "serviceName"}
_HINTS = {
    "Server ": f"is {SERVICE} right, and is the broker's name that of its principal?",
    "KDC": "does krb5.conf (KRB5_CONFIG) name the realm's KDC, and does it run?",
    "not found in Kerberos database": f"is {PRINCIPAL} right?",
    "skew": "is the clock right?",
}
"""Parts of the library's texts -> what to check."""


class Service(str):
    """The name of the brokers' service (``kafka``), with the login of a client."""

    keytab: str | None
    principal: str | None

    def __new__(cls, name: str, keytab: str | None, principal: str | None) -> Service:
        """Return a name with a login."""
        made = super().__new__(cls, name)
        made.keytab, made.principal = keytab, principal
        return made

    def __deepcopy__(self, _: object) -> Service:
        """Return itself: kafka-python copies its configuration."""
        return self


def service_of(settings: Mapping[str, Any]) -> Service:
    """Return the service of parsed settings; refuse them if the extra is not installed."""
    try:
        import gssapi  # noqa: F401 - a missing extra is an error before connecting
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"sasl.mechanism: {MECHANISM} needs MIT Kerberos and an extra: "
            f"pip install 'kafka-holdfast[kerberos]' ({error})"
        ) from None
    return Service(settings[SERVICE], settings[KEYTAB], settings[PRINCIPAL])


def keys_of(jaas: Mapping[str, str]) -> dict[str, str]:
    """Return the keys that mean the options of Java's ``Krb5LoginModule``; refuse other options."""
    if unknown := sorted(jaas.keys() - _OPTIONS - {""}):
        more = "; set KRB5CCNAME" if unknown[0] == "ticketCache" else ""
        raise ConfigError(f"sasl.jaas.config: {unknown[0]} is not supported with GSSAPI{more}")
    is_on = {name: jaas.get(name, "").lower() == "true" for name in _FLAGS}
    if not is_on["useKeyTab"] and "keyTab" in jaas:
        raise ConfigError("sasl.jaas.config: keyTab needs useKeyTab=true")
    if is_on["useKeyTab"] and "keyTab" not in jaas:
        raise ConfigError("sasl.jaas.config: useKeyTab=true needs keyTab")
    if not is_on["useKeyTab"] and not is_on["useTicketCache"]:
        raise ConfigError(
            "sasl.jaas.config: Krb5LoginModule needs useKeyTab=true with keyTab and principal, or "
            "useTicketCache=true; nothing prompts for a password"
        )
    named = {"keyTab": KEYTAB, "principal": PRINCIPAL, "serviceName": SERVICE}
    return {key: jaas[option] for option, key in named.items() if option in jaas}


def java(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the login of Java's client."""
    options = {"useTicketCache": "true", "doNotPrompt": "true"}
    if settings[KEYTAB] is not None:
        options = {"useKeyTab": "true", "storeKey": "true", "doNotPrompt": "true"}
        options["keyTab"] = settings[KEYTAB]
    if settings[PRINCIPAL] is not None:
        options["principal"] = settings[PRINCIPAL]
    login = " ".join(f'{name}="{quoted(value)}"' for name, value in options.items())
    return {
        "sasl.mechanism": MECHANISM,
        SERVICE: settings[SERVICE],
        "sasl.jaas.config": f"{MODULE} required {login};",
    }


def check_librdkafka() -> None:
    """Refuse Kerberos if librdkafka is built without it, as in confluent-kafka's Linux wheels."""
    import confluent_kafka

    try:
        confluent_kafka.Consumer({"group.id": "-", "builtin.features": "sasl_gssapi"}).close()
    except confluent_kafka.KafkaException:
        raise ConfigError(
            f"sasl.mechanism: the librdkafka {confluent_kafka.libversion()[0]} of this "
            f"confluent-kafka is built without {MECHANISM}: use holdfast.kafka.KafkaConsumer or "
            "holdfast.aiokafka.AIOKafkaConsumer, or build confluent-kafka with a librdkafka that "
            "has it (pip install --no-binary confluent-kafka confluent-kafka)"
        ) from None


def ticket_of(service: Service) -> tuple[Any, str]:
    """Return credentials, and whose they are; a ClientError if no ticket can be had."""
    import gssapi

    try:
        found = _credentials(service)
        return found, str(found.name)
    except gssapi.exceptions.GSSError as error:
        hint = f"run kinit, or give {KEYTAB} and {PRINCIPAL}"
        if service.keytab is not None:
            hint = f"is {KEYTAB} ({service.keytab}) readable, and does it hold {PRINCIPAL}?"
        raise _no_login(f"no ticket for {service.principal or 'this user'}", error, hint) from None


def _credentials(service: Service) -> Any:
    import hashlib

    import gssapi

    name = None
    if service.principal is not None:
        name = gssapi.Name(service.principal, gssapi.NameType.kerberos_principal)
    if service.keytab is None:
        return gssapi.Credentials(name=name, usage="initiate")
    login = f"{service.keytab}\n{service.principal}".encode()
    # A cache of the process for each login; MIT's library fetches and renews its tickets.
    cache = f"MEMORY:holdfast-{hashlib.sha256(login).hexdigest()}"
    store: dict[str | bytes, str | bytes] = {"client_keytab": service.keytab, "ccache": cache}
    return gssapi.Credentials(name=name, usage="initiate", store=store)


def exchange(service: Service, host: str) -> Generator[bytes, bytes, None]:
    """Log in to the broker at ``host``: yield bytes for it, and take its answers.

    The last answer is empty. An answer that cannot be used is a ClientError.
    """
    import gssapi

    credentials, _ = ticket_of(service)
    target = f"{service}@{host}"
    try:
        name = gssapi.Name(target, gssapi.NameType.hostbased_service)
        context = gssapi.SecurityContext(
            name=name.canonicalize(gssapi.MechType.kerberos), creds=credentials, usage="initiate"
        )
        answer: Any = None
        while not context.complete:
            answer = yield context.step(answer) or b""
        offered = context.unwrap(answer).message
        # No security layer, and the broker's own limit of a message.
        chosen = bytes([offered[0] & _NO_PROTECTION]) + offered[1:4]
        yield context.wrap(chosen, False).message
    except (gssapi.exceptions.GSSError, IndexError) as error:
        raise _no_login(f"no login to {target}", error) from None


def _no_login(
    what: str, error: Any, hint: str = "the KDC's and the broker's logs say more"
) -> ClientError:
    minor = getattr(error, "min_code", 0)
    texts = error.get_all_statuses(minor, False) if minor else [str(error)]
    text = ": ".join(filter(None, texts)) or type(error).__name__
    hint = next((one for part, one in _HINTS.items() if part in text), hint)
    return ClientError(f"Kerberos: {what} ({text}): {hint}")


def use_in_kafka_python() -> None:
    """Have kafka-python's connections log in by :func:`exchange`; safe to call again."""
    from kafka.errors import KafkaConnectionError
    from kafka.net import sasl
    from kafka.net.sasl.abc import SaslMechanism
    from kafka.net.sasl.gssapi import SaslMechanismGSSAPI

    class KafkaPythonLogin(SaslMechanism):  # type: ignore[misc]  # the base class is untyped
        def __init__(self, service: Service, host: str):
            self._exchange = exchange(service, host)
            self._next: bytes | None = self._step(None)

        def _step(self, answer: bytes | None) -> bytes | None:
            try:
                return self._exchange.send(answer)  # type: ignore[arg-type]
            except StopIteration:
                return None
            except ClientError as error:  # a KDC that fails for a moment: a retry may help
                raise KafkaConnectionError(str(error)) from error

        def auth_bytes(self) -> bytes:
            return self._next or b""

        def receive(self, auth_bytes: bytes) -> None:
            self._next = self._step(auth_bytes)

        def is_done(self) -> bool:
            return self._next is None

        def is_authenticated(self) -> bool:
            return self._next is None

    def make(**config: Any) -> Any:
        service = config.get("sasl_kerberos_service_name")
        if isinstance(service, Service):
            return KafkaPythonLogin(service, config["host"])
        return SaslMechanismGSSAPI(**config)

    sasl.register_sasl_mechanism(MECHANISM, make, overwrite=True)


def use_in_aiokafka() -> None:
    """Have aiokafka's connections log in by :func:`exchange`; safe to call again."""
    from aiokafka import conn

    class AiokafkaLogin(conn.BaseSaslAuthenticator):  # type: ignore[misc]  # aiokafka has no types
        def __init__(self, loop: Any, service: Service, host: str):
            self._loop = loop
            self._authenticator = _pairs(exchange(service, host))

    stock = conn.SaslGSSAPIAuthenticator

    def make(self: Any) -> Any:
        service = self._sasl_kerberos_service_name
        if isinstance(service, Service):
            return AiokafkaLogin(self._loop, service, self._host)
        return stock(loop=self._loop, principal=self.sasl_principal)

    conn.AIOKafkaConnection.authenticator_gssapi = make


def _pairs(login: Generator[bytes, bytes, None]) -> Generator[tuple[bytes, bool], bytes, None]:
    """Yield each of a login's messages with whether it has an answer, for aiokafka."""
    from aiokafka.errors import KafkaConnectionError

    answer: bytes | None = None
    while True:
        try:
            message = login.send(answer)  # type: ignore[arg-type]
        except StopIteration:
            return
        except ClientError as error:  # as in kafka-python's
            raise KafkaConnectionError(str(error)) from error
        answer = yield message, True
