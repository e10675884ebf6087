"""The commits of a seat: what may go out, in which order, how often, and what is refused."""

from __future__ import annotations

import threading
import time

import pytest
from tests.adapters.fake_member import Listener, answer, sit
from tests.adapters.interrupts import in_time
from tests.live.waiting import until

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import CommitRefused
from holdfast.core.machine.states import MemberState
from holdfast.errors import AdapterError, RemoteProtocolError
from holdfast.members.member.offsets import OffsetToCommit
from holdfast.members.seat.commits import CommitAsker

A, B = ("t", 0), ("t", 1)
REBALANCE_IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS
ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION
UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID
JOINING = MemberState.PREPARING_REBALANCE
NO_ANSWER = AdapterError("no answer")
EACH = pytest.mark.parametrize("named", [False, True], ids=["all", "named"])


@pytest.fixture
def made():
    """A member that owns t-0, at offset 4; commits are the application's."""
    return at_four()


@pytest.fixture
def member(made):
    return made[0]


@pytest.fixture
def seat(made):
    return made[1]


def at_four(listener=None, **keys):
    member, seat = sit(listener, **{"enable_auto_commit": False, **keys})
    member.gain(A)
    hand_out(seat, 4)
    return member, seat


def hand_out(seat, *offsets):
    """The application polls, and has asked past these offsets of t-0, t-1 and so on."""
    seat.come_in()
    seat.hands.at |= {("t", number): at for number, at in enumerate(offsets)}


def commit(seat, offsets=None, *, asked=None, timeout_s=60.0):
    """Begin a commit of these offsets, or of all that is processed."""
    if offsets is None:
        return seat.commits.begin(seat.to_commit(), asked or CommitAsker.ALL, timeout_s=timeout_s)
    seat.note()
    wanted = {tp: OffsetToCommit(at) for tp, at in offsets.items()}
    return seat.commits.begin(wanted, asked or CommitAsker.NAMED, timeout_s=timeout_s)


def error_of(future):
    assert future.done()
    return future.exception()


# What may go out


def test_a_commit_ends_with_its_member(member, seat):
    fenced = RemoteProtocolError("fenced", error_code=82)

    def fail():
        member.host.failure = fenced
        return REBALANCE_IN_PROGRESS

    member.link.answers = [fail]
    assert error_of(commit(seat)) is fenced
    with pytest.raises(RemoteProtocolError, match="fenced"):
        commit(seat)


# Another attempt


