"""What the data planes ask of their libraries, in which order."""

from __future__ import annotations

import asyncio

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.fetch import FetchResponse_v4
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from holdfast.adapters.records.data_plane import (
    MOST_INTRODUCED,
    ConfluentPlane,
    KafkaPythonPlane,
)
from holdfast.adapters.records.data_plane_aiokafka import AiokafkaPlane

from holdfast.adapters.drop_in.confluent import silence
from holdfast.adapters.settings import Settings


class Client:
    """Stands for confluent_kafka.Consumer."""

    def __init__(self):
        self.asked = []
        self.fails = False

    def list_topics(self, topic, timeout):
        self.asked.append(topic)
        if self.fails:
            raise confluent_kafka.KafkaException("no answer")

    def incremental_assign(self, partitions):
        self.asked.append([(p.topic, p.partition, p.offset) for p in partitions])

    def incremental_unassign(self, partitions):
        pass


@pytest.fixture
def made(monkeypatch):
    client = Client()
    monkeypatch.setattr(confluent_kafka, "Consumer", lambda config, logger: client)
    config = {"bootstrap.servers": "h:1", "group.id": "of no use"}
    return ConfluentPlane(Settings.parse(config)), client


def test_a_new_topic_is_asked_for_before_it_is_fetched(made):
    plane, client = made
    plane.start({("a", 0): 5})
    plane.start({("a", 1): 6, ("b", 0): 7})
    plane.stop([("a", 0)])
    plane.start({("a", 0): 8})
    assert client.asked == ["a", [("a", 0, 5)], "b", [("a", 1, 6), ("b", 0, 7)], [("a", 0, 8)]]


def test_a_topic_without_an_answer_is_left_to_the_library(made):
    plane, client = made
    client.fails = True
    plane.start({("a", 0): 5, ("b", 0): 7})
    assert client.asked == ["a", [("a", 0, 5), ("b", 0, 7)]]


def test_many_topics_are_not_asked_for_one_by_one(made):
    plane, client = made
    plane.start({(f"t{i:02}", 0): 0 for i in range(MOST_INTRODUCED + 5)})
    assert client.asked[:-1] == [f"t{i:02}" for i in range(MOST_INTRODUCED)]
    assert len(client.asked[-1]) == MOST_INTRODUCED + 5


class DeafClient(Client):
    """One that has lost its brokers."""

    def list_topics(self, topic, timeout):
        super().list_topics(topic, timeout)
        raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(self.code))

    code = confluent_kafka.KafkaError._TRANSPORT

    def consume(self, n, timeout):
        return self.asked.append("consume") or []

    def close(self):
        self.asked.append("close")


@pytest.fixture
def deaf(monkeypatch):
    """A plane whose questions are due in every poll, its clients, and the coordinator's times."""
    clients, times = [], iter(range(1, 100))

    def make(config, logger):
        clients.append(DeafClient())
        return clients[-1]

    monkeypatch.setattr(confluent_kafka, "Consumer", make)
    monkeypatch.setattr(silence, "ASK_EVERY_S", 0.0)
    monkeypatch.setattr(silence.time, "monotonic", lambda: next(times))
    contact = [1000.0]
    config = {"bootstrap.servers": "h:1", "group.id": "of no use"}
    return ConfluentPlane(Settings.parse(config), lambda: contact[0]), clients, contact


def test_a_deaf_librdkafka_is_made_anew_and_starts_from_nothing(deaf):
    plane, clients, _ = deaf
    plane.start({("a", 0): 5})
    for _ in range(3):
        assert plane.poll(0, 10) == []
    with pytest.raises(ConnectionError, match="5301"):
        plane.poll(0, 10)
    assert clients[0].asked[-3:] == ["consume", "a", "close"]
    plane.stop([("a", 0)])
    plane.start({("a", 0): 7})
    assert clients[1].asked == ["a", [("a", 0, 7)]]


def test_a_librdkafka_that_is_silent_while_the_coordinator_is_too_stays(deaf):
    plane, clients, contact = deaf
    contact[0] = 0.0
    plane.start({("a", 0): 5})
    for _ in range(20):
        assert plane.poll(0, 10) == []
    assert len(clients) == 1


def test_an_answer_that_is_another_error_is_an_answer(deaf, monkeypatch):
    plane, clients, _ = deaf
    monkeypatch.setattr(DeafClient, "code", confluent_kafka.KafkaError._TIMED_OUT)
    plane.start({("a", 0): 5})
    for _ in range(20):
        assert plane.poll(0, 10) == []
    assert len(clients) == 1


class Fetches:
    """Answers fetches instead of a broker, each partition from a log of its own."""

    def __init__(self):
        self.asked = []
        self.logs = {0: 10, 1: 10, 2: 10}
        self.held = None  # while it is there, a fetch of what has no records waits for it

    async def send(self, node, request, **_):
        (topic, partitions), *_ = request.topics
        self.asked.append({(p, at) for p, at, _ in partitions})
        found = [(p, at) for p, at, _ in partitions if at < self.logs[p]]
        if not found:
            await self.held.wait()
            found = [(p, at) for p, at, _ in partitions if at < self.logs[p]]
        rows = [(p, 0, self.logs[p], self.logs[p], None, self.batch(p, at)) for p, at in found]
        return FetchResponse_v4(throttle_time_ms=0, topics=[(topic, rows)])

    def batch(self, partition, at):
        built = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 100_000)
        for offset in range(at, self.logs[partition]):
            built.append(offset - at, 0, None, b"x", [])
        text = bytearray(built.build())
        text[:8] = at.to_bytes(8, "big")
        return bytes(text)


