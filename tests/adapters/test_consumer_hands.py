"""librdkafka in the hands of ``holdfast.Consumer``: what begins where, and what is handed out."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from tests.adapters.configured import settings_of
from tests.adapters.fake_member import done, take_seat
from tests.live.waiting import until

from holdfast.cluster.lookup import EARLIEST
from holdfast.core.machine.callbacks import ListenerCall
from holdfast.errors import AdapterError, RemoteProtocolError
from holdfast.members import consumer_hands
from holdfast.members.consumer_hands import ConsumerHands
from holdfast.members.drop_in.confluent import hands as librdkafka_hands
from holdfast.members.drop_in.confluent import renewal
from holdfast.members.seat.hands import Wishes

A, B, C = ("t", 0), ("t", 1), ("u", 0)
WISHES = Wishes(hears_nothing_new=True, error_stops_commit=True)


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
    for module in (consumer_hands, librdkafka_hands, renewal):
        monkeypatch.setattr(module, "_Original", Librdkafka)
    monkeypatch.setattr(consumer_hands, "_FetchingConsumer", Librdkafka)
    for module in (consumer_hands, librdkafka_hands):
        monkeypatch.setattr(module, "Message", Record)
    # A thread answers where partitions begin, on a starved machine after longer than a call waits.
    monkeypatch.setattr(librdkafka_hands, "_WAITED_S", 60.0)


class Scene:
    """A member whose client is librdkafka; the group has committed :attr:`places`."""

    def __init__(self, strategy="cooperative-sticky", reset="earliest"):
        self.ends = {}
        self.failures = []
        self.in_callback = lambda: None
        settings = settings_of(partition_assignment_strategy=strategy, auto_offset_reset=reset)
        self.hands = ConsumerHands(settings, weakref.ref(self))
        self.client = self.hands.client
        self.member, self.seat = take_seat(settings, self.hands, WISHES)
        self.member.lookup = SimpleNamespace(list_offsets=self._list_offsets)
        self.member.fail = self.failures.append

    def listener_for(self, call):
        return (lambda _: self.in_callback()) if call is ListenerCall.ASSIGNED else None

    @property
    def places(self):
        return self.member.link.stands

    @places.setter
    def places(self, stands):
        self.member.link.stands = stands

    def _list_offsets(self, partitions, at):
        assert at == EARLIEST
        return done({tp: self.ends[tp] for tp in partitions if tp in self.ends})

    def assign(self, *tps):
        """The group gives these, in new terms; the application's next call begins them."""
        self.member.gain(*tps)
        self.seat.come_in()

    def hand_over(self, *tps):
        """These are given up, in order."""
        self.seat.hold_back(tps, lambda: None)
        self.seat.come_in()
        self.seat.call(ListenerCall.REVOKED, tps, lambda _: None)
        self.member.stand(1, self.member.host.standing.owned - set(tps))
        self.seat.come_in()

    def look_until(self, condition):
        """Look where partitions begin, as the calls of the application do."""
        until(lambda: self.hands.starts.look_again(self.client) or condition(), "where it begins")

    def fetch(self, limit=100):
        return [(r.topic(), r.partition(), r.offset()) for r in self.hands.fetch(limit, 0.0)]


@pytest.fixture
def eager():
    """An eager member that reads t-0 from 7."""
    return reads_from_seven(Scene(strategy="sticky"))


@pytest.fixture
def reading():
    """A cooperative member that reads t-0 from 7."""
    return reads_from_seven(Scene())


def reads_from_seven(scene):
    scene.places = {A: 7}
    scene.assign(A)
    return scene


@pytest.fixture
def two():
    """A cooperative member that reads t-0 from 7 and t-1 from 0."""
    scene = Scene()
    scene.places = {A: 7, B: 0}
    scene.assign(A, B)
    return scene


