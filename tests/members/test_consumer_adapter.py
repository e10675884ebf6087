"""The librdkafka adapter of ``holdfast.Consumer``: start offsets and delivered records."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from tests.live.waiting import until
from tests.members.configured import settings_of
from tests.members.fake_member import done, make_session

from holdfast.cluster.lookup import EARLIEST
from holdfast.core.machine.events import ListenerCall
from holdfast.errors import ClientError, RemoteProtocolError
from holdfast.members.clients.librdkafka import adapter as librdkafka_adapter
from holdfast.members.clients.librdkafka import consumer_adapter, recreation
from holdfast.members.clients.librdkafka.consumer_adapter import ConsumerAdapter
from holdfast.members.session.client_adapter import ClientTraits

A, B, C = ("t", 0), ("t", 1), ("u", 0)
TRAITS = ClientTraits(reports_empty_changes=True, error_stops_commit=True)


class Record:
    """Stands for confluent_kafka.Message."""

    def __init__(self, topic, partition, offset, error=None):
        self._place, self._error = (topic, partition, offset), error

    def topic(self):
        return self._place[0]

    def partition(self):
        return self._place[1]

    def offset(self):
        return self._place[2]

    def error(self):
        return self._error


class Librdkafka:
    """Stands for confluent_kafka.Consumer: every partition has records 0 to 99."""

    def __init__(self, config=None):
        self.begun = {}
        self.reached = {}
        self.paused = set()
        self.log = []  # what was assigned, with offsets
        self.topics_asked = []
        self.fails = None
        self.extra = []  # records that come next, whatever is assigned
        self.n_closed = 0

    def assignment(self):
        return [TopicPartition(*tp, at) for tp, at in sorted(self.begun.items())]

    def position(self, parts):
        return [TopicPartition(*tp, self.reached[tp]) for tp in map(named, parts)]

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
        self.topics_asked.append(topic)
        if self.fails is not None:
            raise self.fails

    def consume(self, limit, timeout):
        if self.fails is not None:
            raise self.fails
        found, self.extra = self.extra, []
        for tp in sorted(self.reached.keys() - self.paused):
            if len(found) < limit and self.reached[tp] < 100:
                found.append(Record(*tp, self.reached[tp]))
                self.reached[tp] += 1
        return found

    def close(self):
        self.n_closed += 1
        self.begun, self.reached = {}, {}


def named(part):
    return part.topic, part.partition


@pytest.fixture(autouse=True)
def _librdkafka(monkeypatch):
    for module in (consumer_adapter, librdkafka_adapter, recreation):
        monkeypatch.setattr(module, "_Original", Librdkafka)
    monkeypatch.setattr(consumer_adapter, "_FetchingConsumer", Librdkafka)
    for module in (consumer_adapter, librdkafka_adapter):
        monkeypatch.setattr(module, "Message", Record)
    # A thread answers where partitions begin, on a starved machine after longer than a call waits.
    monkeypatch.setattr(librdkafka_adapter, "_WAITED_S", 60.0)


class Harness:
    """A member whose client is librdkafka; the group has committed :attr:`start_offsets`."""

    def __init__(self, strategy="cooperative-sticky", reset="earliest"):
        self.ends = {}
        self.failures = []
        self.in_callback = lambda: None
        settings = settings_of(partition_assignment_strategy=strategy, auto_offset_reset=reset)
        self.adapter = ConsumerAdapter(settings, weakref.WeakMethod(self.listener_for))
        self.client = self.adapter.client
        self.member, self.session = make_session(settings, self.adapter, TRAITS)
        self.member.lookup = SimpleNamespace(list_offsets=self._list_offsets)
        self.member.fail = self.failures.append

    def listener_for(self, call):
        return (lambda _: self.in_callback()) if call is ListenerCall.ASSIGNED else None

    @property
    def start_offsets(self):
        return self.member.coordinator.stands

    @start_offsets.setter
    def start_offsets(self, stands):
        self.member.coordinator.stands = stands

    def _list_offsets(self, partitions, at):
        assert at == EARLIEST
        return done({tp: self.ends[tp] for tp in partitions if tp in self.ends})

    def assign(self, *tps):
        """The group gives these, in new terms; the application's next call begins them."""
        self.member.gain(*tps)
        self.session.begin_poll()

    def commit_revoked(self, *tps):
        """These are given up, in order."""
        self.session.hold_back(tps, lambda: None)
        self.session.begin_poll()
        self.session.call(ListenerCall.REVOKED, tps, lambda _: None)
        self.member.stand(1, self.member.member_thread.snapshot.owned - set(tps))
        self.session.begin_poll()

    def look_until(self, condition):
        """Look where partitions begin, as the calls of the application do."""
        until(
            lambda: self.adapter.start_positions.refresh_metadata(self.client) or condition(),
            "where it begins",
        )

    def fetch(self, limit=100):
        return [(r.topic(), r.partition(), r.offset()) for r in self.adapter.fetch(limit, 0.0)]


