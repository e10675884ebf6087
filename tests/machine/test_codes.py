"""Error codes: which end a member, which lose its membership, and that every other is temporary."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.machine.player import T0, T1, Player

from holdfast.core.machine.actions import (
    ComputeAssignment,
    DropNow,
    Fail,
    FindCoordinator,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Warn,
)
from holdfast.core.machine.codes import (
    EXPECTED,
    FATAL,
    MEMBER_OVER,
    MEMBERSHIP_LOST,
    RETRIABLE,
    ErrorCode,
    commits_again,
    describe,
)
from holdfast.core.machine.events import (
    AssignmentComputed,
    CommitRefused,
    CoordinatorFound,
    HeartbeatAnswered,
    JoinedMember,
    LeaveAnswered,
    LeaveRequested,
    RejoinRequested,
    RequestFailed,
    SyncAnswered,
    Tick,
)
from holdfast.core.machine.member.member_data import NO_REQUEST, MemberOptions
from holdfast.core.machine.states import ENDED, MemberState
from holdfast.errors import ConfigError
from holdfast.local.jars import broker_jars
from holdfast.local.java import find_java

JAVA = Path(__file__).parents[1] / "java" / "ErrorCodes.java"
UNKNOWN_TO_US = 99
PASSING = sorted(
    {*ErrorCode, UNKNOWN_TO_US}
    - {*FATAL, *MEMBERSHIP_LOST, ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}
)


def name(code: int) -> str:
    return describe(code).partition(":")[0]


def rejoining() -> Player:
    play = Player().stable(T0)
    play(RejoinRequested())
    return play


def join_again(play: Player) -> None:
    """Let time pass until the next JoinGroup; the coordinator is found whenever it is asked for."""
    data = play.member.data
    while play.member.state is not MemberState.PREPARING_REBALANCE:
        if data.find_request != NO_REQUEST:
            play(CoordinatorFound(data.find_request))
        else:
            play(Tick(play.member.deadline_ms))


def refused(play: Player, request: str, error: int):
    """The actions after a request of a member in a round, or between two, is refused."""
    if request == "JoinGroup":
        return play.join(error=error)
    if request == "SyncGroup":
        play.join(2)
        return play.sync(error=error)
    play.join(2)
    play.sync(T0)
    if request == "OffsetCommit":
        return play(CommitRefused(2, error))
    play(Tick(play.member.data.heartbeat_due_ms))
    return play(HeartbeatAnswered(play.last(SendHeartbeat).request, error))


@pytest.mark.parametrize("request_name", ["JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"])
@pytest.mark.parametrize("error", PASSING, ids=name)
def test_a_code_that_passes_ends_nobody_and_the_next_round_recovers(error, request_name):
    play = rejoining()
    actions = list(refused(play, request_name, error))
    assert not [a for a in actions if isinstance(a, Fail | DropNow)]
    assert play.member.owned == (T0,)
    words = [a.text for a in actions if isinstance(a, Warn)]
    if request_name == "OffsetCommit" or error in EXPECTED:
        assert words == []  # the caller of a commit learns it from its own answer
    else:
        assert len(words) == 1
        assert describe(error) in words[0]
    if play.member.state is MemberState.STABLE:
        play(RejoinRequested())
    join_again(play)
    view = play.script.views[-1]
    assert view.owned == (T0,)
    play.join(3)
    play.sync(T0, T1)
    assert play.member.state is MemberState.STABLE
    assert play.member.owned == (T0, T1)


@pytest.mark.parametrize("request_name", ["JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"])
@pytest.mark.parametrize("error", FATAL, ids=name)
def test_a_fatal_code_ends_the_member_and_says_what_to_do(error, request_name):
    play = rejoining()
    actions = refused(play, request_name, error)
    assert isinstance(actions[0], DropNow)
    assert actions[-1] == Fail(error, describe(error))
    assert FATAL[error].advice in actions[-1].text
    assert play.member.state in ENDED


def members(**sizes: int) -> tuple[JoinedMember, ...]:
    return tuple(JoinedMember(member_id=m, metadata=b"x" * n) for m, n in sizes.items())


def leading_refused(play: Player, **assignments: int) -> list[str]:
    """A leader's SyncGroup with assignments of these sizes is refused with -1: what it says."""
    play.join(2, leader=True, members=members(m=100, big=1_100_000))
    plan = tuple((m, b"x" * n) for m, n in assignments.items())
    play(AssignmentComputed(play.last(ComputeAssignment).token, plan))
    event = SyncAnswered(request=play.last(SendSync).request, error=ErrorCode.UNKNOWN_SERVER_ERROR)
    return [a.text for a in play(event) if isinstance(a, Warn)]


def test_a_leader_names_the_size_of_the_record_that_was_refused():
    (text,) = leading_refused(rejoining(), m=20, big=30)
    for words in (
        "UNKNOWN_SERVER_ERROR",
        "message.max.bytes",
        "This leader sent 50 bytes of assignments",
        "1,100,100 bytes of subscriptions",
        "1,100,150 bytes",
        "subscription of member big: 1,100,000 bytes",
    ):
        assert words in text
    (text,) = leading_refused(rejoining(), m=20, big=2_000_000)
    assert "assignment of member big: 2,000,000 bytes" in text


