"""`holdfast config check` on a real broker: each mistake in a login is named, at its step."""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.cli.running import run
from tests.live.logins import written
from tests.live.security import WAYS, Security, pkcs8
from tests.live.test_logins import PASSWORD, keystores, oidc, server, stores
from tests.suites import further
from tests.token_server import SECRET, TokenServer, token_server

from holdfast.cluster import tokens
from holdfast.cluster.cluster import LiveCluster
from holdfast.cluster.connections import Connections
from holdfast.errors import HoldfastError
from holdfast.members.config.settings import Settings

__all__ = ["server", "stores"]  # fixtures
pytestmark = pytest.mark.broker
URL = "sasl.oauthbearer.token.endpoint.url"
PLANTED = "planted-9c"


@dataclass(frozen=True)
class Given:
    """What a configuration is made of."""

    security: Security
    server: TokenServer
    stores: Path
    own: Path  # a folder of the test

    def oidc(self, **more: str) -> dict[str, str]:
        return {**oidc(self.server), **more}

    def tls(self, **more: str) -> dict[str, str]:
        return {"security.protocol": "SSL", "ssl.ca.location": self.security.ca, **more}

    def login(self, way: str, **more: str) -> dict[str, str]:
        return {**WAYS[way], "ssl.ca.location": self.security.ca, **more}

    def store(self, kind: str, **more: str) -> dict[str, str]:
        return {**keystores(self.stores, kind), **more}

    def foreign(self, end: datetime | None = None) -> dict[str, str]:
        """A client's certificate of a CA that the broker does not know; it may have ended."""
        file = self.own / f"foreign-until-{end and end.year}.pem"
        made = trustme.CA().issue_cert("h.example", common_name="stranger", not_after=end)
        file.write_bytes(pkcs8(made))
        return self.tls(**{"ssl.certificate.location": str(file), "ssl.key.location": str(file)})


@dataclass(frozen=True)
class Mistake:
    """A configuration at a listener, the last step that works, and what the error says."""

    at: str
    config: Callable[[Given], Mapping[str, Any]]
    works: str
    says: str
    claims: Callable[[], dict[str, Any]] = field(default=dict)


def _in(seconds: float) -> int:
    return int(time.time() + seconds)


