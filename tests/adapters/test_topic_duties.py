"""A topic consumer's side of a member: who comes first, callback or start, and what then holds."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from dataclasses import replace

import pytest
from tests.adapters.test_delivery import Plane

from holdfast.adapters.records.delivery import Delivery
from holdfast.adapters.records.topic_duties import PendingCall, TopicDuties
from holdfast.errors import AdapterError, RemoteProtocolError
from holdfast.machine import actions
from holdfast.machine.actions import ListenerCall

A, B = ("t", 0), ("t", 1)


def answered(value):
    future = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


class Brokers:
    """Stands for link and lookup; a question may be made to wait."""

    def __init__(self):
        self.offsets = {}
        self.asked = threading.Semaphore(0)
        self.may_answer = threading.Event()
        self.may_answer.set()

    def committed(self, partitions):
        found = {tp: self.offsets.get(tp, -1) for tp in partitions}
        self.asked.release()
        assert self.may_answer.wait(30)
        return answered(found)

    def list_offsets(self, partitions, at):
        return answered(dict.fromkeys(partitions, 100 if at == -1 else 0))

    def hold(self):
        self.may_answer.clear()
        while self.asked.acquire(blocking=False):
            pass

    def await_question(self):
        assert self.asked.acquire(timeout=30)


class Records:
    """Stands for Delivery: notes what was begun, where."""

    def __init__(self):
        self.notes = []
        self.held = set()
        self.kept_at_stop = []

    def prepare(self, positions):
        self.notes.append(("prepare", dict(positions)))

    def forget(self, partitions):
        """Positions of an earlier term, which this one does not keep."""

    def start(self, positions, held_back=(), fresh=(), *, term):
        self.notes.append(("start", dict(positions), sorted(held_back), sorted(fresh)))
        self.held.update(positions)

    def stop(self, partitions, drained, *, keeps):
        self.kept_at_stop.append(keeps)
        self.held.difference_update(partitions)
        drained()

    def drop(self, partitions, told):
        self.held.difference_update(partitions)

    def release(self, owned):
        self.notes.append(("release", sorted(owned)))

    def seek(self, partition, offset):
        self.notes.append(("seek", partition, offset))

    def active(self):
        return set(self.held)

    def close(self):
        pass


class Counters:
    def add(self, name, n=1):
        pass


class Log:
    def __init__(self):
        self.warned = []

    def debug(self, *words):
        pass

    def warning(self, text, *words):
        self.warned.append(text % words)

    def log(self, level, text, *words):
        if level >= logging.WARNING:
            self.warning(text, *words)


class Listener:
    """Runs what the test wants when partitions are assigned."""

    def __init__(self):
        self.work = lambda partitions: None

    def on_partitions_assigned(self, partitions):
        self.work(partitions)


@pytest.fixture
def duties(request):
    reset = getattr(request, "param", "earliest")
    brokers, failures = Brokers(), []
    made = TopicDuties(
        {"auto.offset.reset": reset, "retry.backoff.ms": 1, "retry.backoff.max.ms": 10},
        Records(),
        brokers,
        brokers,
        fail=failures.append,
        counters=Counters(),
        log=Log(),
    )
    made.brokers, made.failures, made.listener = brokers, failures, Listener()
    yield made
    brokers.may_answer.set()
    made.close()


def settled(duties):
    """Notes of the records' side, once every job is done."""
    duties._starter.submit(lambda: None).result(30)
    return duties.delivery.notes


def assigned(duties, resources):
    """The machine's part of an assignment; returns the callback that waits."""
    duties.call(ListenerCall.ASSIGNED, resources, lambda error: duties.start(resources, 0))
    return duties.calls.get(timeout=0)


def test_a_start_uses_what_its_callback_has_prepared(duties):
    duties.brokers.offsets = {A: 5}
    call = assigned(duties, (A,))
    assert settled(duties) == [("prepare", {A: 5})]
    assert call.run() is None
    assert settled(duties)[1:] == [("start", {A: 5}, [], [])]


