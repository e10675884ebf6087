"""The member machine, one action at a time, against a hand-played coordinator."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.machine.player import COOPERATIVE, EAGER, T0, T1, T2, Player, Script

from holdfast.core.machine.actions import (
    CallListener,
    Commit,
    ComputeAssignment,
    DropNow,
    Fail,
    FindCoordinator,
    JoinCompleted,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    StartFetching,
    StopFetching,
    Warn,
)
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import (
    AssignmentComputed,
    AssignmentFailed,
    CommitAnswered,
    CommitRefused,
    CoordinatorFound,
    Drained,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    LeaveRequested,
    ListenerReturned,
    MetadataChanged,
    Polled,
    RejoinRequested,
    RequestFailed,
    SubscriptionChanged,
    SyncAnswered,
    Tick,
)
from holdfast.core.machine.leader.assignor_protocol import choose_rebalance_protocol
from holdfast.core.machine.leader.counts import key_of
from holdfast.core.machine.member.member_data import MemberOptions
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.machine.states import MemberState
from holdfast.errors import ConfigError, LocalProtocolError


def test_a_first_join_asks_for_an_id_then_joins_with_it():
    play = Player()
    first = play.start()
    assert (first.member_id, first.protocols) == ("", (("script", b"v1"),))
    play.join(error=ErrorCode.MEMBER_ID_REQUIRED)
    assert play.last(SendJoin).member_id == "m"
    assert play.last(SendJoin).request != first.request
    play.join()
    assert play.member.state is MemberState.COMPLETING_REBALANCE
    actions = play.sync(T0, T1)
    assert [type(a) for a in actions] == [JoinCompleted, CallListener]
    assert play.callback() == (StartFetching((T0, T1), 0),)
    assert play.member.state is MemberState.STABLE


def test_a_leader_computes_before_it_syncs():
    play = Player()
    play.start()
    (compute,) = play.join(leader=True)
    assert isinstance(compute, ComputeAssignment)
    assert play(AssignmentComputed(compute.token + 9, ())) == ()
    (sync,) = play(AssignmentComputed(compute.token, (("m", b"x"),)))
    assert sync.assignments == (("m", b"x"),)


def test_a_leader_knows_whether_a_claim_of_its_round_can_be_true():
    """Only a member that took part in the round before knows that no number is used twice."""
    play = Player().stable(T0, generation=4)
    for generation, synced, unbroken in (
        (5, True, True),  # it was in 4
        (7, True, False),  # it missed 6
        (8, False, True),  # it was in 7; its sync of 8 fails, others may be in 8
        (8, True, False),  # the coordinator lost 8
        (8, True, False),  # and lost it again
        (9, True, True),
    ):
        play(RejoinRequested(), at_ms=play.member.data.now_ms + 5_000)
        (compute,) = play.join(generation, leader=True)
        assert compute.unbroken == unbroken, generation
        play(AssignmentComputed(compute.token, (("m", b"x"),)))
        if synced:
            play.sync(T0)
        else:
            play.sync(error=ErrorCode.REBALANCE_IN_PROGRESS)
    play = Player()
    play.start()
    (compute,) = play.join(1, leader=True)
    assert not compute.unbroken


def counted(**counts: int) -> bytes:
    return b"".join(key_of(topic) + bytes([n]) for topic, n in counts.items())


def test_a_leader_with_skip_assignment_sends_none_but_watches_metadata():
    play = Player()
    play(MetadataChanged((("t", 2),)))
    play.start()
    (sync,) = play.join(leader=True, skip_assignment=True)
    assert sync.assignments == ()
    play.sync(T0, planned=counted(t=2))
    play(MetadataChanged((("t", 2), ("elsewhere", 1))))
    assert play.member.state is MemberState.STABLE
    play(MetadataChanged((("t", 3),)))
    assert play.last(SendJoin).reason == "partition counts changed"


def test_a_leader_with_skip_assignment_asks_for_nothing_before_it_knows_any_count():
    play = Player()
    play.start()
    play.join(leader=True, skip_assignment=True)
    play.sync(T0, planned=counted(t=2))
    play(MetadataChanged((("t", 2),)))
    assert play.member.state is MemberState.STABLE
    play(MetadataChanged((("t", 3),)))
    assert play.last(SendJoin).reason == "partition counts changed"


def test_a_leader_sees_what_grew_while_it_planned():
    """The counts that it planned with count, not those known when the plan is ready."""
    play = Player()
    play(MetadataChanged((("t", 2), ("u", 0))))
    play.start()
    (compute,) = play.join(leader=True)
    play(MetadataChanged((("t", 3), ("u", 0))))
    counts = (("t", 2), ("u", 0))
    play(AssignmentComputed(compute.token, (("m", b"x"),), partitions=counts))
    play.sync(T0)
    assert play.last(SendJoin).reason == "partition counts changed"


@pytest.mark.parametrize("planned", [None, counted(t=2), counted(t=3, u=1)])
def test_a_leader_with_skip_assignment_sees_what_grew_while_it_was_away(planned):
    play = Player()
    play(MetadataChanged((("t", 3),)))
    play.start()
    play.join(leader=True, skip_assignment=True)
    play.sync(T0, planned=planned)
    assert play.member.state is MemberState.PREPARING_REBALANCE
    assert play.last(SendJoin).reason == "partition counts changed"
    assert T0 in play.member.owned


def test_an_eager_leader_with_skip_assignment_takes_nothing_up_before_the_round():
    play = Player(Script(EAGER))
    play(MetadataChanged((("t", 3),)))
    play.start()
    (join,) = play.join(leader=True, skip_assignment=True)
    assert isinstance(join, SendJoin)
    assert not any(isinstance(a, StartFetching | CallListener) for a in play.done)


def test_a_revocation_is_stop_drain_callback_commit_rejoin():
    play = Player().stable(T0, T1)
    actions = play(RejoinRequested())
    assert [type(a) for a in actions] == [SendJoin]  # processing continues while joining
    play.join(2)
    actions = play.sync(T0, T2)
    assert [type(a) for a in actions] == [JoinCompleted, StopFetching]
    stop = play.last(StopFetching)
    assert stop.resources == (T1,)
    assert play.member.state is MemberState.REVOKING
    (call,) = play(Drained(stop.token))
    assert (call.call, call.resources) == (ListenerCall.REVOKED, (T1,))
    commit, assigned = play.callback()
    assert isinstance(commit, Commit)
    assert (commit.generation, commit.resources) == (2, (T1,))
    assert (assigned.call, assigned.resources) == (ListenerCall.ASSIGNED, (T2,))
    assert play.member.owned == (T0, T1, T2)
    (join,) = play(CommitAnswered(commit.token))
    assert isinstance(join, SendJoin)
    assert play.script.views[-1].owned == (T0, T2)
    assert play.script.views[-1].already_revoked == (T1,)


def test_an_eager_member_gives_everything_up_first_even_nothing():
    play = Player(Script(EAGER)).stable(T0)
    assert [type(a) for a in play(RejoinRequested())] == [StopFetching]
    play.drain()
    (commit,) = play.callback()
    (join,) = play(CommitAnswered(commit.token))
    assert isinstance(join, SendJoin)
    assert play.script.views[-1].owned == ()
    play.join(2)
    play.sync()
    play.callback()
    play(RejoinRequested())
    (call,) = play.drain()
    assert (call.call, call.resources) == (ListenerCall.REVOKED, ())
    assert [type(a) for a in play.callback()] == [SendJoin]


def test_another_round_announced_is_joined_at_once_and_a_delay_is_waited_for():
    play = Player().stable(T0, absence_revokes=False, delay_ms=10_000)
    assert play.member.deadline_ms == 3_000
    assert [type(a) for a in play(Tick(3_000))] == [SendHeartbeat]
    play(HeartbeatAnswered(play.last(SendHeartbeat).request))
    joins = [a for a in play(Tick(10_000)) if isinstance(a, SendJoin)]
    assert [j.reason for j in joins] == ["scheduled rebalance"]
    play.join(2)
    play.sync(absence_revokes=False, again=True)
    assert play.member.deadline_ms == 10_050
    actions = play(Tick(10_050))
    assert isinstance(actions[-1], SendJoin)
    assert play.last(SendJoin).reason == "another round was announced"


def test_a_heartbeat_reports_a_rebalance_and_each_way_to_lose():
    for error, member_id in (
        (ErrorCode.ILLEGAL_GENERATION, "m"),
        (ErrorCode.UNKNOWN_MEMBER_ID, ""),
    ):
        play = Player().stable(T0)
        play(Tick(3_000))
        actions = play(HeartbeatAnswered(play.last(SendHeartbeat).request, error))
        assert actions[0] == DropNow((T0,), (T0,))
        assert actions[1].call is ListenerCall.LOST
        assert actions[2].member_id == member_id
        view = play.script.views[-1]
        assert (view.owned, view.generation) == ((), -1)
    play = Player().stable(T0)
    play(Tick(3_000))
    (join,) = play(HeartbeatAnswered(play.last(SendHeartbeat).request, 27))
    assert join.reason == "group is rebalancing"
    assert play.member.owned == (T0,)


def test_scenario_32_an_error_of_an_older_generation_is_ignored():
    play = Player().stable(T0)
    play(Tick(3_000))
    beat = play.last(SendHeartbeat)
    play.another_round(2, T0)
    assert play(HeartbeatAnswered(beat.request, ErrorCode.ILLEGAL_GENERATION)) == ()
    assert play(HeartbeatAnswered(beat.request, ErrorCode.UNKNOWN_MEMBER_ID)) == ()
    assert play(CommitRefused(1, ErrorCode.ILLEGAL_GENERATION)) == ()
    assert play.member.owned == (T0,)


def test_a_commit_that_the_round_overtakes_loses_nothing():
    """The coordinator has the new generation, the JoinGroup answer is on the way."""
    play = Player().stable(T0)
    generation = play.member.generation
    play(RejoinRequested())
    assert play.member.state is MemberState.PREPARING_REBALANCE
    assert play(CommitRefused(generation, ErrorCode.ILLEGAL_GENERATION)) == ()
    assert play.member.owned == (T0,)
    lost = play(CommitRefused(generation, ErrorCode.UNKNOWN_MEMBER_ID))
    assert DropNow((T0,), (T0,)) in lost


def test_scenario_11_a_fenced_member_stops_and_says_why():
    play = Player(instance_id="i").stable(T0)
    play(Tick(3_000))
    actions = play(HeartbeatAnswered(play.last(SendHeartbeat).request, 82))
    assert actions[0] == DropNow((T0,), (T0,))
    assert isinstance(actions[-1], Fail)
    assert "group.instance.id" in actions[-1].text
    assert play.member.state is MemberState.FENCED
    with pytest.raises(LocalProtocolError, match="not allowed in state FENCED"):
        play(RejoinRequested())
    assert play.callback() == ()


@pytest.mark.parametrize("error", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_static_member_is_not_fenced_by_its_own_next_member_id(error):
    """A stalled broker may take the last commit of an old id after the join of the new."""
    play = Player(instance_id="i").stable(T0)
    before = play.member.generation
    play(Tick(play.member.data.session_ends_ms))
    play.join(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert play(CommitRefused(before, error)) == ()
    play(Tick(play.member.deadline_ms))
    play.join(before + 1)
    play.sync(T0)
    assert play(CommitRefused(before, error)) == ()
    assert play.member.state is MemberState.STABLE
    assert play.member.owned == (T0,)
    assert play(CommitRefused(before + 1, error))
    assert play.member.owned == ()


def test_a_session_that_ran_out_stops_the_member_before_it_resumes():
    play = Player().stable(T0)
    play(Tick(3_000))  # unanswered
    actions = play(Polled(), at_ms=60_000)  # scenario 57: the process slept
    assert isinstance(actions[0], Warn)
    assert actions[1] == DropNow((T0,), (T0,))
    assert play.member.member_id == "m"


def test_scenario_56_a_stalled_poll_loop_leaves_and_comes_back():
    play = Player(max_poll_interval_ms=5_000, session_timeout_ms=60_000).stable(T0)
    play(Tick(3_000))
    play(HeartbeatAnswered(play.last(SendHeartbeat).request))
    warning, commit = play(Tick(5_000))
    assert warning.text == (
        "no poll for 5 s (max_poll_interval_ms): leaves the group and loses t-0: "
        "records in flight are read again"
    )
    assert (commit.resources, commit.generation) == ((T0,), 1)
    actions = play(CommitAnswered(commit.token))
    assert [type(a) for a in actions] == [SendLeave, DropNow, CallListener]
    assert actions[1:] == (DropNow((T0,), (T0,)), replace(actions[2], call=ListenerCall.LOST))
    play.callback()
    play(Tick(20_000))
    assert play.member.state is MemberState.UNJOINED
    (join,) = play(Polled())
    assert join.member_id == ""
    static = Player(max_poll_interval_ms=5_000, instance_id="i").stable(T0)
    static(Tick(5_000))
    actions = static(CommitAnswered(static.last(Commit).token))
    assert [type(a) for a in actions] == [SendHeartbeat, DropNow, CallListener]


def test_a_poll_that_comes_while_a_stalled_member_leaves_joins_after_that():
    play = Player(max_poll_interval_ms=5_000, session_timeout_ms=60_000).stable(T0)
    play(Tick(5_000))
    assert [type(a) for a in play(Polled())] == [SendHeartbeat]
    actions = play(CommitAnswered(play.last(Commit).token))
    assert [type(a) for a in actions] == [SendLeave, DropNow, CallListener, SendJoin]
    assert actions[-1].member_id == ""


def test_a_stall_ends_the_revocation_in_progress_and_calls_back_once_for_each_resource():
    for step in range(4):
        play = Player(max_poll_interval_ms=5_000, session_timeout_ms=60_000).stable(T0, T1)
        play.another_round(2, T0)
        if step > 0:
            play.drain()
        if step > 1:
            play.callback()  # its commit is out
        if step > 2:
            play(CommitAnswered(play.last(Commit).token, 14))  # and will be tried again
        play(Tick(5_000))
        last = play.last(Commit)
        assert last.resources == (T0, T1)
        play(CommitAnswered(last.token))
        for _ in range(3):
            play.callback()
        told = [(a.call, r) for a in play.done if isinstance(a, CallListener) for r in a.resources]
        ends = [r for call, r in told if call is not ListenerCall.ASSIGNED]
        assert sorted(ends) == [T0, T1], step
        assert play.member.owned == ()


def test_a_stall_without_a_coordinator_loses_at_once():
    play = Player(max_poll_interval_ms=5_000, session_timeout_ms=60_000).stable(T0)
    play(Tick(3_000))
    play(HeartbeatAnswered(play.last(SendHeartbeat).request, ErrorCode.NOT_COORDINATOR))
    actions = play(Tick(5_000))
    assert [type(a) for a in actions if not isinstance(a, FindCoordinator)] == [
        Warn,
        DropNow,
        CallListener,
    ]


def test_a_member_that_leaves_by_a_stall_may_be_closed_or_expelled_meanwhile():
    play = Player(max_poll_interval_ms=5_000, session_timeout_ms=60_000).stable(T0)
    play(Tick(5_000))
    assert [type(a) for a in play(LeaveRequested())] == [SendHeartbeat]
    play(CommitAnswered(play.last(Commit).token))
    assert play.member.state is MemberState.DEAD
    expelled = Player(max_poll_interval_ms=5_000, session_timeout_ms=60_000).stable(T0)
    expelled(Tick(5_000))
    token = expelled.last(Commit).token
    actions = expelled(CommitAnswered(token, ErrorCode.UNKNOWN_MEMBER_ID))
    assert SendLeave not in map(type, actions)
    assert DropNow((T0,), (T0,)) in actions
    assert [type(a) for a in expelled(Polled())] == [SendJoin]


def test_a_stalled_member_leaves_although_its_last_commit_is_not_answered():
    options = {"max_poll_interval_ms": 5_000, "last_commit_ms": 700, "session_timeout_ms": 60_000}
    play = Player(**options).stable(T0)
    play(Tick(5_000))
    token = play.last(Commit).token
    actions = play(Tick(5_700))
    assert [type(a) for a in actions if not isinstance(a, SendHeartbeat)] == [
        Warn,
        SendLeave,
        DropNow,
        CallListener,
    ]
    text = "revoked t-0 after 5 s (max_poll_interval_ms), uncommitted: no answer in time"
    assert play.last(Warn).text == text
    assert play(CommitAnswered(token)) == ()


def test_the_last_commit_of_a_stalled_member_goes_to_the_generation_that_has_begun_meanwhile():
    play = Player(max_poll_interval_ms=5_000, session_timeout_ms=60_000).stable(T0)
    play(RejoinRequested())
    join = play.last(SendJoin).request
    play(Tick(5_000))
    token = play.last(Commit).token
    play(JoinAnswered(request=join, generation=2, member_id="m"))
    assert play(CommitAnswered(token, ErrorCode.ILLEGAL_GENERATION)) == ()
    play(Tick(play.member.deadline_ms))
    again = play.last(Commit)
    assert (again.generation, again.resources) == (2, (T0,))
    assert SendLeave in map(type, play(CommitAnswered(again.token)))


def test_scenario_35_36_stale_answers_change_nothing():
    play = Player().stable(T0)
    old = play.last(SendJoin).request
    for event in (
        JoinAnswered(request=old, generation=9, member_id="m"),
        SyncAnswered(request=play.last(SendSync).request),
        CoordinatorFound(99),
        LeaveAnswered(99),
        HeartbeatAnswered(99, 25),
        RequestFailed(99),
        AssignmentFailed(99, ""),
        Drained(99),
        CommitAnswered(99),
        ListenerReturned(99),
    ):
        assert play(event) == ()
    assert (play.member.generation, play.member.owned) == (1, (T0,))


def test_scenario_33_a_coordinator_that_moves_is_found_again_with_claims_kept():
    play = Player().stable(T0)
    play(Tick(3_000))
    (find,) = play(HeartbeatAnswered(play.last(SendHeartbeat).request, 16))
    assert isinstance(find, FindCoordinator)
    assert play(RequestFailed(find.request)) == ()
    (again,) = play(Tick(play.member.deadline_ms))
    play(CoordinatorFound(again.request))
    assert play.member.owned == (T0,)
    play(RejoinRequested())
    play.join(error=ErrorCode.NOT_COORDINATOR)
    assert play.member.state is MemberState.UNJOINED
    assert play.member.owned == (T0,)
    (find,) = play(Tick(play.member.deadline_ms))
    (join,) = play(CoordinatorFound(find.request))
    play(RequestFailed(join.request))
    assert play.member.owned == (T0,)


def test_errors_that_end_a_member_say_what_to_do():
    for error, words in ((23, "assignor"), (30, "READ on the group"), (26, "session.timeout.ms")):
        play = Player()
        play.start()
        actions = play.join(error=error)
        assert isinstance(actions[-1], Fail)
        assert words in actions[-1].text
        assert play.member.state is MemberState.DEAD


def test_join_refusals_reset_what_they_must():
    play = Player().stable(T0)
    play(RejoinRequested())
    actions = play.join(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert actions[0] == DropNow((T0,), (T0,))
    (join,) = play(Tick(play.member.deadline_ms))
    assert join.member_id == ""


def test_scenario_49_a_subscription_that_changes_while_revoking():
    play = Player()
    play.start("t", "u")
    play.join(1)
    play.sync(T0, ("u", 0))
    play.callback()
    (stop,) = play(SubscriptionChanged(("u",)))
    assert stop.resources == (T0,)
    play(Drained(stop.token))
    play(SubscriptionChanged(("v",)))
    (commit,) = play.callback()
    (stop,) = play(CommitAnswered(commit.token))
    assert stop.resources == (("u", 0),)
    play(Drained(stop.token))
    (commit,) = play.callback()
    play(CommitAnswered(commit.token))
    assert play.script.views[-1].topics == ("v",)
    play.join(2)
    actions = play.sync(T0)  # planned for the old subscription
    assert [type(a) for a in actions] == [SendJoin]
    assert play.member.owned == ()


def test_a_subscription_that_changes_during_the_round_starts_another():
    play = Player().stable(T0)
    play(RejoinRequested())
    play(SubscriptionChanged(("t", "u")))
    play.join(2)
    actions = play.sync(T0)
    assert actions[-1].reason == "subscription changed"


def test_scenario_26_a_plan_that_fails_completes_the_round_and_is_retried_within_bounds():
    play = Player(plan_retries=1)
    play.start()
    (compute,) = play.join(leader=True)
    warn, sync = play(AssignmentComputed(compute.token, (("m", b"stay"),), "no brokers"))
    assert "no brokers" in warn.text
    assert sync.assignments == (("m", b"stay"),)
    play.sync(T0, absence_revokes=False)
    play.callback()
    (join,) = [a for a in play(Tick(play.member.deadline_ms)) if isinstance(a, SendJoin)]
    (compute,) = play.join(2, leader=True)
    play(AssignmentComputed(compute.token, (("m", b"stay"),), "still no brokers"))
    play.sync(T0, absence_revokes=False)
    assert play.member.data.rejoin_at_ms is None  # bounded
    assert join.reason == "scheduled rebalance"


def test_a_leader_without_any_plan_begins_the_round_anew_and_sends_no_empty_messages():
    play = Player().stable(T0)
    play(RejoinRequested())
    (compute,) = play.join(2, leader=True)
    (warn,) = play(AssignmentFailed(compute.token, "a bug"))
    assert "a bug" in warn.text
    (join,) = play(Tick(play.member.deadline_ms))
    assert isinstance(join, SendJoin)
    view = play.script.views[-1]
    assert (view.owned, view.generation) == ((T0,), 1)


def test_an_unreadable_assignment_changes_nothing_and_is_asked_for_again():
    play = Player().stable(T0)
    play(RejoinRequested())
    play.join(2)
    (warn,) = play(SyncAnswered(request=play.last(SendSync).request, assignment=b"?"))
    assert "unreadable" in warn.text
    assert play.member.owned == (T0,)


def test_kip_429_protocol_choice():
    both, eager, coop = Script(EAGER, COOPERATIVE), Script(EAGER), Script(COOPERATIVE)
    assert choose_rebalance_protocol([both]) is COOPERATIVE
    assert choose_rebalance_protocol([both, eager]) is EAGER
    with pytest.raises(ConfigError, match="share no rebalance protocol"):
        choose_rebalance_protocol([coop, eager])
    with pytest.raises(ConfigError, match="found none"):
        choose_rebalance_protocol([])


def test_options_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="expected less than"):
        MemberOptions(heartbeat_interval_ms=50_000)
    with pytest.raises(ConfigError, match="session_timeout_ms: found 0"):
        MemberOptions(session_timeout_ms=0)
    with pytest.raises(ConfigError, match="not negative"):
        MemberOptions(commit_retries=-1)


def test_scenario_58_clocks_that_jump_backwards_change_nothing():
    play = Player().stable(T0, absence_revokes=False, delay_ms=10_000)
    play(Tick(2_000))
    assert play(Tick(-50_000)) == ()
    assert play.member.data.now_ms == 2_000
    assert play.member.data.rejoin_at_ms == 10_000


@pytest.mark.parametrize(
    ("rebalance_protocol", "claims"),
    [(EAGER, ((T0, T1), 4)), (COOPERATIVE, ((), -1))],
    ids=["eager", "other"],
)
def test_what_a_member_still_reports_after_it_lost_its_membership(rebalance_protocol, claims):
    """KIP-341: an eager one its last assignment at the old generation, as Kafka's client does."""
    play = Player(Script(rebalance_protocol)).stable(T0, T1, generation=4)
    at_ms = play.member.data.now_ms + 3_000
    beat = play(Tick(at_ms), at_ms=at_ms)
    request = next(a for a in beat if isinstance(a, SendHeartbeat)).request
    play(HeartbeatAnswered(request, ErrorCode.UNKNOWN_MEMBER_ID))
    play.last(SendJoin)
    view = play.script.views[-1]
    assert view.owned == ()
    assert (view.previous, view.generation) == claims
