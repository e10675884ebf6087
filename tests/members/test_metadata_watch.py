"""What a member learns about topics: counts, growth, and topics that it may not read."""

from __future__ import annotations

import queue
from types import SimpleNamespace

import kafka.errors
import pytest
from tests.members.fake_connections import FakeConnections
from tests.members.fake_member import done, failed

from holdfast.cluster.connections import as_ours, ends_member, raise_code
from holdfast.cluster.lookup import FoundTopics, Lookup
from holdfast.core.machine.codes import FATAL, ErrorCode
from holdfast.core.machine.events import MetadataChanged, Started, SubscriptionChanged
from holdfast.errors import ClientError, RemoteProtocolError
from holdfast.members.runtime.member_runtime import MetadataWatch
from holdfast.members.runtime.member_status import MemberLog

SETTINGS = FakeConnections.settings
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Topics:
    """Stands for a cluster's topics: counts, codes of those that are refused, or an error."""

    def __init__(self, counts, refused=None, error=None):
        self.counts, self.refused, self.error = counts, refused or {}, error

    def partitions(self, topics):
        if self.error is not None:
            return failed(self.error)
        counts = {t: n for t, n in self.counts.items() if topics is None or t in topics}
        refused = {} if topics is None else {t: c for t, c in self.refused.items() if t in topics}
        return done(FoundTopics(counts=counts, refused=refused))


@pytest.fixture
def watch():
    """Make a watch on topics: with the events that it posts, and its failures."""
    made = []

    def make(topics):
        events, failures = queue.SimpleQueue(), queue.SimpleQueue()
        one = MetadataWatch(SETTINGS, topics, events.put, failures.put, MemberLog(SETTINGS))
        made.append(one)
        return one, events, failures

    yield make
    for one in made:
        one.end()
        one.wait_ended()


def counts_of(events):
    """The counts of the next event that has some."""
    while True:
        event = events.get(timeout=30)
        if isinstance(event, MetadataChanged):
            return dict(event.partitions)


@pytest.mark.parametrize("code", [17, 29])
def test_own_topics_that_may_not_be_read_end_the_member_which_says_why(watch, code):
    one, events, failures = watch(Topics({"t": 4}, {"payroll": code}))
    one.subscribe(("payroll", "t"), None)
    error = failures.get(timeout=30)
    assert isinstance(error, RemoteProtocolError)
    assert error.error_code == code
    assert str(error).startswith("topic 'payroll': " + ErrorCode(code).name)
    assert counts_of(events) == {"payroll": 0, "t": 4}  # it may lead for the others meanwhile
    assert one.count(frozenset({"payroll", "t"})).counts == {"t": 4}


@pytest.mark.parametrize("code", [3, 17, 29])
def test_topics_of_other_members_never_end_a_member(watch, code):
    topics = Topics({"t": 4}, {"payroll": code})
    one, events, failures = watch(topics)
    one.subscribe(("t",), None)
    assert counts_of(events) == {"t": 4}
    found = one.count(frozenset({"t", "payroll"}))
    assert (found.counts, found.refused) == ({"t": 4}, {"payroll": code})
    assert counts_of(events) == {"payroll": 0, "t": 4}
    topics.counts, topics.refused = {"t": 4, "payroll": 2}, {}  # access is granted
    one.subscribe(("t",), None)
    assert counts_of(events) == {"payroll": 2, "t": 4}
    assert failures.empty()


def test_a_pattern_asks_for_all_topics_and_still_knows_what_others_miss(watch):
    one, events, failures = watch(Topics({"t": 4, "u": 1}, {"payroll": 29}))
    one.subscribe((), lambda name: name == "t")
    assert counts_of(events) == {"t": 4, "u": 1}
    found = one.count(frozenset({"t", "payroll"}))
    assert found.refused == {"payroll": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert counts_of(events) == {"t": 4, "u": 1, "payroll": 0}
    assert failures.empty()


def test_a_member_with_a_pattern_joins_once_it_knows_what_matches(watch):
    topics = Topics({"t": 4, "u": 1}, error=ClientError("no broker answered"))
    one, events, failures = watch(topics)
    one.subscribe((), lambda name: name == "t")
    with pytest.raises(ClientError):
        one.count(frozenset({"t"}))
    topics.error = None
    told = [events.get(timeout=30)]
    while not isinstance(told[-1], Started):
        told.append(events.get(timeout=30))
    assert [event for event in told if isinstance(event, SubscriptionChanged)] == [
        SubscriptionChanged(("t",))
    ]
    one.subscribe(("u",), None)
    assert events.get(timeout=30) == SubscriptionChanged(("u",))
    assert failures.empty()


def test_what_could_not_be_asked_for_is_asked_for_again_and_counts_as_a_change(watch):
    topics = Topics({"t": 4, "u": 2})
    one, events, failures = watch(topics)
    one.subscribe(("t",), None)
    assert counts_of(events) == {"t": 4}
    topics.error = ClientError("no broker answered")
    with pytest.raises(ClientError):
        one.count(frozenset({"t", "u"}))
    assert counts_of(events) == {"t": 4, "u": 0}  # what the leader plans with
    topics.error = None
    assert counts_of(events) == {"t": 4, "u": 2}  # without being asked
    assert failures.empty()


def test_an_answer_says_of_every_topic_how_many_partitions_or_why_not():
    class Answers(FakeConnections):
        async def send(self, request, node=None, timeout_ms=None):
            def topic(name, code, n, internal=False):
                return SimpleNamespace(
                    name=name, error_code=code, partitions=[None] * n, is_internal=internal
                )

            return SimpleNamespace(
                topics=[
                    topic("a", 0, 3),
                    topic("secret", 29, 0),
                    topic("b c", 17, 0),
                    topic("__in", 0, 1, internal=True),
                ]
            )

    lookup = Lookup(Answers())
    found = lookup.partitions(["a", "secret", "b c", "forgotten", "__in"]).result()
    assert found.counts == {"a": 3, "__in": 1}
    assert found.refused == {"secret": 29, "b c": 17, "forgotten": 3}
    assert lookup.partitions(None).result() == FoundTopics(counts={"a": 3})


def test_only_a_fatal_code_or_a_refusal_of_ours_ends_a_member():
    for code in ErrorCode:
        if not code:
            continue
        with pytest.raises((kafka.errors.KafkaError, RemoteProtocolError)) as caught:
            raise_code(code, "topic 't'")
        error = as_ours(caught.value)
        assert "topic 't'" in str(error)
        assert ends_member(error) == (code in FATAL)
    assert ends_member(RemoteProtocolError("auto.offset.reset is none"))
    assert not ends_member(ClientError("no broker answered"))
    assert not ends_member(TimeoutError())


def test_a_topic_that_does_not_exist_is_reported_once_with_the_nearest_name(watch, caplog):
    topics = Topics({"orders": 3, "clicks": 1}, {"oders": UNKNOWN, "zzz": UNKNOWN})
    one, events, failures = watch(topics)
    one.subscribe(("clicks", "oders", "zzz"), None)
    for _ in range(3):
        counts_of(events)
    until_told = [r.getMessage() for r in caplog.records if "does not exist" in r.getMessage()]
    assert until_told == [
        "g: topic 'oders' does not exist; did you mean 'orders'?",
        "g: topic 'zzz' does not exist",
    ]
    assert one.missing == ("oders", "zzz")
    topics.counts = {**topics.counts, "oders": 1}  # the watch may be reading the old ones
    while one.missing != ("zzz",):
        counts_of(events)
    assert failures.empty()