@pytest.mark.parametrize(("duties", "at"), [("earliest", 0), ("latest", 100)], indirect=["duties"])
def test_where_nothing_is_committed_the_first_position_is_to_be_committed(duties, at):
    assigned(duties, (A,)).run()
    assert settled(duties)[-1] == ("start", {A: at}, [], [A])


@pytest.mark.parametrize("duties", ["none"], indirect=True)
def test_where_nothing_is_committed_and_no_reset_is_wanted(duties):
    assigned(duties, (A,)).run()
    assert settled(duties) == []
    (failure,) = duties.failures
    assert isinstance(failure, RemoteProtocolError)


def test_a_callback_that_runs_at_once_and_commits_is_heard(duties):
    """It may be over before the machine's thread has gone on."""
    duties.brokers.offsets = {A: 5}
    duties.brokers.hold()

    class RunAtOnce:
        def put(self, call):
            duties.reconsider([A])  # as Consumer.commit() does first
            duties.brokers.offsets = {A: 9}
            duties.brokers.may_answer.set()
            call.run()

    duties.calls = RunAtOnce()
    duties.call(ListenerCall.ASSIGNED, (A,), lambda error: duties.start((A,), 0))
    assert settled(duties)[-1] == ("start", {A: 9}, [], [])


def test_a_commit_while_positions_are_asked_for(duties):
    duties.brokers.offsets = {A: 5}
    duties.brokers.hold()
    call = assigned(duties, (A,))
    duties.brokers.await_question()
    duties.reconsider([A])
    duties.brokers.offsets = {A: 9}
    duties.brokers.may_answer.set()
    call.run()
    assert settled(duties) == [("start", {A: 9}, [], [])]


def test_a_commit_after_the_preparation(duties):
    duties.brokers.offsets = {A: 5}
    call = assigned(duties, (A,))
    settled(duties)
    duties.reconsider([A])
    duties.brokers.offsets = {A: 9}
    call.run()
    assert settled(duties)[1:] == [("start", {A: 9}, [], [])]


def test_a_preparation_is_not_for_who_was_stopped_meanwhile(duties):
    duties.brokers.hold()
    assigned(duties, (A, B))
    duties.brokers.await_question()
    duties.stop((A,), lambda: None)
    duties.brokers.may_answer.set()
    assert settled(duties) == [("prepare", {B: 0})]


def test_a_preparation_of_an_earlier_term_does_not_serve_the_next(duties):
    """What was asked before another member had the partition is not where it begins now."""
    duties.brokers.offsets = {A: 5}
    duties.brokers.hold()
    assigned(duties, (A,))
    duties.brokers.await_question()
    duties.drop((A,), (A,))
    duties.brokers.offsets = {A: 50}
    call = assigned(duties, (A,))
    duties.brokers.may_answer.set()
    assert settled(duties) == [("prepare", {A: 50})]
    call.run()
    assert settled(duties)[1:] == [("start", {A: 50}, [], [])]


def test_a_start_of_an_earlier_term_does_not_serve_the_next(duties):
    duties.listener = None
    duties.brokers.offsets = {A: 5}
    duties.brokers.hold()
    duties.start((A,), 0)
    duties.brokers.await_question()
    duties.drop((A,), (A,))
    duties.brokers.offsets = {A: 50}
    duties.start((A,), 0)
    duties.brokers.may_answer.set()
    assert settled(duties) == [("start", {A: 50}, [], [])]


def test_a_seek_in_the_callback_wins_over_what_was_prepared(duties):
    call = assigned(duties, (A,))
    settled(duties)
    duties.seek(A, 7)
    call.run()
    assert settled(duties)[-1] == ("start", {A: 7}, [], [A])


def test_a_seek_before_and_after_the_start(duties):
    duties.brokers.hold()
    duties.listener = None
    duties.start((A,), 0)
    duties.brokers.await_question()
    duties.seek(A, 7)
    duties.brokers.may_answer.set()
    assert settled(duties) == [("start", {A: 7}, [], [A])]
    duties.seek(A, 3)
    assert settled(duties)[1:] == [("seek", A, 3)]