MISTAKES = {
    "the client's secret": Mistake(
        "OIDC",
        lambda given: given.oidc(**{"sasl.oauthbearer.client.secret": PLANTED}),
        "mechanism",
        r"refused the client 'reader' .*check sasl\.oauthbearer\.client\.id and",
    ),
    "the scope": Mistake(
        "OIDC",
        lambda given: given.oidc(**{"sasl.oauthbearer.scope": "all"}),
        "mechanism",
        r"refused the scope 'all' .*check sasl\.oauthbearer\.scope",
    ),
    "the audience": Mistake(
        "OIDC", Given.oidc, "token", "invalid_token.*audience 'other'", lambda: {"aud": "other"}
    ),
    "the issuer": Mistake(
        "OIDC",
        Given.oidc,
        "token",
        "invalid_token.*issuer 'https://other'",
        lambda: {"iss": "https://other"},
    ),
    "an endpoint's port": Mistake(
        "OIDC",
        lambda given: given.oidc(**{URL: "http://127.0.0.1:1/token"}),
        "mechanism",
        rf"http://127\.0\.0\.1:1/token cannot be reached .*is {URL} right",
    ),
    "an endpoint's name": Mistake(
        "OIDC",
        lambda given: given.oidc(**{URL: "https://login.nowhere.invalid/token"}),
        "mechanism",
        r"login\.nowhere\.invalid/token cannot be reached",
    ),
    "an endpoint without TLS": Mistake(
        "OIDC",
        lambda given: given.oidc(**{URL: given.server.url.replace("http:", "https:")}),
        "mechanism",
        "token does not speak TLS",
    ),
    "a token that has ended": Mistake(
        "OIDC",
        Given.oidc,
        "mechanism",
        "already ended: is the clock right",
        lambda: {"exp": _in(-60)},
    ),
    "a clock": Mistake(
        "OIDC",
        Given.oidc,
        "token",
        r"begins in \d+ s \(is a clock wrong\?\)",
        lambda: {"iat": _in(600), "nbf": _in(600)},
    ),
    "a broker's name": Mistake(
        "nowhere.invalid:9092", Given.oidc, "setting", "no host is known as 'nowhere.invalid'"
    ),
    "a broker's port": Mistake(
        "127.0.0.1:1", Given.oidc, "setting", r"nothing listens at 127\.0\.0\.1:1"
    ),
    "a password of SCRAM": Mistake(
        "SCRAM",
        lambda given: given.login("SCRAM-512", **{"sasl.password": PLANTED}),
        "mechanism",
        r"refused the login \(SCRAM-SHA-512\) of 'alice': check the user and the password",
    ),
    "a password of PLAIN": Mistake(
        "PLAIN",
        lambda given: given.login("PLAIN", **{"sasl.password": PLANTED}),
        "mechanism",
        r"refused the login \(PLAIN\)",
    ),
    "a mechanism": Mistake(
        "PLAIN", lambda given: given.login("SCRAM-512"), "protocol", "it takes PLAIN"
    ),
    "plain text to TLS": Mistake(
        "TLS", lambda _: {}, "connection", r"does it want TLS \(security\.protocol SSL or SASL_SSL"
    ),
    "TLS to plain text": Mistake(
        "PLAINTEXT", Given.tls, "connection", "does not speak TLS: is security.protocol=SSL right"
    ),
    "a login where none is taken": Mistake(
        "PLAINTEXT",
        lambda given: given.login("PLAIN", **{"security.protocol": "SASL_PLAINTEXT"}),
        "protocol",
        "takes no login: security.protocol=SASL_PLAINTEXT is for a SASL listener",
    ),
    "no login": Mistake("PLAIN", Given.tls, "protocol", "wants a login: security.protocol is SSL"),
    "no CA": Mistake(
        "TLS",
        lambda _: {"security.protocol": "SSL"},
        "connection",
        r"not trusted .*does ssl\.ca\.location \(ssl\.truststore\.location in Java\)",
    ),
    "another CA": Mistake(
        "TLS",
        lambda given: given.tls(**{"ssl.ca.location": given.security.wrong_ca}),
        "connection",
        "has a certificate that is not trusted",
    ),
    "no certificate of the client": Mistake(
        "MTLS", Given.tls, "TLS", r"wants a certificate of the client: ssl\.certificate\.location"
    ),
    "a certificate of another CA": Mistake(
        "MTLS",
        Given.foreign,
        "TLS",
        "refused the client's certificate of CN=stranger,.* does the broker trust",
    ),
    "a certificate that has ended": Mistake(
        "MTLS",
        lambda given: given.foreign(datetime(2020, 2, 1, tzinfo=UTC)),
        "TLS",
        "refused the client's certificate .*: it has ended on 2020-02-01",
    ),
    "a missing CA": Mistake(
        "TLS",
        lambda given: given.tls(**{"ssl.ca.location": "/none/ca.pem"}),
        "setting",
        r"ssl\.ca\.location.*/none/ca\.pem.*No such file",
    ),
    "a password of JKS": Mistake(
        "MTLS",
        lambda given: given.store("JKS", **{"ssl.keystore.password": PLANTED}),
        "",
        r"ssl\.keystore\.password: it is not the password of ssl\.keystore\.location",
    ),
    "a password of PKCS12": Mistake(
        "MTLS",
        lambda given: given.store("PKCS12", **{"ssl.truststore.password": PLANTED}),
        "",
        r"ssl\.truststore\.password: it is not the password",
    ),
    "a store without a key": Mistake(
        "MTLS",
        lambda given: given.store("JKS", **{"ssl.keystore.location": str(given.stores / "ca.JKS")}),
        "",
        r"ssl\.keystore\.location: .*ca\.JKS has no certificate",
    ),
    "a missing store": Mistake(
        "MTLS",
        lambda given: given.store("JKS", **{"ssl.keystore.location": "/none/x.jks"}),
        "",
        r"ssl\.keystore\.location: /none/x\.jks cannot be read",
    ),
    "no region of AWS": Mistake(
        "OAUTH",
        lambda _: {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "AWS_MSK_IAM"},
        "",
        r"holdfast\.aws\.region: AWS_MSK_IAM needs the region",
    ),
    "no credentials of AWS": Mistake(
        "OAUTH",
        lambda _: {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "holdfast.aws.region": "eu-west-1",
        },
        "mechanism",
        "found no AWS credentials: set AWS_PROFILE",
    ),
}


