"""Tokens of a token endpoint: every spelling, renewal, and errors that name what failed."""

from __future__ import annotations

import ssl
import time

import pytest
import trustme
from tests.token_server import CLIENT, SCOPE, SECRET, token_server, write_keys

from holdfast.cluster import client_configs, credentials, tokens
from holdfast.errors import ClientError, ConfigError
from holdfast.members.config.settings import Settings, librdkafka_fetch

BASE = {"bootstrap.servers": "h:1", "group.id": "g", "security.protocol": "SASL_SSL"}
PROVIDER = "holdfast.oauth.token.provider"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
EXTENSIONS = {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}


@pytest.fixture
def keys(tmp_path):
    write_keys(tmp_path)
    return tmp_path


@pytest.fixture
def server(keys):
    with token_server(keys) as running:
        yield running


def java_file(server):
    login = f'clientId="{CLIENT}" clientSecret="{SECRET}" scope="{SCOPE}"'
    more = " ".join(f'extension_{name}="{value}"' for name, value in EXTENSIONS.items())
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{OAUTH}.secured.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": server.url,
        "sasl.login.refresh.buffer.seconds": "60",
        "sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required {login} {more};",
    }


def librdkafkas(server):
    listed = ",".join(f"{name}={value}" for name, value in EXTENSIONS.items())
    return server.config(**{"sasl.oauthbearer.extensions": listed})


def newer_java(server):
    config = {**librdkafkas(server), "sasl.login.callback.handler.class": None}
    for part in ("client.id", "client.secret"):
        value = config.pop(f"sasl.oauthbearer.{part}")
        config[f"sasl.oauthbearer.client.credentials.{part}"] = value
    return config | {
        "sasl.oauthbearer.jwt.retriever.class": f"{OAUTH}.ClientCredentialsJwtRetriever"
    }


@pytest.mark.parametrize("spelling", [java_file, librdkafkas, newer_java])
def test_every_spelling_gets_the_same_token_to_every_client(server, spelling):
    settings = Settings.parse({**BASE, **spelling(server)})
    value, expires_s, principal, extensions = librdkafka_fetch(settings)["oauth_cb"]("")
    assert (principal, extensions) == (CLIENT, EXTENSIONS)
    assert 3500 < expires_s - time.time() <= 3600
    provider = client_configs.kafka_python_connection(settings)["sasl_oauth_token_provider"]
    assert (provider.token(), provider.extensions()) == (value, EXTENSIONS)
    assert server.forms == [{"grant_type": "client_credentials", "scope": SCOPE}]  # one for all
    # Java's client gets what leads it to the same endpoint, and back again to the same tokens
    again = Settings.parse({**BASE, **credentials.java(settings.values)})
    assert again[PROVIDER] is settings[PROVIDER]
    shown = f"{settings} {settings[PROVIDER]!r} {settings[PROVIDER]()!r}"
    assert SECRET not in shown and value not in shown


def test_a_token_is_renewed_before_it_ends_and_kept_while_it_cannot_be(server, caplog):
    provide = Settings.parse({**BASE, **server.config()})[PROVIDER]
    first = provide()
    assert provide() is first
    server.fails = [(503, b"")] * 100  # the thread that renews may meet some of them as well
    provide._held = tokens._Held(token=first, renew_at_s=time.time() - 1)
    assert provide() is first
    server.fails = []
    assert "was not renewed" in caplog.text and SECRET not in caplog.text
    assert provide().value == server.tokens[-1] != first.value


def test_a_token_in_use_is_renewed_once_more_than_it_is_asked_for(server):
    provide = Settings.parse({**BASE, **server.config()})[PROVIDER]
    assert provide.renew() is None  # before the first one

    def renewed():
        held = provide._held
        provide._held = tokens._Held(token=held.token, renew_at_s=time.time() - 1)
        return provide.renew(), len(server.tokens)

    first = provide()
    assert provide._thread.is_alive()
    wait_s, n_tokens = renewed()
    assert (n_tokens, wait_s > 0) == (2, True)
    assert provide().value != first.value
    assert renewed()[1] == 3
    assert renewed() == (None, 3)  # the thread ends: nobody used the third token
    assert provide().value == server.tokens[-1]


