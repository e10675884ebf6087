"""The commits of a session: what may be sent, in which order, how often, and what is refused."""

from __future__ import annotations

import threading
import time

import pytest
from tests.live.waiting import until
from tests.members.fake_member import Listener, answer, make_member
from tests.members.interrupts import in_time

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import CommitRefused
from holdfast.core.machine.shared_values import OffsetToCommit
from holdfast.core.machine.states import MemberState
from holdfast.errors import ClientError, RemoteProtocolError
from holdfast.members.session.commits import CommitOrigin

A, B = ("t", 0), ("t", 1)
REBALANCE_IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS
ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION
UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID
JOINING = MemberState.PREPARING_REBALANCE
NO_ANSWER = ClientError("no answer")
EACH = pytest.mark.parametrize("named", [False, True], ids=["all", "named"])


@pytest.fixture
def made():
    """A member that owns t-0, at offset 4; commits are the application's."""
    return at_four()


@pytest.fixture
def member(made):
    return made[0]


@pytest.fixture
def session(made):
    return made[1]


def at_four(listener=None, **keys):
    member, session = make_member(listener, **{"enable_auto_commit": False, **keys})
    member.gain(A)
    hand_out(session, 4)
    return member, session


def hand_out(session, *offsets):
    """The application polls, and has asked past these offsets of t-0, t-1 and so on."""
    session.begin_poll()
    session.adapter.at |= {("t", number): at for number, at in enumerate(offsets)}


def commit(session, offsets=None, *, asked=None, timeout_s=60.0):
    """Begin a commit of these offsets, or of all that is processed."""
    if offsets is None:
        return session.commits.commit_async(
            session.to_commit(), asked or CommitOrigin.ALL, timeout_s=timeout_s
        )
    session.record_positions()
    wanted = {tp: OffsetToCommit(at) for tp, at in offsets.items()}
    return session.commits.commit_async(wanted, asked or CommitOrigin.NAMED, timeout_s=timeout_s)


def error_of(future):
    assert future.done()
    return future.exception()


# What may go out


def test_a_commit_ends_with_its_member(member, session):
    fenced = RemoteProtocolError("fenced", error_code=82)

    def fail():
        member.member_thread.failure = fenced
        return REBALANCE_IN_PROGRESS

    member.coordinator.answers = [fail]
    assert error_of(commit(session)) is fenced
    with pytest.raises(RemoteProtocolError, match="fenced"):
        commit(session)


# Another attempt