@pytest.mark.parametrize("ending", ["stop", "drop", "round"])
def test_a_seek_is_forgotten_with_its_partition(duties, ending):
    duties.seek(A, 7)
    if ending == "stop":
        duties.stop((A,), lambda: None)
    elif ending == "drop":
        duties.drop((A,), (A,))
    else:
        duties.completed(completed(owned=(B,)))
    assigned(duties, (A,)).run()
    assert settled(duties)[-1] == ("start", {A: 0}, [], [A])


def completed(owned):
    return actions.JoinCompleted(
        generation=1,
        member_id="m",
        is_leader=False,
        protocol_name="p",
        owned=owned,
        gained=(),
        revoked=(),
        delay_ms=0,
    )


def test_a_pause_before_the_start(duties):
    duties.brokers.hold()
    call = assigned(duties, (A, B))
    duties.pause([A])
    duties.brokers.may_answer.set()
    call.run()
    assert settled(duties)[-1] == ("start", {A: 0, B: 0}, [A], [A, B])
    duties.completed(completed(owned=(B,)))
    assert duties.paused() == set()


def test_a_start_is_tried_again_while_brokers_are_silent(duties):
    duties.brokers.offsets = {A: 5}
    answers = [AdapterError("no answer"), TimeoutError("no answer")]
    ask = duties.brokers.committed
    duties.brokers.committed = lambda tps: answered(answers.pop()) if answers else ask(tps)
    assigned(duties, (A,)).run()
    assert settled(duties)[-1] == ("start", {A: 5}, [], [])
    assert duties.failures == []


def test_closing_while_positions_are_asked_for(duties):
    duties.brokers.hold()
    duties.start((A,), 0)
    duties.start((B,), 0)
    duties.brokers.await_question()
    closing = threading.Thread(target=duties.close)
    closing.start()
    while not duties._closed.is_set():
        pass
    duties.brokers.may_answer.set()
    closing.join(30)
    assert not closing.is_alive()
    assert B not in duties.delivery.held


@pytest.mark.parametrize("error", [ValueError("v"), KeyboardInterrupt()])
def test_a_callback_that_raises_is_over_all_the_same(error):
    said = []

    def work(partitions):
        raise error

    assert PendingCall(work, (A,), said.append).run() is error
    assert len(said) == 1
    assert said[0].startswith(type(error).__name__)


def test_ending_leaves_what_no_broker_answers(duties):
    """The connections are closed while a thread asks: it does not ask again, and says nothing."""
    duties.brokers.hold()
    duties.start((A,), 0)
    duties.brokers.await_question()
    duties.end()
    duties.brokers.committed = lambda tps: answered(AdapterError("closed"))
    duties.brokers.list_offsets = lambda tps, at: answered(AdapterError("closed"))
    duties.brokers.may_answer.set()
    assert settled(duties) == []
    assert duties.failures == []


# Losses


def records(duties):
    """Real records: 0 to 4 of A are handed out, and not committed."""
    duties.delivery = Delivery(Plane(), lambda m: (m.topic, m.partition), lambda m: m.offset)
    duties.listener = None
    duties.start((A,), 1)
    duties._starter.submit(lambda: None).result(30)
    assert duties.delivery.poll(0, 10)
    return duties.delivery


def untold(duties):
    return duties.delivery.terms(lambda terms: (terms.untold(), terms.report_untold()))


def lost(duties, listener):
    """The loss, and its callback; returns what is untold before and after it has run."""
    duties.listener = listener
    duties.drop((A,), (A,))
    duties.call(ListenerCall.LOST, (A,), lambda error: None)
    before = untold(duties)
    if hasattr(listener, "on_partitions_lost"):
        duties.calls.get(timeout=0).run()
    return before, untold(duties)


