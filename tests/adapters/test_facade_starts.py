"""Where the partitions of ``holdfast.confluent.Consumer`` begin; librdkafka without a broker."""

from __future__ import annotations

import time
from concurrent.futures import Future
from types import SimpleNamespace

import confluent_kafka
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_STORED,
    TopicPartition,
)
from tests.adapters.configured import QUICK

from holdfast.core.machine.codes import ErrorCode
from holdfast.errors import AdapterError, RemoteProtocolError
from holdfast.members.drop_in.confluent.hands import LibrdkafkaHands
from holdfast.members.drop_in.confluent.settings import route

A, B = ("t", 0), ("t", 1)
ENDS = {OFFSET_BEGINNING: 2, OFFSET_END: 40}


class Group:
    """A seat whose coordinator gives these answers, one after the other; None: not yet."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = []
        self.futures: list[Future[dict]] = []
        self.stands = {}  # what the seat was told of committed offsets
        self.membership = SimpleNamespace(parts=self)
        self.lookup, self.is_automatic = self, True
        self.resets = {}  # where partitions begin of which nothing stands committed
        self.progress = SimpleNamespace(
            stands=self.stands.update, resets=lambda places, as_processed: self.reset(places)
        )

    def ask_places(self, resources):
        self.asked.append(set(resources))
        self.futures.append(Future())
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            self.futures[-1].set_exception(answer)
        elif answer is not None:
            self.answer(answer)
        return self.futures[-1]

    def reset(self, places):
        self.resets |= places

    def list_offsets(self, resources, at):
        """The ends of every partition."""
        found: Future[dict] = Future()
        found.set_result(dict.fromkeys(resources, ENDS[at]))
        return found

    def answer(self, offsets):
        asked = self.asked[-1]
        self.futures[-1].set_result({tp: at for tp, at in offsets.items() if tp in asked})


def hands_of(consumer, group, *, reset=OFFSET_BEGINNING):
    made = LibrdkafkaHands(consumer, lambda: None, {}, reset=reset, stores=True)
    made.seat = group
    return made


class Fetches(confluent_kafka.Consumer):
    """The original, which cannot be referred to weakly."""


@pytest.fixture
def consumer():
    made = Fetches(QUICK)
    yield made
    made.close()


def blank(*resources):
    return [TopicPartition(*tp) for tp in resources]


def offsets(partitions):
    return {(p.topic, p.partition): p.offset for p in partitions}


@pytest.mark.parametrize(
    ("reset", "begins"),
    [
        (None, 40),
        ("earliest", 2),
        ("smallest", 2),
        ("latest", 40),
        ("error", OFFSET_STORED),
    ],
)
def test_librdkafka_is_told_every_place_that_it_has_no_error_to_raise_for(consumer, reset, begins):
    given = {"auto.offset.reset": reset} if reset else {}
    reset = route({"group.id": "g", **given}).reset
    group = Group({A: 5, B: -1})
    hands_of(consumer, group, reset=reset).assign_new(blank(A, B))
    assert offsets(consumer.assignment()) == {A: 5, B: begins}
    assert group.resets == ({B: begins} if begins >= 0 else {}), "it is committed at a hand-over"


def test_a_place_that_the_application_gives_is_not_looked_up(consumer):
    group = Group({B: 7})
    given = [TopicPartition(*A, 3), TopicPartition(*B, OFFSET_STORED)]
    hands_of(consumer, group).assign_new(given)
    assert offsets(consumer.assignment()) == {A: 3, B: 7}
    assert group.asked == [{B}]


def test_a_call_that_assigns_does_not_wait_for_a_coordinator_that_is_away(consumer):
    group = Group(None)
    hands = hands_of(consumer, group)
    hands.assign_new([TopicPartition(*A, 3), TopicPartition(*B)])
    assert offsets(consumer.assignment()) == {A: 3}, "librdkafka may never ask again"
    assert offsets(hands.starts.hide(consumer.assignment())) == {A: 3, B: OFFSET_STORED}
    hands.starts.look_again(consumer)
    assert offsets(consumer.assignment()) == {A: 3}
    group.answer({B: 6})
    hands.starts.look_again(consumer)
    assert offsets(consumer.assignment()) == {A: 3, B: 6}
    assert offsets(hands.starts.hide(consumer.assignment())) == {A: 3, B: OFFSET_STORED}
    hands.starts.look_again(consumer)
    assert group.asked == [{B}]


def test_what_nobody_answered_is_asked_again(consumer):
    group = Group(AdapterError("no answer"), AdapterError("no answer"), {A: 5, B: -1})
    hands = hands_of(consumer, group)
    hands.assign_new(blank(A, B))
    assert consumer.assignment() == []
    deadline = time.monotonic() + 60
    while hands.starts.waiting and time.monotonic() < deadline:
        time.sleep(0.01)
        hands.starts.look_again(consumer)
    assert offsets(consumer.assignment()) == {A: 5, B: 2}
    assert group.asked == [{A, B}] * 3


def test_librdkafka_tells_the_application_of_a_refusal(consumer):
    refusal = RemoteProtocolError("no", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    hands_of(consumer, Group(refusal)).assign_new(blank(A, B))
    assert offsets(consumer.assignment()) == {A: OFFSET_STORED, B: OFFSET_STORED}


@pytest.fixture
def asked(consumer):
    """A group that has not answered yet where two partitions begin, and the hands that asked."""
    group = Group(None)
    hands = hands_of(consumer, group)
    hands.assign_new(blank(A, B))
    return group, hands


def test_what_is_unassigned_meanwhile_stays_so(asked, consumer):
    group, hands = asked
    assert hands.starts.without(blank(A)) == []
    group.answer({A: 5, B: 6})
    hands.starts.look_again(consumer)
    assert offsets(consumer.assignment()) == {B: 6}


def test_an_answer_from_before_a_loss_counts_no_more(consumer):
    group = Group(None, None)
    hands = hands_of(consumer, group)
    hands.assign_new(blank(A))
    hands.starts.forget([A])
    group.answer({A: 5})
    hands.assign_new(blank(A))  # another member may have committed meanwhile
    assert consumer.assignment() == []
    group.answer({A: 9})
    hands.starts.look_again(consumer)
    assert offsets(consumer.assignment()) == {A: 9}


def test_an_offset_that_is_known_late_guards_commits_from_then_on(asked, consumer):
    group, hands = asked
    assert group.stands == {}
    group.answer({A: 5, B: -1})
    hands.starts.look_again(consumer)
    assert group.stands == {A: 5, B: -1}
