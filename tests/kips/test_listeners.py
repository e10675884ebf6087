"""KIP-54's old and new listener, and KIP-429's order of callbacks, driven by the real member."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.kips.listeners import NewListener, OldListener, Work
from tests.machine.test_member import COOPERATIVE, EAGER, T0, T1, T2, Player, Script

from holdfast.core.machine.actions import CallListener, Commit, DropNow, StartFetching, StopFetching
from holdfast.core.machine.callbacks import ListenerCall
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import (
    CommitAnswered,
    CommitRefused,
    Drained,
    ListenerReturned,
    RejoinRequested,
)


@dataclass
class Log:
    """What a listener did, as (verb, resource)."""

    done: list = field(default_factory=list)

    def work(self) -> Work:
        return Work(
            commit=lambda r: self.done.append(("commit", r)),
            clean_up=lambda r: self.done.append(("clean up", r)),
            prepare=lambda r: self.done.append(("prepare", r)),
        )

    def take(self) -> list:
        done, self.done = self.done, []
        return done


class Listened(Player):
    """A player whose application has a listener and answers every duty at once."""

    def __init__(self, listener, *modes):
        super().__init__(Script(*modes))
        self.listener = listener

    def __call__(self, event, at_ms=None):
        actions = super().__call__(event, at_ms)
        for action in actions:
            match action:
                case CallListener(token=token, call=call, resources=resources):
                    getattr(self.listener, f"on_partitions_{call}")(resources)
                    self(ListenerReturned(token))
                case StopFetching(token=token):
                    self(Drained(token))
                case Commit(token=token):
                    self(CommitAnswered(token))
        return actions

    def round(self, generation, *assigned):
        if generation > 1:
            self(RejoinRequested())
        else:
            self.start()
        self.join(generation)
        self.sync(*assigned)


def test_the_old_listener_does_everything_for_everything_under_an_eager_protocol():
    log = Log()
    play = Listened(OldListener(log.work()), EAGER)
    play.round(1, T0, T1)
    assert log.take() == [("prepare", T0), ("prepare", T1)]
    play.round(2, T0, T2)
    assert log.take() == [
        ("commit", T0),
        ("clean up", T0),
        ("commit", T1),
        ("clean up", T1),
        ("prepare", T0),  # though it never left
        ("prepare", T2),
    ]


def test_the_new_listener_does_the_difference_under_an_eager_protocol():
    log = Log()
    play = Listened(NewListener(log.work()), EAGER)
    play.round(1, T0, T1)
    assert log.take() == [("prepare", T0), ("prepare", T1)]
    play.round(2, T0, T2)
    assert log.take() == [
        ("commit", T0),
        ("commit", T1),
        ("clean up", T1),  # difference(last, new)
        ("prepare", T2),  # difference(new, last)
    ]
    play.round(3, T0, T2)
    assert log.take() == [("commit", T0), ("commit", T2)]


@pytest.mark.parametrize("kind", [OldListener, NewListener])
def test_under_a_cooperative_protocol_both_hear_of_differences_only(kind):
    log = Log()
    listener = kind(log.work())
    if kind is NewListener:
        listener.cooperative = True
    play = Listened(listener, COOPERATIVE)
    play.round(1, T0, T1)
    assert log.take() == [("prepare", T0), ("prepare", T1)]
    play.round(2, T0, T2)
    assert log.take() == [("commit", T1), ("clean up", T1), ("prepare", T2)]


def test_lost_is_cleaned_up_and_never_committed():
    for listener_type in (OldListener, NewListener):
        log = Log()
        listener = listener_type(log.work())
        play = Listened(listener, COOPERATIVE)
        play.round(1, T0, T1)
        log.take()
        play(CommitRefused(1, ErrorCode.UNKNOWN_MEMBER_ID))
        assert log.take() == [("clean up", T0), ("clean up", T1)]
        play.join(4)
        play.sync(T0)
        assert log.take() == [("prepare", T0)]  # its state is gone


def test_the_default_work_is_nothing():
    for listener in (OldListener(), NewListener()):
        listener.on_partitions_assigned((T0,))
        listener.on_partitions_revoked((T0,))
        listener.on_partitions_lost((T0,))


def calls(play: Player) -> list:
    return [
        (a.call, a.resources) if isinstance(a, CallListener) else type(a).__name__
        for a in play.done
        if isinstance(a, CallListener | DropNow | StartFetching | StopFetching | Commit)
    ]


def test_kip_429_revoked_comes_before_assigned_of_the_same_round():
    play = Listened(OldListener(), COOPERATIVE)
    play.round(1, T0, T1)
    play.done.clear()
    play.round(2, T0, T2)
    order = calls(play)
    assert order.index((ListenerCall.REVOKED, (T1,))) < order.index((ListenerCall.ASSIGNED, (T2,)))
    assert order.index("StopFetching") == 0
    assert order[-1] == "StartFetching" or order[-1] == "Commit"


def test_kip_429_assigned_comes_in_every_round_revoked_and_lost_only_with_something():
    play = Listened(OldListener(), COOPERATIVE)
    play.round(1, T0)
    play.done.clear()
    play.round(2, T0)
    assert calls(play) == [(ListenerCall.ASSIGNED, ())]
    play.done.clear()
    play.round(3)
    assert (ListenerCall.REVOKED, (T0,)) in calls(play)
    play.done.clear()
    play(CommitRefused(3, ErrorCode.UNKNOWN_MEMBER_ID))
    assert not [c for c in calls(play) if c[0] is ListenerCall.LOST]  # nothing was owned
    eager = Listened(OldListener(), EAGER)
    eager.round(1)
    eager.done.clear()
    eager.round(2)
    assert calls(eager)[:2] == ["StopFetching", (ListenerCall.REVOKED, ())]


def test_kip_429_lost_takes_the_place_of_revoked_without_a_valid_generation():
    play = Listened(OldListener(), COOPERATIVE)
    play.round(1, T0, T1)
    play.done.clear()
    play(CommitRefused(1, ErrorCode.ILLEGAL_GENERATION))
    assert calls(play) == ["DropNow", (ListenerCall.LOST, (T0, T1))]
