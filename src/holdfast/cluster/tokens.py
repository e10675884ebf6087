"""Tokens for logins by OAUTHBEARER: fetched or signed, kept until shortly before their end.

**Rules.** A process fetches one token for one configuration, however many connections it has. A
token is renewed when :data:`RENEWED_AT` of its lifetime has passed, before Kafka's clients log in
again (KIP-368). While none can be fetched, the old token is used until it ends. No log, error or
``repr`` contains a token or a secret.

- An OpenID Connect token endpoint: the keys are librdkafka's and Java's. An error names what
  failed: the address of the endpoint, the client, the scope, or the endpoint's answer. A redirect
  is refused, since it would pass the client's secret on.
- AWS's own library, an extra, signs tokens of Amazon MSK. Credentials come from AWS's chain
  (environment, profile, container, instance), or from the profile or role of ``sasl.jaas.config``.
  The region is ``holdfast.aws.region``, else that of the brokers' names, else ``AWS_REGION`` or
  ``AWS_DEFAULT_REGION``.

**Strategy.** A thread renews, because a connection that needs a token waits on the thread that also
sends the member's heartbeats. The thread ends if nobody used the token for the whole of its
lifetime. An endpoint gets one POST with the client's credentials in the Authorization header, as
both clients send it. The token's expiry is its ``exp`` claim, else ``expires_in``.

References: KIP-255 (OAUTHBEARER), KIP-368 (connections log in again), KIP-768 (OIDC); RFC 7519; RFC
6749, sections 4.4 and 5; Amazon MSK Developer Guide, "IAM access control"; AWS Signature Version 4.
"""

from __future__ import annotations

import base64
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from holdfast.errors import ClientError, ConfigError, OperationalError

if TYPE_CHECKING:
    import ssl


RENEWED_AT = 0.8
"""Part of a token's lifetime after which it is renewed; ``sasl.login.refresh.window.factor``."""
_BARE_TOKEN_S = 300.0

URL = "sasl.oauthbearer.token.endpoint.url"
ATTEMPTS = 3
_PAUSE_S = 0.2
_LARGEST_ANSWER_BYTES = 1_000_000
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
AWS_REGION = "holdfast.aws.region"
AWS_MECHANISM = "AWS_MSK_IAM"
_AWS_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
AWS_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
_MSK_BROKER = re.compile(
    r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?$"
)
AWS_OAUTH_HANDLER = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
AWS_OPTIONS = ("awsProfileName", "awsRoleArn", "awsRoleSessionName")
"""Options of the login module in ``sasl.jaas.config`` that are honoured."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """A token endpoint, and the client that logs in there."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = ()
    encodes: bool = False  # ``sasl.oauthbearer.header.urlencode``: RFC 6749's encoding of both
    ca_location: str | None = None  # ``https.ca.location``
    timeout_s: float = 10.0  # of a connection, and of a read

    @property
    def java(self) -> dict[str, str]:
        """The properties of Java's client for this endpoint."""
        options = {"clientId": self.client_id, "clientSecret": self.client_secret}
        options |= {"scope": self.scope} if self.scope else {}
        options |= {f"extension_{name}": value for name, value in self.extensions}
        login = " ".join(f'{name}="{quoted(value)}"' for name, value in options.items())
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": HANDLER,
            URL: self.url,
            "sasl.jaas.config": f"{_MODULE} required {login};",
            **({"sasl.oauthbearer.header.urlencode": "true"} if self.encodes else {}),
        }


@lru_cache(maxsize=16)
def oidc_tokens(endpoint: TokenEndpoint) -> Tokens:
    """Return the tokens of an endpoint, the same ones for the whole process."""
    if not endpoint.url.startswith(("https://", "http://")):
        raise ConfigError(f"{URL}: expected https://..., found {endpoint.url!r}")
    return Tokens(lambda: fetch(endpoint), f"the token endpoint {endpoint.url}", endpoint.java)


def quoted(text: str) -> str:
    """Escape a text for a quoted option of ``sasl.jaas.config``."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def fetch(endpoint: TokenEndpoint) -> Token:
    """Fetch a token; the ClientError says whether the endpoint was not reached, or refused."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _token(endpoint, _answer(endpoint))
        except _TemporaryError as error:
            if attempt == ATTEMPTS:
                raise ClientError(str(error)) from None
            time.sleep(_PAUSE_S * attempt)
    raise AssertionError("the loop returns or raises")


class _TemporaryError(Exception):
    """A failure that may end by itself."""