def test_a_follower_says_where_the_size_is_reported():
    play = rejoining()
    (warn,) = refused(play, "SyncGroup", ErrorCode.UNKNOWN_SERVER_ERROR)
    assert "the leader's log names the size" in warn.text


def test_a_code_that_stays_is_reported_at_ever_longer_intervals_and_retried_for_ever():
    play = rejoining()
    told, pauses = [], []
    for attempt in range(1, 41):
        told += [attempt] if leading_refused(play, m=1) else []
        pauses.append(play.member.data.retry_at_ms - play.member.data.now_ms)
        join_again(play)
    assert told == [1, 2, 4, 8, 16, 32]
    assert pauses[:4] == [100, 200, 400, 800]
    assert set(pauses[4:]) == {1_000}


def test_a_member_fails_after_minutes_of_refusals_only_if_it_is_told_to():
    play = Player(error_timeout_ms=5_000, session_timeout_ms=60_000).stable(T0)
    play(RejoinRequested())
    while play.member.state not in ENDED:
        leading_refused(play, m=1)
        if play.member.state not in ENDED:
            join_again(play)
    fail = play.last(Fail)
    assert fail.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "SyncGroup is refused since" in fail.text
    assert "message.max.bytes" in fail.text
    assert 5_000 <= play.member.data.now_ms < 7_000
    with pytest.raises(ConfigError, match="error_timeout_ms"):
        MemberOptions(error_timeout_ms=-1)


def test_a_success_between_two_refusals_begins_the_count_anew():
    play = Player(error_timeout_ms=5_000).stable(T0)
    for at_ms in (0, 20_000):
        play(Tick(at_ms))
        play(HeartbeatAnswered(play.member.data.heartbeat_request))
        play(RejoinRequested())
        leading_refused(play, m=1)
        join_again(play)
        play.join(2)
        play.sync(T0)
    assert play.member.state is MemberState.STABLE


def test_a_leave_that_is_refused_is_reported():
    play = Player().stable()
    play(LeaveRequested())
    leave = play.last(SendLeave)
    (warn,) = play(LeaveAnswered(leave.request, ErrorCode.UNKNOWN_SERVER_ERROR))
    assert "session" in warn.text
    assert play.member.state is MemberState.DEAD


def test_a_coordinator_that_is_not_found_is_reported_after_a_while():
    play = Player()
    play.start()
    play(RequestFailed(play.last(SendJoin).request))
    told = []
    for attempt in range(1, 20):
        play(Tick(play.member.deadline_ms))
        actions = play(RequestFailed(play.last(FindCoordinator).request, "no route"))
        told += [attempt for a in actions if isinstance(a, Warn) and "no route" in a.text]
    assert told == [3, 7, 15]  # the failed join counts as well


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_a_commit_is_sent_again_where_it_can_be_accepted(is_overtaken):
    """A wrong number alone is no reason to give up, where a newer one is known."""
    for code in ErrorCode:
        expected = code in RETRIABLE or code is ErrorCode.UNKNOWN_SERVER_ERROR
        if code is ErrorCode.ILLEGAL_GENERATION:
            expected = is_overtaken
        assert commits_again(code, is_overtaken=is_overtaken) == expected
    never = {*FATAL, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.OFFSET_METADATA_TOO_LARGE, 4711}
    assert not any(commits_again(code, is_overtaken=is_overtaken) for code in never)
    assert MEMBER_OVER > MEMBERSHIP_LOST


@pytest.mark.broker  # it needs Java and Kafka's jars
def test_names_numbers_and_what_is_retriable_are_kafkas_and_its_classes_exist():
    internals = "org.apache.kafka.clients.consumer.internals"
    packages = {
        "AbstractCoordinator": internals,
        "ConsumerCoordinator": internals,
        "ConsumerNetworkClient": internals,
        "Metadata": "org.apache.kafka.clients",
        "GroupMetadataManager": "org.apache.kafka.coordinator.group",
    }
    sources = set()
    for fatal in FATAL.values():
        for source in re.findall(r"[\w.]+\.\w+", re.sub(r"\(.*?\)", "", fatal.source)):
            *classes, method = source.split(".")
            sources.add(f"{packages[classes[0]]}.{'$'.join(classes)} {method}")
    assert len(sources) >= 7
    classpath = os.pathsep.join(map(str, broker_jars()))
    command = [str(find_java().executable), "-cp", classpath, str(JAVA), *sorted(sources)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    numbered = [line.split() for line in lines if line[0] in "-0123456789"]
    kafkas = {int(code): (word, retriable) for code, word, retriable in numbered}
    assert {code: code.name for code in ErrorCode} == {code: kafkas[code][0] for code in ErrorCode}
    retriable = {code for code, (_, yes) in kafkas.items() if yes == "true"}
    assert {*RETRIABLE} == retriable | {ErrorCode.REBALANCE_IN_PROGRESS}
    assert [line for line in lines if " false" in line and line[0].isalpha()] == []
    assert len(lines) == len(kafkas) + len(sources)