@pytest.mark.parametrize(
    "said",
    [
        *(REBALANCE_IN_PROGRESS, NO_ANSWER, -1),
        *(ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_a_commit_is_tried_again_while_the_coordinator_is_away(member, session, said):
    member.coordinator.answers = [said, said, 0]
    assert error_of(commit(session)) is None
    assert member.coordinator.commits == [({A: 4}, 1)] * 3


def test_a_commit_runs_no_callback():
    """It may come from inside a callback, or from another thread than the one that polls."""
    listener = Listener(assigned=None)
    member, session = at_four(listener)
    member.gain(B)
    member.coordinator.answers = [REBALANCE_IN_PROGRESS, 0]
    commit(session).result(0)
    assert listener.heard == [("assigned", [A])]


@pytest.mark.parametrize("code", [REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION])
def test_a_commit_that_a_round_overtook_goes_with_the_new_generation(member, session, code):
    """Whether the answer of the round is still on the way, or has just come."""

    def join():
        member.stand(1, state=JOINING)
        return code

    def go_on():
        member.stand(2)
        return code

    member.coordinator.answers = [join, go_on, 0]
    assert error_of(commit(session)) is None
    assert [generation for _, generation in member.coordinator.commits] == [1, 1, 2]
    refused = [event for event in member.member_thread.posted if isinstance(event, CommitRefused)]
    assert refused == [CommitRefused(1, code)] * 2, "not generation 2"


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION])
def test_a_commit_of_a_membership_that_is_over_is_refused(member, session, code):
    member.coordinator.answers = [code]
    refused = error_of(commit(session))
    assert isinstance(refused, RemoteProtocolError)
    assert refused.error_code == code
    assert member.member_thread.posted[-1] == CommitRefused(1, code)
    assert len(member.coordinator.sent) == 1


@pytest.mark.parametrize(
    "said",
    [RemoteProtocolError("not authorised", error_code=30), ErrorCode.OFFSET_METADATA_TOO_LARGE],
)
def test_what_no_other_attempt_can_mend_is_the_callers(member, session, said):
    member.coordinator.answers = [said]
    assert error_of(commit(session)).error_code == getattr(said, "error_code", said)
    assert len(member.coordinator.sent) == 1


def test_a_commit_ends_with_its_time(member, session):
    member.coordinator.answers = [NO_ANSWER]
    late = error_of(commit(session, timeout_s=0.0))
    assert isinstance(late, ClientError)
    assert "not answered in time" in str(late)
    assert len(member.coordinator.sent) == 1


def test_a_commit_ends_with_its_connections(member, session):
    member.coordinator.answers, member.coordinator.pauses = [NO_ANSWER], []
    sent = commit(session)
    closed = ClientError("closed")
    member.coordinator.pauses.pop().set_exception(closed)
    assert error_of(sent) is closed


# Order


@pytest.fixture
def two():
    """A member at offsets 10 of t-0 and 5 of t-1, whose test ends the pauses between attempts."""
    member, session = make_member(enable_auto_commit=False)
    member.gain(A, B)
    hand_out(session, 10, 5)
    member.coordinator.pauses = []
    return member, session


def try_again(member):
    member.coordinator.pauses.pop(0).set_result(None)


def test_a_commit_that_is_tried_again_never_comes_after_a_later_one(two):
    member, session = two
    first = commit(session, {A: 10, B: 5})
    answer(member.coordinator.sent[0], REBALANCE_IN_PROGRESS)
    second = commit(session, {A: 20})
    answer(member.coordinator.sent[1], 0)
    assert error_of(second) is None
    assert not first.done()
    try_again(member)
    answer(member.coordinator.sent[2], 0)
    assert error_of(first) is None
    assert [offsets for offsets, _ in member.coordinator.commits] == [
        {A: 10, B: 5},
        {A: 20},
        {B: 5},
    ]


def test_no_attempt_comes_after_the_commit_of_a_revocation(two):
    member, session = two
    session.is_automatic = True
    first = commit(session, {A: 10, B: 5})
    answer(member.coordinator.sent[0], REBALANCE_IN_PROGRESS)
    hand_out(session, 20, 5)
    member.mark_pending_revocation(A)
    session.begin_poll()
    member.commit_revoked(A)
    answer(member.coordinator.sent[1], 0)
    try_again(member)
    answer(member.coordinator.sent[2], 0)
    assert error_of(first) is None
    assert [offsets for offsets, _ in member.coordinator.commits] == [
        {A: 10, B: 5},
        {A: 20},
        {B: 5},
    ]
    assert member.answered[-1:] == [("committed", 0)]


@pytest.mark.parametrize("asked", [CommitOrigin.ALL, CommitOrigin.AUTO])
def test_no_attempt_comes_in_a_later_term(asked):
    """Another member may have committed more since the partition was lost."""
    member, session = at_four(Listener(lost=None))
    member.coordinator.pauses = []
    sent = commit(session, asked=asked)
    answer(member.coordinator.sent[0], NO_ANSWER)
    member.lose(A)
    member.coordinator.stands = {A: 9}
    member.gain(A)
    session.begin_poll()
    try_again(member)
    assert error_of(sent) is None
    assert member.coordinator.commits == [({A: 4}, 1)]


def test_a_revocation_waits_for_the_commits_that_are_on_their_way(two):
    """Else the member joins without the partitions, and the commits are refused."""
    member, session = two
    order = []
    commit(session, {A: 10}).add_done_callback(lambda _: order.append("committed"))
    session.in_flight.last_result = None  # inside a call
    session.mark_pending_revocation((A,), lambda: order.append("drained"))
    comes_later = threading.Timer(0.05, answer, [member.coordinator.sent[0], 0])
    comes_later.start()
    session.begin_poll()
    comes_later.join()
    assert order == ["committed", "drained"]


def test_a_revocation_does_not_wait_for_ever(two, monkeypatch):
    monkeypatch.setattr("holdfast.members.session.poll_session._PENDING_COMMITS_S", 0.01)
    _, session = two
    drained = threading.Event()
    commit(session, {A: 10})  # nobody answers
    session.in_flight.last_result = None  # inside a call
    session.mark_pending_revocation((A,), drained.set)
    session.begin_poll()
    assert drained.is_set()


def test_an_interrupted_commit_is_not_waited_for(member, session, monkeypatch):
    def interrupt(offsets, who):
        raise KeyboardInterrupt

    monkeypatch.setattr(member.coordinator, "commit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        commit(session)
    assert in_time(lambda: session.commits.wait_for_pending(3600.0))


@pytest.mark.parametrize("attempt", ["first", "second", "nothing left"])
def test_who_hears_of_an_answer_keeps_nobody_from_committing(two, attempt):
    """It may be the application, whose other thread commits just then."""
    member, session = two
    found = []
    first = commit(session, {A: 10})
    first.add_done_callback(lambda _: found.append(in_time(lambda: commit(session, {A: 20}))))
    if attempt == "first":
        answer(member.coordinator.sent[0], 0)
    else:
        answer(member.coordinator.sent[0], NO_ANSWER)
        member.coordinator.answers = [0]
        if attempt == "nothing left":
            commit(session, {A: 11})
        try_again(member)
    assert found == [True]


# What the application holds and cannot commit any more


LOST = "t-0 had been lost since"


def record_poll(member, session):
    """The partition is this member's again, and begins where another one has committed."""
    member.coordinator.stands = {A: 9}
    member.gain(A)
    session.begin_poll()


@EACH
def test_a_commit_of_what_was_revoked_at_a_deadline_names_the_generation(member, session, named):
    session.record_positions()
    member.give_up(A)
    with pytest.raises(RemoteProtocolError, match="t-0 had been revoked since") as caught:
        commit(session, {A: 4} if named else None)
    assert caught.value.error_code == ILLEGAL_GENERATION
    assert member.coordinator.commits == []


def test_of_a_loss_and_a_deadline_the_error_names_the_end_of_the_membership():
    member, session = make_member(enable_auto_commit=False)
    member.gain(A, B)
    hand_out(session, 4, 6)
    session.record_positions()
    member.give_up(A)
    member.lose(B)
    with pytest.raises(RemoteProtocolError, match="t-0, t-1 had been lost") as caught:
        commit(session)
    assert caught.value.error_code == UNKNOWN_MEMBER_ID


@EACH
def test_where_no_callback_tells_a_commit_is_refused_until_the_application_polls_after_the_error(
    member, session, named
):
    session.record_positions()
    member.lose(A)
    record_poll(member, session)
    hand_out(session, 12)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match=LOST):
            commit(session, {A: 4} if named else None)
    session.begin_poll()
    member.coordinator.answers = [0]
    assert error_of(commit(session)) is None
    assert member.coordinator.commits == [({A: 12}, 1)]


def test_where_a_callback_tells_a_commit_is_refused_until_it_has_run():
    member, session = at_four(Listener(lost=None))
    session.record_positions()
    member.lose(A)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match=LOST):
            commit(session)
    record_poll(member, session)
    hand_out(session, 12)
    member.coordinator.answers = [0]
    assert error_of(commit(session)) is None


