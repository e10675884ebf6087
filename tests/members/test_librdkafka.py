"""librdkafka below ``holdfast.Consumer`` and ``holdfast.confluent``: starts, records, failures.

What programs see of it on a broker is in ``tests/live/test_starts.py``, ``test_consumer.py`` and
``test_stalled_client.py``.
"""

from __future__ import annotations

import weakref
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as Part
from tests.live.waiting import until
from tests.members.configured import NEEDED, settings_of
from tests.members.fake_member import done, failed, make_session

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.errors import ClientError, RemoteProtocolError
from holdfast.members.clients.confluent import session as confluent_session
from holdfast.members.clients.confluent.config import route
from holdfast.members.clients.confluent.session import Callbacks, ConfluentAdapter
from holdfast.members.clients.librdkafka import adapter as librdkafka_adapter
from holdfast.members.clients.librdkafka import consumer_adapter, recreation
from holdfast.members.clients.librdkafka.consumer_adapter import ConsumerAdapter
from holdfast.members.clients.librdkafka.recreation import REQUEST_EVERY_S, ClientRecreation
from holdfast.members.session.session import ClientTraits

A, B, C = ("t", 0), ("t", 1), ("u", 0)
ENDS = {OFFSET_BEGINNING: 2, OFFSET_END: 40}
TRAITS = ClientTraits(reports_empty_changes=True, error_stops_commit=True)
NO_BROKER = KafkaException(KafkaError(KafkaError._TRANSPORT))


def record(topic, partition, offset, error=None):
    return Message(topic=topic, partition=partition, offset=offset, error=error)


class Librdkafka:
    """Stands for confluent_kafka.Consumer: every partition has records 0 to 99."""

    def __init__(self, config=None):
        self.begun, self.reached, self.paused = {}, {}, set()
        self.log = []  # what was assigned, with offsets
        self.topics = []  # of requests
        self.fails = None
        self.extra = []  # records that come next, whatever is assigned
        self.n_closed = 0

    def assignment(self):
        return [Part(*tp, at) for tp, at in sorted(self.begun.items())]

    def position(self, parts):
        """As librdkafka's: none before the first record."""
        found = {
            tp: at if at != self.begun[tp] else OFFSET_INVALID for tp, at in self.reached.items()
        }
        return [Part(*tp, found[tp]) for tp in map(named, parts)]

    def incremental_assign(self, parts):
        for part in parts:
            self.begun[named(part)] = self.reached[named(part)] = part.offset
            self.log.append((*named(part), part.offset))

    def incremental_unassign(self, parts):
        for part in parts:
            del self.begun[named(part)], self.reached[named(part)]

    def pause(self, parts):
        self.paused.update(map(named, parts))

    def resume(self, parts):
        self.paused.difference_update(map(named, parts))

    def seek(self, part):
        self.reached[named(part)] = part.offset

    def list_topics(self, topic, timeout):
        self.topics.append(topic)
        if self.fails is not None:
            raise self.fails

    def consume(self, limit, timeout):
        if self.fails is not None:
            raise self.fails
        found, self.extra = self.extra, []
        for tp in sorted(self.reached.keys() - self.paused):
            if len(found) < limit and self.reached[tp] < 100:
                found.append(record(*tp, self.reached[tp]))
                self.reached[tp] += 1
        return found

    def close(self):
        self.n_closed += 1
        self.begun, self.reached = {}, {}


def named(part):
    return part.topic, part.partition


@pytest.fixture(autouse=True)
def _librdkafka(monkeypatch):
    for module in (consumer_adapter, librdkafka_adapter, confluent_session, recreation):
        monkeypatch.setattr(module, "_Original", Librdkafka)
    monkeypatch.setattr(consumer_adapter, "_FetchingConsumer", Librdkafka)
    # A thread answers where partitions begin, on a starved machine after longer than a call waits.
    monkeypatch.setattr(librdkafka_adapter, "_WAITED_S", 60.0)