@pytest.fixture
def eager():
    """An eager member that reads t-0 from 7."""
    return reads_from_seven(Harness(strategy="sticky"))


@pytest.fixture
def reading():
    """A cooperative member that reads t-0 from 7."""
    return reads_from_seven(Harness())


def reads_from_seven(harness):
    harness.start_offsets = {A: 7}
    harness.assign(A)
    return harness


@pytest.fixture
def two():
    """A cooperative member that reads t-0 from 7 and t-1 from 0."""
    harness = Harness()
    harness.start_offsets = {A: 7, B: 0}
    harness.assign(A, B)
    return harness


def test_a_partition_begins_where_the_group_has_committed_else_at_the_reset():
    harness = Harness()
    harness.start_offsets, harness.ends = {A: 7}, {B: 3}
    harness.assign(A, B)
    assert harness.client.log == [("t", 0, 7), ("t", 1, 3)]
    assert harness.fetch() == [("t", 0, 7), ("t", 1, 3)]
    assert harness.adapter.position(A) == 8


def test_a_partition_without_a_leader_keeps_no_other_one_waiting():
    harness = Harness()
    harness.start_offsets = {A: 7}
    harness.assign(A, B)
    assert harness.client.log == [("t", 0, 7)]
    harness.ends = {B: 3}
    harness.look_until(lambda: B in harness.client.begun)
    assert harness.client.log == [("t", 0, 7), ("t", 1, 3)]


def test_a_partition_whose_leader_is_away_is_asked_for_until_it_is_back():
    harness = Harness()
    harness.assign(A)
    assert harness.client.log == []
    harness.ends = {A: 3}
    harness.look_until(lambda: A in harness.client.begun)
    assert harness.client.log == [("t", 0, 3)]


def test_where_nothing_is_committed_and_no_reset_is_wanted_a_partition_fails_once():
    harness = Harness(reset="none")
    harness.start_offsets = {B: 4}
    harness.assign(A, B)
    assert harness.client.log == [("t", 1, 4)]
    with pytest.raises(RemoteProtocolError, match="no committed offset for t-0"):
        harness.adapter.raise_error()
    harness.adapter.raise_error()
    assert not harness.failures, "the member goes on"
    harness.adapter.seek(A, 3)
    assert harness.client.log == [("t", 1, 4), ("t", 0, 3)]
    harness.adapter.raise_error()


def test_a_seek_in_the_callback_wins_over_what_is_committed():
    harness = Harness()
    harness.start_offsets = {A: 7}
    harness.in_callback = lambda: harness.adapter.seek(A, 40)
    harness.assign(A)
    assert harness.fetch() == [("t", 0, 40)]
    harness.adapter.seek(A, 20)
    assert harness.fetch() == [("t", 0, 20)]


