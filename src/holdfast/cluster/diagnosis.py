"""Finds why a cluster does not answer, by a check of each step that a client takes.

**Rules.** The steps are name, port, TLS, protocol, login mechanism, token or ticket, login. The
result names the first step that fails, with the key to check. A password is never sent here: if
every step before it works and the client has failed, the login was refused. A token is sent,
because only the broker's answer to it says whether its scope is too small, and so is a ticket. No
answer is trusted: at most :data:`_LONGEST` bytes of it are read.

**Strategy.** A client library retries for a long time and reports its last time-out. A check has a
socket of its own and sends small requests (ApiVersions, SaslHandshake, SaslAuthenticate, Metadata).

References: Kafka protocol guide, "Protocol", ApiVersions v0, SaslHandshake v1, SaslAuthenticate v0,
Metadata v1; RFC 7628 (a broker's answer to a token).
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from holdfast.cluster import client_configs, credentials, kerberos
from holdfast.cluster.settings import ConnectionSettings
from holdfast.cluster.tokens import Token, described, token_of
from holdfast.errors import ClientError, ConfigError, OperationalError

_LOOK_S = 5.0
_LONGEST = 1 << 20
_CORRELATION = 7
_UNSUPPORTED_MECHANISM = 33
_CERTIFICATE_ALERTS = (
    *("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "UNSUPPORTED_CERTIFICATE"),
    *("CERTIFICATE_EXPIRED", "CERTIFICATE_REVOKED", "UNKNOWN_CA", "HANDSHAKE_FAILURE"),
)
"""Alerts of TLS by which a broker refuses a client's certificate, or a client without one."""
_UNTRUSTED = {
    9: "it begins later than now: is a clock wrong?",
    10: "it has ended, and the broker needs a new one",
    62: "bootstrap.servers must name the broker as its certificate does",
    64: "bootstrap.servers must name the broker as its certificate does",
}
"""OpenSSL's code of a refused certificate -> what to do; by default the CA is unknown."""
_T = TypeVar("_T")

NoteStep = Callable[[str, str], None]
"""Takes the name of a step that works, and what was found."""


def _note_nothing(step: str, found: str) -> None:
    """Ignore a step that works."""


def failing_step(settings: ConnectionSettings, note: NoteStep = _note_nothing) -> str | None:
    """Return the first step that fails, of those before a password is sent.

    It is a sentence about the first address that fails; None if one address answers all steps.
    """
    found: str | None = None
    for address in settings["bootstrap.servers"]:
        try:
            _look(address, settings, _look_inside, note)
        except _FailsError as error:
            found = found or str(error)
        else:
            return None
    return found


def why_no_answer(settings: ConnectionSettings) -> str | None:
    """Return the first step that fails for a client that could not connect.

    If every other step works, the login has failed.
    """
    found = failing_step(settings)
    mechanism = settings["sasl.mechanism"]
    if found is not None or mechanism in (None, "OAUTHBEARER", kerberos.MECHANISM):
        return found
    return (
        f"{settings['bootstrap.servers'][0]} refused the login ({mechanism}) of "
        f"{settings['sasl.username']!r}: check the user and the password (sasl.username and "
        "sasl.password, or sasl.jaas.config)"
    )


def known_requests(settings: ConnectionSettings) -> Mapping[int, tuple[int, int]]:
    """Return oldest and newest version of each request that the first answering broker knows.

    Keys are Kafka's numbers of requests; empty if no broker answers. The request needs no login.
    """
    for address in settings["bootstrap.servers"]:
        try:
            answer = _look(address, settings, lambda _, sock, *__: _versions(sock))
        except _FailsError:
            continue
        if answer is not None:
            return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    return {}


def _versions(sock: Any) -> Any:
    from kafka.protocol.metadata import ApiVersionsRequest

    return _ask(sock, ApiVersionsRequest[0]())


class _FailsError(Exception):
    """A step that fails; the text is a sentence."""


