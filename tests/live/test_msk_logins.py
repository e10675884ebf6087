"""Amazon MSK's logins by IAM on a broker that signs each login once more with AWS's own SDK.

The broker has the mechanisms ``AWS_MSK_IAM``, which Java's client uses, and ``OAUTHBEARER``, which
the others use.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.running import run_python
from tests.live.all_clients import DROP_INS
from tests.live.crew import fresh
from tests.live.logins import (
    Login,
    commands_work,
    every_command_works,
    member_reads,
    worker_works,
    written,
)
from tests.live.run_broker import ShortLived
from tests.live.small_group import small_group
from tests.local.programs import compiled

from holdfast.cluster import tokens
from holdfast.cluster.cluster import LiveCluster
from holdfast.errors import SourceError
from holdfast.local.broker import BrokerSettings
from holdfast.local.jars import broker_jars, msk_jars

pytestmark = [pytest.mark.broker, pytest.mark.every]
REGION, KEY, SECRET = "eu-west-1", "AKIAEXAMPLE", "planted/aws+key-1f"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_IAM = "software.amazon.msk.auth.iam"
OURS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "AWS_MSK_IAM",
    "holdfast.aws.region": REGION,
}
JAVAS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{_IAM}.IAMLoginModule required;",
    "sasl.client.callback.handler.class": f"{_IAM}.IAMClientCallbackHandler",
}


@pytest.fixture(scope="module")
def msk():
    jars = os.pathsep.join(map(str, [*broker_jars(), *msk_jars()]))
    classes = compiled("MskLogins", jars)

    class OfAmazon(ShortLived):
        def _jars_of(self, kafka: str) -> list[Path]:
            return [*super()._jars_of(kafka), *msk_jars(), classes]

    options = f'accessKey="{KEY}" secretKey="{SECRET}" region="{REGION}"'
    token = f"{_OAUTH} required unsecuredLoginStringClaim_sub=broker {options};"
    server = "sasl.server.callback.handler.class"
    properties = {
        "listener.name.msk.sasl.enabled.mechanisms": "AWS_MSK_IAM,OAUTHBEARER",
        "listener.name.msk.aws_msk_iam.sasl.jaas.config": f"{_PLAIN} required {options};",
        f"listener.name.msk.aws_msk_iam.{server}": "MskLogins$OfIam",
        "listener.name.msk.oauthbearer.sasl.jaas.config": token,
        f"listener.name.msk.oauthbearer.{server}": "MskLogins$OfToken",
    }
    settings = BrokerSettings(properties=properties, listeners={"MSK": "SASL_PLAINTEXT"})
    with OfAmazon.start(settings=settings) as running:
        yield running


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    tokens._aws_tokens.cache_clear()  # a process keeps a token until shortly before its end


@pytest.fixture
def login(msk):
    return Login(msk.bootstrap, msk.bootstrap_of("MSK"), OURS, lambda: ["planted", SECRET])


@pytest.mark.parametrize("name", ["consumer", *DROP_INS])
def test_a_member_of_each_client_logs_in(login, name, caplog):
    with caplog.at_level(logging.DEBUG):
        member_reads(login, name)
    assert not login.shown_in(caplog.text)
    assert "X-Amz-Signature" not in caplog.text


def test_a_worker_logs_in(login):
    worker_works(login)


def test_commands_log_in_with_javas_file(login, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_REGION", REGION)  # no broker's name has it
    checked = commands_work(replace(login, config=JAVAS), tmp_path)
    assert "with Amazon's jar" in checked and f"AWS_MSK_IAM in {REGION}" in checked


WRONG = {
    "secret key": ({"AWS_SECRET_ACCESS_KEY": "planted-2"}, {}, "AWS_MSK_IAM in eu-west-1"),
    "access key": ({"AWS_ACCESS_KEY_ID": "AKIAOTHER"}, {}, "AWS_MSK_IAM in eu-west-1"),
    "region": ({}, {"holdfast.aws.region": "us-east-1"}, "AWS_MSK_IAM in us-east-1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_refused_login_names_what_was_refused(login, monkeypatch, case):
    environment, config, said = WRONG[case]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    cluster = LiveCluster(bootstrap=login.at, config={**OURS, **config}, timeout_ms=8_000)
    with pytest.raises(SourceError, match=said) as caught:
        cluster.check()
    assert "planted" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.spark
def test_every_command_logs_in(login, tmp_path):
    every_command_works(login, tmp_path, AWS_REGION=REGION)


@pytest.mark.spark
def test_sparks_reader_logs_in_for_a_region_that_only_the_file_names(login, tmp_path):
    file = written(tmp_path, OURS)
    with small_group(login.plain, group := fresh("group")):
        line = ["-m", "holdfast", "history", "-b", login.at, "--engine", "spark"]
        line += ["--command-config", file, "-o", tmp_path / "tables", "--group", group]
        done = run_python(*line).passed()
    assert not login.shown_in(done.out + done.err)
