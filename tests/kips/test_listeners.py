"""KIP-429's order of callbacks, and what KIP-54's listeners are told, driven by the real member."""

from __future__ import annotations

import pytest
from tests.machine.player import COOPERATIVE, EAGER, T0, T1, T2, Player, Script

from holdfast.core.machine.actions import CallListener, Commit, DropNow, StartFetching, StopFetching
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.events import (
    CommitAnswered,
    CommitRefused,
    Drained,
    ListenerReturned,
    RejoinRequested,
)
from holdfast.core.machine.leader.assignor_protocol import RebalanceProtocol
from holdfast.core.machine.shared_values import ListenerCall

ASSIGNED, REVOKED, LOST = ListenerCall.ASSIGNED, ListenerCall.REVOKED, ListenerCall.LOST


class Obedient(Player):
    """A player whose application does every duty at once."""

    def __init__(self, rebalance_protocol: RebalanceProtocol):
        super().__init__(Script(rebalance_protocol))
        self.n_seen = 0

    def __call__(self, event, at_ms=None):
        actions = super().__call__(event, at_ms)
        for action in actions:
            match action:
                case CallListener(token=token):
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

    def take(self) -> list:
        """What was asked of the application since the last look."""
        fresh, self.n_seen = self.done[self.n_seen :], len(self.done)
        return [
            (a.call, a.resources) if isinstance(a, CallListener) else type(a).__name__
            for a in fresh
            if isinstance(a, CallListener | DropNow | StartFetching | StopFetching | Commit)
        ]

    def listener_calls(self) -> list:
        """What its listener was told since the last look."""
        return [call for call in self.take() if isinstance(call, tuple)]


@pytest.mark.parametrize(
    ("rebalance_protocol", "revoked", "assigned"),
    [(EAGER, (T0, T1), (T0, T2)), (COOPERATIVE, (T1,), (T2,))],
    ids=["eager: all", "cooperative: differences"],
)
def test_kip_54_the_callbacks_of_a_round(rebalance_protocol, revoked, assigned):
    play = Obedient(rebalance_protocol)
    play.round(1, T0, T1)
    assert play.listener_calls() == [(ASSIGNED, (T0, T1))]
    play.round(2, T0, T2)
    assert play.listener_calls() == [(REVOKED, revoked), (ASSIGNED, assigned)]


def test_kip_429_revoked_comes_before_assigned_of_the_same_round():
    play = Obedient(COOPERATIVE)
    play.round(1, T0, T1)
    play.take()
    play.round(2, T0, T2)
    order = play.take()
    assert order.index((REVOKED, (T1,))) < order.index((ASSIGNED, (T2,)))
    assert order.index("StopFetching") == 0
    assert order[-1] == "StartFetching" or order[-1] == "Commit"


def test_kip_429_assigned_comes_in_every_round_revoked_and_lost_only_with_something():
    play = Obedient(COOPERATIVE)
    play.round(1, T0)
    play.take()
    play.round(2, T0)
    assert play.take() == [(ASSIGNED, ())]
    play.round(3)
    assert (REVOKED, (T0,)) in play.take()
    play(CommitRefused(3, ErrorCode.UNKNOWN_MEMBER_ID))
    assert not [call for call, _ in play.listener_calls() if call is LOST]  # nothing was owned
    eager = Obedient(EAGER)
    eager.round(1)
    eager.take()
    eager.round(2)
    assert eager.take()[:2] == ["StopFetching", (REVOKED, ())]


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_kip_429_lost_takes_the_place_of_revoked_without_a_valid_generation(code):
    play = Obedient(COOPERATIVE)
    play.round(1, T0, T1)
    play.take()
    play(CommitRefused(1, code))
    assert play.take() == ["DropNow", (LOST, (T0, T1))]
    play.join(4)
    play.sync(T0)
    assert play.listener_calls() == [(ASSIGNED, (T0,))]  # its state is gone