@pytest.mark.parametrize(
    "said",
    [
        *(REBALANCE_IN_PROGRESS, NO_ANSWER, -1),
        *(ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_a_commit_is_tried_again_while_the_coordinator_is_away(member, seat, said):
    member.link.answers = [said, said, 0]
    assert error_of(commit(seat)) is None
    assert member.link.commits == [({A: 4}, 1)] * 3


def test_a_commit_runs_no_callback():
    """It may come from inside a callback, or from another thread than the one that polls."""
    listener = Listener(assigned=None)
    member, seat = at_four(listener)
    member.gain(B)
    member.link.answers = [REBALANCE_IN_PROGRESS, 0]
    commit(seat).result(0)
    assert listener.heard == [("assigned", [A])]


@pytest.mark.parametrize("code", [REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION])
def test_a_commit_that_a_round_overtook_goes_with_the_new_generation(member, seat, code):
    """Whether the answer of the round is still on the way, or has just come."""

    def join():
        member.stand(1, state=JOINING)
        return code

    def go_on():
        member.stand(2)
        return code

    member.link.answers = [join, go_on, 0]
    assert error_of(commit(seat)) is None
    assert [generation for _, generation in member.link.commits] == [1, 1, 2]
    refused = [event for event in member.host.posted if isinstance(event, CommitRefused)]
    assert refused == [CommitRefused(1, code)] * 2, "not generation 2"


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION])
def test_a_commit_of_a_membership_that_is_over_is_refused(member, seat, code):
    member.link.answers = [code]
    refused = error_of(commit(seat))
    assert isinstance(refused, RemoteProtocolError)
    assert refused.error_code == code
    assert member.host.posted[-1] == CommitRefused(1, code)
    assert len(member.link.sent) == 1


@pytest.mark.parametrize(
    "said",
    [RemoteProtocolError("not authorised", error_code=30), ErrorCode.OFFSET_METADATA_TOO_LARGE],
)
def test_what_no_other_attempt_can_mend_is_the_callers(member, seat, said):
    member.link.answers = [said]
    assert error_of(commit(seat)).error_code == getattr(said, "error_code", said)
    assert len(member.link.sent) == 1


def test_a_commit_ends_with_its_time(member, seat):
    member.link.answers = [NO_ANSWER]
    late = error_of(commit(seat, timeout_s=0.0))
    assert isinstance(late, AdapterError)
    assert "not answered in time" in str(late)
    assert len(member.link.sent) == 1


def test_a_commit_ends_with_its_connections(member, seat):
    member.link.answers, member.link.pauses = [NO_ANSWER], []
    sent = commit(seat)
    closed = AdapterError("closed")
    member.link.pauses.pop().set_exception(closed)
    assert error_of(sent) is closed


# Order


@pytest.fixture
def two():
    """A member at offsets 10 of t-0 and 5 of t-1, whose test ends the pauses between attempts."""
    member, seat = sit(enable_auto_commit=False)
    member.gain(A, B)
    hand_out(seat, 10, 5)
    member.link.pauses = []
    return member, seat


def try_again(member):
    member.link.pauses.pop(0).set_result(None)


def test_a_commit_that_is_tried_again_never_comes_after_a_later_one(two):
    member, seat = two
    first = commit(seat, {A: 10, B: 5})
    answer(member.link.sent[0], REBALANCE_IN_PROGRESS)
    second = commit(seat, {A: 20})
    answer(member.link.sent[1], 0)
    assert error_of(second) is None
    assert not first.done()
    try_again(member)
    answer(member.link.sent[2], 0)
    assert error_of(first) is None
    assert [offsets for offsets, _ in member.link.commits] == [{A: 10, B: 5}, {A: 20}, {B: 5}]


def test_no_attempt_comes_after_the_commit_of_a_hand_over(two):
    member, seat = two
    seat.is_automatic = True
    first = commit(seat, {A: 10, B: 5})
    answer(member.link.sent[0], REBALANCE_IN_PROGRESS)
    hand_out(seat, 20, 5)
    member.hold_back(A)
    seat.come_in()
    member.hand_over(A)
    answer(member.link.sent[1], 0)
    try_again(member)
    answer(member.link.sent[2], 0)
    assert error_of(first) is None
    assert [offsets for offsets, _ in member.link.commits] == [{A: 10, B: 5}, {A: 20}, {B: 5}]
    assert member.answered[-1:] == [("committed", 0)]


@pytest.mark.parametrize("asked", [CommitAsker.ALL, CommitAsker.CLOCK])
def test_no_attempt_comes_in_a_later_term(asked):
    """Another member may have committed more since the partition was lost."""
    member, seat = at_four(Listener(lost=None))
    member.link.pauses = []
    sent = commit(seat, asked=asked)
    answer(member.link.sent[0], NO_ANSWER)
    member.lose(A)
    member.link.stands = {A: 9}
    member.gain(A)
    seat.come_in()
    try_again(member)
    assert error_of(sent) is None
    assert member.link.commits == [({A: 4}, 1)]


def test_a_hand_over_waits_for_the_commits_that_are_on_their_way(two):
    """Else the member joins without the partitions, and the commits are refused."""
    member, seat = two
    order = []
    commit(seat, {A: 10}).add_done_callback(lambda _: order.append("committed"))
    seat.in_hand.last = None  # inside a call
    seat.hold_back((A,), lambda: order.append("drained"))
    comes_later = threading.Timer(0.05, answer, [member.link.sent[0], 0])
    comes_later.start()
    seat.come_in()
    comes_later.join()
    assert order == ["committed", "drained"]


def test_a_hand_over_does_not_wait_for_ever(two, monkeypatch):
    monkeypatch.setattr("holdfast.members.seat.in_poll._OPEN_COMMITS_S", 0.01)
    _, seat = two
    drained = threading.Event()
    commit(seat, {A: 10})  # nobody answers
    seat.in_hand.last = None  # inside a call
    seat.hold_back((A,), drained.set)
    seat.come_in()
    assert drained.is_set()


def test_an_interrupted_commit_is_not_waited_for(member, seat, monkeypatch):
    def interrupt(offsets, who):
        raise KeyboardInterrupt

    monkeypatch.setattr(member.link, "commit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        commit(seat)
    assert in_time(lambda: seat.commits.wait_for_open(3600.0))


@pytest.mark.parametrize("attempt", ["first", "second", "nothing left"])
def test_who_hears_of_an_answer_keeps_nobody_from_committing(two, attempt):
    """It may be the application, whose other thread commits just then."""
    member, seat = two
    found = []
    first = commit(seat, {A: 10})
    first.add_done_callback(lambda _: found.append(in_time(lambda: commit(seat, {A: 20}))))
    if attempt == "first":
        answer(member.link.sent[0], 0)
    else:
        answer(member.link.sent[0], NO_ANSWER)
        member.link.answers = [0]
        if attempt == "nothing left":
            commit(seat, {A: 11})
        try_again(member)
    assert found == [True]


# What the application holds and cannot commit any more


LOST = "t-0 had been lost since"


def come_back(member, seat):
    """The partition is this member's again, and begins where another one has committed."""
    member.link.stands = {A: 9}
    member.gain(A)
    seat.come_in()


@EACH
def test_a_commit_of_what_was_given_up_at_a_deadline_names_the_generation(member, seat, named):
    seat.note()
    member.give_up(A)
    with pytest.raises(RemoteProtocolError, match="t-0 had been given up since") as caught:
        commit(seat, {A: 4} if named else None)
    assert caught.value.error_code == ILLEGAL_GENERATION
    assert member.link.commits == []


def test_of_a_loss_and_a_deadline_the_error_names_the_end_of_the_membership():
    member, seat = sit(enable_auto_commit=False)
    member.gain(A, B)
    hand_out(seat, 4, 6)
    seat.note()
    member.give_up(A)
    member.lose(B)
    with pytest.raises(RemoteProtocolError, match="t-0, t-1 had been lost") as caught:
        commit(seat)
    assert caught.value.error_code == UNKNOWN_MEMBER_ID


@EACH
def test_where_no_callback_tells_a_commit_is_refused_until_the_application_polls_after_the_error(
    member, seat, named
):
    seat.note()
    member.lose(A)
    come_back(member, seat)
    hand_out(seat, 12)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match=LOST):
            commit(seat, {A: 4} if named else None)
    seat.come_in()
    member.link.answers = [0]
    assert error_of(commit(seat)) is None
    assert member.link.commits == [({A: 12}, 1)]


def test_where_a_callback_tells_a_commit_is_refused_until_it_has_run():
    member, seat = at_four(Listener(lost=None))
    seat.note()
    member.lose(A)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match=LOST):
            commit(seat)
    come_back(member, seat)
    hand_out(seat, 12)
    member.link.answers = [0]
    assert error_of(commit(seat)) is None


