"""Revocations of a member: callbacks, commits, losses, leaving; with a hand-played coordinator."""

from __future__ import annotations

import pytest
from tests.machine.player import T0, T1, T2, Player

from holdfast.core.machine.actions import (
    CallListener,
    Commit,
    DropNow,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    StopFetching,
    Warn,
)
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import (
    CommitAnswered,
    CommitRefused,
    Drained,
    HeartbeatAnswered,
    LeaveAnswered,
    LeaveRequested,
    Polled,
    RejoinRequested,
    RequestFailed,
    Tick,
)
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.machine.states import MemberState
from holdfast.core.wire.layouts.frames import Leaving


def revoking_member(**options) -> Player:
    """A member that owns T0 and T1, and is asked to give up T1."""
    play = Player(**options).stable(T0, T1)
    play.another_round(2, T0)
    return play


def test_scenario_53_a_revocation_past_its_deadline_commits_what_is_processed_and_drops_the_rest():
    play = revoking_member(drain_timeout_ms=4_000, drain_setting="the.key")
    token = play.last(StopFetching).token
    call, commit = sorted(play(Tick(4_000)), key=lambda a: type(a).__name__)[:2]
    assert (call.call, call.resources) == (ListenerCall.REVOKED, (T1,))
    assert (commit.resources, commit.generation) == ((T1,), 2)
    assert play.member.may_commit({T1: 0})
    assert play(Drained(token)) == ()  # too late: what the application had is not in that commit
    assert [a.call for a in play.callback()] == [ListenerCall.ASSIGNED]  # of the same round
    drop, warning, join = play(CommitAnswered(commit.token))
    assert (drop, type(join)) == (DropNow((T1,)), SendJoin)
    assert warning == Warn("revoked t-1 after 4 s (the.key): records in flight are read again")
    assert play.member.owned == (T0,)
    assert not play.member.may_commit({T1: 0})


def test_a_late_revocation_commits_nothing_where_the_application_commits():
    play = revoking_member(drain_timeout_ms=4_000, auto_commit=False)
    drop, warning, call, _, join = play(Tick(4_000))
    assert drop == DropNow((T1,))
    assert warning.text.endswith("uncommitted records are processed again")
    assert (call.call, type(join)) == (ListenerCall.REVOKED, SendJoin)


def test_the_commit_of_a_late_revocation_is_waited_for_within_bounds():
    play = revoking_member(drain_timeout_ms=4_000, last_commit_ms=700, session_timeout_ms=9_000)
    play(Tick(4_000))
    token = play.last(Commit).token
    assert play(CommitAnswered(token, 14)) == ()
    assert [type(a) for a in play(Tick(4_100))] == [Commit]
    drop, warning = play(Tick(4_700))[:2]
    assert drop == DropNow((T1,))
    assert "uncommitted: no answer in time" in warning.text
    assert play(CommitAnswered(token)) == ()


def test_an_assignment_is_called_back_after_a_late_revocation():
    play = Player(drain_timeout_ms=4_000).stable(T0, T1)
    play.another_round(2, T0, T2)
    play(Tick(4_000))
    play.callback()
    calls = [a for a in play.done if isinstance(a, CallListener)][-2:]
    assert [(c.call, c.resources) for c in calls] == [
        (ListenerCall.REVOKED, (T1,)),
        (ListenerCall.ASSIGNED, (T2,)),
    ]


def test_scenario_54_a_commit_is_tried_within_bounds():
    play = revoking_member(commit_retries=2)
    play.drain()
    play.callback()
    token = play.last(Commit).token
    assert play(CommitAnswered(token, 14)) == ()
    assert [type(a) for a in play(Tick(play.member.deadline_ms))] == [Commit]
    actions = play(CommitAnswered(token, 14))
    assert [type(a) for a in actions] == [Warn, SendJoin]


def test_a_revocation_overtaken_by_a_loss_is_superseded():
    for step in range(3):
        play = revoking_member()
        token = play.last(StopFetching).token
        if step > 0:
            play(Drained(token))
        if step > 1:
            play.callback()
        actions = play(CommitRefused(2, ErrorCode.UNKNOWN_MEMBER_ID))
        assert DropNow((T0, T1), (T0, T1) if step == 0 else (T0,)) in actions
        assert play(Drained(token)) == ()
        assert play(CommitAnswered(token)) == ()
        calls = []
        for _ in range(4):
            play.callback()
            calls = [a for a in play.done if isinstance(a, CallListener)]
        told: dict[tuple[str, int], int] = {}
        for call in calls:
            for r in call.resources:
                told[r] = told.get(r, 0) + (1 if call.call is ListenerCall.ASSIGNED else -1)
        assert set(told.values()) == {0}, step


@pytest.mark.parametrize("ends", ["drained", "at the deadline"])
def test_resources_never_announced_disappear_without_a_callback(ends):
    play = Player(drain_timeout_ms=4_000)
    play.start()
    play.join(1)
    play.sync(T0)  # its callback is out and does not return
    play.another_round(2, T0, T1)  # queued
    play.another_round(3, T0)  # T1 goes again before any callback
    if ends == "drained":
        play.drain()
    else:
        play(Tick(4_000))
    assert play.member.owned == (T0,)
    assert not [a for a in play.done if isinstance(a, Commit)]  # nothing of it was fetched
    play.callback()
    assert not [a for a in play.done if isinstance(a, CallListener) and T1 in a.resources]