def _look(
    address: str,
    settings: ConnectionSettings,
    inside: Callable[[str, Any, ConnectionSettings, NoteStep], _T],
    note: NoteStep = _note_nothing,
) -> _T:
    """Connect to an address, and call ``inside`` with the connection."""
    host, port = _parted(address)
    context = client_configs.ssl_context(settings)
    with _connected(address, host, port) as sock:
        note("connection", f"{address} is {sock.getpeername()[0]}, and accepts connections")
        try:
            if context is None:
                return inside(address, sock, settings, note)
            with _secured(address, sock, context, settings) as secured:
                note("TLS", f"{secured.version()}, with a certificate that is trusted")
                return inside(address, secured, settings, note)
        except TimeoutError:
            raise _FailsError(
                f"{address} accepts connections and never answers: does its broker work?"
            ) from None
        except ssl.SSLError as error:  # TLS 1.3 refuses a client after its handshake
            raise _refused_certificate(address, settings, error) or _FailsError(
                f"{address} ended the connection by TLS ({error.reason})"
            ) from None


def _secured(
    address: str, sock: socket.socket, context: ssl.SSLContext, settings: ConnectionSettings
) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(sock, server_hostname=_parted(address)[0])
    except TimeoutError:
        raise
    except ssl.SSLCertVerificationError as error:
        raise _untrusted(address, error) from None
    except OSError as error:
        raise _refused_certificate(address, settings, error) or _no_tls(address, settings) from None


def _untrusted(address: str, error: ssl.SSLCertVerificationError) -> _FailsError:
    why = _UNTRUSTED.get(
        error.verify_code,
        "does ssl.ca.location (ssl.truststore.location in Java) hold the CA that signed it?",
    )
    return _FailsError(
        f"{address} has a certificate that is not trusted ({error.verify_message}): {why}"
    )


def _refused_certificate(
    address: str, settings: ConnectionSettings, error: OSError
) -> _FailsError | None:
    """Return what fails if a broker refuses the client's certificate, or asks for one."""
    reason = str(getattr(error, "reason", ""))
    if not any(alert in reason for alert in _CERTIFICATE_ALERTS):
        return None
    if settings["ssl.certificate.location"] is None and settings["ssl.certificate.pem"] is None:
        return _FailsError(
            f"{address} wants a certificate of the client: ssl.certificate.location and "
            "ssl.key.location (ssl.keystore.* in Java)"
        )
    found = credentials.client_certificate(settings.values)
    if found is not None and found[1] < datetime.now(UTC):
        return _FailsError(
            f"{address} refused the client's certificate ({reason}): it has ended on "
            f"{found[1]:%Y-%m-%d}"
        )
    subject = "" if found is None else f" of {found[0]}"
    return _FailsError(
        f"{address} refused the client's certificate{subject} ({reason}): does the broker trust "
        "the CA that signed it?"
    )


