"""What only programs of kafka-python see, and what they share with programs of aiokafka.

What every client's programs see is in ``test_sessions.py`` and its neighbours. The originals pass
the sentences, too, in the slow runs.
"""

from __future__ import annotations

from contextlib import closing

import kafka
import pytest
from kafka.coordinator.base import MemberState
from kafka.structs import OffsetAndMetadata
from tests.live.all_clients import MANUAL, OF_KAFKA_PYTHON, WITH_KEYWORDS, sentence
from tests.live.crew import Topic, fresh
from tests.live.waiting import until

from holdfast.kafka import KafkaConsumer

pytestmark = pytest.mark.broker


@sentence(client_names=WITH_KEYWORDS, originals=WITH_KEYWORDS)
def test_questions_have_the_answers_of_the_original(stage):
    topic = stage.topic(2, 5)
    member = stage.member(topic, **MANUAL)
    does, first, second = member.does, member.tp(0), member.tp(1)
    stage.read(member, 10)
    assert does("assignment") == {first, second}
    assert does("subscription") == {topic.name}
    assert topic.name in does("topics")
    assert does("partitions_for_topic", topic.name) == {0, 1}
    assert does("highwater", first) == 5
    member.seek_to_beginning(0)
    assert member.position(0) == 0
    member.seek_to_end(0)
    assert member.position(0) == 5
    member.pause(1)
    assert does("paused") == {second}


@sentence(client_names=WITH_KEYWORDS, originals=WITH_KEYWORDS)
def test_reads_without_a_group(stage):
    alone = stage.alone(stage.topic(2, 4), group_id=None)
    alone.assign([1])
    assert stage.read(alone, 4) == [(1, at) for at in range(4)]


@sentence(**OF_KAFKA_PYTHON)
def test_commits_and_metadata_have_kafka_pythons_answers(stage):
    member = stage.member(stage.topic(2, 5), **MANUAL)
    does, first, told = member.does, member.tp(0), []
    stage.read(member, 10)
    does("commit", {first: OffsetAndMetadata(2, "here", -1)})
    assert does("committed", first, metadata=True).metadata == "here"
    note = lambda offsets, answer: told.append(offsets)  # noqa: E731
    does("commit_async", {first: OffsetAndMetadata(3, "", -1)}, note)
    stage.until(lambda: told, "the callback of a commit", member)
    assert told[0].keys() == {first}
    assert member.committed(0) == 3
    known = does("group_metadata")
    assert (known.group_id, known.state) == (stage.group, MemberState.STABLE)
    assert known.generation_id > 0
    numbers = does("metrics")["consumer-coordinator-metrics"]
    assert numbers["assigned-partitions"] == 2
    assert numbers["join-time-max"] > 0


@sentence(**OF_KAFKA_PYTHON)
def test_iterates_and_resumes_behind_what_was_read(stage):
    topic = stage.topic(1, 10)
    member = stage.member(topic)  # waits without an end
    assert [next(member.consumer).offset for _ in range(6)] == list(range(6))
    member.close()
    consumer = stage.member(topic, consumer_timeout_ms=20_000).consumer
    assert [next(consumer).offset for _ in range(4)] == list(range(6, 10))
    consumer.config["consumer_timeout_ms"] = 200
    assert list(consumer) == []


N_PRODUCED = 20
N_EACH = 30
EMPTY, FULL = 0, 1


@pytest.fixture
def topic(broker):
    """Partition 1 has records in batches that are fetched one by one, 0 has none."""
    topic = Topic(broker.bootstrap, 2)
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap)
    with closing(producer):
        for _ in range(N_PRODUCED):
            for _ in range(N_EACH):
                producer.send(topic.name, bytes(100), partition=FULL)
            producer.flush()
    return topic


def read_and_note_waits(consumer, poll):
    """Read all records, and return the fetches that named only what was at its end."""
    fetcher, waits = consumer._fetcher, []
    make = fetcher._create_fetch_requests

    def noted():
        requests = make()
        for _, offsets in requests.values():
            seen = {tp.partition for tp in offsets}
            if seen == {EMPTY} and consumer.highwater(next(iter(offsets))) == 0:
                waits.append(n_read)
        return requests

    fetcher._create_fetch_requests = noted
    n_read = 0

    def all_read():
        nonlocal n_read
        n_read += poll()
        return n_read == N_PRODUCED * N_EACH

    until(all_read, lambda: f"{n_read} records read")
    return [n for n in waits if n < N_PRODUCED * N_EACH]


def test_the_drop_in_fetches_what_is_there(broker, topic):
    options = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 4_000}
    consumer = KafkaConsumer(
        topic.name, bootstrap_servers=broker.bootstrap, group_id=fresh("group"), **options
    )
    with closing(consumer):
        assert not read_and_note_waits(
            consumer, lambda: sum(map(len, consumer.poll(100, max_records=5).values()))
        )
