"""The session of a client on the thread of calls, through its public interface."""

from __future__ import annotations

import pytest
from tests.live.waiting import until
from tests.members.fake_member import Listener, Record, make_member

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.shared_values import ListenerCall, OffsetToCommit
from holdfast.errors import RemoteProtocolError
from holdfast.members.session.commits import CommitOrigin
from holdfast.members.session.poll_session import NOTHING
from holdfast.members.session.session import ClientTraits

A, B = ("t", 0), ("t", 1)
COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}
TRAITS = ClientTraits(reports_empty_changes=False, error_stops_commit=False)
HOUR_S = 3600.0


class Harness:
    """A member, its session, and an application that polls."""

    def __init__(self, *, listener=None, traits=TRAITS, **keys):
        self.listener = listener or Listener(assigned=None, revoked=None, lost=None)
        self.member, self.session = make_member(
            self.listener, traits=traits, **{**COOPERATIVE, **keys}
        )
        self.adapter, self.in_flight = self.session.adapter, self.session.in_flight
        self.coordinator, self.member_thread = self.member.coordinator, self.member.member_thread
        self.answers = self.member.answered
        self.mark_pending_revocation, self.call = (
            self.member.mark_pending_revocation,
            self.member.call,
        )
        self.last_commit = self.member.commit_revoked

    def poll(self, *records):
        """One call of the application, which gets these records; returns what a callback raised."""
        self.in_flight.last_result = None
        error = self.session.begin_poll()
        self.adapter.at |= {tp: offset + 1 for tp, offset in records}
        self.in_flight.last_result = [Record(*one) for one in records] or NOTHING
        return error

    def assign(self, *tps, began=-1):
        """The group gives these, in a new term; the group has committed ``began``."""
        self.coordinator.stands = dict.fromkeys(tps, began)
        self.member.gain(*tps)
        self.poll()

    def commit(self, asked=CommitOrigin.ALL, **offsets):
        """The application commits ``t0=5``, or what is processed; the answer is there at once."""
        named = {("t", int(name[1:])): OffsetToCommit(at) for name, at in offsets.items()}
        self.session.record_positions()
        wanted = named or self.session.to_commit()
        sent = self.session.commits.commit_async(
            wanted, CommitOrigin.NAMED if named else asked, timeout_s=HOUR_S
        )
        return sent.result(0)


@pytest.fixture
def owning():
    """A member that owns t-0."""
    harness = Harness()
    harness.assign(A)
    return harness


@pytest.fixture
def holding(owning):
    """Its application has the record of offset 7 in its hand."""
    owning.poll((A, 7))
    return owning


# Hand-overs


def test_one_call_does_the_whole_revocation_in_order():
    """Hold back, drained, callback, drop, commit: what the callback commits is committed before."""
    harness = Harness()
    harness.assign(A, B)
    harness.poll((A, 7))
    harness.coordinator.answers.extend([0, 0])
    harness.listener.works["revoked"] = lambda _: harness.commit(t0=8)
    harness.mark_pending_revocation(A)
    harness.member_thread.due.append(lambda: harness.call(ListenerCall.REVOKED, A))
    harness.member_thread.due.append(lambda: harness.last_commit(A))
    harness.adapter.calls.clear()
    harness.answers.clear()
    harness.poll()
    assert harness.adapter.calls == [("hold back", [A]), ("revoked", [A]), ("drop", [A])]
    assert harness.answers == ["drained", ("revoked", None), ("committed", 0)]
    assert harness.coordinator.commits == [({A: 8}, 1)], "and once"


def test_a_close_without_a_commit_commits_nothing(holding):
    holding.session.is_automatic = False
    holding.coordinator.answers.append(0)

    def commit_revoked():
        holding.mark_pending_revocation(A)
        holding.call(ListenerCall.REVOKED, A)
        holding.last_commit(A)
        holding.member_thread.finished.set()

    holding.member_thread.leaves = commit_revoked
    assert holding.session.leave(HOUR_S * 1e6, returns=True) is None
    assert holding.coordinator.sent == []
    assert ("committed", 0) in holding.answers


# Callbacks


@pytest.mark.parametrize("stops", [False, True])
def test_an_error_of_a_callback_comes_out_of_the_call_and_stops_a_commit_as_wished(stops):
    harness = Harness(traits=ClientTraits(reports_empty_changes=False, error_stops_commit=stops))
    harness.assign(A)
    harness.answers.clear()
    error = ValueError("of the application")

    def fail(_):
        raise error

    harness.listener.works["revoked"] = fail
    harness.call(ListenerCall.REVOKED, A)
    assert harness.poll() is error
    assert harness.answers == [("revoked", "ValueError: of the application" if stops else None)]
    assert ("drop", [A]) in harness.adapter.calls


