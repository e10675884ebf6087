"""Commits that nobody waits for are accepted in the order in which they were asked for."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from holdfast.adapters.drop_in.confluent.routing import route
from holdfast.adapters.drop_in.confluent.side import GroupSide
from holdfast.adapters.drop_in.confluent.subscription import GroupSubscription
from holdfast.adapters.member.membership import assignors_of
from holdfast.adapters.settings import Settings
from holdfast.machine import actions
from holdfast.machine.codes import ErrorCode

TP = ("orders", 0)
OTHER = ("orders", 1)


class Parts:
    """A member that owns two partitions; the test answers its commits."""

    def __init__(self):
        self.sent = []
        terms = SimpleNamespace(raise_untold=lambda _: set())
        delivery = SimpleNamespace(terms=lambda ask: ask(terms))
        self.duties = SimpleNamespace(
            reconsider=lambda _: None, refused=lambda *_: set(), delivery=delivery
        )
        standing = SimpleNamespace(
            owned={TP, OTHER}, terms={}, identity=SimpleNamespace(generation=1), state=None
        )
        self.host = SimpleNamespace(standing=standing, over=threading.Event(), failure=None)

    def commit(self, offsets, _):
        self.sent.append((dict(offsets), Future()))
        return self.sent[-1][1]

    def close(self):
        """Nothing is open."""


@pytest.fixture
def group():
    settings = Settings.parse({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
    made = GroupSubscription(settings, assignors_of(settings))
    made.parts = Parts()
    yield made
    made.close()


def test_a_commit_that_is_tried_again_never_comes_after_a_later_one(group):
    parts, told, busy = group.parts, [], threading.Event()
    group._committer.submit(busy.wait)  # the thread that tries again has something else to do
    group.send({TP: 10, OTHER: 5}, lambda error: told.append((10, error)))
    parts.sent[0][1].set_result(ErrorCode.REBALANCE_IN_PROGRESS)
    group.send({TP: 20}, lambda error: told.append((20, error)))
    parts.sent[1][1].set_result(0)
    assert told == [(20, None)]
    busy.set()
    while len(parts.sent) < 3:
        threading.Event().wait(0.001)
    assert parts.sent[2][0] == {OTHER: 5}
    parts.sent[2][1].set_result(0)
    group._committer.shutdown(wait=True)
    assert told == [(20, None), (10, None)]
    assert [offsets for offsets, _ in parts.sent] == [{TP: 10, OTHER: 5}, {TP: 20}, {OTHER: 5}]


def test_an_attempt_leaves_out_what_was_overtaken_since_the_one_before(group):
    parts, told = group.parts, []
    group.send({TP: 10, OTHER: 5}, told.append)
    parts.sent[0][1].set_result(ErrorCode.REBALANCE_IN_PROGRESS)
    while len(parts.sent) < 2:
        threading.Event().wait(0.001)
    group.overtake({OTHER: 6})
    parts.sent[1][1].set_result(ErrorCode.REBALANCE_IN_PROGRESS)
    while len(parts.sent) < 3:
        threading.Event().wait(0.001)
    parts.sent[2][1].set_result(0)
    group._committer.shutdown(wait=True)
    assert [offsets for offsets, _ in parts.sent] == [{TP: 10, OTHER: 5}] * 2 + [{TP: 10}]
    assert told == [None]


def test_a_hand_over_waits_for_the_commits_that_are_on_their_way(group, monkeypatch):
    """Else the member joins without the partitions, and the commits are refused."""
    side = GroupSide(SimpleNamespace, route({}), None, (), None)
    side.group, events = group, []
    monkeypatch.setattr(side, "note_positions", lambda: events.append("positions"))
    group.send({TP: 10}, lambda _: events.append("committed"))
    group.delivery.stop([TP], lambda: events.append("drained"))
    answer = threading.Timer(0.05, group.parts.sent[0][1].set_result, [0])
    answer.start()
    group.mail.do_next(0, side)
    answer.join()
    assert events == ["positions", "committed", "drained"]

    monkeypatch.setattr("holdfast.adapters.drop_in.confluent.side._COMMITS_S", 0.01)
    group.send({OTHER: 5}, lambda _: events.append("too late"))
    group.delivery.stop([OTHER], lambda: events.append("drained"))
    group.mail.do_next(0, side)  # nobody answers: it goes on
    assert events[3:] == ["positions", "drained"]


def test_no_attempt_comes_after_the_commit_of_a_hand_over(group):
    parts, busy, handed = group.parts, threading.Event(), []

    def hand_over(offsets, **_):
        handed.append(dict(offsets))
        return Future()

    link = SimpleNamespace(commit=hand_over)
    parts.link, parts.lookup, parts.fail, parts.counters, parts.log = link, None, None, None, None
    duties = group._make_duties(parts)
    group.delivery.begin({TP: 1}, {TP: 0})
    group.delivery.reached({TP: 20})
    group._committer.submit(busy.wait)  # the thread that tries again has something else to do
    group.send({TP: 10, OTHER: 5}, lambda _: None)
    parts.sent[0][1].set_result(ErrorCode.REBALANCE_IN_PROGRESS)
    group.delivery.leaving.add(TP)  # the application has come back, and has stopped it
    action = actions.Commit(token=1, resources=(TP,), generation=1, member_id="m", instance_id=None)
    duties.commit(action, lambda _: None)
    assert handed == [{TP: 20}]
    busy.set()
    while len(parts.sent) < 2:
        threading.Event().wait(0.001)
    parts.sent[1][1].set_result(0)
    assert parts.sent[1][0] == {OTHER: 5}
