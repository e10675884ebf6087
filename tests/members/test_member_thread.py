"""The thread of a member machine: events in, actions out, in order."""

from __future__ import annotations

import threading

import pytest
from tests.members.fake_machine import COMMIT, A, FakeCoordinator, Notes, Script, bare

from holdfast.core.machine import actions, events
from holdfast.core.machine.shared_values import Identity, ListenerCall
from holdfast.core.machine.states import MemberState
from holdfast.errors import ClientError, RemoteProtocolError

DONE = actions.JoinCompleted(
    generation=3,
    member_id="m",
    is_leader=False,
    protocol_name="p",
    owned=A,
    gained=A,
    revoked=(),
    delay_ms=5,
)


def test_actions_are_done_in_order_and_their_answers_come_back(run):
    script = Script(
        {
            events.Polled: (
                actions.StopFetching(token=1, resources=A, deadline_ms=9),
                actions.DropNow(A, A),
                actions.StartFetching(A, 7),
                actions.CallListener(token=2, call=ListenerCall.ASSIGNED, resources=A),
                actions.CallListener(token=3, call=ListenerCall.LOST, resources=A),
                COMMIT,
                DONE,
                actions.Warn("mind the gap"),
                actions.FindCoordinator(7, 100),
            )
        }
    )
    rebalance_handler, coordinator = Notes(), FakeCoordinator()
    member_thread = run(script, rebalance_handler, coordinator=coordinator)
    member_thread.post(events.Polled())
    assert script.next(events.Drained) == events.Drained(1)
    assert script.next(events.ListenerReturned) == events.ListenerReturned(2, None)
    assert script.next(events.ListenerReturned) == events.ListenerReturned(3, "OSError: no")
    assert script.next(events.CommitAnswered) == events.CommitAnswered(4, 27)
    words = ["drop, 1 told", "stop", "assigned", "lost", "commit"]
    assert rebalance_handler.notes == words  # what is lost is dropped first
    assert coordinator.sent == [actions.FindCoordinator(7, 100)]
    assert (member_thread.times.rebalances.n, member_thread.times.n_lost) == (1, 1)
    assert member_thread.snapshot.owned == frozenset(A)
    assert len(script.threads) == 1
    assert threading.main_thread() not in script.threads


def test_who_catches_up_finds_done_what_was_posted_before(run):
    stop = actions.StopFetching(token=1, resources=A, deadline_ms=9)
    rebalance_handler = Notes()
    member_thread = run(Script({events.Polled: (stop,)}), rebalance_handler)
    for n in range(1, 51):
        member_thread.post(events.Polled())
        assert member_thread.catch_up(60)
        assert len(rebalance_handler.notes) == n
    member_thread.stop()
    assert not member_thread.catch_up(0)


def test_whoever_is_called_sees_what_the_member_owns_by_now(run):
    """A callback may seek and commit what it was just given, however soon it runs."""
    seen = []

    class Asking(Notes):
        def call(self, call, resources, done):
            seen.append(
                (member_threads[0].snapshot.owned, member_threads[0].snapshot.identity.generation)
            )
            done(None)

    script = Script(
        {events.Polled: (actions.CallListener(token=2, call=ListenerCall.ASSIGNED, resources=A),)}
    )
    script.holdings.owned = frozenset()
    member_threads = [run(script, Asking())]
    script.holdings.owned = frozenset(A)
    script.identity = Identity(generation=4, member_id="m", instance_id=None)
    member_threads[0].post(events.Polled())
    script.next(events.ListenerReturned)
    assert seen == [(frozenset(A), 4)]


def test_who_sees_that_nothing_is_owned_finds_that_it_was_lost(run):
    """Else a commit on another thread would find nothing to commit, and nothing lost."""
    script = Script({events.Polled: (actions.Warn("x"), actions.DropNow(A, A))})
    seen = []

    class Looks(Notes):
        def drop(self, resources, lost):
            seen.append(member_thread.snapshot.owned)

    member_thread = run(script, Looks())
    step = script.step

    def lose(now_ms, event):
        answer = step(now_ms, event)
        if isinstance(event, events.Polled):
            script.holdings.owned = frozenset()
        return answer

    script.step = lose
    member_thread.post(events.Polled())
    assert member_thread.catch_up(30)
    assert seen == [frozenset(A)]
    assert member_thread.snapshot.owned == frozenset()


def test_time_comes_as_ticks(run):
    script = Script({})
    member_thread = run(script)
    script.deadline_ms = 0
    member_thread.post(events.Polled())
    assert script.next(events.Tick).now_ms > 0


def test_a_plan_is_made_elsewhere_and_one_that_fails_is_told(run):
    plan = bare(actions.ComputeAssignment, token=8, generation=1)
    threads = []

    def compute(action):
        threads.append(threading.current_thread())
        raise ValueError("no such topic")

    script = Script({events.Polled: (plan,)})
    run(script, compute=compute).post(events.Polled())
    failed = script.next(events.AssignmentFailed)
    assert (failed.token, failed.reason) == (8, "ValueError: no such topic")
    assert threads[0] not in script.threads


def test_a_refusal_is_kept_for_the_application(run):
    script = Script({events.Polled: (actions.Fail(82, "fenced"),)})
    member_thread = run(script)
    member_thread.post(events.Polled())
    assert member_thread.finished.wait(30)
    member_thread.fail(ValueError("a later one"))
    assert isinstance(member_thread.failure, RemoteProtocolError)
    assert member_thread.failure.error_code == 82


def test_a_machine_that_has_left_is_over(run):
    script = Script({events.Polled: MemberState.DEAD})
    member_thread = run(script)
    assert not member_thread.finished.is_set()
    member_thread.post(events.Polled())
    assert member_thread.finished.wait(30)
    assert member_thread.failure is None


def test_a_bug_of_ours_is_reported_and_nothing_hangs(run):
    class Broken(Notes):
        def drop(self, resources, lost):
            raise KeyError("a-0")

    script = Script({events.Polled: (actions.DropNow(A),)})
    member_thread = run(script, Broken())
    member_thread.post(events.Polled())
    assert member_thread.finished.wait(30)
    assert isinstance(member_thread.failure, ClientError)
    assert "KeyError: 'a-0'" in str(member_thread.failure)


@pytest.mark.parametrize("state", [MemberState.LEAVING, MemberState.DEAD, MemberState.FENCED])
def test_requests_that_come_after_the_end_are_dropped(run, state):
    """A look at the topics may be on its way when the application closes."""
    script = Script({events.Polled: state})
    member_thread = run(script)
    member_thread.post(events.Polled())
    for late in (
        events.MetadataChanged((("t", 1),)),
        events.SubscriptionChanged(("t",)),
        events.RejoinRequested("late"),
    ):
        member_thread.post(late)
    assert member_thread.catch_up(30)
    assert member_thread.failure is None
    script.next(events.Polled)
    assert script.seen.empty()