@pytest.mark.parametrize("asks_again", [False, True])
def test_who_was_told_by_the_coordinator_is_not_told_again(member, seat, asks_again):
    """Right after it wakes, a member does not know yet that it was removed."""
    member.link.answers = [UNKNOWN_MEMBER_ID, 0]
    member.host.due.append(lambda: member.lose(A))
    refused = error_of(commit(seat))
    assert refused is not None
    assert "UNKNOWN_MEMBER_ID" in str(refused)
    if asks_again:
        with pytest.raises(RemoteProtocolError, match=LOST):
            commit(seat)
    come_back(member, seat)
    hand_out(seat, 12)
    assert error_of(commit(seat)) is None
    assert [offsets for offsets, _ in member.link.commits] == [{A: 4}, {A: 12}]


def test_a_refused_commit_of_a_hand_over_leaves_its_records_untold(member, seat):
    seat.is_automatic = True
    member.hold_back(A)
    seat.come_in()
    member.link.answers = [ILLEGAL_GENERATION]
    member.hand_over(A)
    assert member.answered[-1:] == [("committed", ILLEGAL_GENERATION)]
    with pytest.raises(RemoteProtocolError, match="t-0 had been lost"):
        commit(seat)


@pytest.mark.parametrize("told", [False, True], ids=["silent", "told"])
def test_the_loop_writes_to_the_log_what_it_can_commit_no_more(told):
    """At once, and once; a callback tells of it instead, if there is one."""
    listener = Listener(**({"lost": None} if told else {}))
    member, seat = at_four(listener, enable_auto_commit=True)
    seat.note()
    member.lose(A)
    for _ in range(2):
        seat.come_in()
        seat.commit_by_clock()
    assert [LOST in line for line in member.logged] == ([] if told else [True])


def test_with_manual_commits_the_loop_writes_nothing(member, seat):
    seat.note()
    member.lose(A)
    seat.come_in()
    seat.commit_by_clock()
    assert member.logged == []
    with pytest.raises(RemoteProtocolError, match=LOST):
        commit(seat)


# Leaving


@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS])
def test_leaving_commits_before_it_gives_up_the_round(code):
    """The round is over at the coordinator: only who takes its answer can commit."""
    member, seat = at_four(enable_auto_commit=True)
    member.stand(1, state=JOINING)

    def go_on():
        member.stand(2)
        return code

    def leave():
        order.append("leaves")
        member.host.over.set()

    order = member.link.sent
    member.host.leaves = leave
    member.link.answers = [go_on, 0]
    seat.leave(later(30), returns=True)
    assert [getattr(one, "generation", one) for one in order] == [1, 2, "leaves"]


def test_leaving_waits_for_the_answer_of_its_commit():
    """A coordinator that hears of the leave first would refuse the commit."""
    member, seat = at_four(enable_auto_commit=True)
    order = []
    member.host.leaves = lambda: (order.append("leaves"), member.host.over.set())

    def answers_late():
        until(lambda: member.link.sent, "the commit")
        time.sleep(0.2)
        order.append("answered")
        answer(member.link.sent[0], 0)

    late = threading.Thread(target=answers_late)
    late.start()
    seat.leave(later(30), returns=True)
    late.join(30)
    assert order == ["answered", "leaves"]


@pytest.mark.parametrize("said", [UNKNOWN_MEMBER_ID, NO_ANSWER, None])
def test_leaving_does_not_wait_for_a_commit_that_cannot_be(said):
    member, seat = at_four(enable_auto_commit=True)
    member.link.answers = [] if said is None else [said]
    seat.leave(later(0.05), returns=True)
    assert member.host.over.is_set()


def later(seconds):
    return time.monotonic() + seconds