@pytest.mark.parametrize("asks_again", [False, True])
def test_who_was_told_by_the_coordinator_is_not_told_again(member, session, asks_again):
    """Right after it wakes, a member does not know yet that it was removed."""
    member.coordinator.answers = [UNKNOWN_MEMBER_ID, 0]
    member.member_thread.due.append(lambda: member.lose(A))
    refused = error_of(commit(session))
    assert refused is not None
    assert "UNKNOWN_MEMBER_ID" in str(refused)
    if asks_again:
        with pytest.raises(RemoteProtocolError, match=LOST):
            commit(session)
    record_poll(member, session)
    hand_out(session, 12)
    assert error_of(commit(session)) is None
    assert [offsets for offsets, _ in member.coordinator.commits] == [{A: 4}, {A: 12}]


def test_a_refused_last_commit_leaves_its_records_unreported(member, session):
    session.is_automatic = True
    member.mark_pending_revocation(A)
    session.begin_poll()
    member.coordinator.answers = [ILLEGAL_GENERATION]
    member.commit_revoked(A)
    assert member.answered[-1:] == [("committed", ILLEGAL_GENERATION)]
    with pytest.raises(RemoteProtocolError, match="t-0 had been lost"):
        commit(session)


@pytest.mark.parametrize("told", [False, True], ids=["silent", "told"])
def test_the_loop_writes_to_the_log_what_it_can_commit_no_more(told):
    """At once, and once; a callback tells of it instead, if there is one."""
    listener = Listener(**({"lost": None} if told else {}))
    member, session = at_four(listener, enable_auto_commit=True)
    session.record_positions()
    member.lose(A)
    for _ in range(2):
        session.begin_poll()
        session.maybe_auto_commit()
    assert [LOST in line for line in member.logged] == ([] if told else [True])


def test_with_manual_commits_the_loop_writes_nothing(member, session):
    session.record_positions()
    member.lose(A)
    session.begin_poll()
    session.maybe_auto_commit()
    assert member.logged == []
    with pytest.raises(RemoteProtocolError, match=LOST):
        commit(session)


# Leaving


@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS])
def test_leaving_commits_before_it_gives_up_the_round(code):
    """The round is over at the coordinator: only who takes its answer can commit."""
    member, session = at_four(enable_auto_commit=True)
    member.stand(1, state=JOINING)

    def go_on():
        member.stand(2)
        return code

    def leave():
        order.append("leaves")
        member.member_thread.finished.set()

    order = member.coordinator.sent
    member.member_thread.leaves = leave
    member.coordinator.answers = [go_on, 0]
    session.leave(later(30), returns=True)
    assert [getattr(one, "generation", one) for one in order] == [1, 2, "leaves"]


def test_leaving_waits_for_the_answer_of_its_commit():
    """A coordinator that hears of the leave first would refuse the commit."""
    member, session = at_four(enable_auto_commit=True)
    order = []
    member.member_thread.leaves = lambda: (
        order.append("leaves"),
        member.member_thread.finished.set(),
    )

    def answers_late():
        until(lambda: member.coordinator.sent, "the commit")
        time.sleep(0.2)
        order.append("answered")
        answer(member.coordinator.sent[0], 0)

    late = threading.Thread(target=answers_late)
    late.start()
    session.leave(later(30), returns=True)
    late.join(30)
    assert order == ["answered", "leaves"]


@pytest.mark.parametrize("said", [UNKNOWN_MEMBER_ID, NO_ANSWER, None])
def test_leaving_does_not_wait_for_a_commit_that_cannot_be(said):
    member, session = at_four(enable_auto_commit=True)
    member.coordinator.answers = [] if said is None else [said]
    session.leave(later(0.05), returns=True)
    assert member.member_thread.finished.is_set()


def later(seconds):
    return time.monotonic() + seconds