def _opener(endpoint: TokenEndpoint) -> Any:
    """Return what sends a request, and answers a redirect with its status, as an error."""
    import ssl
    from urllib import request

    class NoRedirects(request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            """Follow no redirect."""

    context = ssl.create_default_context(cafile=endpoint.ca_location)
    return request.build_opener(NoRedirects, request.HTTPSHandler(context=context))


def _answer(endpoint: TokenEndpoint) -> bytes:
    # A configuration without a token endpoint loads no HTTP.
    import http.client
    import ssl
    import urllib.error
    import urllib.parse
    import urllib.request

    form = {"grant_type": "client_credentials"}
    form |= {"scope": endpoint.scope} if endpoint.scope else {}
    encode = urllib.parse.quote_plus if endpoint.encodes else str
    login = f"{encode(endpoint.client_id)}:{encode(endpoint.client_secret)}".encode()
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked
        endpoint.url,
        urllib.parse.urlencode(form).encode(),
        {
            "Authorization": f"Basic {base64.b64encode(login).decode()}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    where = f"the token endpoint {endpoint.url}"
    try:
        with _opener(endpoint).open(request, timeout=endpoint.timeout_s) as answer:
            body: bytes = answer.read(_LARGEST_ANSWER_BYTES + 1)
            return body
    except urllib.error.HTTPError as error:
        with error:
            body = error.read(_LARGEST_ANSWER_BYTES)
        if error.code >= 500:
            raise _TemporaryError(f"{where} fails with HTTP {error.code}") from None
        raise ClientError(f"{where} {_refusal(endpoint, error.code, body)}") from None
    except ssl.SSLCertVerificationError as error:
        raise ClientError(_untrusted(where, error)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = getattr(error, "reason", error)
        if isinstance(why, ssl.SSLCertVerificationError):
            raise ClientError(_untrusted(where, why)) from None
        if isinstance(why, ssl.SSLError):
            raise _TemporaryError(f"{where} does not speak TLS: is {URL} right?") from None
        raise _TemporaryError(
            f"{where} cannot be reached ({type(why).__name__}: {why}): is {URL} right?"
        ) from None


def _untrusted(where: str, error: ssl.SSLCertVerificationError) -> str:
    return (
        f"{where} has a certificate that is not trusted ({error.verify_message}): does "
        "https.ca.location name the CA that signed it?"
    )


def _refusal(endpoint: TokenEndpoint, status: int, body: bytes) -> str:
    """Describe the answer of an endpoint that gives no token (RFC 6749, section 5.2)."""
    import json  # most members log in without a token

    try:
        answer = json.loads(body)
        code, text = str(answer.get("error", "")), str(answer.get("error_description", ""))
    except (ValueError, AttributeError):
        code, text = "", ""
    said = ": ".join(part for part in (f"HTTP {status}", code, text[:200]) if part)
    if endpoint.client_secret:
        said = said.replace(endpoint.client_secret, "[hidden]")
    if 300 <= status < 400:
        return f"redirects (HTTP {status}), which is not followed: is {URL} right?"
    if code == "invalid_scope":
        return (
            f"refused the scope {endpoint.scope!r} ({said}): check sasl.oauthbearer.scope (scope "
            "in sasl.jaas.config)"
        )
    if code in ("invalid_client", "unauthorized_client") or status == 401:
        return (
            f"refused the client {endpoint.client_id!r} ({said}): check "
            "sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret (clientId and "
            "clientSecret in sasl.jaas.config)"
        )
    return f"gave no token ({said})"


def _token(endpoint: TokenEndpoint, body: bytes) -> Token:
    import json  # most members log in without a token

    where = f"the token endpoint {endpoint.url}"
    try:
        answer: Mapping[str, Any] = json.loads(body)
        value = answer["access_token"]
        claims = claims_of(value)
        expires_s = claims.get("exp")
        if expires_s is None:
            expires_s = time.time() + float(answer["expires_in"])
        return Token(
            value=value,
            expires_s=float(expires_s),
            principal=str(claims.get("sub", endpoint.client_id)),
            extensions=dict(endpoint.extensions),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ClientError(
            f"{where} answers without an access_token and its expiry: is {URL} right?"
        ) from None


def aws_region(given: object, servers: object) -> str:
    """Return the region of a cluster; a ConfigError if nothing names one."""
    if given:
        return str(given)
    listed = servers.split(",") if isinstance(servers, str) else servers
    for address in listed if isinstance(listed, (list, tuple)) else ():
        if found := _MSK_BROKER.search(str(address).strip()):
            return found[1]
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(
            f"{AWS_REGION}: {AWS_MECHANISM} needs the region, such as eu-west-1: bootstrap.servers "
            "does not name it, and AWS_REGION is not set"
        )
    return region


def aws_tokens(region: str, options: Mapping[str, str]) -> Tokens:
    """Return the tokens for a region and :data:`AWS_OPTIONS`, the same for the whole process."""
    return _aws_tokens(region, tuple(sorted(options.items())))


@lru_cache(maxsize=16)
def _aws_tokens(region: str, options: tuple[tuple[str, str], ...]) -> Tokens:
    try:
        import aws_msk_iam_sasl_signer  # noqa: F401 - a missing extra is an error before connecting
    except ImportError:
        raise ConfigError(
            f"{AWS_MECHANISM} needs an extra: pip install 'kafka-holdfast[aws]'"
        ) from None
    login = "".join(f' {name}="{quoted(value)}"' for name, value in options)
    java = {
        "sasl.mechanism": AWS_MECHANISM,
        "sasl.jaas.config": f"{_AWS_MODULE} required{login};",
        "sasl.client.callback.handler.class": AWS_HANDLER,
    }
    return Tokens(lambda: _aws_token(region, dict(options)), f"{AWS_MECHANISM} in {region}", java)


def _aws_token(region: str, options: Mapping[str, str]) -> Token:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer
    from botocore.exceptions import BotoCoreError
    from botocore.exceptions import ClientError as AwsError

    try:
        if role := options.get("awsRoleArn"):
            session = options.get("awsRoleSessionName")
            found = Signer.generate_auth_token_from_role_arn(
                region, role, *([session] if session else [])
            )
        elif profile := options.get("awsProfileName"):
            found = Signer.generate_auth_token_from_profile(region, profile)
        else:
            found = Signer.generate_auth_token(region)
    except (BotoCoreError, AwsError) as error:
        raise ClientError(f"{AWS_MECHANISM}: no AWS credentials ({error})") from None
    except (AttributeError, ValueError):  # the signer's own answers to missing credentials
        raise ClientError(
            f"{AWS_MECHANISM}: found no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or give the program a role"
        ) from None
    value, expires_ms = found
    return Token(value=value, expires_s=expires_ms / 1000, principal="aws")
