"""A librdkafka that has lost its brokers for good, on a real broker; only its answers are faked."""

from __future__ import annotations

import logging

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tests.live.crew import Topic, fresh
from tests.live.waiting import until

import holdfast
from holdfast.confluent import Consumer
from holdfast.members.clients.librdkafka import recreation
from holdfast.members.runtime.member_status import NAME

pytestmark = pytest.mark.broker


class Stalled(confluent_kafka.Consumer):
    """Finds no broker when it is asked for a topic."""

    n_asked = 0

    def list_topics(self, *args):
        Stalled.n_asked += 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.fixture
def stalled(monkeypatch):
    monkeypatch.setattr(recreation, "REQUEST_EVERY_S", 0.4)
    monkeypatch.setattr(recreation, "_Original", Stalled)
    monkeypatch.setattr(Stalled, "n_asked", 0)


def config(broker):
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": fresh("deaf"),
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 100,
        "session.timeout.ms": 6_000,
        "auto.commit.interval.ms": 600_000,  # a commit that finds nothing new is an error
    }


def read(consumer, n):
    found = []
    until(lambda: found.extend(consumer.consume(100, 0.1)) or len(found) >= n, "records")
    found += consumer.consume(100, 0.5)
    assert not any(message.error() for message in found)
    return sorted((m.partition(), m.offset()) for m in found)


def numbers(partition, first, last):
    return [(partition, offset) for offset in range(first, last)]


@pytest.fixture
def topic(broker):
    return Topic(broker.bootstrap, 2, 10)


def test_a_drop_in_goes_on_with_a_new_one_where_it_was(broker, topic, stalled, caplog):
    consumer = Consumer({**config(broker), "log_level": 0})
    consumer.subscribe([topic.name])
    assert read(consumer, 20) == numbers(0, 0, 10) + numbers(1, 0, 10)
    held_back = TopicPartition(topic.name, 1)
    consumer.pause([held_back])
    with caplog.at_level(logging.WARNING, NAME):
        until(lambda: consumer.poll(0.05) is None and "recreating" in caplog.text, "a new one")
    assert Stalled.n_asked >= 4
    topic.produce(10)
    assert read(consumer, 10) == numbers(0, 10, 20)
    consumer.resume([held_back])
    assert read(consumer, 10) == numbers(1, 10, 20)
    consumer.commit(asynchronous=False)
    assert [p.offset for p in consumer.committed(consumer.assignment(), 10)] == [20, 20]
    consumer.close()


def test_a_recreation_keeps_a_seek_that_has_moved_nothing_yet(broker, topic):
    consumer = Consumer({**config(broker), "log_level": 0})
    consumer.subscribe([topic.name])
    read(consumer, 20)
    consumer.seek(TopicPartition(topic.name, 0, 7))
    recreation = consumer._holdfast.adapter.recreation
    recreation.recreate(consumer, ())
    assert read(consumer, 3) == numbers(0, 7, 10)
    recreation.recreate(consumer, ())  # it has moved since, and is not at 7
    topic.produce(1)
    assert read(consumer, 2) == numbers(0, 10, 11) + numbers(1, 10, 11)
    consumer.close()


def test_our_consumer_goes_on_with_a_new_one_where_it_was(broker, topic, stalled, caplog):
    with holdfast.Consumer(config(broker)) as consumer:
        consumer.subscribe([topic.name])
        found = []

        def take():
            found.extend((m.partition(), m.offset()) for m in consumer.poll(0.1))
            return len(found)

        until(lambda: take() == 20, "what is there")
        with caplog.at_level(logging.WARNING, NAME):
            until(lambda: take() and "recreating" in caplog.text, "a new one")
        assert Stalled.n_asked >= 4
        topic.produce(10)
        until(lambda: take() == 40, "what came since")
    assert sorted(found) == numbers(0, 0, 20) + numbers(1, 0, 20)
