"""Fault scenarios 73 to 75: a coordinator that answers with error codes while the cause lasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sim.faults.small_worlds import (
    InstrumentedWorld,
    between,
    ends_well,
    group_is,
    loads,
    said,
    until,
    world,
)

from holdfast.core.machine.actions import SendHeartbeat, SendJoin, SendLeave, SendSync
from holdfast.core.machine.codes import (
    EXPECTED,
    FATAL,
    MEMBERSHIP_LOST,
    ErrorCode,
    describe,
)
from holdfast.core.machine.coordinator.group import SendCommit
from holdfast.core.machine.events import (
    CommitAnswered,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    RejoinRequested,
    SyncAnswered,
)
from holdfast.core.machine.states import ENDED, GroupState, MemberState
from holdfast.sim.process import Process

NO_CODE_OF_KAFKA = 9_999
PASSING = sorted(
    {*ErrorCode, NO_CODE_OF_KAFKA}
    - {*FATAL, *MEMBERSHIP_LOST, ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}
)
STABLE = MemberState.STABLE
LARGE = 3  # the slot of the member with a large subscription


def answer_of(message: Any, error: int) -> Any:
    """The answer to a request with an error code."""
    match message:
        case SendJoin():
            return JoinAnswered(request=message.request, error=error)
        case SendSync():
            return SyncAnswered(request=message.request, error=error)
        case SendHeartbeat():
            return HeartbeatAnswered(message.request, error)
        case SendLeave():
            return LeaveAnswered(message.request, error)
        case _:
            assert isinstance(message, SendCommit)
            return CommitAnswered(message.request, error)


class Refusing:
    """Answers requests of one kind with one code while ``code`` is not 0 and the cause is there."""

    def __init__(self, w: InstrumentedWorld, kind: type[Any], cause: Callable[[Process], object]):
        self.code = 0
        self.n_refused = 0
        self._kind, self._cause, self._world = kind, cause, w
        between(w.interceptors.arrive, self._refuse)

    def _refuse(self, process: Process, message: Any, go: Callable[..., None]) -> None:
        if not (self.code and isinstance(message, self._kind) and self._cause(process)):
            go()
            return
        self.n_refused += 1
        clock, respond = self._world.clock, self._world.application.requests.respond
        clock.at(clock.now_ms + 2, respond, (process, answer_of(message, self.code)))


def settled(w: InstrumentedWorld) -> bool:
    """Whether every member is stable, in a stable group that runs everything."""
    stable = all(p.member.state is STABLE for p in w.living())
    return stable and group_is(w, GroupState.STABLE) and sum(loads(w)) == len(w.resources())


def count_warnings(w: InstrumentedWorld, words: str) -> int:
    """Warnings with these words so far."""
    return sum(words in text for text in w.warnings)


def test_73_the_coordinator_answers_with_a_code_that_passes() -> None:
    for kind in (SendJoin, SendSync, SendHeartbeat, SendCommit):
        w = world("deferred")
        before = [p.client for p in w.living()]
        refusing = Refusing(w, kind, lambda _: True)
        for code in PASSING:
            refusing.code, n_before = code, refusing.n_refused
            n_warned = count_warnings(w, describe(code))
            w.slots[0].notify(RejoinRequested())
            if kind is SendCommit:  # only who gives something up commits in a round
                w.subscribe(1, () if w.slots[1].running else ("a",))
            w.run(w.now_ms + 4_000)
            assert refusing.n_refused > n_before, f"{kind.__name__} is refused with {code}"
            quiet = code in EXPECTED or kind is SendCommit
            assert quiet or count_warnings(w, describe(code)) > n_warned, (
                f"and {describe(code)} is told"
            )
            refusing.code = 0
            until(w, lambda w=w: settled(w), 30_000)
        assert [p.client for p in w.living()] == before, "no process ended or was replaced"
        if kind is not SendCommit:
            assert not said(w, " drops "), "and nothing was lost"
        w.subscribe(1, ("a",))
        ends_well(w)


def test_74_the_coordinator_answers_with_a_code_that_is_fatal() -> None:
    for kind in (SendJoin, SendSync, SendHeartbeat):
        for code in sorted(FATAL):
            w = world("holdfast-simple")
            victim = w.slots[1]
            refusing = Refusing(w, kind, lambda p, victim=victim: p is victim)
            refusing.code = code
            victim.notify(RejoinRequested())
            until(w, lambda victim=victim: not victim.alive, 20_000)
            assert victim.member.state in ENDED, f"{kind.__name__}: {code} ends the member"
            assert victim.failed == describe(code), "with advice"
            ends_well(w, 30_000)


def test_75_the_group_s_record_is_too_large_until_one_member_has_gone() -> None:
    for policy in ("simple", "deferred"):
        w = world(policy)
        before = [p.client for p in w.living()]
        refusing = Refusing(w, SendSync, lambda _, w=w: LARGE in w.slots and w.slots[LARGE].alive)
        refusing.code = ErrorCode.UNKNOWN_SERVER_ERROR
        w.start(LARGE)
        w.run(w.now_ms + 20_000)
        assert refusing.n_refused > 20, "rounds are refused, and tried again"
        assert sum(loads(w)) == 6, "meanwhile every member keeps its partitions"
        assert count_warnings(w, "This leader sent"), "the leader names the size of the record"
        assert count_warnings(w, "message.max.bytes") < refusing.n_refused / 2, (
            "not at every attempt"
        )
        w.crash(LARGE)
        until(w, lambda w=w: settled(w), 40_000)
        assert [p.client for p in w.living()] == before, "the others recover by themselves"
        ends_well(w)
