"""What only programs of kafka-python see, and what they share with programs of aiokafka.

What every client's programs see is in ``test_sessions.py`` and its neighbours. The originals pass
these tests, too, in the slow runs.
"""

from __future__ import annotations

import pytest
from kafka.coordinator.base import MemberState
from kafka.structs import OffsetAndMetadata
from tests.live.all_clients import MANUAL, OF_KAFKA_PYTHON, WITH_KEYWORDS, sentence

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
