"""Start offsets of ``holdfast.confluent.Consumer``; librdkafka without a broker."""

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
from tests.members.configured import QUICK

from holdfast.core.machine.codes import ErrorCode
from holdfast.errors import ClientError, RemoteProtocolError
from holdfast.members.clients.confluent.adapter import Callbacks, ConfluentAdapter
from holdfast.members.clients.confluent.config import route

A, B = ("t", 0), ("t", 1)
ENDS = {OFFSET_BEGINNING: 2, OFFSET_END: 40}


class Group:
    """A seat whose coordinator gives these answers, one after the other; None: not yet."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = []
        self.futures: list[Future[dict]] = []
        self.stands = {}  # what the seat was told of committed offsets
        self.membership = SimpleNamespace(runtime=self)
        self.lookup, self.is_automatic = self, True
        self.resets = {}  # where partitions begin of which nothing stands committed
        self.subscription_state = SimpleNamespace(
            start_at_committed=self.stands.update,
            start_at_reset=lambda start_offsets, as_processed: self.reset(start_offsets),
        )

    def request_committed(self, resources):
        self.asked.append(set(resources))
        self.futures.append(Future())
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            self.futures[-1].set_exception(answer)
        elif answer is not None:
            self.answer(answer)
        return self.futures[-1]

    def reset(self, start_offsets):
        self.resets |= start_offsets

    def list_offsets(self, resources, at):
        """The ends of every partition."""
        found: Future[dict] = Future()
        found.set_result(dict.fromkeys(resources, ENDS[at]))
        return found

    def answer(self, offsets):
        asked = self.asked[-1]
        self.futures[-1].set_result({tp: at for tp, at in offsets.items() if tp in asked})


def adapter_of(consumer, group, *, reset="earliest"):
    given = {"auto.offset.reset": reset} if reset else {}
    made = ConfluentAdapter(consumer, Callbacks(None), route({"group.id": "g", **given}))
    made.session = group
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
    group = Group({A: 5, B: -1})
    adapter_of(consumer, group, reset=reset).assign_new(blank(A, B))
    assert offsets(consumer.assignment()) == {A: 5, B: begins}
    assert group.resets == ({B: begins} if begins >= 0 else {}), "it is committed at a hand-over"


def test_a_place_that_the_application_gives_is_not_looked_up(consumer):
    group = Group({B: 7})
    given = [TopicPartition(*A, 3), TopicPartition(*B, OFFSET_STORED)]
    adapter_of(consumer, group).assign_new(given)
    assert offsets(consumer.assignment()) == {A: 3, B: 7}
    assert group.asked == [{B}]


def test_a_call_that_assigns_does_not_wait_for_a_coordinator_that_is_away(consumer):
    group = Group(None)
    adapter = adapter_of(consumer, group)
    adapter.assign_new([TopicPartition(*A, 3), TopicPartition(*B)])
    assert offsets(consumer.assignment()) == {A: 3}, "librdkafka may never ask again"
    assert offsets(adapter.start_positions.hide(consumer.assignment())) == {A: 3, B: OFFSET_STORED}
    adapter.start_positions.refresh_metadata(consumer)
    assert offsets(consumer.assignment()) == {A: 3}
    group.answer({B: 6})
    adapter.start_positions.refresh_metadata(consumer)
    assert offsets(consumer.assignment()) == {A: 3, B: 6}
    assert offsets(adapter.start_positions.hide(consumer.assignment())) == {A: 3, B: OFFSET_STORED}
    adapter.start_positions.refresh_metadata(consumer)
    assert group.asked == [{B}]


def test_what_nobody_answered_is_asked_again(consumer):
    group = Group(ClientError("no answer"), ClientError("no answer"), {A: 5, B: -1})
    adapter = adapter_of(consumer, group)
    adapter.assign_new(blank(A, B))
    assert consumer.assignment() == []
    deadline = time.monotonic() + 60
    while adapter.start_positions.waiting and time.monotonic() < deadline:
        time.sleep(0.01)
        adapter.start_positions.refresh_metadata(consumer)
    assert offsets(consumer.assignment()) == {A: 5, B: 2}
    assert group.asked == [{A, B}] * 3


def test_librdkafka_tells_the_application_of_a_refusal(consumer):
    refusal = RemoteProtocolError("no", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    adapter_of(consumer, Group(refusal)).assign_new(blank(A, B))
    assert offsets(consumer.assignment()) == {A: OFFSET_STORED, B: OFFSET_STORED}


@pytest.fixture
def asked(consumer):
    """A group that has not answered yet where two partitions begin, and the hands that asked."""
    group = Group(None)
    adapter = adapter_of(consumer, group)
    adapter.assign_new(blank(A, B))
    return group, adapter


def test_what_is_unassigned_meanwhile_stays_so(asked, consumer):
    group, adapter = asked
    assert adapter.start_positions.without(blank(A)) == []
    group.answer({A: 5, B: 6})
    adapter.start_positions.refresh_metadata(consumer)
    assert offsets(consumer.assignment()) == {B: 6}


def test_an_answer_from_before_a_loss_counts_no_more(consumer):
    group = Group(None, None)
    adapter = adapter_of(consumer, group)
    adapter.assign_new(blank(A))
    adapter.start_positions.forget([A])
    group.answer({A: 5})
    adapter.assign_new(blank(A))  # another member may have committed meanwhile
    assert consumer.assignment() == []
    group.answer({A: 9})
    adapter.start_positions.refresh_metadata(consumer)
    assert offsets(consumer.assignment()) == {A: 9}


def test_an_offset_that_is_known_late_guards_commits_from_then_on(asked, consumer):
    group, adapter = asked
    assert group.stands == {}
    group.answer({A: 5, B: -1})
    adapter.start_positions.refresh_metadata(consumer)
    assert group.stands == {A: 5, B: -1}
