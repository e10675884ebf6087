"""The seat of a member whose client works in the application's calls, through its public face."""

from __future__ import annotations

import pytest
from tests.adapters.fake_member import Listener, Record, sit
from tests.live.waiting import until

from holdfast.core.machine.callbacks import ListenerCall
from holdfast.core.machine.codes import ErrorCode
from holdfast.errors import RemoteProtocolError
from holdfast.members.member.offsets import OffsetToCommit
from holdfast.members.seat.commits import CommitAsker
from holdfast.members.seat.hands import Wishes
from holdfast.members.seat.in_hand import NOTHING

A, B = ("t", 0), ("t", 1)
COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}
WISHES = Wishes(hears_nothing_new=False, error_stops_commit=False)
HOUR_S = 3600.0


class Scene:
    """A member, its seat, and an application that polls."""

    def __init__(self, *, listener=None, wishes=WISHES, **keys):
        self.listener = listener or Listener(assigned=None, revoked=None, lost=None)
        self.member, self.seat = sit(self.listener, wishes=wishes, **{**COOPERATIVE, **keys})
        self.hands, self.in_hand = self.seat.hands, self.seat.in_hand
        self.link, self.host = self.member.link, self.member.host
        self.answers = self.member.answered
        self.hold_back, self.call = self.member.hold_back, self.member.call
        self.last_commit = self.member.hand_over

    def poll(self, *records):
        """One call of the application, which gets these records; returns what a callback raised."""
        self.in_hand.last = None
        error = self.seat.come_in()
        self.hands.at |= {tp: offset + 1 for tp, offset in records}
        self.in_hand.last = [Record(*one) for one in records] or NOTHING
        return error

    def assign(self, *tps, began=-1):
        """The group gives these, in a new term; the group has committed ``began``."""
        self.link.stands = dict.fromkeys(tps, began)
        self.member.gain(*tps)
        self.poll()

    def commit(self, asked=CommitAsker.ALL, **offsets):
        """The application commits ``t0=5``, or what is processed; the answer is there at once."""
        named = {("t", int(name[1:])): OffsetToCommit(at) for name, at in offsets.items()}
        self.seat.note()
        wanted = named or self.seat.to_commit()
        sent = self.seat.commits.begin(
            wanted, CommitAsker.NAMED if named else asked, timeout_s=HOUR_S
        )
        return sent.result(0)


@pytest.fixture
def owning():
    """A member that owns t-0."""
    scene = Scene()
    scene.assign(A)
    return scene


@pytest.fixture
def holding(owning):
    """Its application has the record of offset 7 in its hand."""
    owning.poll((A, 7))
    return owning


# Hand-overs


def test_a_hand_over_waits_for_an_application_that_has_records_of_it():
    scene = Scene()
    scene.assign(A, B)
    scene.poll((A, 7))
    scene.hold_back(A)
    assert "drained" not in scene.answers
    scene.hands.calls.clear()
    scene.poll()
    assert scene.hands.calls == [("hold back", [A])]
    assert "drained" in scene.answers


@pytest.mark.parametrize("held", [(), ((B, 3),)])
def test_a_hand_over_waits_for_nobody_who_has_nothing_of_it(held):
    scene = Scene()
    scene.assign(A, B)
    scene.poll(*held)
    scene.hold_back(A)
    assert scene.answers.count("drained") == 1
    scene.hands.calls.clear()
    scene.poll()
    assert scene.hands.calls == [("hold back", [A])], "before it hands out anything"


def test_one_call_does_the_whole_hand_over_in_order():
    """Hold back, drained, callback, drop, commit: what the callback commits is committed before."""
    scene = Scene()
    scene.assign(A, B)
    scene.poll((A, 7))
    scene.link.answers.extend([0, 0])
    scene.listener.works["revoked"] = lambda _: scene.commit(t0=8)
    scene.hold_back(A)
    scene.host.due.append(lambda: scene.call(ListenerCall.REVOKED, A))
    scene.host.due.append(lambda: scene.last_commit(A))
    scene.hands.calls.clear()
    scene.answers.clear()
    scene.poll()
    assert scene.hands.calls == [("hold back", [A]), ("revoked", [A]), ("drop", [A])]
    assert scene.answers == ["drained", ("revoked", None), ("committed", 0)]
    assert scene.link.commits == [({A: 8}, 1)], "and once"


