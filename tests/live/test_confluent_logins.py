"""TLS and SASL of every client, in the keys of each; and credentials that change."""

import logging
from itertools import product

import pytest
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.live.all_clients import DROP_INS
from tests.live.crew import Topic, admin_of, fresh
from tests.live.logins import Login, member_reads
from tests.live.security import PASSWORD, WAYS
from tests.live.waiting import until
from tests.suites import further

from holdfast.confluent import Consumer

pytestmark = pytest.mark.broker


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *(("consumer", way) for way in WAYS),
        *further(product(DROP_INS, ("TLS", "SCRAM-512", "OAUTH")), [*product(DROP_INS, ["TLS"])]),
    ],
)
def test_a_member_joins_reads_and_commits(broker, security, name, way):
    config = {**WAYS[way], **({} if way == "OAUTH" else {"ssl.ca.location": security.ca})}
    at = broker.bootstrap_of(way.partition("-")[0])
    member_reads(Login(broker.bootstrap, at, config, lambda: [PASSWORD]), name)


def give_password(broker, user, password):
    given = UserScramCredentialUpsertion(
        user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode()
    )
    for done in admin_of(broker.bootstrap).alter_user_scram_credentials([given]).values():
        done.result(60)


def disconnect(consumer):
    """Break every connection of the member, as a network does."""
    connections = consumer._holdfast.session.membership.runtime.coordinator._connections

    async def close():
        for connection in list(connections._manager._conns.values()):
            connection.close()

    connections.future(close).result(30)


def test_changed_credentials_are_the_members_too(broker, security, caplog):
    """A member keeps asking while a login is refused; then it goes on where it was."""
    user, topic = fresh("user"), Topic(broker.bootstrap, 1, 1)
    give_password(broker, user, "first")
    config = security.login(
        broker, "SCRAM-512", **{"sasl.username": user, "sasl.password": "wrong"}
    )
    config |= {"enable.auto.commit": False, "heartbeat.interval.ms": 200, "log_level": 0}
    consumer = Consumer(config)

    def was_refused():
        consumer.poll(0.1)
        return "SaslAuthenticationFailed" in caplog.text

    with caplog.at_level(logging.ERROR, "kafka"):
        consumer.subscribe([topic.name])
        until(was_refused, "the first login is refused", 90)
        consumer.set_sasl_credentials(user, "first")
        read = []
        until(lambda: read.extend(consumer.consume(1, 0.2)) or read, "a record", 90)

        give_password(broker, user, "second")
        caplog.clear()
        disconnect(consumer)
        until(was_refused, "the old login is refused", 90)
        consumer.set_sasl_credentials(user, "second")
        disconnect(consumer)
        consumer.commit(message=read[0], asynchronous=False)
    consumer.close()
    assert "second" not in caplog.text
