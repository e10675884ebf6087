"""An OpenID Connect provider on loopback: signs real JSON web tokens, for client credentials."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, SECRET = "reader", "s3cret-of:the reader"
ISSUER, AUDIENCE, SCOPE = "https://issuer.example", "kafka", "cluster.read"
_KEY_ID = "key-1"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(value: int) -> str:
    return _text(value.to_bytes((value.bit_length() + 7) // 8))


def write_keys(folder: Path) -> None:
    """Write the signing key, and the set of keys that a broker reads (JWKS)."""
    key = rsa.generate_private_key(65537, 2048)
    public = key.public_key().public_numbers()
    one = {"kty": "RSA", "kid": _KEY_ID, "use": "sig", "alg": "RS256"}
    one |= {"n": _number(public.n), "e": _number(public.e)}
    (folder / "jwks.json").write_text(json.dumps({"keys": [one]}))
    (folder / "signing.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


class TokenServer:
    """What the endpoint answers, and what it was asked."""

    def __init__(self, folder: Path):
        key = serialization.load_pem_private_key((folder / "signing.pem").read_bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        self.key = key
        self.url = ""
        self.lifetime_s = 3600.0
        self.claims: dict[str, Any] = {}  # override those of a good token
        self.scopes = {SCOPE, ""}
        self.fails: list[tuple[int, bytes]] = []  # the next answers
        self.forms: list[dict[str, str]] = []
        self.tokens: list[str] = []

    def token(self) -> str:
        """Sign a token."""
        now = int(time.time())  # no broker takes one from the future
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": CLIENT, "scope": SCOPE, "iat": now}
        claims |= {"exp": now + self.lifetime_s, "jti": str(len(self.tokens)), **self.claims}
        head = {"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}
        signed = ".".join(_text(json.dumps(part).encode()) for part in (head, claims))
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        self.tokens.append(f"{signed}.{_text(signature)}")
        return self.tokens[-1]

    def answer(self, login: str, form: dict[str, str]) -> tuple[int, bytes]:
        """Return status and body for a request."""
        self.forms.append(form)
        if self.fails:
            return self.fails.pop(0)
        scheme, _, words = login.partition(" ")
        if scheme != "Basic" or base64.b64decode(words).decode() != f"{CLIENT}:{SECRET}":
            told = base64.b64decode(words).decode()
            return 401, json.dumps({"error": "invalid_client", "error_description": told}).encode()
        if form.get("grant_type") != "client_credentials":
            return 400, b'{"error": "unsupported_grant_type"}'
        if form.get("scope", "") not in self.scopes:
            return 400, b'{"error": "invalid_scope"}'
        return 200, json.dumps(
            {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.lifetime_s}
        ).encode()

    def config(self, **extra: str) -> dict[str, str]:
        """Return librdkafka's keys of a client that may log in."""
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.scope": SCOPE,
            **extra,
        }


@contextmanager
def token_server(folder: Path, tls: ssl.SSLContext | None = None) -> Iterator[TokenServer]:
    """Run an endpoint with the keys of :func:`write_keys`, while the block lasts."""
    provider = TokenServer(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {key: one[0] for key, one in urllib.parse.parse_qs(body).items()}
            status, answer = provider.answer(self.headers.get("Authorization", ""), form)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", provider.url)
            self.send_header("Content-Type", "application/json")  # librdkafka takes no other
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    provider.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}/token"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