def test_a_close_without_a_commit_commits_nothing(holding):
    holding.seat.is_automatic = False
    holding.link.answers.append(0)

    def hand_over():
        holding.hold_back(A)
        holding.call(ListenerCall.REVOKED, A)
        holding.last_commit(A)
        holding.host.over.set()

    holding.host.leaves = hand_over
    assert holding.seat.leave(HOUR_S * 1e6, returns=True) is None
    assert holding.link.sent == []
    assert ("committed", 0) in holding.answers


# Callbacks


@pytest.mark.parametrize("stops", [False, True])
def test_an_error_of_a_callback_comes_out_of_the_call_and_stops_a_commit_as_wished(stops):
    scene = Scene(wishes=Wishes(hears_nothing_new=False, error_stops_commit=stops))
    scene.assign(A)
    scene.answers.clear()
    error = ValueError("of the application")

    def fail(_):
        raise error

    scene.listener.works["revoked"] = fail
    scene.call(ListenerCall.REVOKED, A)
    assert scene.poll() is error
    assert scene.answers == [("revoked", "ValueError: of the application" if stops else None)]
    assert ("drop", [A]) in scene.hands.calls


def test_an_interrupted_errand_is_done_again_and_its_callback_is_not(owning):
    owning.hands.calls.clear()
    owning.call(ListenerCall.REVOKED, A)
    drop, owning.hands.drop = owning.hands.drop, interrupted
    with pytest.raises(KeyboardInterrupt):
        owning.poll()
    assert owning.answers == [("assigned", None)]
    owning.hands.drop = drop
    owning.poll()
    assert owning.hands.calls == [("revoked", [A]), ("drop", [A])]
    assert owning.answers == [("assigned", None), ("revoked", None)]


def interrupted(_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("keys", "wish", "is_told"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"partition_assignment_strategy": "range"}, False, True),
    ],
    ids=["cooperative", "as wished", "eager"],
)
def test_a_round_without_news_is_told_to_whom_it_matters(keys, wish, is_told):
    scene = Scene(wishes=Wishes(hears_nothing_new=wish, error_stops_commit=False), **keys)
    scene.assign(A)
    scene.hands.calls.clear()
    scene.call(ListenerCall.ASSIGNED)
    scene.poll()
    assert scene.hands.calls == ([("assigned", [])] if is_told else [])


def test_nobody_waits_for_a_callback_that_the_application_does_not_have():
    scene = Scene(listener=Listener())
    scene.call(ListenerCall.REVOKED, A)
    assert scene.answers == [("revoked", None)]


# Losses


def test_a_loss_is_hidden_at_once_and_dropped_after_its_callback(holding):
    holding.hands.calls.clear()
    holding.member.lose(A)
    assert holding.hands.calls == [("hide", [A])]
    holding.poll()
    assert holding.hands.calls == [("hide", [A]), ("lost", [A]), ("drop", [A])]


def test_what_a_deadline_took_is_dropped_without_a_callback_of_its_own(holding):
    holding.hands.calls.clear()
    holding.member.give_up(A)
    holding.poll()
    assert holding.hands.calls == [("hide", [A]), ("drop", [A])]


def test_offsets_of_an_earlier_term_are_accepted_from_where_the_present_one_began_to_its_end():
    scene = Scene()
    scene.assign(A, began=0)
    scene.poll((A, 206))
    scene.member.lose(A)
    scene.poll()
    scene.assign(A, began=307)
    scene.hands.at[A] = 307
    for offset in (207, 308):
        with pytest.raises(RemoteProtocolError):
            scene.commit(t0=offset)
    scene.poll((A, 307))
    scene.link.answers.append(0)
    scene.commit(t0=308)
    assert scene.link.commits == [({A: 308}, 1)]


