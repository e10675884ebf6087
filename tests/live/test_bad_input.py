"""Callbacks that raise, deserializers that fail, late calls: the originals' answers from holdfast.

The same program runs on the original and on holdfast. A record whose deserializer fails was not
delivered: neither it nor anything after it is committed.
"""

from __future__ import annotations

import kafka
import pytest
from aiokafka.errors import ConsumerStoppedError
from kafka.errors import IllegalStateError, KafkaConfigurationError, KafkaError
from tests.live.all_clients import OF_AIOKAFKA, OF_KAFKA_PYTHON, WITH_KEYWORDS, Stage, sentence
from tests.live.clients import Aiokafka, KafkaPython
from tests.live.crew import Topic, fresh
from tests.live.event_recorder import EventRecorder

pytestmark = pytest.mark.broker
ALL = [(0, at) for at in range(4)]
BAD_AND_LAST = ALL[2:]


class Deserializer(kafka.serializer.Deserializer):
    """Fails on one value."""

    def deserialize(self, topic, headers, data):
        if data == b"bad":
            raise ValueError("a bad value")
        return data


def with_a_bad_value(stage: Stage) -> Topic:
    """One partition of four records, of which the third is bad."""
    topic = stage.topic(1, 2)
    topic.produce(1, b"bad")
    topic.produce(1)
    return topic


def fail(partitions: list[int]) -> None:
    raise LookupError(str(partitions))


@sentence(**OF_KAFKA_PYTHON)
def test_kafka_python_a_value_that_cannot_be_read(stage):
    topic = with_a_bad_value(stage)
    member = stage.member(topic, value_deserializer=Deserializer())
    with pytest.raises(ValueError, match="a bad value"):
        stage.read(member, 4)
    assert member.position(0) == 2
    member.close()
    assert stage.alone(topic).committed(0) == 2
    assert stage.read(stage.member(topic), 2) == BAD_AND_LAST


@sentence(**OF_KAFKA_PYTHON)
def test_kafka_python_callbacks_that_raise(stage):
    topic, recorder = stage.topic(1, 4), EventRecorder(hears_losses=False)
    says = pytest.raises(KafkaError, match="User rebalance callback throws an error")
    recorder.inside["assigned"] = lambda found: recorder.inside.pop("assigned") and fail(found)
    recorder.inside["revoked"] = lambda found: found and fail(found)
    member = stage.member(topic, recorder)
    with says as raised:
        stage.read(member, 4)
    assert isinstance(raised.value.__cause__, LookupError)
    assert stage.read(member, 4) == ALL
    with says:
        member.close()
    assert stage.alone(topic).committed(0) == 4


@sentence(**OF_KAFKA_PYTHON)
def test_kafka_python_calls_after_the_end(stage):
    member = stage.member(stage.topic(1))
    member.close()
    consumer, place = member.consumer, member.tp(0)
    consumer.close()
    assert consumer.assignment() == consumer.paused() == set()
    for error, call in (
        (IllegalStateError, lambda: consumer.poll(0)),
        (IllegalStateError, lambda: consumer.position(place)),
        (RuntimeError, consumer.commit),
        (RuntimeError, lambda: consumer.committed(place)),
        (RuntimeError, consumer.unsubscribe),
        (ValueError, lambda: consumer.poll(-1)),
        (ValueError, lambda: consumer.seek(place, 0)),
    ):
        with pytest.raises(error):
            call()


@sentence(client_names=WITH_KEYWORDS)
def test_settings_that_contradict_each_other_are_refused(stage):
    both = {"holdfast_policy": "deferred", "partition_assignment_strategy": ["range", "sticky"]}
    kind = KafkaConfigurationError if stage.client == "kafka" else ValueError
    for keys in (
        {"group_id": None, "holdfast_policy": "deferred"},
        {"holdfast_policy": "nonsense"},
        {"holdfast_nonsense": 1},
        {"holdfast_handle_signals": True},
        both,
    ):
        with pytest.raises(kind, match="holdfast"):
            stage.alone(**keys)


@sentence(**OF_AIOKAFKA)
def test_aiokafka_a_value_that_cannot_be_read(stage):
    """In a list and as a single record; it comes again, and the application may seek over it."""
    for singly in (False, True):
        topic, group, seen = with_a_bad_value(stage), {"group_id": fresh("bad")}, []
        read = lambda value: Deserializer().deserialize("", (), value)  # noqa: E731
        member = stage.member(topic, value_deserializer=read, **group)
        for _ in range(2):
            with pytest.raises(ValueError, match="a bad value"):
                while singly:
                    seen.append(member.does("getone").offset)
                stage.read(member, 4)
        # a list is lost with its bad value, and a single record is there before
        assert (member.position(0), seen) == ((2, [0, 1]) if singly else (0, []))
        member.seek(0, 3)
        assert stage.read(member, 1) == ALL[3:]
        member.seek(0, 2)
        member.close()
        after = stage.member(topic, **group)
        assert after.committed(0) == 2
        assert stage.read(after, 2) == BAD_AND_LAST


@sentence(**OF_AIOKAFKA)
def test_aiokafka_callbacks_that_raise(stage):
    """aiokafka logs what they raise, and goes on: coroutines and functions."""
    topic = stage.topic(1, 4)
    for kind in (Aiokafka, KafkaPython):
        recorder = EventRecorder(hears_losses=False)
        recorder.inside = dict.fromkeys(("assigned", "revoked"), fail)
        member = stage.alone(topic, group_id=fresh("raises"))
        member.does("subscribe", [topic.name], listener=kind.listener(member, recorder))
        assert stage.read(member, 4) == ALL
        assert member.owns() == {0}
        member.close()
        assert recorder.counts() == [("revoked", 0), ("assigned", 1)]


@sentence(**OF_AIOKAFKA)
def test_aiokafka_calls_after_the_end(stage):
    member = stage.owner(stage.topic(1))
    for _ in range(2):
        member.does("stop")
    for call in ("getone", "getmany"):
        with pytest.raises(ConsumerStoppedError):
            member.does(call)
    with pytest.raises(StopAsyncIteration):
        member.done(anext_of(member.consumer))
    assert member.owns() == {0}  # as it was


async def anext_of(consumer):
    return await anext(consumer)


@sentence(client_names=("aiokafka",))
def test_aiokafka_an_assignor_of_the_users_own(stage):
    """An assignor that is written for aiokafka is offered, leads, and is told."""
    topic = stage.topic(4)

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

    seen, members = ([], []), []
    for told, stage.is_original in zip(seen, (False, True), strict=True):
        members.append(stage.member(topic, partition_assignment_strategy=[assignor(told)]))

    def is_notified():
        last = sorted(told[-1] for told in seen if told)
        return last == sorted(len(member.owns()) for member in members) == [0, 4]

    stage.until(is_notified, "one has all", *members)