@pytest.fixture
def given(security, server, stores, tmp_path, monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    for made in (tokens.oidc_tokens, tokens._aws_tokens):
        made.cache_clear()  # a process keeps a token until shortly before its end
    return Given(security, server, stores, tmp_path)


def check(at, config, folder):
    file = written(folder, config)
    done = run(
        *("config", "check", "-b", at, "--command-config", file),
        *("--timeout", "8s", "--format", "json"),
    )
    return done, [row["step"] for row in json.loads(done.out)["rows"]]


QUICK = ("the audience", "a clock", "no CA", "no certificate of the client", "a password of JKS")


@pytest.mark.parametrize("name", further(MISTAKES, QUICK))
def test_a_mistake_is_named_at_its_step(broker, given, tmp_path, name):
    mistake = MISTAKES[name]
    given.server.claims = mistake.claims()
    at = mistake.at if ":" in mistake.at else broker.bootstrap_of(mistake.at)
    done, steps = check(at, mistake.config(given), tmp_path)
    assert done.code == (3 if mistake.works not in ("", "setting") or ":" in mistake.at else 2)
    assert (steps[-1] if steps else "") == mistake.works
    assert re.search(mistake.says, " ".join(done.err.split())), done.err
    for secret in (PLANTED, PASSWORD, SECRET):
        assert secret not in done.out + done.err


def of_a_command(at, config):
    LiveCluster(bootstrap=at, config=config).check()


def of_a_member(at, config):
    own = {"bootstrap.servers": at, "group.id": "g", "request.timeout.ms": 3_000}
    Connections(Settings.parse({**own, **config})).open()


@pytest.mark.parametrize("connect", [of_a_member, of_a_command])
def test_members_and_other_commands_tell_the_same(broker, given, connect):
    """Side by side: a command tries for 5 s."""
    told = {name: one for name, one in MISTAKES.items() if one.claims is dict}

    def said(name):
        mistake = told[name]
        at = mistake.at if ":" in mistake.at else broker.bootstrap_of(mistake.at)
        with pytest.raises(HoldfastError) as raised:
            connect(at, mistake.config(given))
        return " ".join(str(raised.value).split())

    with ThreadPoolExecutor(len(told)) as pool:
        found = dict(zip(told, pool.map(said, told), strict=True))
    assert {
        name: text for name, text in found.items() if not re.search(told[name].says, text)
    } == {}


CERTIFICATES = {
    "ended": ("127.0.0.1", datetime(2020, 2, 1, tzinfo=UTC), "it has ended, and the broker needs"),
    "other name": ("other.example", None, "must name the broker as its certificate does"),
}


@pytest.mark.parametrize("case", CERTIFICATES)
def test_a_brokers_certificate_that_has_ended_or_another_name_is_told(tmp_path, case):
    name, end, said = CERTIFICATES[case]
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name, not_after=end).configure_cert(tls)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def shake_hands():
            with suppress(OSError):
                tls.wrap_socket(server.accept()[0], server_side=True).close()

        pool.submit(shake_hands)
        config = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")}
        done, steps = check(f"127.0.0.1:{server.getsockname()[1]}", config, tmp_path)
    assert (done.code, steps[-1]) == (3, "connection")
    assert said in " ".join(done.err.split()), done.err


def test_the_principal_and_what_the_file_hides_are_told(broker, given, tmp_path):
    config = {**given.store("JKS"), "client.dns.lookup": "use_all_dns_ips", "retires": "3"}
    done, _ = check(broker.bootstrap_of("MTLS"), config, tmp_path)
    found = [row["found"] for row in json.loads(done.out)["rows"]]
    assert "for Spark's client alone: client.dns.lookup, retires" in found
    assert any(one.startswith("it works: the certificate of OU=Testing cert") for one in found)
    file = tmp_path / "client.properties"
    file.write_text(f"{file.read_text()}retires=4\n")
    done = run("config", "check", "-b", broker.bootstrap_of("MTLS"), "--command-config", file)
    assert "replaces retires of line" in done.out


def test_an_endpoint_of_another_ca_is_named(broker, given, tmp_path):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    with token_server(given.security.folder, tls) as other:
        done, steps = check(broker.bootstrap_of("OIDC"), oidc(other), tmp_path)
    assert (done.code, steps[-1]) == (3, "mechanism")
    assert "not trusted" in done.err and "https.ca.location" in done.err