def _parted(address: str) -> tuple[str, int]:
    host, colon, port = address.strip().rpartition(":")
    if not colon or not port.isdigit() or not host:
        raise ConfigError(f"{address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _connected(address: str, host: str, port: int) -> socket.socket:
    try:
        return socket.create_connection((host, port), timeout=_LOOK_S)
    except socket.gaierror:
        why = f"no host is known as {host!r}: is the address right?"
    except TimeoutError:
        why = f"{address} does not answer: is the address right, and does a firewall let it in?"
    except OSError as error:
        why = f"nothing listens at {address} ({error}): is the address right?"
    raise _FailsError(why)


def _no_tls(address: str, settings: ConnectionSettings) -> _FailsError:
    protocol: str = settings["security.protocol"]
    plain = "SASL_PLAINTEXT" if protocol.startswith("SASL") else "PLAINTEXT"
    return _FailsError(
        f"{address} does not speak TLS: is security.protocol={protocol} right, or is this the port "
        f"of a listener for {plain}?"
    )


def _look_inside(address: str, sock: Any, settings: ConnectionSettings, note: NoteStep) -> None:
    from kafka.protocol.metadata import MetadataRequest
    from kafka.protocol.sasl import SaslHandshakeRequest

    protocol, mechanism = settings["security.protocol"], settings["sasl.mechanism"]
    if _versions(sock) is None:
        if protocol.endswith("SSL"):
            raise _FailsError(f"{address} speaks TLS, but gives no answer to a Kafka client")
        raise _FailsError(
            f"{address} does not speak Kafka in plain text: does it want TLS (security.protocol "
            "SSL or SASL_SSL)?"
        )
    note("protocol", f"{address} speaks Kafka over {protocol}")
    if mechanism is None:
        if _ask(sock, MetadataRequest[1](topics=[])) is None:
            raise _FailsError(
                f"{address} wants a login: security.protocol is {protocol}, without SASL"
            )
        return
    answer = _ask(sock, SaslHandshakeRequest[1](mechanism=mechanism))
    if answer is not None and answer.error_code == _UNSUPPORTED_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        raise _FailsError(f"{address} takes no login by {mechanism}: it takes {offered}")
    if answer is None or answer.error_code:
        raise _FailsError(
            f"{address} takes no login: security.protocol={protocol} is for a SASL listener"
        )
    note("mechanism", f"{address} takes logins by {mechanism}")
    if mechanism == "OAUTHBEARER":
        _try_token(address, sock, settings, note)
    elif mechanism == kerberos.MECHANISM:
        _try_ticket(address, sock, settings, note)


def _try_ticket(address: str, sock: Any, settings: ConnectionSettings, note: NoteStep) -> None:
    """Log in with a ticket."""
    service = kerberos.service_of(settings.values)
    try:
        _, owner = kerberos.ticket_of(service)
        note("ticket", f"there is a ticket for {owner}")
        login = kerberos.exchange(service, _parted(address)[0])
        message = next(login)
        while True:
            refusal, challenge = _log_in(sock, message)
            if refusal is not None:
                raise _FailsError(f"{address} refused the ticket of {owner} ({refusal})")
            message = login.send(challenge)
    except StopIteration:
        return
    except ClientError as error:
        raise _FailsError(str(error)) from None


def _try_token(address: str, sock: Any, settings: ConnectionSettings, note: NoteStep) -> None:
    """Get a token and send it to the broker."""
    provide = settings["holdfast.oauth.token.provider"]
    origin = getattr(provide, "origin", "holdfast.oauth.token.provider")
    try:
        token = token_of(provide())
    except OperationalError as error:
        raise _FailsError(str(error)) from None
    except Exception as error:
        raise _FailsError(f"{origin} failed: {type(error).__name__}: {error}") from None
    about = described(token)
    note("token", f"{origin} gave a token: {about}")
    refusal = _refusal_of(*_log_in(sock, _bearer(token)))
    if refusal is None:
        return
    hint = "the broker's log says why"
    if "scope" in refusal:
        hint = "check sasl.oauthbearer.scope (scope in sasl.jaas.config)"
    raise _FailsError(
        f"{address} refused the token of {origin} ({refusal}): {about}. Does the broker expect "
        f"this issuer, audience and scope? {hint[0].upper()}{hint[1:]}"
    )


def _bearer(token: Token) -> bytes:
    """Return the message of a login with a token (RFC 7628)."""
    extensions = "".join(f"\x01{name}={value}" for name, value in token.extensions.items())
    return f"n,,\x01auth=Bearer {token.value}{extensions}\x01\x01".encode()


def _log_in(sock: Any, message: bytes) -> tuple[str | None, bytes]:
    """Send a message of a login; return the reason of a refusal, and the broker's bytes."""
    from kafka.protocol.sasl import SaslAuthenticateRequest

    answer = _ask(sock, SaslAuthenticateRequest[0](auth_bytes=message))
    if answer is None:
        return "it closed the connection", b""
    code = answer.error_code
    return (answer.error_message or f"error {code}" if code else None), answer.auth_bytes or b""


def _refusal_of(refusal: str | None, challenge: bytes) -> str | None:
    """Return the reason in the answer to a token; None if the token was taken."""
    import json  # not before a connection fails

    if refusal is not None or not challenge:
        return refusal
    try:
        return str(json.loads(challenge)["status"])
    except (ValueError, KeyError, TypeError):
        return challenge.decode("utf-8", "replace")[:200]


def _ask(sock: Any, request: Any) -> Any:
    """Return the answer to one request of kafka-python; None without one, or of another kind."""
    request.with_header(correlation_id=_CORRELATION, client_id="holdfast")
    try:
        sock.settimeout(_LOOK_S)
        sock.sendall(request.encode(header=True, framed=True))
        (length,) = struct.unpack(">i", _read(sock, 4))
        if not 4 <= length <= _LONGEST:
            return None
        answer = _read(sock, length)
    except (TimeoutError, ssl.SSLError):
        raise
    except (OSError, EOFError):
        return None
    if int.from_bytes(answer[:4]) != _CORRELATION:
        return None
    kind = request.header.get_response_class()
    try:
        return kind.decode(answer[4:], version=request.API_VERSION)
    except Exception:  # a server of another protocol may answer with any bytes
        return None


def _read(sock: Any, n_bytes: int) -> bytes:
    parts: list[bytes] = []
    while n_bytes:
        part = sock.recv(n_bytes)
        if not part:
            raise EOFError
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)