def test_an_interrupted_task_is_done_again_and_its_callback_is_not(owning):
    owning.adapter.calls.clear()
    owning.call(ListenerCall.REVOKED, A)
    stop_fetching, owning.adapter.stop_fetching = owning.adapter.stop_fetching, interrupted
    with pytest.raises(KeyboardInterrupt):
        owning.poll()
    assert owning.answers == [("assigned", None)]
    owning.adapter.stop_fetching = stop_fetching
    owning.poll()
    assert owning.adapter.calls == [("revoked", [A]), ("drop", [A])]
    assert owning.answers == [("assigned", None), ("revoked", None)]


def interrupted(_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("keys", "trait", "is_told"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"partition_assignment_strategy": "range"}, False, True),
    ],
    ids=["cooperative", "as wished", "eager"],
)
def test_a_round_without_news_is_told_to_whom_it_matters(keys, trait, is_told):
    harness = Harness(
        traits=ClientTraits(reports_empty_changes=trait, error_stops_commit=False), **keys
    )
    harness.assign(A)
    harness.adapter.calls.clear()
    harness.call(ListenerCall.ASSIGNED)
    harness.poll()
    assert harness.adapter.calls == ([("assigned", [])] if is_told else [])


def test_nobody_waits_for_a_callback_that_the_application_does_not_have():
    harness = Harness(listener=Listener())
    harness.call(ListenerCall.REVOKED, A)
    assert harness.answers == [("revoked", None)]


# Losses


def test_a_loss_is_hidden_at_once_and_dropped_after_its_callback(holding):
    holding.adapter.calls.clear()
    holding.member.lose(A)
    assert holding.adapter.calls == [("stop_delivery", [A])]
    holding.poll()
    assert holding.adapter.calls == [("stop_delivery", [A]), ("lost", [A]), ("drop", [A])]


def test_what_a_deadline_took_is_dropped_without_a_callback_of_its_own(holding):
    holding.adapter.calls.clear()
    holding.member.give_up(A)
    holding.poll()
    assert holding.adapter.calls == [("stop_delivery", [A]), ("drop", [A])]


# Deadlines


def test_at_a_deadline_inside_a_call_the_call_itself_says_how_far_it_has_come():
    harness = Harness()
    harness.assign(A, began=0)
    harness.adapter.at[A] = 5
    harness.in_flight.last_result = None
    harness.session.tasks.items.clear()
    harness.last_commit(A)
    until(lambda: harness.session.tasks.items, "an application task")
    assert harness.coordinator.sent == []
    harness.coordinator.answers.append(0)
    harness.session.begin_poll()
    assert harness.coordinator.commits == [({A: 5}, 1)]


# Commits


@pytest.mark.parametrize(
    "keys", [{"auto_commit_interval_ms": 3_600_000}, {"enable_auto_commit": False}]
)
def test_the_clock_commits_nothing_before_its_time_nor_for_a_program_that_commits(keys):
    harness = Harness(**{"auto_commit_interval_ms": 0, **keys})
    harness.assign(A)
    harness.poll((A, 7))
    assert harness.session.maybe_auto_commit() is None
    assert harness.coordinator.sent == []


def test_the_clock_raises_nothing_where_the_member_fails_just_now(monkeypatch):
    """The client's next call tells of the failure, in the client's own words."""
    harness = Harness(auto_commit_interval_ms=0)
    harness.assign(A)
    harness.poll((A, 7))
    numbers = harness.session.subscription_state.term_numbers

    def fails_meanwhile(offsets):
        harness.member_thread.failure = RemoteProtocolError("fenced", error_code=82)
        return numbers(offsets)

    monkeypatch.setattr(harness.session.subscription_state, "term_numbers", fails_meanwhile)
    assert harness.session.maybe_auto_commit() is None
    assert harness.member_thread.failure is not None
    assert harness.coordinator.sent == []


def test_nobody_commits_again_where_it_began():
    """Nothing is committed that was not handed out: the last owner's commit stands there."""
    harness = Harness()
    harness.assign(A, began=5)
    harness.adapter.at[A] = 5
    harness.commit()
    assert harness.coordinator.sent == []
    harness.poll((A, 7))
    harness.coordinator.answers.extend([0, 0])
    harness.commit()
    harness.adapter.at[A] = 5  # the application went back
    harness.commit()
    assert [offsets for offsets, _ in harness.coordinator.commits] == [{A: 8}, {A: 5}]


@pytest.mark.parametrize("member_id", ["m", "the next"])
def test_only_another_process_fences_a_member(owning, member_id):
    """A commit of this process's last member id may come after its join with the next one."""
    sent = owning.session.commits.commit_async(
        {A: OffsetToCommit(5)}, CommitOrigin.NAMED, timeout_s=HOUR_S
    )
    owning.member.owns({A: 1}, 2, member_id=member_id)
    owning.coordinator.sent[0].answer.set_result(ErrorCode.FENCED_INSTANCE_ID)
    is_fenced = sent.exception(0).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert is_fenced is (member_id == "m")