def test_a_seek_is_forgotten_with_its_partition():
    harness = Harness()
    harness.start_offsets = {A: 7}
    harness.in_callback = lambda: harness.adapter.seek(A, 40)
    harness.assign(A)
    harness.commit_revoked(A)
    harness.in_callback = lambda: None
    harness.assign(A)
    assert harness.client.log == [("t", 0, 40), ("t", 0, 7)]


def test_what_is_paused_before_its_start_begins_paused():
    harness = Harness()
    harness.start_offsets = {A: 7, B: 0}
    harness.in_callback = lambda: harness.adapter.pause([A])
    harness.assign(A, B)
    assert harness.fetch() == [("t", 1, 0)]
    harness.adapter.resume([A])
    assert harness.fetch() == [("t", 0, 7), ("t", 1, 1)]


def test_what_is_held_back_is_fetched_again_when_it_comes_back(two):
    two.session.hold_back((A,), lambda: None)
    two.session.begin_poll()
    assert two.fetch() == [("t", 1, 0)]
    two.commit_revoked(A)
    two.assign(A)
    assert two.fetch() == [("t", 0, 7), ("t", 1, 1)]


def test_what_is_lost_is_not_handed_out_from_that_moment_on(two):
    two.session.drop((A,), (A,))
    assert two.fetch() == [("t", 1, 0)]


def test_what_an_eager_member_gets_back_at_the_same_place_is_not_fetched_again(eager):
    assert eager.fetch() == [("t", 0, 7)]
    eager.commit_revoked(A)
    assert eager.fetch() == []  # fetched and put aside
    eager.start_offsets = {A: 8}
    eager.assign(A)
    assert eager.client.log == [("t", 0, 7)]
    assert eager.fetch() == [("t", 0, 8)]
    assert eager.fetch() == [("t", 0, 9)]


def test_what_an_eager_member_gets_back_at_another_place_begins_there(eager):
    eager.commit_revoked(A)
    assert eager.fetch() == []
    eager.start_offsets = {A: 30}
    eager.assign(A)
    assert eager.client.log == [("t", 0, 7), ("t", 0, 30)]
    assert eager.fetch() == [("t", 0, 30)]


def test_what_an_eager_member_does_not_get_back_is_dropped_with_its_records(eager):
    eager.start_offsets = {A: 7, B: 0}
    eager.assign(B)
    eager.commit_revoked(A, B)
    assert eager.fetch() == []
    eager.start_offsets = {A: 7, B: 0}
    eager.assign(B)
    assert eager.client.begun == {B: 0}
    assert eager.fetch() == [("t", 1, 0)]
    eager.assign(A)
    assert eager.fetch(1) == [("t", 0, 7)]


def test_a_paused_partition_keeps_nothing(eager):
    eager.adapter.pause([A])
    eager.commit_revoked(A)
    assert eager.client.begun == {}


def test_a_limit_holds_for_what_was_put_aside(eager):
    eager.commit_revoked(A)
    for _ in range(3):
        assert eager.fetch() == []
    eager.assign(A)
    assert eager.fetch(2) == [("t", 0, 7), ("t", 0, 8)]
    assert eager.adapter.position(A) == 9
    assert eager.fetch(2) == [("t", 0, 9)]


def test_a_seek_forgets_what_was_put_aside(eager):
    eager.commit_revoked(A)
    assert eager.fetch() == []
    eager.assign(A)
    eager.adapter.seek(A, 50)
    assert eager.fetch() == [("t", 0, 50)]


def test_a_poll_that_fails_loses_nothing(reading):
    assert reading.fetch() == [("t", 0, 7)]
    reading.client.reached[A] = 60  # taken by librdkafka, and lost with the error
    reading.client.fails = RuntimeError("broken")
    assert reading.fetch() == []
    reading.client.fails = None
    assert reading.fetch() == [("t", 0, 8)]


def test_a_librdkafka_that_fails_again_and_again_is_an_error_of_the_application(reading):
    reading.client.fails = RuntimeError("broken")
    assert [reading.fetch(), reading.fetch()] == [[], []]
    with pytest.raises(ClientError, match="RuntimeError: broken; nothing is lost"):
        reading.fetch()
    reading.client.fails = None
    assert reading.fetch() == [("t", 0, 7)]


