"""Callbacks that raise, deserializers that fail, calls too late: the originals' answers from ours.

The same program runs on the original and on ours. A record that a deserializer fails on was not
handed out: nothing of it, and nothing behind it, is committed.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

import aiokafka
import kafka
import pytest
from aiokafka.errors import ConsumerStoppedError
from confluent_kafka import Producer
from kafka.errors import IllegalStateError, KafkaConfigurationError, KafkaError
from tests.live.crew import Topic, fresh
from tests.live.waiting import PATIENCE_SECONDS

from holdfast.aiokafka import AIOKafkaConsumer
from holdfast.kafka import KafkaConsumer

pytestmark = pytest.mark.broker
QUICK = {
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 300,
    "auto_commit_interval_ms": 100,
}


def original(kind):
    """Runs in the slow runs."""
    return pytest.param(kind, id="original", marks=pytest.mark.slow)


of_kafka_python = pytest.mark.parametrize("kind", [original(kafka.KafkaConsumer), KafkaConsumer])
of_aiokafka = pytest.mark.parametrize(
    "kind", [original(aiokafka.AIOKafkaConsumer), AIOKafkaConsumer]
)


class Deserializer(kafka.serializer.Deserializer):
    """Fails on one value."""

    def deserialize(self, topic, headers, data):
        if data == b"bad":
            raise ValueError("a bad value")
        return data


@pytest.fixture(scope="module")
def topic(broker):
    """One partition: a, b, bad, c."""
    made = Topic(broker.bootstrap, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for value in (b"a", b"b", b"bad", b"c"):
        producer.produce(made.name, value, partition=0)
    assert producer.flush(60) == 0
    return made


def read(consumer, n):
    """Values, until there are so many; until it raises."""
    values = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(values) < n:
        assert time.monotonic() < deadline, values
        for batch in consumer.poll(200).values():
            values += [record.value for record in batch]
    return values


@of_kafka_python
def test_kafka_python_a_value_that_cannot_be_read(broker, topic, kind):
    place, group = kafka.TopicPartition(topic.name, 0), fresh("group")
    options = {"bootstrap_servers": broker.bootstrap, "group_id": group, **QUICK}
    with closing(kind(topic.name, value_deserializer=Deserializer(), **options)) as consumer:
        with pytest.raises(ValueError, match="a bad value"):
            read(consumer, 4)
        assert consumer.position(place) == 2
    with closing(kind(**options)) as consumer:
        assert consumer.committed(place) == 2
    with closing(kind(topic.name, **options)) as consumer:
        # The original's leader assigns nothing of a topic that it has no metadata of, for minutes.
        assert consumer.partitions_for_topic(topic.name) == {0}
        assert read(consumer, 2) == [b"bad", b"c"]


@of_kafka_python
def test_kafka_python_callbacks_that_raise(broker, topic, kind):
    class Listener(kafka.ConsumerRebalanceListener):
        n_assigned = 0

        def on_partitions_assigned(self, assigned):
            self.n_assigned += 1
            if self.n_assigned == 1:
                raise LookupError("from assigned")

        def on_partitions_revoked(self, revoked):
            if revoked:
                raise LookupError("from revoked")

    group = fresh("group")
    consumer = kind(bootstrap_servers=broker.bootstrap, group_id=group, **QUICK)
    consumer.subscribe([topic.name], listener=Listener())
    with pytest.raises(KafkaError, match="User rebalance callback throws an error") as raised:
        read(consumer, 4)
    assert isinstance(raised.value.__cause__, LookupError)
    assert read(consumer, 4) == [b"a", b"b", b"bad", b"c"]
    with pytest.raises(KafkaError, match="User rebalance callback throws an error"):
        consumer.close()
    with closing(kind(bootstrap_servers=broker.bootstrap, group_id=group)) as consumer:
        assert consumer.committed(kafka.TopicPartition(topic.name, 0)) == 4


@of_kafka_python
def test_kafka_python_calls_after_the_end(broker, topic, kind):
    place = kafka.TopicPartition(topic.name, 0)
    consumer = kind(topic.name, bootstrap_servers=broker.bootstrap, group_id=fresh("group"))
    consumer.close()
    consumer.close()
    assert consumer.assignment() == consumer.paused() == set()
    for error, call in (
        (IllegalStateError, lambda: consumer.poll(0)),
        (IllegalStateError, lambda: consumer.position(place)),
        (RuntimeError, consumer.commit),
        (RuntimeError, lambda: consumer.committed(place)),
        (ValueError, lambda: consumer.seek(place, 0)),
    ):
        with pytest.raises(error):
            call()


def test_kafka_python_refuses_what_contradicts(broker):
    for options in (
        {"holdfast_policy": "deferred"},  # without a group
        {"group_id": "g", "holdfast_policy": "nonsense"},
        {"group_id": "g", "holdfast_nonsense": 1},
        {"group_id": "g", "holdfast_handle_signals": True},
        {
            "group_id": "g",
            "holdfast_policy": "deferred",
            "partition_assignment_strategy": ["range", "sticky"],
        },
    ):
        with pytest.raises(KafkaConfigurationError):
            KafkaConsumer(bootstrap_servers=broker.bootstrap, **options)


def run(work):
    asyncio.run(asyncio.wait_for(work, PATIENCE_SECONDS))


async def read_by_loop(consumer, n):
    """Values, until there are so many; until it raises."""
    values = []
    while len(values) < n:
        for batch in (await consumer.getmany(timeout_ms=200)).values():
            values += [record.value for record in batch]
    return values


@of_aiokafka
@pytest.mark.parametrize("singly", [False, True])
def test_aiokafka_a_value_that_cannot_be_read(broker, topic, kind, singly):
    place, group = aiokafka.TopicPartition(topic.name, 0), fresh("group")
    options = {"bootstrap_servers": broker.bootstrap, "group_id": group, **QUICK}

    def deserialize(value):
        return Deserializer().deserialize("", (), value)

    async def work():
        values = []
        async with kind(topic.name, value_deserializer=deserialize, **options) as consumer:
            for _ in range(2):  # it comes again: the application may seek over it
                with pytest.raises(ValueError, match="a bad value"):
                    while singly:
                        values.append((await consumer.getone()).value)
                    await read_by_loop(consumer, 4)
            # a list is lost with its bad value, and a single record is there before
            assert await consumer.position(place) == (2 if singly else 0)
            assert values == ([b"a", b"b"] if singly else [])
            consumer.seek(place, 3)
            assert await read_by_loop(consumer, 1) == [b"c"]
            consumer.seek(place, 2)
        async with kind(topic.name, **options) as consumer:
            assert await consumer.committed(place) == 2
            assert await read_by_loop(consumer, 2) == [b"bad", b"c"]

    run(work())


@of_aiokafka
@pytest.mark.parametrize("awaits", [False, True])
def test_aiokafka_callbacks_that_raise(broker, topic, kind, awaits):
    calls = []

    class Listener(aiokafka.ConsumerRebalanceListener):
        """aiokafka logs what they raise, and goes on."""

        def on_partitions_assigned(self, assigned):
            return self.fail("assigned", assigned)

        def on_partitions_revoked(self, revoked):
            return self.fail("revoked", revoked)

        def fail(self, word, partitions):
            calls.append((word, len(partitions)))
            if not awaits:
                raise LookupError(word)
            return self.fail_later(word)

        async def fail_later(self, word):
            await asyncio.sleep(0)
            raise LookupError(word)

    async def work():
        consumer = kind(bootstrap_servers=broker.bootstrap, group_id=fresh("group"), **QUICK)
        consumer.subscribe([topic.name], listener=Listener())
        async with consumer:
            assert await read_by_loop(consumer, 4) == [b"a", b"b", b"bad", b"c"]
            assert len(consumer.assignment()) == 1
        assert calls == [("revoked", 0), ("assigned", 1)]

    run(work())


@of_aiokafka
def test_aiokafka_calls_after_the_end(broker, topic, kind):
    place = aiokafka.TopicPartition(topic.name, 0)

    async def work():
        consumer = kind(topic.name, bootstrap_servers=broker.bootstrap, group_id=fresh("group"))
        await consumer.start()
        await consumer.stop()
        await consumer.stop()
        for call in (consumer.getone, consumer.getmany):
            with pytest.raises(ConsumerStoppedError):
                await call()
        with pytest.raises(StopAsyncIteration):
            await anext(consumer)
        assert consumer.assignment() == {place}  # as it was

    run(work())


def test_aiokafka_refuses_what_contradicts(broker):
    async def work():
        for options in (
            {"holdfast_policy": "deferred"},  # without a group
            {"group_id": "g", "holdfast_policy": "nonsense"},
            {"group_id": "g", "holdfast_nonsense": 1},
            {"group_id": "g", "holdfast_handle_signals": True},
        ):
            with pytest.raises(ValueError, match="holdfast"):
                AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, **options)

    run(work())


def test_aiokafka_an_assignor_of_the_users_own(broker):
    """An assignor that is written for aiokafka is offered, leads, and is told."""
    topic = Topic(broker.bootstrap, 4)
    group = fresh("group")

    def assignor(told):
        from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
        from aiokafka.coordinator.protocol import (
            ConsumerProtocolMemberAssignment,
            ConsumerProtocolMemberMetadata,
        )

        class FirstTakesAll(AbstractPartitionAssignor):
            name = "first-takes-all"
            version = 0

            @classmethod
            def assign(cls, cluster, members):
                counts = {t: len(cluster.partitions_for_topic(t)) for t in cluster.topics()}
                wanted = sorted(members)[0]
                return {
                    member: ConsumerProtocolMemberAssignment(
                        cls.version,
                        [(topic.name, list(range(counts[topic.name])))] * (member == wanted),
                        b"",
                    )
                    for member in members
                }

            @classmethod
            def metadata(cls, topics):
                return ConsumerProtocolMemberMetadata(cls.version, list(topics), b"")

            @classmethod
            def on_assignment(cls, assignment):
                told.append(sum(len(ps) for _, ps in assignment.assignment))

        return FirstTakesAll

    async def work():
        seen = {kind: [] for kind in (AIOKafkaConsumer, aiokafka.AIOKafkaConsumer)}
        members = [
            kind(
                topic.name,
                bootstrap_servers=broker.bootstrap,
                group_id=group,
                partition_assignment_strategy=[assignor(told)],
                **QUICK,
            )
            for kind, told in seen.items()
        ]
        for member in members:
            await member.start()
        try:
            while sorted(told[-1] for told in seen.values() if told) != [0, 4] or {
                len(member.assignment()) for member in members
            } != {0, 4}:
                await asyncio.gather(*(member.getmany(timeout_ms=50) for member in members))
        finally:
            for member in members:
                await member.stop()

    run(work())