@pytest.fixture
def aio(monkeypatch):
    """The plane over aiokafka's own consumer, with everything below it answered here."""
    fetches = Fetches()

    async def nothing(*_, **__):
        return True

    def known(client, *_):
        future = client._loop.create_future()
        future.set_result(True)
        return future

    monkeypatch.setattr(AIOKafkaClient, "bootstrap", nothing)
    monkeypatch.setattr(AIOKafkaClient, "force_metadata_update", known)
    monkeypatch.setattr(AIOKafkaClient, "send", lambda client, *a, **k: fetches.send(*a, **k))
    monkeypatch.setattr(ClusterMetadata, "leader_for_partition", lambda cluster, tp: 0)
    plane = AiokafkaPlane(Settings.parse({"bootstrap.servers": "h:1", "group.id": "of no use"}))
    fetches.held = plane._wait(_event())
    yield plane, fetches
    plane._loop.call_soon_threadsafe(fetches.held.set)
    plane.close()


async def _event():
    return asyncio.Event()


def read(plane, n):
    """The next ``n`` (partition, offset)."""
    found = []
    while len(found) < n:
        found += [(r.partition, r.offset) for r in plane.poll(1_000, n - len(found))]
    return found


def test_aiokafka_keeps_what_is_fetched_of_partitions_that_stay(aio):
    plane, fetches = aio
    plane.start({("t", 0): 0})
    assert read(plane, 3) == [(0, 0), (0, 1), (0, 2)]
    plane.start({("t", 1): 4})
    assert sorted(read(plane, 13)) == [(0, i) for i in range(3, 10)] + [
        (1, i) for i in range(4, 10)
    ]
    plane.start({("t", 2): 0})
    assert read(plane, 4) == [(2, i) for i in range(4)]
    plane.stop([("t", 0)])
    assert read(plane, 6) == [(2, i) for i in range(4, 10)]
    asked = [(p, at) for fetch in fetches.asked for p, at in fetch if at < 10]
    assert sorted(asked) == [(0, 0), (1, 4), (2, 0)]  # each batch once
    assert plane.positions() == {("t", 1): 10, ("t", 2): 10}


def test_aiokafka_keeps_a_fetch_that_is_under_way(aio):
    plane, fetches = aio
    plane.start({("t", 0): 10})
    assert plane.poll(50, 10) == []
    plane.start({("t", 1): 10})
    plane.stop([("t", 1)])
    assert plane.poll(50, 10) == []
    assert fetches.asked == [{(0, 10)}]  # one that waits for its first record, and no other
    fetches.logs[0] = 12
    plane._loop.call_soon_threadsafe(fetches.held.set)
    assert read(plane, 2) == [(0, 10), (0, 11)]
    assert fetches.asked[:1] == [{(0, 10)}]


def test_aiokafka_drops_the_answer_of_a_fetch_of_what_left(aio):
    plane, fetches = aio
    plane.start({("t", 0): 10, ("t", 1): 10})
    assert plane.poll(50, 10) == []
    plane.stop([("t", 0)])
    fetches.logs |= {0: 12, 1: 12}
    plane._loop.call_soon_threadsafe(fetches.held.set)
    assert read(plane, 2) == [(1, 10), (1, 11)]
    plane.start({("t", 0): 5})
    assert read(plane, 7) == [(0, i) for i in range(5, 12)]


def test_aiokafka_with_other_private_parts_begins_everything_again(aio, monkeypatch):
    plane, _ = aio
    monkeypatch.delattr(AIOKafkaClient, "set_topics")
    monkeypatch.setattr(AIOKafkaConsumer, "assign", _public_assign)
    plane.start({("t", 0): 0})
    assert read(plane, 3) == [(0, 0), (0, 1), (0, 2)]
    plane.start({("t", 1): 8})
    assert sorted(read(plane, 9)) == [(0, i) for i in range(3, 10)] + [(1, 8), (1, 9)]


def _public_assign(consumer, partitions):
    consumer._subscription.assign_from_user(partitions)


class Seeks:
    """Stands for kafka.KafkaConsumer, which keeps the state of what stays in ``assign``."""

    def __init__(self, **_):
        self.asked = []

    def assign(self, partitions):
        self.asked.append(sorted((p.topic, p.partition) for p in partitions))

    def seek(self, tp, offset):
        self.asked.append((tp.topic, tp.partition, offset))

    def paused(self):
        return set()


def test_kafka_python_seeks_only_what_starts(monkeypatch):
    monkeypatch.setattr(kafka, "KafkaConsumer", Seeks)
    for repair in ("fetch_what_is_there", "let_it_be_slow"):
        monkeypatch.setattr(fetches, repair, lambda consumer: None)
    settings = Settings.parse({"bootstrap.servers": "h:1", "group.id": "of no use"})
    plane = KafkaPythonPlane(settings)
    plane.start({("t", 0): 5})
    plane.start({("t", 1): 7})
    plane.stop([("t", 0)])
    assert plane._consumer.asked == [
        [("t", 0)],
        ("t", 0, 5),
        [("t", 0), ("t", 1)],
        ("t", 1, 7),
        [("t", 1)],
    ]
