"""Logins by configuration, on a real broker: token endpoints with Kafka's own validator, keystores.

Each goes through every way in: a member of each client, and commands with one file that Kafka's own
tools read, too.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from contextlib import ExitStack
from dataclasses import replace
from itertools import product

import pytest
from tests.cli.running import run, run_program
from tests.live.all_clients import DROP_INS
from tests.live.clients import CLIENTS
from tests.live.crew import Topic, fresh
from tests.live.kinds import class_path
from tests.live.logins import (
    Login,
    commands_work,
    every_command_works,
    member_reads,
    sparks_reader_works,
    worker_works,
    written,
)
from tests.live.security import write_stores
from tests.live.small_group import small_group
from tests.live.waiting import until
from tests.suites import further
from tests.token_server import CLIENT, SCOPE, SECRET, token_server

from holdfast.local.java import find_java

pytestmark = pytest.mark.broker
PASSWORD = "store-planted-5"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
CLIENT_NAMES = ("consumer", *DROP_INS)


@pytest.fixture
def server(security):
    with token_server(security.folder) as running:
        yield running


@pytest.fixture(scope="module")
def stores(certificates, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    made = certificates.folder
    write_stores(made / "ca.pem", made / "client.pem", folder, PASSWORD)
    (folder / "client.pem").write_bytes((made / "client.pem").read_bytes())
    return folder


def oidc(server):
    return {"security.protocol": "SASL_PLAINTEXT", **server.config()}


def java_oidc(server):
    """The keys of Java's client, as its documentation has them."""
    login = f'clientId="{CLIENT}" clientSecret="{SECRET}" scope="{SCOPE}"'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": server.url,
        "sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required {login};",
    }


def keystores(stores, kind):
    return {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(stores / f"ca.{kind}"),
        "ssl.truststore.type": kind,
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": str(stores / f"client.{kind}"),
        "ssl.keystore.type": kind,
        "ssl.keystore.password": PASSWORD,
    }


WAYS = ("OIDC", "JKS", "PKCS12")


@pytest.fixture
def entering(broker, server, stores):
    """Return the login of one of :data:`WAYS`; a token endpoint's in either spelling."""

    def login(way, spelling=java_oidc):
        if way == "OIDC":
            return Login(broker.bootstrap, broker.bootstrap_of("OIDC"), spelling(server), told)
        at = broker.bootstrap_of("MTLS")
        return Login(broker.bootstrap, at, keystores(stores, way), lambda: [PASSWORD, *keys])

    def told():
        return [SECRET, *(token.partition(".")[2] for token in server.tokens)]

    chain = (stores / "client.pem").read_text()
    keys = re.findall(r"PRIVATE KEY-----\n(\S{60,})", chain)
    assert keys
    return login


@pytest.mark.parametrize(
    ("name", "spelling"),
    further(product(CLIENT_NAMES, (oidc, java_oidc)), [(one, oidc) for one in CLIENT_NAMES]),
)
def test_a_member_of_each_client_logs_in_with_a_token_endpoint(entering, name, spelling, caplog):
    login = entering("OIDC", spelling)
    with caplog.at_level(logging.DEBUG):
        member_reads(login, name)
    assert len([*login.secrets()]) > 1
    assert not login.shown_in(caplog.text)


@pytest.mark.parametrize(
    ("name", "kind"), further(product(CLIENT_NAMES, ("JKS", "PKCS12")), [("consumer", "JKS")])
)
def test_a_member_of_each_client_reads_keystores(entering, name, kind, caplog):
    with caplog.at_level(logging.DEBUG):
        member_reads(login := entering(kind), name)
    assert not login.shown_in(caplog.text)


@pytest.mark.parametrize("name", ["consumer", "confluent", "kafka"])
def test_a_client_names_the_endpoint_that_refuses_a_token(entering, server, name):
    """By themselves librdkafka waits for 10 s and kafka-python for 30, and name nothing."""
    login = entering("OIDC")
    jaas = login.config["sasl.jaas.config"].replace(SECRET, "planted")
    wrong = {**login.member(), "sasl.jaas.config": jaas}
    with ExitStack() as stack, pytest.raises(Exception, match="refused the client 'reader'") as e:
        client = CLIENTS[name]("-", wrong)
        stack.callback(client.close)
        client.subscribe(["-"])
        until(lambda: client.poll() and None, "an error", 20)
    assert "planted" not in str(e.value)


@pytest.mark.parametrize("name", further(["kafka", "aiokafka"]))
def test_a_store_whose_key_has_a_password_of_its_own(entering, name):
    login = entering("JKS")
    config = {**login.config, "ssl.key.password": PASSWORD}
    member_reads(replace(login, config=config), name)


