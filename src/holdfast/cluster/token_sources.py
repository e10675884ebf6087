"""Fetches tokens from an OpenID Connect token endpoint, or signs them for Amazon MSK's IAM logins.

**Rules.** The keys are librdkafka's and Java's. An error names what failed: the address of the
endpoint, the client, the scope, or the endpoint's answer. A redirect is refused, since it would
pass the client's secret on. No error contains the secret, also if the endpoint repeats it.

AWS's own library, an extra, signs tokens of Amazon MSK. Credentials come from AWS's chain
(environment, profile, container, instance), or from the profile or role of ``sasl.jaas.config``.
The region is ``holdfast.aws.region``, else that of the brokers' names, else ``AWS_REGION`` or
``AWS_DEFAULT_REGION``.

**Strategy.** One POST with the client's credentials in the Authorization header, as both clients
send it. The token's expiry is its ``exp`` claim, else ``expires_in``.

References: KIP-768; RFC 6749, sections 4.4 and 5; Amazon MSK Developer Guide, "IAM access control";
AWS Signature Version 4.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from holdfast.cluster.tokens import Token, Tokens, claims_of
from holdfast.errors import ClientError, ConfigError

if TYPE_CHECKING:
    import ssl


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
