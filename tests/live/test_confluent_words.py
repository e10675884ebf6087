"""The answers and texts of ``holdfast.confluent``, in the words of ``confluent_kafka``.

See :mod:`tests.live.all_clients`: the words of the original are in ``originals.json``.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from tests.live.all_clients import sentence
from tests.live.crew import admin_of, fresh
from tests.live.event_recorder import EventRecorder
from tests.live.waiting import until

pytestmark = pytest.mark.broker

EOF = KafkaError(KafkaError._PARTITION_EOF)
OF_CONFLUENT = {"client_names": ("confluent",), "originals": ("confluent",)}
STRATEGIES = ("range", "cooperative-sticky")


class Member:
    """The only member of a group, and what its ``on_commit`` was told."""

    def __init__(self, stage: Any, topic: Any, strategy: str):
        self.told: list[Any] = []
        self.topic = topic.name
        client = stage.member(
            topic,
            group_id=fresh("words"),
            partition_assignment_strategy=strategy,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            on_commit=self.note,
        )
        self.consumer = client.consumer
        stage.until(lambda: client.records, "it has its partitions", client)

    def note(self, error: Any, partitions: Any) -> None:
        self.told.append((error and (error.code(), error.str()), listed(partitions)))

    def answer(self, call: Callable[[], Any]) -> Any:
        try:
            found = call()
        except KafkaException as error:
            return error.args[0].code(), error.args[0].str()
        except (TypeError, ValueError) as error:
            return type(error).__name__
        return listed(found) if isinstance(found, list) else found

    def told_later(self, wanted: dict[str, Any]) -> Any:
        """What a commit that does not wait answers, and what on_commit is told of it."""
        until(lambda: self.consumer.poll(0.1) is None, "it was told of the commits before")
        del self.told[:]
        answer = self.answer(lambda: self.consumer.commit(**wanted))
        if answer is None:
            until(lambda: self.consumer.poll(0.1) is None and self.told, "on_commit is called")
        return answer, list(self.told)


def listed(partitions: Any) -> list[Any]:
    return [(p.topic, p.partition, p.offset) for p in partitions]


def part(topic: str, partition: int = 0, offset: int = OFFSET_INVALID) -> Any:
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


@sentence(**OF_CONFLUENT)
def test_a_commit_of_a_member_has_the_answer_of_the_original(stage):
    """Messages without an offset, of an error, offsets that are none: everything in its words."""
    for strategy in STRATEGIES:
        member = Member(stage, stage.topic(2, 3), strategy)
        consumer = member.consumer
        for shape in SHAPES:
            wanted = shape(member.topic)
            text = f"{strategy} {inspect.getsource(shape).strip()}"
            asked = {
                "store": partial(consumer.store_offsets, **wanted),
                "commit after it": partial(consumer.commit, asynchronous=False),
                "commit": partial(consumer.commit, **wanted, asynchronous=False),
            }
            for name, call in asked.items():
                stage.says(f"{text} {name}", member.answer(call))
            stage.says(f"{text} asynchronous", member.told_later(wanted))


@sentence(**OF_CONFLUENT)
def test_an_offset_that_is_none_takes_back_what_was_stored(stage):
    member = Member(stage, stage.topic(2, 3), "range")

    def call():
        member.consumer.store_offsets(offsets=[part(member.topic, 0, 2)])
        member.consumer.store_offsets(Message(topic=member.topic, partition=0))
        member.consumer.commit(asynchronous=False)

    answer = member.answer(call)
    assert answer == (KafkaError._NO_OFFSET, "Commit failed: Local: No offset stored")
    stage.says("commit", answer)


CHANGES = {
    "range": ("incremental_assign", "incremental_unassign"),
    "cooperative-sticky": ("assign", "unassign"),
}


@sentence(**OF_CONFLUENT)
def test_a_change_of_the_wrong_kind_is_refused_in_the_words_of_the_original(stage):
    for strategy, names in CHANGES.items():
        member = Member(stage, stage.topic(2, 3), strategy)
        for name in names:
            arguments = () if name == "unassign" else ([part(member.topic)],)
            change = getattr(member.consumer, name)
            answer = member.answer(lambda c=change, given=arguments: c(*given))
            assert answer[0] == KafkaError._STATE
            stage.says(name, answer)


def errors(stage: Any, client: Any, n: int) -> list[Any]:
    """The first errors that a consumer is handed out."""
    found: list[Any] = []

    def look() -> bool:
        message = client.consumer.poll(0.2)
        if message is not None and message.error() is not None:
            error = message.error()
            place = message.topic(), message.partition(), message.offset()
            found.append((error.code(), error.str(), place, message.value().decode()))
        return len(found) == n

    stage.until(look, "an error")
    return found


@sentence(**OF_CONFLUENT)
def test_each_topic_that_is_not_there_is_named_in_the_words_of_the_original(stage):
    names = sorted(fresh("nowhere") for _ in range(2))
    client = stage.alone()
    client.subscribe(names)
    found = sorted(errors(stage, client, 2), key=lambda error: error[2])
    assert [place[0] for _, _, place, _ in found] == names
    for number, name in enumerate(names):
        assert found[number][1].endswith(f"{name}: Broker: Unknown topic or partition")
        stage.says(f"topic {number}", [str(each).replace(name, "it") for each in found[number]])


@sentence(**OF_CONFLUENT)
def test_a_refused_join_begins_with_the_words_of_the_original(stage):
    long = {"session_timeout_ms": 1_800_001, "max_poll_interval_ms": 2_000_000}
    (error,) = errors(stage, stage.member(stage.topic(1), **long), 1)
    assert error[0] == KafkaError.INVALID_SESSION_TIMEOUT
    stage.begins_with("text", error[1])


@sentence(**OF_CONFLUENT)
def test_a_group_of_other_strategies_is_an_error_with_the_words_of_the_original(stage):
    topic = stage.topic(1)
    stage.owner(topic)
    mixed = stage.member(topic, partition_assignment_strategy="cooperative-sticky")
    (error,) = errors(stage, mixed, 1)
    assert error[0] == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    stage.begins_with("text", error[1])


@sentence(**OF_CONFLUENT)
def test_a_fenced_member_is_told_in_the_words_of_the_original(stage):
    topic = stage.topic(2, 3)
    first = stage.member(topic, group_instance_id="x")
    stage.until(lambda: first.records, "it has its partitions", first)
    stage.owner(topic, group_instance_id="x")
    (error,) = errors(stage, first, 1)
    assert error[0] == KafkaError._FATAL
    assert error[1].startswith("Fatal error: Broker: Static consumer fenced")
    stage.begins_with(
        "text", error[1] if not stage.is_original else ": ".join(error[1].split(": ")[:3])
    )


@sentence(**OF_CONFLUENT)
def test_a_deleted_topic_of_a_pattern_is_named_once_and_lost(stage):
    told_of_a_deletion(stage, "cooperative-sticky")


@sentence(**OF_CONFLUENT)
def test_a_deleted_topic_of_a_pattern_is_named_once_and_revoked_with_all_by_an_eager_member(stage):
    told_of_a_deletion(stage, "range")


def told_of_a_deletion(stage: Any, strategy: str) -> None:
    """Delete one of two topics; what the callbacks and the polls say of that."""
    prefix, recorder = fresh("deleted"), EventRecorder()
    names = [stage.topic(2, 1, f"{prefix}-{letter}").name for letter in "ab"]
    client = stage.alone(partition_assignment_strategy=strategy)
    client.subscribe(f"^{prefix}-.*", recorder)
    stage.until(lambda: len(client.records) == 4, "a record of every partition", client)
    del recorder.calls[:], client.passed[:]
    admin_of(stage.bootstrap).delete_topics(names[:1])[names[0]].result(60)
    stage.until(lambda: len(client.consumer.assignment()) == 2, "those of the other", client)
    stage.until(lambda: client.passed, "the error", client)
    began = time.monotonic()
    while time.monotonic() - began < 2:  # longer than the topics are asked for again
        client.poll(0.1)
    assert stage.is_original or len(client.passed) == 1
    stage.says("errors", sorted({(error.code(), error.str()) for error in client.passed}))
    stage.says("calls", [call for call in recorder.counts() if call[1]])


@sentence(client_names=("confluent",))
def test_an_application_that_was_away_for_too_long_hears_by_how_much(stage):
    """The original tells how late it was when a timer has noticed, at most half a second."""
    short = {"max_poll_interval_ms": 2_000, "session_timeout_ms": 2_000}
    member = stage.owner(stage.topic(1), **short)
    began = time.monotonic()
    time.sleep(5)
    stage.until(lambda: member.passed, "the error", member)
    latest_ms = 1000 * (time.monotonic() - began) - 2_000
    (error,) = member.passed
    (over_ms,) = map(int, re.findall(r"exceeded by (\d+)ms", error.str()))
    assert 3_000 <= over_ms <= latest_ms + 200, "its last call was served 0.1 s before it left"
