"""Histories that keep a safety rule and break it: each yields the broken rules, first none.

A function's name begins with its rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.proof.random_runs import QUICK
from tests.proof.rules.attached import CheckedWorld
from tests.proof.rules.commits import DeliveredBatch, check_commits
from tests.proof.rules.running import RunningRules
from tests.sim.history import History, override, override_all, together

from holdfast.core.machine.actions import JoinCompleted, StartFetching
from holdfast.core.machine.leader.assignor_protocol import LeaderRound
from holdfast.core.machine.leader.designs import CooperativeAssignor, DesignAssignor
from holdfast.core.machine.policy import Policy
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.model.constants import Design
from holdfast.core.wire.layouts.consumer_protocol import AssignmentMessage, encode_assignment
from holdfast.core.wire.layouts.container import Leaving, MemberAssignment, encode_member_assignment
from holdfast.sim.clock import OwnershipLog
from holdfast.sim.world import WorldOptions

SIMPLE = Policy(design=Design.SIMPLE)
DEFERRED = Policy(design=Design.DEFERRED, delay_ms=30_000)
INCREMENTAL = Policy(design=Design.INCREMENTAL, delay_ms=30_000, batch=1, interval_ms=0)
R = ("t", 0)


def t(*numbers: int):
    return (("t", numbers),) if numbers else ()


def rules(ownership_log: OwnershipLog) -> set[str]:
    return {v.rule for v in ownership_log.violations}


def waiting(policy: Policy = DEFERRED, *, lost: str = "3", **instances: str) -> History:
    """a, b and c own one each, d owned what is lost and is waited for."""
    history = History.of(policy, 3 + len(lost), a="0", b="1", c="2", d=lost)
    history.instances = instances
    assert history.leader_round() == set()
    history.leave("d")
    assert history.leader_round() == set()
    history.now_ms += 10_000
    return history


# Safety


def s1():
    history = History.of(SIMPLE, 3, a="0", b="1")
    history.partitions["t"] = 4
    yield History.of(SIMPLE, 2, a="0", b="1").leader_round()
    yield history.leader_round(
        together(override("a", assigned=t(0, 3)), override("b", assigned=t(1, 3)))
    )


class Running(RunningRules):
    """Running processes, with the ownership log that a world has beside the rules."""

    def __init__(self):
        super().__init__(OwnershipLog([R]), zombie_limit_ms=100)

    def begin(self, runner: str, now_ms: int, *, generation: int = 1, excused: bool = False):
        self.start(R, runner=runner, generation=generation, now_ms=now_ms, excused=excused)
        self.ownership_log.start(R, runner=runner, slot=ord(runner), now_ms=now_ms, ready_ms=now_ms)

    def end(self, runner: str, now_ms: int, **more: int):
        self.stop(R, runner=runner, now_ms=now_ms, **more)
        self.ownership_log.stop(R, runner=runner, now_ms=now_ms)

    @property
    def broken(self) -> set[str]:
        return rules(self.ownership_log)


def s1_in_time():
    running = Running()
    running.begin("a", 0)
    running.end("a", 5)
    running.begin("b", 6)
    yield running.broken
    running.begin("c", 7)
    yield running.broken


def s2():
    running = Running()
    running.begin("a", 0)
    running.begin("b", 10, excused=True)
    running.end("a", 110)
    running.begin("c", 200, excused=True)
    running.end("b", 400, stalled_until_ms=310)
    yield running.broken
    running.begin("d", 500, excused=True)
    running.end("c", 601)
    yield running.broken


def s2_commit():
    running = Running()
    running.begin("a", 0)
    running.commit(R, 5, 10, before=0, by="a")
    running.begin("b", 20, excused=True)
    yield running.broken
    running.commit(R, 6, 30, before=5, by="a")
    yield running.broken


def s3():
    history = History.of(SIMPLE, 2, a="0", b="1")
    yield history.leader_round()
    yield history.leader_round(
        together(override("a", assigned=t(0, 1)), override("b", assigned=t(1)))
    )


def s4():
    history = History.of(SIMPLE, 3, a="01", b="2")
    history.join("c")
    yield History.of(SIMPLE, 3, a="01", b="2").leader_round()
    bent = together(override("a", revoked=t(1), assigned=t(0)), override("c", assigned=t(1)))
    yield history.leader_round(bent)


def s5():
    running = Running()
    running.begin("a", 0)
    running.end("a", 5)
    running.committing[R] = "a"
    yield running.broken
    running.begin("b", 6)
    yield running.broken


def small_world() -> CheckedWorld:
    offered = assignors_for("holdfast-simple", SIMPLE)
    world = CheckedWorld(
        WorldOptions(assignors=lambda slot: offered, partitions={"t": 3}, costs=QUICK), seed=1
    )
    world.start(0)
    world.start(1)
    world.run(8_000)
    return world


def s6():
    world = small_world()
    yield rules(world.ownership_log)
    other = next(iter(world.slots[1].running))
    world.ownership_log.stop(other, runner=world.slots[1].client, now_ms=world.now_ms)
    world.action_handlers[StartFetching](world.slots[0], StartFetching((other,), 0))
    yield rules(world.ownership_log)


def completed(*owned: int, gained=(), revoked=(), name: str = "holdfast-simple") -> JoinCompleted:
    return JoinCompleted(
        generation=9,
        member_id="a",
        is_leader=False,
        protocol_name=name,
        owned=tuple(("t", n) for n in owned),
        gained=tuple(("t", n) for n in gained),
        revoked=tuple(("t", n) for n in revoked),
        delay_ms=0,
    )


def s7():
    history = History.of(SIMPLE, 3, a="012")
    checker = history.checker
    assignment = encode_member_assignment(MemberAssignment(assigned=t(2), revoked=t(1)))
    checker.stored(9, "holdfast-simple", {"a": assignment})
    checker.completed(completed(0, 2, gained=[2], revoked=[1]), 0)
    yield rules(history.ownership_log)
    checker.completed(completed(2, gained=[2], revoked=[0, 1]), 0)  # as if absence revoked
    yield rules(history.ownership_log)


def s7_kip_429():
    history = History.of(SIMPLE, 3, a="012")
    checker = history.checker
    checker._assignors["cooperative-sticky"] = CooperativeAssignor()
    data = encode_assignment(AssignmentMessage(partitions=t(2), user_data=None))
    checker.stored(9, "cooperative-sticky", {"a": data})
    checker.completed(completed(2, revoked=[0], name="cooperative-sticky"), 0)
    yield rules(history.ownership_log)
    checker.completed(completed(0, 2, gained=[2], name="cooperative-sticky"), 0)
    yield rules(history.ownership_log)


def s8():
    history = History.of(SIMPLE, 2, a="0", b="1")
    yield history.leader_round()
    yield history.leader_round(override("a", revoked=t(1)))


def s9():
    history = History.of(DEFERRED, 3, a="01", b="2")
    history.join("c")
    yield History.of(DEFERRED, 3, a="01", b="2").leader_round()
    yield history.leader_round(override_all(delay_ms=5_000))


def s9_delays():
    history = waiting()
    yield history.leader_round()
    yield history.leader_round(override("a", delay_ms=19_000))


def s10():
    history = History.of(SIMPLE, 2, a="0", b="1")
    history.join("b", "01", generation=2)
    history.members["a"] = replace(history.members["a"], generation=3)
    yield History.of(SIMPLE, 2, a="0", b="1").leader_round()
    yield history.leader_round(
        together(override("a", revoked=t(0), assigned=()), override("b", revoked=()))
    )


def s10_reset():
    history = History.of(SIMPLE, 2, a="0", b="1")
    yield history.leader_round()
    history.join("a", "0", generation=-1)
    yield history.leader_round()


def s10_in_time():
    running = Running()
    running.begin("a", 0, generation=4)
    running.end("a", 5)
    yield running.broken
    running.begin("b", 6, generation=3)
    yield running.broken


def s10_recounted():
    running = Running()
    running.begin("a", 0, generation=4)
    running.end("a", 5)
    running.recount(2)
    running.begin("b", 6, generation=2)
    yield running.broken
    running.begin("b", 7, generation=1)
    yield running.broken


def s11():
    right, wrong = (History(SIMPLE, {"t": 1}, generation=4) for _ in range(2))
    for history in (right, wrong):
        history.join("a", "0", generation=4)
        history.join("b", "0", generation=4)
    yield right.leader_round()
    yield wrong.leader_round(override("a", revoked=()))


def s12():
    history = History.of(SIMPLE, 2, a="0", b="1")
    yield history.leader_round()
    yield history.leader_round(override("a", assigned=t(0, 2)))


def s12_leaving():
    history = History.of(SIMPLE, 2, a="01", b="")
    history.members["b"] = replace(history.members["b"], leaving=Leaving.FOR_GOOD)
    yield history.leader_round()
    history.partitions["t"] = 3
    yield history.leader_round(
        together(override("a", assigned=t(0, 1)), override("b", assigned=t(2)))
    )


@dataclass(frozen=True)
class Ordered(DesignAssignor):
    """Everything free goes to the first member."""

    def lead(self, leader_round: LeaderRound) -> dict[str, bytes]:
        first = leader_round.members[0].member_id
        return {
            m.member_id: encode_member_assignment(
                MemberAssignment(assigned=t(0) if m.member_id == first else ())
            )
            for m in leader_round.members
        }


def s13():
    for design in (DesignAssignor(SIMPLE), Ordered(SIMPLE)):
        history = History(SIMPLE, {"t": 1})
        history.design = design
        history.join("a")
        history.join("b")
        yield history.leader_round()


def s14():
    running = Running()
    running.called("a", ListenerCall.ASSIGNED, [R], 0)
    running.called("a", ListenerCall.REVOKED, [R], 1)
    running.ended("a", 2)
    yield running.broken
    running.called("a", ListenerCall.REVOKED, [R], 3)
    yield running.broken


def s14_lost():
    running = Running()
    running.called("a", ListenerCall.ASSIGNED, [R], 0)
    running.lost("a", [R])
    running.called("a", ListenerCall.LOST, [R], 1)
    running.called("a", ListenerCall.ASSIGNED, [R], 2)
    yield running.broken
    running.called("a", ListenerCall.LOST, [R], 3)  # though nothing was dropped
    yield running.broken


def s14_end():
    running = Running()
    running.called("a", ListenerCall.ASSIGNED, [R], 0)
    yield running.broken
    running.ended("a", 1)
    yield running.broken


def s15():
    running = Running()
    running.commit(R, 5, 0, before=0)
    running.commit(R, 5, 1, before=5)
    yield running.broken
    running.commit(R, 4, 2, before=5)
    yield running.broken


class Owner:
    """A member for an application that commits: it owns R in this term."""

    generation = 4

    def __init__(self, term):
        self.terms = {R: term}


def s16():
    ownership_log = OwnershipLog([R])
    now, before = DeliveredBatch(R, 1), DeliveredBatch(R, 0)
    check_commits(ownership_log, 0, "a", Owner(1), current=[now], ended=[before])
    yield rules(ownership_log)
    assert check_commits(ownership_log, 0, "a", Owner(0), ended=[before])
    yield rules(ownership_log)


def s16_too_strict():
    ownership_log = OwnershipLog([R])
    for term in (1, 2):
        check_commits(ownership_log, 0, "a", Owner(term), current=[DeliveredBatch(R, 1)])
        yield rules(ownership_log)
