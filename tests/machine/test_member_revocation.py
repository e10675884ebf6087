"""Revocations of a member: callbacks, commits, losses, leaving; with a hand-played coordinator."""

from __future__ import annotations

import pytest
from tests.machine.player import T0, T1, T2, Player

from holdfast.core.machine.actions import (
    CallListener,
    Commit,
    DropNow,
    SendJoin,
    SendLeave,
)
from holdfast.core.machine.events import (
    CommitAnswered,
    LeaveRequested,
    RejoinRequested,
    RequestFailed,
    Tick,
)
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.machine.states import MemberState
from holdfast.core.wire.layouts.container import Leaving


def revoking_member(**options) -> Player:
    """A member that owns T0 and T1, and is asked to give up T1."""
    play = Player(**options).stable(T0, T1)
    play.another_round(2, T0)
    return play


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


def leaving_in_a_round():
    """Its JoinGroup was out when it was asked to leave; it drains."""
    play = Player(heartbeat_interval_ms=3_000).stable(T0)
    play(RejoinRequested())
    play(LeaveRequested())
    return play
