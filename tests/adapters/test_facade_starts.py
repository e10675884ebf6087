"""Where the partitions of ``holdfast.confluent.Consumer`` begin; librdkafka without a broker."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import confluent_kafka
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TopicPartition,
)

from holdfast.adapters.drop_in.confluent.routing import route
from holdfast.adapters.drop_in.confluent.starts import Starts
from holdfast.errors import AdapterError

A, B = ("t", 0), ("t", 1)


class Group:
    """A member whose coordinator gives these answers, one after the other."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = []
        self.parts = SimpleNamespace(link=self)

    def committed(self, resources):
        self.asked.append(set(resources))
        answer = self._answers.pop(0)
        future: Future[dict] = Future()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result({tp: at for tp, at in answer.items() if tp in resources})
        return future


@pytest.fixture
def consumer():
    made = confluent_kafka.Consumer(
        {"group.id": "g", "session.timeout.ms": 100, "socket.timeout.ms": 100, "log_level": 0}
    )
    yield made
    made.close()


def blank(*resources):
    return [TopicPartition(*tp) for tp in resources]


def offsets(partitions):
    return {(p.topic, p.partition): p.offset for p in partitions}


@pytest.mark.parametrize(
    ("reset", "begins"),
    [
        (None, OFFSET_END),
        ("earliest", OFFSET_BEGINNING),
        ("smallest", OFFSET_BEGINNING),
        ("latest", OFFSET_END),
        ("error", OFFSET_INVALID),
    ],
)
def test_librdkafka_is_told_every_place_that_it_has_no_error_to_raise_for(reset, begins):
    given = {"auto.offset.reset": reset} if reset else {}
    starts = Starts(route({"group.id": "g", **given}).reset)
    group = Group({A: 5, B: -1})
    assert offsets(starts.fill_in(group, blank(A, B))) == {A: 5, B: begins}


def test_a_place_that_the_application_gives_is_not_looked_up():
    group = Group({B: 7})
    given = [TopicPartition(*A, 3), TopicPartition(*B, OFFSET_STORED)]
    assert offsets(Starts(OFFSET_END).fill_in(group, given)) == {A: 3, B: 7}
    assert group.asked == [{B}]


def test_what_nobody_answered_begins_anew_with_the_answer(consumer):
    starts = Starts(OFFSET_BEGINNING)
    group = Group(AdapterError("no answer"), AdapterError("no answer"), {A: 5, B: -1})
    consumer.incremental_assign(starts.fill_in(group, blank(A, B)))
    assert offsets(consumer.assignment()) == {A: OFFSET_STORED, B: OFFSET_STORED}
    starts.look_again(consumer, group)
    assert offsets(consumer.assignment()) == {A: OFFSET_STORED, B: OFFSET_STORED}
    starts.look_again(consumer, group)
    assert offsets(consumer.assignment()) == {A: 5, B: OFFSET_BEGINNING}
    starts.look_again(consumer, group)
    assert len(group.asked) == 3


def test_what_is_unassigned_meanwhile_stays_so(consumer):
    starts = Starts(OFFSET_BEGINNING)
    group = Group(AdapterError("no answer"), {A: 5, B: 6})
    consumer.incremental_assign(starts.fill_in(group, blank(A, B)))
    consumer.incremental_unassign(blank(A))
    starts.forget([A])
    starts.look_again(consumer, group)
    assert offsets(consumer.assignment()) == {B: 6}


def test_the_assignment_tells_no_place_that_the_application_did_not_give():
    starts = Starts(OFFSET_END)
    group = Group({A: 5})
    told = starts.fill_in(group, [TopicPartition(*A), TopicPartition(*B, 3)])
    assert offsets(starts.hide(told)) == {A: OFFSET_STORED, B: 3}
