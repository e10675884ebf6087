"""Tokens for logins by OAUTHBEARER: fetched, kept until shortly before their end, fetched again.

**Rules.** A process fetches one token for one configuration, however many connections it has. A
token is renewed when :data:`RENEWED_AT` of its lifetime has passed, before Kafka's clients log in
again (KIP-368). While none can be fetched, the old token is used until it ends. No log, error or
``repr`` contains a token or a secret.

**Strategy.** :class:`Tokens` caches; :mod:`~holdfast.cluster.token_sources` fetches. A thread
renews, because a connection that needs a token waits on the thread that also sends the member's
heartbeats. The thread ends if nobody used the token for the whole of its lifetime.

References: KIP-255 (OAUTHBEARER), KIP-368 (connections log in again), KIP-768 (OIDC); RFC 7519.
"""

from __future__ import annotations

import base64
import importlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import ClientError, ConfigError, OperationalError

RENEWED_AT = 0.8
"""Part of a token's lifetime after which it is renewed; ``sasl.login.refresh.window.factor``."""
_BARE_TOKEN_S = 300.0
_log = logging.getLogger("holdfast.login")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token that a broker takes."""

    value: str = field(repr=False)
    expires_s: float  # seconds since 1970
    principal: str = ""
    # SASL extensions (KIP-342), such as Confluent Cloud's ``logicalCluster``.
    extensions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    token: Token
    renew_at_s: float


class Tokens:
    """The token of one configuration; calling it returns the token that is valid now.

    Parameters
    ----------
    fetch : callable
        Returns a new token; raises ClientError.
    origin : str
        Where tokens come from, for people: a token endpoint, or a key.
    java : mapping of str to str, optional
        Properties with which Java's client gets such tokens itself; None if it cannot.
    """

    def __init__(
        self, fetch: Callable[[], Token], origin: str, java: Mapping[str, str] | None = None
    ):
        self.origin = origin
        self.java = java
        self._fetch = fetch
        self._held: _Held | None = None
        self._was_used = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"Tokens({self.origin})"

    def __call__(self) -> Token:
        """Return a valid token; a ClientError if none can be fetched."""
        with self._lock:
            self._was_used = True
            held = self._current()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=_renew, args=(weakref.ref(self),), name="holdfast-tokens", daemon=True
                )
                self._thread.start()
        return held.token

    def _current(self) -> _Held:
        now_s = time.time()
        if self._held is not None and now_s < self._held.renew_at_s:
            return self._held
        try:
            token = self._fetch()
        except OperationalError as error:
            if self._held is None or now_s >= self._held.token.expires_s:
                raise
            _log.warning("the token of %s was not renewed: %s", self.origin, error)
            return self._held
        if token.expires_s <= time.time():
            raise ClientError(
                f"{self.origin} gave a token that has already ended: is the clock right?"
            )
        self._held = _Held(token=token, renew_at_s=now_s + RENEWED_AT * (token.expires_s - now_s))
        return self._held

    def renew(self) -> float | None:
        """Renew the token if it is time; return seconds until the next time, None for no more."""
        with self._lock:
            before, now_s = self._held, time.time()
            if before is not None and now_s >= before.renew_at_s:
                if not self._was_used:
                    return None
                try:
                    self._was_used = self._current() is before
                except OperationalError:
                    return None  # the next connection fails with the reason
            if (held := self._held) is None:
                return None
            left_s = held.renew_at_s - now_s
            return left_s if left_s > 0 else max(1.0, (held.token.expires_s - now_s) / 4)


def _renew(tokens: weakref.ref[Tokens]) -> None:
    """Renew tokens until nobody has a use for them."""
    while (one := tokens()) is not None:
        wait_s = one.renew()
        if wait_s is None:
            return
        del one
        time.sleep(wait_s)


def token_of(found: Any) -> Token:
    """Return the token of a provider's result.

    Parameters
    ----------
    found : Token, str or tuple
        A token; or its text, its expiry in seconds since 1970, its principal and its SASL
        extensions, in the order of confluent-kafka's ``oauth_cb``. A bare text is valid for five
        minutes.
    """
    if isinstance(found, Token):
        return found
    if not isinstance(found, tuple):
        return Token(value=found, expires_s=time.time() + _BARE_TOKEN_S)
    value, expires_s, *more = found
    principal, extensions = (*more, "", {})[:2] if len(more) < 2 else more[:2]
    return Token(
        value=value,
        expires_s=float(expires_s),
        principal=principal or "",
        extensions=extensions or {},
    )


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a JSON web token, unchecked; empty for any other token."""
    import json  # most members log in without a token

    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def described(token: Token) -> str:
    """Describe a token for people by its claims, of which none is a secret."""
    claims = claims_of(token.value)
    left_s = token.expires_s - time.time()
    parts = [
        f"{name} {claims[claim]!r}"
        for name, claim in {"issuer": "iss", "audience": "aud", "subject": "sub"}.items()
        if claim in claims
    ]
    scope = claims.get("scope", claims.get("scp"))
    parts += [f"scope {scope!r}"] if scope is not None else []
    parts += [f"extension {name}={value}" for name, value in token.extensions.items()]
    begins_s = [one for name in ("iat", "nbf") if isinstance(one := claims.get(name), (int, float))]
    wait_s = max(begins_s, default=0.0) - time.time()
    parts = parts or ["no claims"]
    parts += [f"begins in {wait_s:.0f} s (is a clock wrong?)"] if wait_s > 1 else []
    end = f"ends in {left_s:.0f} s" if left_s > 0 else f"ended {-left_s:.0f} s ago"
    return ", ".join([*parts, end])


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