def test_a_loss_is_untold_until_its_callback_has_run(duties):
    class Told:
        def on_partitions_lost(self, partitions):
            heard.append((partitions, duties.refused({A: 2}, {A: 2})))

    heard = []
    records(duties)
    assert lost(duties, Told()) == (({A}, set()), (set(), set()))
    assert heard == [([A], {A})]  # and inside the callback a commit is still refused


@pytest.mark.parametrize("listener", [None, Listener()])
def test_a_loss_that_no_callback_tells_of_is_left_to_an_error(duties, listener):
    records(duties)
    assert lost(duties, listener) == (({A}, {A}), (set(), set()))


@pytest.mark.parametrize(
    ("code", "left"), [(0, set()), (25, {A}), (22, {A}), (-1, set()), (14, set())]
)
def test_a_hand_over_that_is_refused_for_good_leaves_something_untold(duties, code, left):
    """The application was told ``revoked``; the commit that follows fails without it."""
    records(duties).processed()
    duties.brokers.commit = lambda offsets, **who: answered(code)
    said = []
    action = actions.Commit(token=1, resources=(A,), generation=1, member_id="m", instance_id=None)
    duties.commit(action, said.append)
    assert said == [code]
    assert untold(duties)[0] == left


def test_positions_of_an_earlier_term_are_forgotten_when_the_next_one_is_gained(duties):
    delivery = records(duties)
    delivery.processed()
    duties.stop((A,), lambda: None)
    assert delivery.uncommitted([A]) == {A: 2}  # what the hand-over commits
    duties.completed(replace(completed(owned=(A,)), gained=(A,)))
    assert delivery.uncommitted([A]) == {}


def test_only_the_callback_or_a_seek_sets_where_a_later_term_begins(duties):
    class Begins:
        def on_partitions_assigned(self, partitions):
            inside.append(duties.refused({A: 2}, {A: 5}))

    inside = []
    records(duties)
    duties.drop((A,), ())
    duties.delivery.processed()
    duties.listener = Begins()
    assert duties.refused({A: 2}, {A: 5}) == {A}
    duties.call(ListenerCall.ASSIGNED, (A,), lambda error: None)
    duties.calls.get(timeout=0).run()
    assert inside == [set()]
    assert duties.refused({A: 2}, {A: 5}) == {A}
    duties.seek(A, 5)
    assert duties.refused({A: 2}, {A: 5, B: 1}) == set()
    assert duties.refused({A: 2}, {A: 6}) == {A}


@pytest.mark.parametrize("keeps", [False, True])
def test_only_an_eager_members_fetched_records_wait_for_its_next_assignment(duties, keeps):
    duties._keeps_fetched = keeps
    duties.stop((A, B), lambda: None)
    duties.completed(completed(owned=(A,)))
    assert duties.delivery.kept_at_stop == [keeps]
    assert duties.delivery.notes == ([("release", [A])] if keeps else [])


@pytest.mark.parametrize(("n_without", "n_warnings"), [(2, 0), (4, 0), (6, 2)])
def test_a_leader_that_is_late_is_told_of_once_it_stays_away(duties, n_without, n_warnings):
    """A topic that was created just now has no leader for a moment, which is no news."""
    asked = []

    def list_offsets(partitions, at):
        asked.append(partitions)
        return answered({} if len(asked) <= n_without else dict.fromkeys(partitions, 0))

    duties.brokers.list_offsets = list_offsets
    duties.start((A,), 0)
    assert ("start", {A: 0}, [], [A]) in settled(duties)
    text = "t-0 has no leader that answers yet: it starts later"
    assert duties._log.warned == [text] * n_warnings


def test_a_partition_without_a_leader_keeps_no_other_one_waiting(duties):
    asked = []

    def list_offsets(partitions, at):
        asked.append(tuple(partitions))
        return answered({tp: 0 for tp in partitions if tp != B or len(asked) > 2})

    duties.brokers.list_offsets = list_offsets
    assigned(duties, (A, B)).run()
    starts = [note for note in settled(duties) if note[0] == "start"]
    assert starts == [("start", {A: 0}, [], [A]), ("start", {B: 0}, [], [B])]
    assert duties.failures == []
