"""What ``holdfast.confluent`` answers and says, beside ``confluent_kafka`` on a real broker."""

from __future__ import annotations

import inspect
from contextlib import ExitStack

import confluent_kafka
import pytest
from confluent_kafka import (
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from tests.live.crew import Topic, fresh
from tests.live.test_confluent import config
from tests.live.waiting import until

from holdfast.confluent import Consumer

pytestmark = pytest.mark.broker

KINDS = (confluent_kafka.Consumer, Consumer)
EOF = KafkaError(KafkaError._PARTITION_EOF)


@pytest.fixture(scope="module")
def topic(broker):
    made = Topic(broker.bootstrap, 2)
    made.produce(3)
    return made


class Members:
    """The original and ours, each the only member of a group."""

    def __init__(self, broker, topic, strategy, stack):
        self.told = []
        self.topic = topic.name
        self.both = []
        for kind in KINDS:
            made = kind(
                config(
                    broker,
                    partition_assignment_strategy=strategy,
                    enable_auto_commit=False,
                    enable_auto_offset_store=False,
                    on_commit=self.note,
                )
            )
            made.subscribe([topic.name])
            self.both.append(made)
            stack.callback(made.close)
            until(lambda made=made: made.poll(0.2) is not None, "it has its partitions")

    def note(self, error, partitions):
        self.told.append((error and (error.code(), error.str()), listed(partitions)))

    def answers(self, call):
        return [self.answer(consumer, call) for consumer in self.both]

    def answer(self, consumer, call):
        try:
            found = call(consumer, self.topic)
        except KafkaException as error:
            return error.args[0].code(), error.args[0].str()
        except (TypeError, ValueError) as error:
            return type(error)
        return listed(found) if isinstance(found, list) else found


def listed(partitions):
    return [(p.topic, p.partition, p.offset) for p in partitions]


def part(topic, partition=0, offset=OFFSET_INVALID):
    return TopicPartition(topic, partition, offset)


SHAPES = [
    lambda t: {"message": Message(topic=t, partition=0)},
    lambda t: {"message": Message(topic=t, partition=0, offset=1)},
    lambda t: {"message": Message(topic=t, partition=1, offset=1)},
    lambda t: {"message": Message(topic=t, partition=0, offset=1, error=EOF)},
    lambda t: {"message": Message(topic=t, partition=0, error=EOF)},
    lambda t: {"message": 3},
    lambda t: {"offsets": []},
    lambda t: {"offsets": [part(t)]},
    lambda t: {"offsets": [part(t, 0, OFFSET_END)]},
    lambda t: {"offsets": [part(t, 0, -77)]},
    lambda t: {"offsets": [part(t, 1, 2), part(t, 0)]},
    lambda t: {"offsets": [part(t, 1, 2), part(t, 0, 3)]},
    lambda t: {"message": Message(topic=t, partition=0, offset=100)},
    lambda t: {"offsets": [1]},
    lambda t: {"offsets": 1},
    lambda t: {"message": Message(topic=t, partition=0, offset=1), "offsets": [part(t)]},
]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_commit_of_a_member_has_the_answer_of_the_original(broker, topic, strategy):
    """Messages without an offset, of an error, offsets that are none: everything in its words."""
    with ExitStack() as stack:
        members = Members(broker, topic, strategy, stack)
        for shape in SHAPES:
            wanted = shape(topic.name)
            text = inspect.getsource(shape).strip()
            original, ours = members.answers(lambda c, t, w=wanted: c.store_offsets(**w))
            assert ours == original, text
            original, ours = members.answers(lambda c, t: c.commit(asynchronous=False))
            assert ours == original, f"commit after store_offsets: {text}"
            original, ours = members.answers(
                lambda c, t, w=wanted: c.commit(**w, asynchronous=False)
            )
            assert ours == original, text
            original, ours = (told(members, consumer, wanted) for consumer in members.both)
            assert ours == original, f"asynchronous: {text}"


def told(members, consumer, wanted):
    """What a commit that does not wait answers, and what on_commit is told of it."""
    until(lambda: consumer.poll(0.1) is None, "it was told of the commits before")
    del members.told[:]
    answer = members.answer(consumer, lambda c, t: c.commit(**wanted))
    if answer is None:
        until(lambda: consumer.poll(0.1) or members.told, "on_commit is called")
    return answer, list(members.told)


def test_an_offset_that_is_none_takes_back_what_was_stored(broker, topic):
    with ExitStack() as stack:
        members = Members(broker, topic, "range", stack)

        def call(consumer, name):
            consumer.store_offsets(offsets=[part(name, 0, 2)])
            consumer.store_offsets(Message(topic=name, partition=0))
            consumer.commit(asynchronous=False)

        original, ours = members.answers(call)
        assert ours == original == (KafkaError._NO_OFFSET, "Commit failed: Local: No offset stored")


CHANGES = {
    "range": ("incremental_assign", "incremental_unassign"),
    "cooperative-sticky": ("assign", "unassign"),
}


@pytest.mark.parametrize("strategy", CHANGES)
def test_a_change_of_the_wrong_kind_is_refused_in_the_words_of_the_original(
    broker, topic, strategy
):
    with ExitStack() as stack:
        members = Members(broker, topic, strategy, stack)
        for name in CHANGES[strategy]:
            arguments = () if name == "unassign" else ([part(topic.name)],)
            original, ours = members.answers(
                lambda c, t, name=name, given=arguments: getattr(c, name)(*given)
            )
            assert ours == original, name
            assert ours[0] == KafkaError._STATE


def errors(broker, kind, topics, n, **keys):
    """The first errors that a consumer of these topics is handed out."""
    found = []
    with kind(config(broker, **keys)) as consumer:
        consumer.subscribe(topics)

        def look():
            message = consumer.poll(0.2)
            if message is not None and message.error() is not None:
                error = message.error()
                place = message.topic(), message.partition(), message.offset()
                found.append((error.code(), error.str(), place, message.value()))
            return len(found) == n

        until(look, "an error")
    return found


def test_each_topic_that_is_not_there_is_named_in_the_words_of_the_original(broker):
    topics = sorted(fresh("nowhere") for _ in range(2))
    original, ours = (errors(broker, kind, topics, 2) for kind in KINDS)
    assert sorted(ours) == sorted(original)
    assert {place[0] for _, _, place, _ in ours} == set(topics)
    assert ours[0][1].endswith(f"{ours[0][2][0]}: Broker: Unknown topic or partition")


@pytest.mark.parametrize(
    "keys",
    [{"session_timeout_ms": 1_800_001, "max_poll_interval_ms": 2_000_000}],
    ids=["session"],
)
def test_a_refused_join_begins_with_the_words_of_the_original(broker, topic, keys):
    (original,), (ours,) = (errors(broker, kind, [topic.name], 1, **keys) for kind in KINDS)
    assert ours[0] == original[0] == KafkaError.INVALID_SESSION_TIMEOUT
    assert ours[1].startswith(f"{original[1]}: ")


def test_a_group_of_other_strategies_is_an_error_with_the_words_of_the_original(broker, topic):
    group = fresh("mixed")
    with confluent_kafka.Consumer(config(broker, group_id=group)) as other:
        other.subscribe([topic.name])
        until(lambda: other.poll(0.2) is not None, "it has its partitions")
        found = [
            errors(
                broker,
                kind,
                [topic.name],
                1,
                group_id=group,
                partition_assignment_strategy="cooperative-sticky",
            )[0]
            for kind in KINDS
        ]
    original, ours = found
    assert ours[0] == original[0] == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    assert ours[1].startswith(f"{original[1]}: ")


def test_a_fenced_member_is_told_in_the_words_of_the_original(broker, topic):
    texts = []
    for kind in KINDS:
        group = fresh("fenced")
        static = {"group_id": group, "group_instance_id": "x"}
        with kind(config(broker, **static)) as first, kind(config(broker, **static)) as second:
            first.subscribe([topic.name])
            until(lambda first=first: first.poll(0.2) is not None, "it has its partitions")
            second.subscribe([topic.name])

            def look(first=first, second=second):
                second.poll(0.05)
                message = first.poll(0.1)
                if message is None or message.error() is None:
                    return False
                assert message.error().code() == KafkaError._FATAL
                texts.append(message.error().str())
                return True

            until(look, "the first is fenced")
    words = ": ".join(texts[0].split(": ")[:3])
    assert words.startswith("Fatal error: Broker: Static consumer fenced")
    assert texts[1].startswith(f"{words}: ")