class Harness:
    """A member whose client is librdkafka; the group has committed :attr:`committed`."""

    def __init__(self, strategy="cooperative-sticky", **keys):
        self.in_callback = lambda: None
        settings = settings_of(partition_assignment_strategy=strategy, **keys)
        self._begin(settings, ConsumerAdapter(settings, weakref.WeakMethod(self.listener_for)))
        self.client = self.adapter.client

    def _begin(self, settings, adapter):
        self.adapter, self.failures, self.ends = adapter, [], ENDS
        self.member, self.session = make_session(settings, adapter, TRAITS)
        self.member.lookup = SimpleNamespace(list_offsets=self._list_offsets)
        self.member.fail = self.failures.append

    def listener_for(self, call):
        return (lambda _: self.in_callback()) if call is ListenerCall.ASSIGNED else None

    def commits(self, committed):
        self.member.coordinator.stands = committed

    def _list_offsets(self, partitions, at):
        return done({} if self.ends is None else dict.fromkeys(partitions, self.ends[at]))

    def assign(self, *tps):
        """The group gives these, in new terms; the application's next call begins them."""
        self.member.gain(*tps)
        self.session.begin_poll()

    def revoke(self, *tps):
        self.session.mark_pending_revocation(tps, lambda: None)
        self.session.begin_poll()
        self.session.call(ListenerCall.REVOKED, tps, lambda _: None)
        self.member.stand(1, self.member.member_thread.snapshot.owned - set(tps))
        self.session.begin_poll()

    def assign_known(self):
        self.adapter.pending_starts.assign_known()

    def assignment(self):
        """What the application sees of its assignment."""
        found = self.adapter.pending_starts.as_original(self.client.assignment())
        return {named(part): part.offset for part in found}

    def fetch(self, limit=100):
        found = self.adapter.fetch(limit, 0.0)
        return [(message.topic(), message.partition(), message.offset()) for message in found]


class OfConfluent(Harness):
    """As :class:`Harness`, of ``holdfast.confluent``, which owns t-0 and t-1."""

    def __init__(self, *answers, **keys):
        self.client, self._callbacks = Librdkafka(), Callbacks(None)
        routed = route({**NEEDED, "partition.assignment.strategy": "cooperative-sticky", **keys})
        self._begin(routed.settings(), ConfluentAdapter(self.client, self._callbacks, routed))
        self.requests, self._answers = [], list(answers)
        self.member.coordinator.committed = self._committed
        self.member.owns({A: 1, B: 2})
        self.session.begin_terms([A, B])

    def _committed(self, partitions):
        """Answer with the next of ``answers``: offsets, an error, or None for a later answer."""
        answer = self._answers.pop(0)
        self.answered = Future() if answer is None else done(answer)
        self.requests.append(set(partitions))
        return failed(answer) if isinstance(answer, Exception) else self.answered

    def start(self, *parts):
        self.adapter.assign_new(list(parts))

    def answer(self, offsets):
        self.answered.set_result(offsets)
        self.assign_known()


# Start offsets


@pytest.mark.parametrize(
    ("reset", "begins"),
    [
        ({}, 40),
        ({"auto.offset.reset": "smallest"}, 2),
        ({"auto.offset.reset": "latest"}, 40),
        ({"auto.offset.reset": "error"}, OFFSET_INVALID),  # librdkafka looks it up, and raises
    ],
)
def test_a_partition_starts_at_the_committed_offset_else_by_the_reset(reset, begins):
    harness = OfConfluent({A: 5, B: -1}, **reset)
    harness.start(Part(*A), Part(*B))
    assert harness.client.begun == {A: 5, B: begins}
    assert harness.session.to_commit() == ({B: (begins, "", -1)} if begins >= 0 else {})


def test_only_an_offset_that_the_application_does_not_give_is_looked_up():
    harness = OfConfluent({B: 7})
    harness.start(Part(*A, 3), Part(*B, OFFSET_STORED))
    assert harness.client.begun == {A: 3, B: 7}
    assert harness.requests == [{B}]


def test_a_partition_whose_start_is_not_known_appears_assigned_and_starts_later(monkeypatch):
    monkeypatch.setattr(librdkafka_adapter, "_WAITED_S", 0.0)
    harness = OfConfluent(None)
    harness.start(Part(*A, 3), Part(*B))
    harness.assign_known()
    assert harness.client.begun == {A: 3}, "librdkafka may never look it up again"
    assert harness.assignment() == {A: 3, B: OFFSET_STORED}
    harness.answer({B: 6})
    assert harness.client.begun == {A: 3, B: 6}
    assert harness.assignment() == {A: 3, B: OFFSET_STORED}


