"""What only programs of kafka-python see: ``holdfast.kafka.KafkaConsumer`` on a real broker.

What every client's programs see is in ``test_seats.py`` and its neighbours. The original passes
these tests, too, in the slow runs.
"""

from __future__ import annotations

from contextlib import closing

import kafka
import pytest
from kafka import TopicPartition
from kafka.coordinator.base import MemberState
from kafka.errors import IllegalStateError, KafkaConfigurationError
from kafka.structs import OffsetAndMetadata
from tests.live.crew import Topic, fresh
from tests.live.waiting import until

from holdfast.kafka import KafkaConsumer

pytestmark = pytest.mark.broker
QUICK = {
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 300,
    "session_timeout_ms": 30_000,
    "auto_commit_interval_ms": 200,
    "metadata_max_age_ms": 500,
}
both = pytest.mark.parametrize(
    "kind",
    [pytest.param(kafka.KafkaConsumer, id="original", marks=pytest.mark.slow), KafkaConsumer],
)


def made(kind, broker, *topics, **options):
    consumer = kind(*topics, bootstrap_servers=broker.bootstrap, **{**QUICK, **options})
    if kind is kafka.KafkaConsumer:
        # The original never learns of a topic that its first round did not know.
        for topic in topics:
            until(lambda: consumer.partitions_for_topic(topic), f"partitions of {topic}")  # noqa: B023
    return closing(consumer)


def read(consumer, n):
    records = []

    def enough():
        for batch in consumer.poll(200).values():
            records.extend(batch)
        return len(records) >= n

    until(enough, lambda: f"{n} records, not {len(records)}")
    return records


@both
def test_its_questions_and_commits_have_kafka_pythons_answers(broker, kind):
    topic, group = Topic(broker.bootstrap, 2), fresh("group")
    topic.produce(5)
    first, second = (TopicPartition(topic.name, p) for p in (0, 1))
    manual = {"group_id": group, "enable_auto_commit": False, "max_poll_records": 4}
    with made(kind, broker, topic.name, **manual) as consumer:
        assert len(read(consumer, 10)) == 10
        assert consumer.subscription() == {topic.name}
        assert topic.name in consumer.topics()
        assert consumer.partitions_for_topic(topic.name) == {0, 1}
        assert consumer.highwater(first) == 5
        consumer.commit({first: OffsetAndMetadata(2, "here", -1)})
        assert consumer.committed(first, metadata=True).metadata == "here"
        told = []
        consumer.commit_async(
            {first: OffsetAndMetadata(3, "", -1)}, lambda offsets, answer: told.append(offsets)
        )
        until(lambda: consumer.poll(20) is not None and told, "the callback of a commit")
        assert told[0].keys() == {first}
        assert consumer.committed(first) == 3
        consumer.pause(second)
        assert consumer.paused() == {second}
        consumer.seek_to_beginning(first)
        assert consumer.position(first) == 0
        consumer.seek_to_end(first)
        assert consumer.position(first) == 5
        found = consumer.offsets_for_times({first: 0, second: 1 << 50})
        assert found[first].offset == 0 and found[second] is None
        assert consumer.group_metadata().group_id == group
        assert consumer.group_metadata().generation_id > 0
        assert consumer.group_metadata().state is MemberState.STABLE
        told = consumer.metrics()["consumer-coordinator-metrics"]
        assert told["assigned-partitions"] == 2
        assert told["join-time-max"] > 0


@both
def test_iterates_and_resumes_behind_what_was_read(broker, kind):
    topic, group = Topic(broker.bootstrap, 1), fresh("group")
    topic.produce(10)
    with made(kind, broker, topic.name, group_id=group) as consumer:  # waits without an end
        assert [next(consumer).offset for _ in range(6)] == list(range(6))
    options = {"group_id": group, "consumer_timeout_ms": 20_000}
    with made(kind, broker, topic.name, **options) as consumer:
        assert [next(consumer).offset for _ in range(4)] == list(range(6, 10))
        consumer.config["consumer_timeout_ms"] = 200
        assert list(consumer) == []


@both
def test_refuses_what_cannot_be(broker, kind):
    topic = Topic(broker.bootstrap, 1)
    place = TopicPartition(topic.name, 0)
    with made(kind, broker, topic.name, group_id=fresh("group")) as consumer:
        with pytest.raises(IllegalStateError):
            consumer.assign([place])
        with pytest.raises(TypeError):
            consumer.subscribe([topic.name], listener=object())
        with pytest.raises(TypeError):
            consumer.commit({topic.name: 1})
        with pytest.raises(ValueError):
            consumer.poll(-1)
    with pytest.raises(IllegalStateError):
        consumer.poll(0)
    with pytest.raises(RuntimeError):
        consumer.unsubscribe()
    with pytest.raises(KafkaConfigurationError):
        kind(bootstrap_servers=broker.bootstrap, no_such_key=1)
    with made(kind, broker) as alone:
        alone.assign([place])
        with pytest.raises(IllegalStateError):
            alone.commit()


@both
def test_reads_without_a_group(broker, kind):
    topic = Topic(broker.bootstrap, 2)
    topic.produce(4)
    with made(kind, broker) as consumer:
        consumer.assign([TopicPartition(topic.name, 1)])
        assert [(r.partition, r.offset) for r in read(consumer, 4)] == [(1, at) for at in range(4)]