def test_a_seek_moves_what_may_be_named():
    scene = Scene()
    scene.assign(A, began=0)
    scene.member.lose(A)
    scene.poll()
    scene.assign(A, began=307)
    scene.seat.progress.seek(A, 200)
    scene.link.answers.append(0)
    scene.commit(t0=200)
    assert scene.link.commits == [({A: 200}, 1)]


# Deadlines


def test_at_a_deadline_what_an_absent_application_has_in_its_hand_is_not_committed():
    scene = Scene()
    scene.assign(A, began=0)
    scene.poll((A, 4))
    scene.poll((A, 5), (A, 6))
    scene.hold_back(A)
    scene.link.answers.append(0)
    scene.last_commit(A)
    until(lambda: ("committed", 0) in scene.answers, lambda: f"a commit: {scene.answers}")
    assert scene.link.commits == [({A: 5}, 1)]


def test_at_a_deadline_inside_a_call_the_call_itself_says_how_far_it_has_come():
    scene = Scene()
    scene.assign(A, began=0)
    scene.hands.at[A] = 5
    scene.in_hand.last = None
    scene.seat.errands.items.clear()
    scene.last_commit(A)
    until(lambda: scene.seat.errands.items, "an errand")
    assert scene.link.sent == []
    scene.link.answers.append(0)
    scene.seat.come_in()
    assert scene.link.commits == [({A: 5}, 1)]


# Commits


def test_the_clock_commits_what_is_processed_when_its_time_has_come():
    scene = Scene(auto_commit_interval_ms=0)
    scene.assign(A)
    scene.poll((A, 7))
    scene.link.answers.append(0)
    offsets, sent = scene.seat.commit_by_clock()
    assert {tp: at.offset for tp, at in offsets.items()} == {A: 8}
    assert sent.result(0) is None
    assert scene.seat.commit_by_clock() is None, "nothing is new"


@pytest.mark.parametrize(
    "keys", [{"auto_commit_interval_ms": 3_600_000}, {"enable_auto_commit": False}]
)
def test_the_clock_commits_nothing_before_its_time_nor_for_a_program_that_commits(keys):
    scene = Scene(**{"auto_commit_interval_ms": 0, **keys})
    scene.assign(A)
    scene.poll((A, 7))
    assert scene.seat.commit_by_clock() is None
    assert scene.link.sent == []


def test_the_clock_raises_nothing_where_the_member_fails_just_now(monkeypatch):
    """The client's next call tells of the failure, in the client's own words."""
    scene = Scene(auto_commit_interval_ms=0)
    scene.assign(A)
    scene.poll((A, 7))
    numbers = scene.seat.progress.numbers

    def fails_meanwhile(offsets):
        scene.host.failure = RemoteProtocolError("fenced", error_code=82)
        return numbers(offsets)

    monkeypatch.setattr(scene.seat.progress, "numbers", fails_meanwhile)
    assert scene.seat.commit_by_clock() is None
    assert scene.host.failure is not None
    assert scene.link.sent == []


def test_nobody_commits_again_where_it_began():
    """Nothing is committed that was not handed out: the last owner's commit stands there."""
    scene = Scene()
    scene.assign(A, began=5)
    scene.hands.at[A] = 5
    scene.commit()
    assert scene.link.sent == []
    scene.poll((A, 7))
    scene.link.answers.extend([0, 0])
    scene.commit()
    scene.hands.at[A] = 5  # the application went back
    scene.commit()
    assert [offsets for offsets, _ in scene.link.commits] == [{A: 8}, {A: 5}]


@pytest.mark.parametrize("member_id", ["m", "the next"])
def test_only_another_process_fences_a_member(owning, member_id):
    """A commit of this process's last member id may come after its join with the next one."""
    sent = owning.seat.commits.begin({A: OffsetToCommit(5)}, CommitAsker.NAMED, timeout_s=HOUR_S)
    owning.member.owns({A: 1}, 2, member_id=member_id)
    owning.link.sent[0].answer.set_result(ErrorCode.FENCED_INSTANCE_ID)
    is_fenced = sent.exception(0).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert is_fenced is (member_id == "m")