def test_a_request_without_an_answer_is_repeated():
    error = ClientError("no answer")
    harness = OfConfluent(error, error, {A: 5, B: -1})
    harness.start(Part(*A), Part(*B))
    assert harness.client.begun == {}
    until(lambda: harness.assign_known() or harness.client.begun, "an answer")
    assert harness.client.begun == {A: 5, B: 40}
    assert harness.requests == [{A, B}] * 3


def test_librdkafka_reports_a_refusal_to_the_application():
    harness = OfConfluent(
        RemoteProtocolError("no", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    )
    harness.start(Part(*A), Part(*B))
    assert harness.client.begun == {A: OFFSET_INVALID, B: OFFSET_INVALID}


def test_an_answer_does_not_start_what_was_unassigned_or_lost_meanwhile(monkeypatch):
    monkeypatch.setattr(librdkafka_adapter, "_WAITED_S", 0.0)
    harness = OfConfluent(None, None)
    harness.start(Part(*A), Part(*B))
    assert harness.adapter.pending_starts.without([Part(*A)]) == []
    harness.answer({A: 5, B: 6})
    assert harness.client.begun == {B: 6}
    harness.start(Part(*A))
    first = harness.answered
    harness._answers.append(None)
    harness.adapter.pending_starts.forget([A])
    first.set_result({A: 5})
    harness.start(Part(*A))  # another member may have committed meanwhile
    assert harness.client.begun == {B: 6}
    harness.answer({A: 9})
    assert harness.client.begun == {A: 9, B: 6}


def test_a_partition_without_a_leader_delays_no_other_one_and_starts_later():
    harness = Harness()
    harness.commits({A: 7})
    harness.ends = None
    harness.assign(A, B)
    assert harness.client.log == [("t", 0, 7)]
    harness.ends = {OFFSET_END: 3}
    until(lambda: harness.assign_known() or B in harness.client.begun, "a leader")
    assert harness.client.log == [("t", 0, 7), ("t", 1, 3)]


def test_a_seek_is_forgotten_with_a_partition_that_never_started():
    harness = Harness()
    harness.ends = None
    harness.in_callback = lambda: harness.adapter.seek(A, 40)
    harness.assign(A)
    harness.revoke(A)
    harness.in_callback = lambda: None
    harness.commits({A: 7})
    harness.assign(A)
    assert harness.client.log == [("t", 0, 7)]


def test_new_topics_are_requested_before_they_are_fetched_but_not_too_many():
    harness = Harness()
    many = [(f"t{i:02}", 0) for i in range(40)]
    harness.commits(dict.fromkeys([*many, C], 0))
    harness.assign(*many)
    assert harness.client.topics == [f"t{i:02}" for i in range(16)]
    harness.client.fails = KafkaException("no answer")
    harness.assign(C)
    assert harness.client.topics[16:] == ["u"]
    assert len(harness.client.begun) == 41


# Records


@pytest.fixture
def reading():
    """A cooperative member that reads t-0 from 7."""
    return reads_from_seven(Harness())


@pytest.fixture
def eager():
    """An eager member that reads t-0 from 7."""
    return reads_from_seven(Harness("sticky"))


def reads_from_seven(harness):
    harness.commits({A: 7})
    harness.assign(A)
    return harness


def test_a_lost_partition_is_not_delivered_from_that_moment_on(reading):
    reading.commits({A: 7, B: 0})
    reading.assign(B)
    reading.session.drop((A,), (A,))
    assert reading.fetch() == [("t", 1, 0)]


def test_a_partition_starts_paused_and_one_that_was_held_back_is_fetched_when_it_comes_back():
    harness = Harness()
    harness.commits({A: 7, B: 0})
    harness.in_callback = lambda: harness.adapter.pause([A])
    harness.assign(A, B)
    assert harness.fetch() == [("t", 1, 0)]
    harness.adapter.resume([A])
    harness.revoke(B)
    assert harness.fetch() == [("t", 0, 7)]
    harness.in_callback = lambda: None
    harness.assign(B)
    assert harness.fetch() == [("t", 0, 8), ("t", 1, 0)]


@pytest.mark.parametrize(
    ("committed", "seek", "limit", "begun", "fetched"),
    [
        (7, None, 2, [7], [("t", 0, 7), ("t", 0, 8)]),
        (7, 50, 100, [7], [("t", 0, 50)]),
        (30, None, 100, [7, 30], [("t", 0, 30)]),
    ],
    ids=["same offset", "sought", "another offset"],
)
def test_a_partition_that_comes_back_to_an_eager_member_is_fetched_again_only_at_another_offset(
    eager, committed, seek, limit, begun, fetched
):
    eager.revoke(A)
    assert [eager.fetch() for _ in range(3)] == [[]] * 3, "fetched, and set aside"
    eager.commits({A: committed})
    eager.assign(A)
    if seek is not None:
        eager.adapter.seek(A, seek)
    assert eager.fetch(limit) == fetched
    assert [at for *_, at in eager.client.log] == begun
    assert eager.adapter.position(A) == fetched[-1][2] + 1


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_partition_that_does_not_come_back_is_dropped_with_its_records(eager, is_paused):
    if is_paused:
        eager.adapter.pause([A])
    eager.revoke(A)
    assert (A in eager.client.begun) is not is_paused, "a paused one is not fetched meanwhile"
    assert eager.fetch() == []
    eager.commits({A: 7, B: 0})
    eager.assign(B)
    assert eager.client.begun == {B: 0}
    eager.assign(A)
    eager.adapter.resume([A])
    assert eager.fetch(1) == [("t", 0, 7)]


# Failures


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()], ids=repr)
def test_a_poll_that_fails_loses_nothing(reading, error):
    assert reading.fetch() == [("t", 0, 7)]
    reading.client.reached[A] = 60  # taken by librdkafka, and lost with the error
    reading.client.fails = error
    if isinstance(error, Exception):
        assert [reading.fetch(), reading.fetch()] == [[], []]
        with pytest.raises(ClientError, match="RuntimeError: broken; nothing is lost"):
            reading.fetch()
    else:
        with pytest.raises(KeyboardInterrupt):
            reading.fetch()
    reading.client.fails = None
    assert reading.fetch() == [("t", 0, 8)]