def test_leaving_revokes_then_leaves():
    play = Player().stable(T0)
    assert [type(a) for a in play(LeaveRequested())] == [StopFetching]
    (leave,) = play.revoke()
    assert isinstance(leave, SendLeave)
    assert play.member.deadline_ms is None or play.member.state is MemberState.LEAVING
    play(LeaveAnswered(leave.request))
    assert play.member.state is MemberState.DEAD
    assert play(LeaveRequested()) == ()
    assert play(Polled()) == ()


def test_a_session_that_ends_while_it_announces_its_leave_ends_in_a_leave():
    play = Player(announce_leave=frozenset({"script"})).stable()
    play(LeaveRequested(returns=False))
    assert play.member.state is MemberState.PREPARING_REBALANCE
    actions = play(Tick(60_000))
    assert isinstance(actions[-1], SendLeave)
    assert play.member.state is MemberState.LEAVING


def test_leaving_for_good_is_announced_where_asked():
    play = Player(announce_leave=frozenset({"script"})).stable(T0)
    play(LeaveRequested(returns=False))
    (join,) = play.revoke()
    assert isinstance(join, SendJoin)
    assert play.script.views[-1].leaving is Leaving.FOR_GOOD
    play.join(2)
    actions = play.sync(absence_revokes=False)
    assert isinstance(actions[-1], SendLeave)
    play(RequestFailed(actions[-1].request))
    assert play.member.state is MemberState.DEAD


def test_nothing_is_announced_to_a_leader_that_defers_nothing():
    """A Worker supports every design; under simple the round would be useless."""
    play = Player(announce_leave=frozenset({"another"})).stable(T0)
    play(LeaveRequested(returns=False))
    (leave,) = play.revoke()
    assert isinstance(leave, SendLeave)


def test_a_static_member_whose_process_goes_on_without_it_leaves():
    play = Player(instance_id="i").stable(T0)
    play(LeaveRequested(process_ends=False))
    (leave,) = play.revoke()
    assert isinstance(leave, SendLeave)


def test_a_static_member_that_returns_does_not_leave():
    play = Player(instance_id="i").stable(T0)
    play(LeaveRequested())
    assert play.revoke() == ()
    assert play.member.state is MemberState.DEAD


def test_leaving_in_the_middle_of_a_round_or_before_any():
    play = Player()
    play(LeaveRequested())
    assert play.member.state is MemberState.DEAD
    play = Player().stable(T0)
    play(RejoinRequested())
    assert [type(a) for a in play(LeaveRequested())] == [StopFetching]
    play.drain()
    play.callback()
    play(RequestFailed(play.done[0].request))
    assert isinstance(play(CommitAnswered(play.last(Commit).token))[0], SendLeave)


def leaving_in_a_round():
    """Its JoinGroup was out when it was asked to leave; it drains."""
    play = Player(heartbeat_interval_ms=3_000).stable(T0)
    play(RejoinRequested())
    play(LeaveRequested())
    return play


def test_a_round_that_begins_while_a_member_revokes_takes_nothing_from_it():
    """The group continues in the next generation, in which the member still owns its claims."""
    play = leaving_in_a_round()
    play(Tick(3_000))
    late = play.last(SendHeartbeat)
    assert play(HeartbeatAnswered(late.request, ErrorCode.ILLEGAL_GENERATION)) == ()
    assert play.join(2) == ()
    assert play.member.state is MemberState.REVOKING
    play(Tick(6_000))
    assert play.last(SendHeartbeat).generation == 2
    play.drain()
    assert not [a for a in play.done if isinstance(a, SendLeave)]
    (commit,) = play.callback()
    assert (commit.generation, play.member.owned) == (2, (T0,))
    assert isinstance(play(CommitAnswered(commit.token))[0], SendLeave)


@pytest.mark.parametrize("first", ["the commit's answer", "the join's answer"])
def test_a_commit_that_a_round_overtakes_is_sent_again(first):
    play = leaving_in_a_round()
    play.drain()
    (commit,) = play.callback()
    assert commit.generation == 1
    if first == "the commit's answer":
        assert play(CommitAnswered(commit.token, ErrorCode.ILLEGAL_GENERATION)) == ()
        play.join(2)
    else:
        play.join(2)
        assert play(CommitAnswered(commit.token, ErrorCode.ILLEGAL_GENERATION)) == ()
    (again,) = play(Tick(play.member.deadline_ms))
    assert (type(again), again.generation) == (Commit, 2)
    assert isinstance(play(CommitAnswered(again.token))[0], SendLeave)


def test_a_leaving_member_that_the_round_does_not_know_has_lost_what_it_revokes():
    play = leaving_in_a_round()
    actions = play.join(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert DropNow((T0,), (T0,)) in actions
    assert play.member.state is MemberState.DEAD


def test_leaving_without_a_coordinator_just_ends():
    play = Player().stable()
    play(Tick(3_000))
    play(RequestFailed(play.last(SendHeartbeat).request))
    play(LeaveRequested())
    assert play.member.state is MemberState.DEAD


def test_a_revocation_past_its_deadline_calls_back_once_at_whatever_step():
    play = revoking_member(drain_timeout_ms=4_000)
    play.drain()  # the callback is out
    before = len([a for a in play.done if isinstance(a, CallListener)])
    play(Tick(4_000))
    assert DropNow((T1,)) in play(CommitAnswered(play.last(Commit).token))
    assert len([a for a in play.done if isinstance(a, CallListener)]) == before
    assert play.member.owned == (T0,)


def test_a_revocation_s_commit_that_is_fenced_loses_the_membership():
    play = revoking_member()
    play.drain()
    play.callback()
    commit = play.last(Commit)
    actions = play(CommitAnswered(commit.token, ErrorCode.UNKNOWN_MEMBER_ID))
    assert DropNow((T0,), (T0,)) in actions
    assert play.last(SendJoin).member_id == ""
