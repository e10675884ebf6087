"""TLS and SASL through each drop-in, in the keys of its client; and credentials that change."""

import asyncio
import logging
import ssl

import pytest
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaTokens
from tests.live.crew import Topic, fresh
from tests.live.security import PASSWORD, USER, showing, unsecured_token
from tests.live.waiting import until
from tests.suites import further

from holdfast.aiokafka import AIOKafkaConsumer
from holdfast.confluent import Consumer
from holdfast.kafka import KafkaConsumer

pytestmark = pytest.mark.broker
N_RECORDS = 4
PROTOCOLS = {"TLS": "SSL", "SCRAM": "SASL_SSL", "OAUTH": "SASL_PLAINTEXT"}
MECHANISMS = {"SCRAM": "SCRAM-SHA-512", "OAUTH": "OAUTHBEARER"}


def of_confluent(at, way, ca):
    config = {
        "bootstrap.servers": at,
        "group.id": fresh("login"),
        "auto.offset.reset": "earliest",
        "security.protocol": PROTOCOLS[way],
        "log_level": 0,
    }
    if way != "OAUTH":
        config["ssl.ca.location"] = ca
    if way in MECHANISMS:
        config["sasl.mechanisms"] = MECHANISMS[way]
    if way == "SCRAM":
        config |= {"sasl.username": USER, "sasl.password": PASSWORD}
    if way == "OAUTH":
        config["oauth_cb"] = lambda _: unsecured_token()
    return config


def keywords(at, way, tokens):
    """What aiokafka and kafka-python have in common."""
    found = {
        "bootstrap_servers": at,
        "group_id": fresh("login"),
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "security_protocol": PROTOCOLS[way],
    }
    if way in MECHANISMS:
        found["sasl_mechanism"] = MECHANISMS[way]
    if way == "SCRAM":
        found |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    if way == "OAUTH":
        found["sasl_oauth_token_provider"] = tokens
    return found


def through_confluent(at, way, ca, topic):
    """Read, commit; return what is committed."""
    consumer = Consumer({**of_confluent(at, way, ca), "enable.auto.commit": False})
    consumer.subscribe([topic.name])
    read = []
    until(lambda: read.extend(consumer.consume(N_RECORDS, 0.2)) or len(read) == N_RECORDS, way, 90)
    assert not any(message.error() for message in read)
    consumer.commit(asynchronous=False)
    (found,) = consumer.committed([TopicPartition(topic.name, 0)], 30)
    assert not showing(PASSWORD, consumer)
    consumer.close()
    return found.offset


def through_kafka(at, way, ca, topic):
    """Read, commit; return what is committed."""

    class Tokens(KafkaTokens):
        def token(self):
            return unsecured_token()[0]

    files = {} if way == "OAUTH" else {"ssl_cafile": ca}
    consumer = KafkaConsumer(topic.name, **keywords(at, way, Tokens()), **files)
    read = []
    until(
        lambda: (
            read.extend(r for rs in consumer.poll(200).values() for r in rs)
            or len(read) == N_RECORDS
        ),
        way,
        90,
    )
    consumer.commit()
    (part,) = consumer.assignment()
    found = consumer.committed(part)
    assert not showing(PASSWORD, consumer)
    consumer.close()
    return found


def through_aiokafka(at, way, ca, topic):
    """Read, commit; return what is committed."""

    class Tokens(AiokafkaTokens):
        async def token(self):
            return unsecured_token()[0]

    async def work():
        context = None if way == "OAUTH" else ssl.create_default_context(cafile=ca)
        options = keywords(at, way, Tokens())
        consumer = AIOKafkaConsumer(topic.name, **options, ssl_context=context)
        await consumer.start()
        for _ in range(N_RECORDS):
            await asyncio.wait_for(consumer.getone(), 90)
        await consumer.commit()
        (part,) = consumer.assignment()
        found = await consumer.committed(part)
        assert not showing(PASSWORD, consumer)
        await consumer.stop()
        return found

    return asyncio.run(work())


@pytest.mark.parametrize("way", further(PROTOCOLS))
@pytest.mark.parametrize("through", [through_confluent, through_kafka, through_aiokafka])
def test_a_member_joins_reads_and_commits(broker, security, through, way):
    topic = Topic(broker.bootstrap, 1)
    topic.produce(N_RECORDS)
    assert through(broker.bootstrap_of(way), way, security.ca, topic) == N_RECORDS


def give_password(broker, user, password):
    """Set the password of a user at the broker."""
    given = UserScramCredentialUpsertion(
        user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode()
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.alter_user_scram_credentials([given]).values():
        done.result(60)


def disconnect(consumer):
    """Break every connection of the member, as a network does."""
    connections = consumer._holdfast.seat.membership.parts.link._connections

    async def close():
        for connection in list(connections._manager._conns.values()):
            connection.close()

    connections.future(close).result(30)


def test_changed_credentials_are_the_members_too(broker, security, caplog):
    """A member keeps asking while a login is refused; then it goes on where it was."""
    user, topic = fresh("user"), Topic(broker.bootstrap, 1)
    topic.produce(1)
    give_password(broker, user, "first")
    config = of_confluent(broker.bootstrap_of("SCRAM"), "SCRAM", security.ca)
    config |= {"sasl.username": user, "sasl.password": "wrong", "enable.auto.commit": False}
    consumer = Consumer({**config, "heartbeat.interval.ms": 200})

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