def test_what_interrupts_a_poll_is_raised_and_has_lost_nothing(reading):
    reading.client.reached[A] = 60
    reading.client.fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        reading.fetch()
    reading.client.fails = None
    assert reading.fetch() == [("t", 0, 7)]


def test_an_error_of_one_topic_loses_nothing_of_the_others(reading):
    denied = confluent_kafka.KafkaError(confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED)
    reading.client.extra = [Record("u", 0, -1, denied)]
    assert reading.fetch() == [("t", 0, 7)]
    with pytest.raises(RemoteProtocolError, match="topic 'u'"):
        reading.adapter.raise_error()
    assert reading.fetch() == [("t", 0, 8)]


def test_an_error_that_librdkafka_mends_itself_is_no_record(reading):
    reading.client.extra = [Record("t", 0, -1, retriable())]
    assert reading.fetch() == [("t", 0, 7)]


def retriable():
    return SimpleNamespace(
        code=lambda: confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
        fatal=lambda: False,
        retriable=lambda: True,
    )


def test_a_new_topic_is_asked_for_before_it_is_fetched():
    harness = Harness()
    harness.start_offsets = {A: 1, B: 2, C: 3}
    harness.assign(A)
    harness.assign(B, C)
    assert harness.client.topics_asked == ["t", "u"]


def test_many_topics_are_not_asked_for_one_by_one():
    harness = Harness()
    many = [(f"t{i:02}", 0) for i in range(40)]
    harness.start_offsets = dict.fromkeys(many, 0)
    harness.assign(*many)
    assert harness.client.topics_asked == [f"t{i:02}" for i in range(16)]
    assert len(harness.client.begun) == 40


def test_a_topic_without_an_answer_is_left_to_the_library():
    harness = Harness()
    harness.start_offsets = {A: 1, C: 3}
    harness.client.fails = confluent_kafka.KafkaException("no answer")
    harness.assign(A, C)
    assert harness.client.topics_asked == ["t"]
    assert harness.client.begun == {A: 1, C: 3}


@pytest.fixture
def stalled(reading, monkeypatch):
    """A scene in which librdkafka has one partition, brings nothing, and is asked in each poll."""
    times = iter(range(10**9, 2 * 10**9))
    monkeypatch.setattr(recreation, "REQUEST_EVERY_S", 0.0)
    monkeypatch.setattr(Librdkafka, "consume", lambda *_: [])
    monkeypatch.setattr(recreation.time, "monotonic", lambda: next(times))
    reading.member.member_thread.heartbeat_answered_at = 3e9
    reading.client.topics_asked.clear()
    return reading


def no_broker(code=confluent_kafka.KafkaError._TRANSPORT):
    return confluent_kafka.KafkaException(confluent_kafka.KafkaError(code))


def test_a_stalled_librdkafka_is_recreated_and_goes_on_where_the_application_is(stalled):
    stalled.adapter.pause([A])
    stalled.client.fails = no_broker()
    for _ in range(5):  # the first one notes the places
        assert stalled.client.n_closed == 0
        stalled.adapter.fetch(10, 0.0)
    assert stalled.client.begun == {A: 7}
    assert stalled.client.paused == {A}
    assert stalled.client.fails is None  # it was recreated


@pytest.mark.parametrize("why", ["the coordinator is silent, too", "the answer is another error"])
def test_a_librdkafka_is_not_recreated_where(stalled, why):
    stalled.client.fails = no_broker()
    if "answer" in why:
        stalled.client.fails = no_broker(confluent_kafka.KafkaError._TIMED_OUT)
    else:
        stalled.member.member_thread.heartbeat_answered_at = 0.0
    for _ in range(40):
        assert stalled.fetch() == []
    assert stalled.client.n_closed == 0
    assert stalled.client.topics_asked