def test_a_server_that_fails_for_a_moment_is_asked_again(server):
    server.fails = [(503, b""), (500, b"")]
    assert Settings.parse({**BASE, **server.config()})[PROVIDER]().value == server.tokens[0]


def test_an_opaque_token_ends_when_the_endpoint_says(server):
    server.fails = [(200, b'{"access_token": "opaque", "expires_in": 60}')]
    token = Settings.parse({**BASE, **server.config()})[PROVIDER]()
    assert token.value == "opaque" and 50 < token.expires_s - time.time() <= 60


WRONG = {
    "secret": ({"sasl.oauthbearer.client.secret": "planted-1"}, None, "client.secret"),
    "scope": ({"sasl.oauthbearer.scope": "x"}, None, "refused the scope 'x'"),
    "address": ({"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/"}, None, "reached"),
    "redirect": ({}, (302, b""), "redirects"),
    "no token": ({}, (200, b"<html>"), "without an access_token"),
    "a list": ({}, (400, b"[]"), "HTTP 400"),
    "outage": ({}, (503, b"down"), "fails with HTTP 503"),
    "past": ({}, (200, b'{"access_token": "t", "expires_in": 0}'), "already ended"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_failed_is_named_and_no_secret_is(server, case):
    config, answer, said = WRONG[case]
    server.fails = [answer] * 3 if answer else []
    provide = Settings.parse({**BASE, **server.config(**config)})[PROVIDER]
    with pytest.raises(ClientError, match=said) as caught:
        provide()
    assert provide.origin in str(caught.value)
    assert "planted" not in str(caught.value) and SECRET not in str(caught.value)


def test_the_endpoint_may_have_a_certificate_of_its_own_ca(keys):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(keys / "ca.pem")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with token_server(keys, tls) as server:
        with pytest.raises(ClientError, match=r"https\.ca\.location"):
            Settings.parse({**BASE, **server.config()})[PROVIDER]()
        known = server.config(**{"https.ca.location": str(keys / "ca.pem")})
        assert Settings.parse({**BASE, **known})[PROVIDER]().value == server.tokens[0]


REFUSED = {
    "client.secret": {"sasl.oauthbearer.client.secret": ""},
    "expected https": {"sasl.oauthbearer.token.endpoint.url": "file:///token"},
    "expected oidc": {"sasl.oauthbearer.method": "magic"},
    "name=value": {"sasl.oauthbearer.extensions": "logicalCluster"},
    "not a name": {"sasl.oauthbearer.extensions": "auth=x"},
    "client credentials grant": {"sasl.oauthbearer.assertion.file": "x"},
    "client_credentials": {"sasl.oauthbearer.grant.type": "urn:ietf:params:jwt-bearer"},
    "one of them": {PROVIDER: lambda: "x"},
    "needs sasl.mechanism OAUTHBEARER": {"sasl.mechanism": "PLAIN"},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_meant_is_refused_before_anything_connects(server, said):
    with pytest.raises(ConfigError, match=said):
        Settings.parse({**BASE, **server.config(), **REFUSED[said]})
    assert server.forms == []


def of_a_file():
    return "from-a-file", time.time() + 60, "me", {"logicalCluster": "lkc-3"}


def test_a_file_names_a_function_by_its_module():
    named = {**BASE, "sasl.mechanism": "OAUTHBEARER", PROVIDER: f"{__name__}:of_a_file"}
    settings = Settings.parse(named)
    assert librdkafka_fetch(settings)["oauth_cb"]("")[::3] == (
        "from-a-file",
        {"logicalCluster": "lkc-3"},
    )
    with pytest.raises(ConfigError, match="cannot call the function"):
        credentials.java(settings.values)
    for wrong, said in {"nowhere": "module:function", "none.such:x": "none", "time:x": "x"}.items():
        with pytest.raises(ConfigError, match=said):
            Settings.parse({**named, PROVIDER: wrong})
