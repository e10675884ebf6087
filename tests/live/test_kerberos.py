"""Logins by Kerberos on a real broker with a real KDC: members, commands, Spark's reader."""

from __future__ import annotations

import logging
import subprocess
from typing import Any

import pytest
from tests.live.clients import CLIENTS
from tests.live.crew import fresh
from tests.live.kdc import SERVER, SERVICE, USER, running_kdc, tool
from tests.live.logins import (
    Login,
    commands_work,
    every_command_works,
    member_reads,
    sparks_reader_works,
    worker_works,
)
from tests.live.run_broker import ShortLived

import holdfast
from holdfast.cluster.cluster import LiveCluster
from holdfast.cluster.kerberos import MODULE
from holdfast.errors import ConfigError, SourceError
from holdfast.local.broker import BrokerSettings

pytestmark = [pytest.mark.broker, pytest.mark.slow]  # needs a KDC, which tools/kdc.sh installs


@pytest.fixture(scope="module")
def kdc(tmp_path_factory):
    with running_kdc(tmp_path_factory.mktemp("kdc")) as running, pytest.MonkeyPatch.context() as at:
        for name, value in running.environment.items():
            at.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def kerberos_broker(kdc):
    class OfTheRealm(ShortLived):
        def _java_command(self, *server: Any, **sizes: Any) -> list[str]:
            realm = f"-Djava.security.krb5.conf={kdc.krb5_conf}"
            return [*super()._java_command(*server, **sizes), realm]

    login = f'useKeyTab=true storeKey=true keyTab="{kdc.keytab(SERVER)}" principal="{SERVER}"'
    properties = {
        "listener.name.krb.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.krb.sasl.kerberos.service.name": SERVICE,
        "listener.name.krb.gssapi.sasl.jaas.config": f"{MODULE} required {login};",
    }
    settings = BrokerSettings(properties=properties, listeners={"KRB": "SASL_PLAINTEXT"})
    with OfTheRealm.start(settings=settings) as running:
        yield running


def librdkafkas(kdc):
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": SERVICE,
        "sasl.kerberos.keytab": str(kdc.keytab(USER)),
        "sasl.kerberos.principal": USER,
    }


def javas(kdc):
    """As Kafka's documentation has it, with Java's default mechanism."""
    login = f'useKeyTab=true storeKey=true keyTab="{kdc.keytab(USER)}" principal="{USER}"'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.kerberos.service.name": SERVICE,
        "sasl.jaas.config": f"{MODULE} required {login};",
    }


def of_the_cache(_):
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": SERVICE,
    }


@pytest.fixture
def ticket(kdc):
    """A ticket in the cache, as kinit leaves it."""
    line = [tool("kinit"), "-k", "-t", str(kdc.keytab(USER)), USER]
    subprocess.run(line, check=True)
    yield
    subprocess.run([tool("kdestroy")], check=True)


@pytest.fixture
def entering(kerberos_broker, kdc):
    """Return the login with a configuration; its secret is the user's key."""
    secrets = kdc.keys(USER)

    def login(config):
        at = kerberos_broker.bootstrap_of("KRB")
        return Login(kerberos_broker.bootstrap, at, config, lambda: secrets)

    return login


@pytest.mark.parametrize("spelling", [librdkafkas, javas])
@pytest.mark.parametrize("name", ["kafka", "aiokafka"])
def test_a_member_logs_in_with_a_keytab(entering, kdc, name, spelling, caplog):
    login = entering({"sasl.mechanism": "GSSAPI", **spelling(kdc)})
    with caplog.at_level(logging.DEBUG):
        member_reads(login, name)
    assert not login.shown_in(caplog.text)


@pytest.mark.parametrize("name", ["kafka", "aiokafka"])
def test_a_member_logs_in_with_a_ticket_of_the_cache(entering, kdc, name, ticket):
    member_reads(entering(of_the_cache(kdc)), name)


def test_a_worker_logs_in(entering, kdc):
    worker_works(entering(librdkafkas(kdc)))


def test_a_consumer_without_a_group_logs_in(kerberos_broker, kdc):
    """aiokafka's connections alone, without a member's."""
    config = {"bootstrap.servers": kerberos_broker.bootstrap_of("KRB"), **librdkafkas(kdc)}
    client = CLIENTS["aiokafka"]("-", {**config, "group.id": None})
    assert isinstance(client.does("topics"), set)
    client.close()


def test_a_librdkafka_without_kerberos_is_refused_with_what_to_use(kerberos_broker, kdc):
    at = {"bootstrap.servers": kerberos_broker.bootstrap_of("KRB"), "group.id": fresh("group")}
    with pytest.raises(ConfigError, match=r"holdfast\.kafka\.KafkaConsumer"):
        holdfast.Consumer({**at, **librdkafkas(kdc)})
    with pytest.raises(Exception, match=r"holdfast\.kafka\.KafkaConsumer"):
        holdfast.confluent.Consumer({**at, **librdkafkas(kdc)})


@pytest.mark.parametrize("spelling", [librdkafkas, javas])
def test_commands_log_in(entering, kdc, tmp_path, spelling):
    checked = commands_work(entering(spelling(kdc)), tmp_path)
    assert f"there is a ticket for {USER}" in checked
    assert "its client gets the same login" in checked


@pytest.mark.spark
def test_every_command_logs_in(entering, kdc, tmp_path):
    realm = f"-Djava.security.krb5.conf={kdc.krb5_conf}"
    every_command_works(entering(librdkafkas(kdc)), tmp_path, java_options=realm)


WRONG = {
    "no ticket": ({"sasl.kerberos.keytab": None, "sasl.kerberos.principal": None}, "run kinit"),
    "keytab": ({"sasl.kerberos.keytab": "/none.keytab"}, "is sasl.kerberos.keytab .* readable"),
    "principal": ({"sasl.kerberos.principal": "other"}, "hold sasl.kerberos.principal"),
    "service": ({"sasl.kerberos.service.name": "wrong"}, "is sasl.kerberos.service.name right"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_refused_login_names_what_refused_it(kerberos_broker, kdc, case):
    wrong, said = WRONG[case]
    config = {key: one for key, one in {**librdkafkas(kdc), **wrong}.items() if one is not None}
    at = kerberos_broker.bootstrap_of("KRB")
    with pytest.raises(SourceError, match=said):
        LiveCluster(bootstrap=at, config=config, timeout_ms=8_000).check()


@pytest.mark.spark
def test_sparks_reader_logs_in(spark, entering, kdc):
    realm = "java.security.krb5.conf"
    system = spark._jvm.System
    system.setProperty(realm, str(kdc.krb5_conf))
    try:
        sparks_reader_works(spark, entering(librdkafkas(kdc)))
    finally:
        system.clearProperty(realm)