def test_an_error_of_one_topic_is_raised_once_and_loses_nothing_of_the_others(reading):
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    moved = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION, retriable=True)
    reading.client.extra = [record("u", 0, -1, denied), record("t", 0, -1, moved)]
    assert reading.fetch() == [("t", 0, 7)]
    with pytest.raises(RemoteProtocolError, match="topic 'u'"):
        reading.adapter.raise_error()
    reading.adapter.raise_error()
    assert reading.fetch() == [("t", 0, 8)]


# Stalled


class World:
    """A clock, and a coordinator that has answered at some time."""

    def __init__(self):
        self.now, self.answered_at = 100.0, 0.0

    def requests(self, client, n, *, answers=True):
        """Return what comes of ``n`` requests that find no broker."""
        found = []
        for _ in range(n):
            self.now += REQUEST_EVERY_S
            self.answered_at = self.now - 1 if answers else self.answered_at
            assert client.is_request_due()
            found.append(client.record_no_broker(self.answered_at))
            assert not client.is_request_due()
        return found


@pytest.fixture
def world(monkeypatch):
    made = World()
    monkeypatch.setattr(recreation.time, "monotonic", lambda: made.now)
    return made


def test_a_client_is_stalled_only_while_the_coordinator_answers_and_less_and_less_often(world):
    client = ClientRecreation({})
    assert not any(world.requests(client, 50, answers=False))
    # The broker is back: librdkafka has some seconds to find it.
    assert not any(world.requests(client, 3))
    client.record_progress()  # a record came
    found = world.requests(client, 4 + 8 + 16 + 32 + 64 + 64)
    assert [n for n, stalled in enumerate(found, 1) if stalled] == [4, 12, 28, 60, 124, 188]


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT])
def test_a_client_that_finds_no_broker_is_recreated_and_after_another_error_it_is_not(
    world, reading, code, monkeypatch
):
    monkeypatch.setattr(Librdkafka, "consume", lambda *_: [])
    reading.adapter.pause([A])
    reading.client.fails = KafkaException(KafkaError(code))
    for _ in range(6):  # the first one notes the positions
        world.now += REQUEST_EVERY_S
        reading.member.member_thread.heartbeat_answered_at = world.now
        reading.adapter.fetch(10, 0.0)
    assert (reading.client.fails is None) is (code == KafkaError._TRANSPORT), "a new one"
    assert reading.client.begun == {A: 7}
    assert reading.client.paused == {A}