def test_a_partition_begins_where_the_group_has_committed_else_at_the_reset():
    scene = Scene()
    scene.places, scene.ends = {A: 7}, {B: 3}
    scene.assign(A, B)
    assert scene.client.log == [("t", 0, 7), ("t", 1, 3)]
    assert scene.fetch() == [("t", 0, 7), ("t", 1, 3)]
    assert scene.hands.position(A) == 8


def test_a_partition_without_a_leader_keeps_no_other_one_waiting():
    scene = Scene()
    scene.places = {A: 7}
    scene.assign(A, B)
    assert scene.client.log == [("t", 0, 7)]
    scene.ends = {B: 3}
    scene.look_until(lambda: B in scene.client.begun)
    assert scene.client.log == [("t", 0, 7), ("t", 1, 3)]


def test_a_partition_whose_leader_is_away_is_asked_for_until_it_is_back():
    scene = Scene()
    scene.assign(A)
    assert scene.client.log == []
    scene.ends = {A: 3}
    scene.look_until(lambda: A in scene.client.begun)
    assert scene.client.log == [("t", 0, 3)]


def test_where_nothing_is_committed_and_no_reset_is_wanted_a_partition_fails_once():
    scene = Scene(reset="none")
    scene.places = {B: 4}
    scene.assign(A, B)
    assert scene.client.log == [("t", 1, 4)]
    with pytest.raises(RemoteProtocolError, match="no committed offset for t-0"):
        scene.hands.raise_error()
    scene.hands.raise_error()
    assert not scene.failures, "the member goes on"
    scene.hands.seek(A, 3)
    assert scene.client.log == [("t", 1, 4), ("t", 0, 3)]
    scene.hands.raise_error()


def test_a_seek_in_the_callback_wins_over_what_is_committed():
    scene = Scene()
    scene.places = {A: 7}
    scene.in_callback = lambda: scene.hands.seek(A, 40)
    scene.assign(A)
    assert scene.fetch() == [("t", 0, 40)]
    scene.hands.seek(A, 20)
    assert scene.fetch() == [("t", 0, 20)]


def test_a_seek_is_forgotten_with_its_partition():
    scene = Scene()
    scene.places = {A: 7}
    scene.in_callback = lambda: scene.hands.seek(A, 40)
    scene.assign(A)
    scene.hand_over(A)
    scene.in_callback = lambda: None
    scene.assign(A)
    assert scene.client.log == [("t", 0, 40), ("t", 0, 7)]


def test_what_is_paused_before_its_start_begins_paused():
    scene = Scene()
    scene.places = {A: 7, B: 0}
    scene.in_callback = lambda: scene.hands.pause([A])
    scene.assign(A, B)
    assert scene.fetch() == [("t", 1, 0)]
    scene.hands.resume([A])
    assert scene.fetch() == [("t", 0, 7), ("t", 1, 1)]


def test_what_is_held_back_is_fetched_again_when_it_comes_back(two):
    two.seat.hold_back((A,), lambda: None)
    two.seat.come_in()
    assert two.fetch() == [("t", 1, 0)]
    two.hand_over(A)
    two.assign(A)
    assert two.fetch() == [("t", 0, 7), ("t", 1, 1)]


def test_what_is_lost_is_not_handed_out_from_that_moment_on(two):
    two.seat.drop((A,), (A,))
    assert two.fetch() == [("t", 1, 0)]


def test_what_an_eager_member_gets_back_at_the_same_place_is_not_fetched_again(eager):
    assert eager.fetch() == [("t", 0, 7)]
    eager.hand_over(A)
    assert eager.fetch() == []  # fetched and put aside
    eager.places = {A: 8}
    eager.assign(A)
    assert eager.client.log == [("t", 0, 7)]
    assert eager.fetch() == [("t", 0, 8)]
    assert eager.fetch() == [("t", 0, 9)]


def test_what_an_eager_member_gets_back_at_another_place_begins_there(eager):
    eager.hand_over(A)
    assert eager.fetch() == []
    eager.places = {A: 30}
    eager.assign(A)
    assert eager.client.log == [("t", 0, 7), ("t", 0, 30)]
    assert eager.fetch() == [("t", 0, 30)]


