"""The member machine, one action at a time, against a hand-played coordinator."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.machine.player import COOPERATIVE, EAGER, T0, T1, Player, Script

from holdfast.core.machine.actions import (
    CallListener,
    Commit,
    DropNow,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    StartFetching,
    Warn,
)
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import (
    AssignmentComputed,
    CommitAnswered,
    CommitRefused,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveRequested,
    MetadataChanged,
    Polled,
    RejoinRequested,
    RequestFailed,
    SubscriptionChanged,
    Tick,
)
from holdfast.core.machine.leader.assignor_protocol import choose_rebalance_protocol
from holdfast.core.machine.leader.subscriptions import key_of
from holdfast.core.machine.member.member_data import MemberOptions
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.machine.states import MemberState
from holdfast.errors import ConfigError


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


def test_a_subscription_that_changes_during_the_round_starts_another():
    play = Player().stable(T0)
    play(RejoinRequested())
    play(SubscriptionChanged(("t", "u")))
    play.join(2)
    actions = play.sync(T0)
    assert actions[-1].reason == "subscription changed"


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


def test_a_member_that_leaves_before_it_has_an_id_leaves_with_the_id_of_the_answer():
    """Else the coordinator reserves the id for a session, and completes no round (KIP-394)."""
    for error in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE):
        play = Player()
        play.start()
        assert play(LeaveRequested(returns=True)) == ()
        (leave,) = play.join(error=error)
        assert isinstance(leave, SendLeave)
        assert leave.member_id == "m"
        assert play.member.state is MemberState.LEAVING


def test_a_member_that_leaves_before_it_has_an_id_ends_if_it_gets_none():
    play = Player()
    play.start()
    play(LeaveRequested(returns=True))
    assert play.join(error=ErrorCode.GROUP_AUTHORIZATION_FAILED) == ()
    assert play.member.state is MemberState.DEAD
    play = Player()
    join = play.start()
    play(LeaveRequested(returns=True))
    play(RequestFailed(join.request, "disconnected"))
    assert play.member.state is MemberState.DEAD


def test_a_member_that_joins_with_its_new_id_says_so_to_the_broker():
    """In the words of Kafka's client: a broker logs the reason with the rebalance (KIP-800)."""
    play = Player()
    assert play.start().reason == "first join"
    (join,) = play.join(error=ErrorCode.MEMBER_ID_REQUIRED)
    assert join.reason == "need to re-join with the given member-id: m"