@pytest.mark.parametrize("way", further(WAYS))
def test_a_worker_logs_in(entering, way, caplog):
    with caplog.at_level(logging.DEBUG):
        worker_works(login := entering(way))
    assert not login.shown_in(caplog.text)


@pytest.mark.parametrize("name", further(CLIENT_NAMES))
def test_a_member_logs_in_again_before_its_token_ends(broker, server, name):
    """KIP-368: the broker ends a connection at the end of its token's lifetime."""
    server.lifetime_s = 5.0
    topic = Topic(broker.bootstrap, 1, 1)
    own = {"bootstrap.servers": broker.bootstrap_of("OIDC"), "group.id": fresh("group")}
    client = CLIENTS[name](topic.name, {**own, **oidc(server)})
    client.subscribe([topic.name])
    until(lambda: client.poll() and client.records, "a record", 90)
    seen = len(server.tokens)
    identity = client.snapshot.identity
    until(lambda: client.poll() is not None and len(server.tokens) >= seen + 2, "tokens", 90)
    topic.produce(1)
    until(lambda: client.poll() and len(client.records) == 2, "another record", 90)
    assert client.snapshot.identity == identity  # no generation has begun
    client.close()


def kafkas_tool(at, file):
    """Run Kafka's own tool with a file of properties; it lists the groups."""
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="
    url = [line for line in file.read_text().splitlines() if ".url=" in line]
    line = [find_java().executable, allowed + "".join(url).partition("=")[2], "-Xshare:auto"]
    line += ["-XX:TieredStopAtLevel=1", "-cp", class_path()]
    line += ["org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--list"]
    line += ["--bootstrap-server", at, "--command-config", file]
    return run_program(*line).passed().out.split()


@pytest.mark.parametrize("way", further(WAYS, ["OIDC", "JKS"]))
def test_one_file_serves_kafkas_tools_and_ours(entering, tmp_path, way):
    login = entering(way)
    with small_group(login.plain, group := fresh("group")):
        assert group in kafkas_tool(login.at, written(tmp_path, login.config))
    commands_work(login, tmp_path, checks=False)


STEPS = ["setting", "connection", "TLS", "protocol", "mechanism", "token", "login", "metadata"]


def checked(at, file):
    done = run("config", "check", "-b", at, "--command-config", str(file), "--format", "json")
    rows = json.loads(done.out)["rows"]
    return done, list(dict.fromkeys(row["step"] for row in rows)), done.out + done.err


@pytest.mark.parametrize("way", further(WAYS, ["OIDC", "PKCS12"]))
def test_a_configuration_is_checked_step_by_step(entering, server, tmp_path, way):
    login, left_out = entering(way), {"TLS"} if way == "OIDC" else {"mechanism", "token"}
    done, steps, text = checked(login.at, written(tmp_path, login.config))
    assert done.code == 0, done.err
    assert steps == [*(step for step in STEPS if step not in left_out), "Spark"]
    assert "its client gets the same login" in text
    if way == "OIDC":
        assert server.url in text and "audience 'kafka'" in text
    wrong = {**login.config, "security.protocol": "PLAINTEXT", "sasl.mechanism": None}
    wrong = {key: one for key, one in wrong.items() if one and not key.startswith("sasl.")}
    done, steps, more = checked(login.at, written(tmp_path, wrong))
    assert done.code == 3
    assert ("wants a login" if way == "OIDC" else "does it want TLS") in done.err
    assert steps in (["setting", "connection", "protocol"], ["setting", "connection"])
    assert not login.shown_in(text + more)


def test_a_file_names_a_function_of_the_current_folder(broker, security, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    line = "from tests.live.security import unsecured_token as give"
    (tmp_path / "own_tokens.py").write_text(f"{line}\n")
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    named = {**config, "holdfast.oauth.token.provider": "own_tokens:give"}
    done, steps, text = checked(broker.bootstrap_of("OAUTH"), written(tmp_path, named))
    assert done.code == 0, done.err
    assert steps[-3:] == ["login", "metadata", "Spark"]
    assert "Java and cannot call the function" in text


@pytest.mark.spark
@pytest.mark.parametrize("way", further(WAYS))
def test_sparks_reader_logs_in(spark, entering, server, way):
    sparks_reader_works(spark, entering(way, oidc))
    assert len(server.tokens) >= (way == "OIDC")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("way", WAYS)
def test_every_command_logs_in(entering, tmp_path, way):
    every_command_works(entering(way), tmp_path)