def test_what_an_eager_member_does_not_get_back_is_dropped_with_its_records(eager):
    eager.places = {A: 7, B: 0}
    eager.assign(B)
    eager.hand_over(A, B)
    assert eager.fetch() == []
    eager.places = {A: 7, B: 0}
    eager.assign(B)
    assert eager.client.begun == {B: 0}
    assert eager.fetch() == [("t", 1, 0)]
    eager.assign(A)
    assert eager.fetch(1) == [("t", 0, 7)]


def test_a_paused_partition_keeps_nothing(eager):
    eager.hands.pause([A])
    eager.hand_over(A)
    assert eager.client.begun == {}


def test_a_limit_holds_for_what_was_put_aside(eager):
    eager.hand_over(A)
    for _ in range(3):
        assert eager.fetch() == []
    eager.assign(A)
    assert eager.fetch(2) == [("t", 0, 7), ("t", 0, 8)]
    assert eager.hands.position(A) == 9
    assert eager.fetch(2) == [("t", 0, 9)]


def test_a_seek_forgets_what_was_put_aside(eager):
    eager.hand_over(A)
    assert eager.fetch() == []
    eager.assign(A)
    eager.hands.seek(A, 50)
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
    with pytest.raises(AdapterError, match="RuntimeError: broken; nothing is lost"):
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
        reading.hands.raise_error()
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
    scene = Scene()
    scene.places = {A: 1, B: 2, C: 3}
    scene.assign(A)
    scene.assign(B, C)
    assert scene.client.topics_asked == ["t", "u"]


def test_many_topics_are_not_asked_for_one_by_one():
    scene = Scene()
    many = [(f"t{i:02}", 0) for i in range(40)]
    scene.places = dict.fromkeys(many, 0)
    scene.assign(*many)
    assert scene.client.topics_asked == [f"t{i:02}" for i in range(16)]
    assert len(scene.client.begun) == 40


def test_a_topic_without_an_answer_is_left_to_the_library():
    scene = Scene()
    scene.places = {A: 1, C: 3}
    scene.client.fails = confluent_kafka.KafkaException("no answer")
    scene.assign(A, C)
    assert scene.client.topics_asked == ["t"]
    assert scene.client.begun == {A: 1, C: 3}


@pytest.fixture
def deaf(reading, monkeypatch):
    """A scene in which librdkafka has one partition, brings nothing, and is asked in each poll."""
    times = iter(range(10**9, 2 * 10**9))
    monkeypatch.setattr(renewal, "ASK_EVERY_S", 0.0)
    monkeypatch.setattr(Librdkafka, "consume", lambda *_: [])
    monkeypatch.setattr(renewal.time, "monotonic", lambda: next(times))
    reading.member.host.answered_at = 3e9
    reading.client.topics_asked.clear()
    return reading


def no_broker(code=confluent_kafka.KafkaError._TRANSPORT):
    return confluent_kafka.KafkaException(confluent_kafka.KafkaError(code))


def test_a_deaf_librdkafka_is_made_anew_and_goes_on_where_the_application_is(deaf):
    deaf.hands.pause([A])
    deaf.client.fails = no_broker()
    for _ in range(5):  # the first one notes the places
        assert deaf.client.n_closed == 0
        deaf.hands.fetch(10, 0.0)
    assert deaf.client.begun == {A: 7}
    assert deaf.client.paused == {A}
    assert deaf.client.fails is None  # it was made anew


@pytest.mark.parametrize("why", ["the coordinator is silent, too", "the answer is another error"])
def test_a_librdkafka_is_not_made_anew_where(deaf, why):
    deaf.client.fails = no_broker()
    if "answer" in why:
        deaf.client.fails = no_broker(confluent_kafka.KafkaError._TIMED_OUT)
    else:
        deaf.member.host.answered_at = 0.0
    for _ in range(40):
        assert deaf.fetch() == []
    assert deaf.client.n_closed == 0
    assert deaf.client.topics_asked
