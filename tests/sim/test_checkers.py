"""Every rule can fail: a history in order breaks nothing, the same history bent breaks the rule.

The planted bugs (test_planted.py) bend the machines themselves; here each checker is held against a
history written by hand, so that none can go blind unseen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from tests.sim.history import History, remember, tell, tell_all, together, waits

from holdfast.machine.actions import JoinCompleted, ListenerCall, StartFetching
from holdfast.machine.designs import (
    CooperativeSticky,
    Designed,
    Plain,
    Turn,
    assignors_for,
    resources_of,
)
from holdfast.machine.policy import Policy, When
from holdfast.sim.checkers import RULES
from holdfast.sim.ledger import Ledger
from holdfast.sim.scenarios import Play, Setup, check_balance
from holdfast.sim.soak import QUICK
from holdfast.sim.world import MAX_ROUNDS, World, WorldOptions
from holdfast.wire.consumer_protocol import AssignmentMessage, encode_assignment
from holdfast.wire.container import Leaving, Remembered, Verdict, encode_verdict
from holdfast.wire.incremental import Design

SIMPLE = Policy(design=Design.SIMPLE)
DEFERRED = Policy(design=Design.DEFERRED, delay_ms=30_000)
INCREMENTAL = Policy(design=Design.INCREMENTAL, delay_ms=30_000, batch=1, interval_ms=0)
R = ("t", 0)


def t(*numbers: int):
    return (("t", numbers),) if numbers else ()


def rules(ledger: Ledger) -> set[str]:
    return {v.rule for v in ledger.violations}


def waiting(policy: Policy = DEFERRED, **instances: str) -> History:
    """a, b and c own one each of four, d owned the fourth and is waited for."""
    history = History.of(policy, 4, a="0", b="1", c="2", d="3")
    history.instances = instances
    assert history.turn() == set()
    history.leave("d")
    assert history.turn() == set()
    history.now_ms += 10_000
    return history


# Safety


def s1():
    history = History.of(SIMPLE, 3, a="0", b="1")
    history.partitions["t"] = 4
    yield History.of(SIMPLE, 2, a="0", b="1").turn()
    yield history.turn(together(tell("a", assigned=t(0, 3)), tell("b", assigned=t(1, 3))))


def s1_in_time():
    ledger = Ledger([R])
    begin(ledger, "a", 0)
    ledger.stop(R, runner="a", now_ms=5)
    begin(ledger, "b", 6)
    yield rules(ledger)
    begin(ledger, "c", 7)
    yield rules(ledger)


def begin(ledger: Ledger, runner: str, now_ms: int, *, generation: int = 1, excused: bool = False):
    ledger.start(
        R,
        runner=runner,
        slot=ord(runner),
        generation=generation,
        now_ms=now_ms,
        ready_ms=now_ms,
        excused=excused,
    )


def s2():
    ledger = Ledger([R])
    ledger.zombie_limit_ms = 100
    begin(ledger, "a", 0)
    begin(ledger, "b", 10, excused=True)
    ledger.stop(R, runner="a", now_ms=110)
    yield rules(ledger)
    begin(ledger, "c", 200, excused=True)
    ledger.stop(R, runner="b", now_ms=301)
    yield rules(ledger)


def s2_commit():
    ledger = Ledger([R])
    begin(ledger, "a", 0)
    ledger.commit(R, 5, 10, by="a")
    begin(ledger, "b", 20, excused=True)
    yield rules(ledger)
    ledger.commit(R, 6, 30, by="a")
    yield rules(ledger)


def s3():
    history = History.of(SIMPLE, 2, a="0", b="1")
    yield history.turn()
    yield history.turn(together(tell("a", assigned=t(0, 1)), tell("b", assigned=t(1))))


def s4():
    history = History.of(SIMPLE, 3, a="01", b="2")
    history.join("c")
    yield History.of(SIMPLE, 3, a="01", b="2").turn()
    bent = together(tell("a", revoked=t(1), assigned=t(0)), tell("c", assigned=t(1)))
    yield history.turn(bent)


def s5():
    ledger = Ledger([R])
    begin(ledger, "a", 0)
    ledger.stop(R, runner="a", now_ms=5)
    ledger.committing[R] = "a"
    yield rules(ledger)
    begin(ledger, "b", 6)
    yield rules(ledger)


def small_world() -> World:
    offered = assignors_for("simple", SIMPLE)
    world = World(
        WorldOptions(assignors=lambda slot: offered, partitions={"t": 3}, costs=QUICK), seed=1
    )
    world.start(0)
    world.start(1)
    world.run(8_000)
    return world


def s6():
    world = small_world()
    yield rules(world.ledger)
    other = next(iter(world.slots[1].running))
    world.ledger.stop(other, runner=world.slots[1].client, now_ms=world.now_ms)
    world._do[StartFetching](world.slots[0], StartFetching((other,)))
    yield rules(world.ledger)


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
    verdict = encode_verdict(Verdict(assigned=t(2), revoked=t(1)))
    checker.stored(9, "holdfast-simple", {"a": verdict})
    checker.completed(completed(0, 2, gained=[2], revoked=[1]), 0)
    yield rules(history.ledger)
    checker.completed(completed(2, gained=[2], revoked=[0, 1]), 0)  # as if absence revoked
    yield rules(history.ledger)


def s7_kip_429():
    history = History.of(SIMPLE, 3, a="012")
    checker = history.checker
    checker._assignors["cooperative-sticky"] = CooperativeSticky()
    data = encode_assignment(AssignmentMessage(partitions=t(2), user_data=None))
    checker.stored(9, "cooperative-sticky", {"a": data})
    checker.completed(completed(2, revoked=[0], name="cooperative-sticky"), 0)
    yield rules(history.ledger)
    checker.completed(completed(0, 2, gained=[2], name="cooperative-sticky"), 0)
    yield rules(history.ledger)


def s8():
    history = History.of(SIMPLE, 2, a="0", b="1")
    yield history.turn()
    yield history.turn(tell("a", revoked=t(1)))


def s9():
    history = History.of(DEFERRED, 3, a="01", b="2")
    history.join("c")
    yield History.of(DEFERRED, 3, a="01", b="2").turn()
    yield history.turn(tell_all(delay_ms=5_000))


def s9_delays():
    history = waiting()
    yield history.turn()
    yield history.turn(tell("a", delay_ms=19_000))


def s10():
    history = History.of(SIMPLE, 2, a="0", b="1")
    history.join("b", "01", generation=2)
    history.members["a"] = replace(history.members["a"], generation=3)
    yield History.of(SIMPLE, 2, a="0", b="1").turn()
    yield history.turn(together(tell("a", revoked=t(0), assigned=()), tell("b", revoked=())))


def s10_reset():
    history = History.of(SIMPLE, 2, a="0", b="1")
    yield history.turn()
    history.join("a", "0", generation=-1)
    yield history.turn()


def s10_in_time():
    ledger = Ledger([R])
    begin(ledger, "a", 0, generation=4)
    ledger.stop(R, runner="a", now_ms=5)
    yield rules(ledger)
    begin(ledger, "b", 6, generation=3)
    yield rules(ledger)


def s11():
    right, wrong = (History(SIMPLE, {"t": 1}, generation=4) for _ in range(2))
    for history in (right, wrong):
        history.join("a", "0", generation=4)
        history.join("b", "0", generation=4)
    yield right.turn()
    yield wrong.turn(tell("a", revoked=()))


def s12():
    history = History.of(SIMPLE, 2, a="0", b="1")
    yield history.turn()
    yield history.turn(tell("a", assigned=t(0, 2)))


def s12_leaving():
    history = History.of(SIMPLE, 2, a="01", b="")
    history.members["b"] = replace(history.members["b"], leaving=Leaving.FOR_GOOD)
    yield history.turn()
    history.partitions["t"] = 3
    yield history.turn(together(tell("a", assigned=t(0, 1)), tell("b", assigned=t(2))))


@dataclass(frozen=True)
class Ordered(Designed):
    """Everything free goes to whoever stands first."""

    def lead(self, turn: Turn) -> dict[str, bytes]:
        first = turn.members[0].member_id
        return {
            m.member_id: encode_verdict(Verdict(assigned=t(0) if m.member_id == first else ()))
            for m in turn.members
        }


def s13():
    for design in (Designed(SIMPLE), Ordered(SIMPLE)):
        history = History(SIMPLE, {"t": 1})
        history.design = design
        history.join("a")
        history.join("b")
        yield history.turn()


def s14():
    ledger = Ledger([R])
    ledger.called("a", ListenerCall.ASSIGNED, [R], 0)
    ledger.called("a", ListenerCall.REVOKED, [R], 1)
    ledger.ended("a", 2)
    yield rules(ledger)
    ledger.called("a", ListenerCall.REVOKED, [R], 3)
    yield rules(ledger)


def s14_lost():
    ledger = Ledger([R])
    ledger.called("a", ListenerCall.ASSIGNED, [R], 0)
    ledger.lost("a", [R])
    ledger.called("a", ListenerCall.LOST, [R], 1)
    ledger.called("a", ListenerCall.ASSIGNED, [R], 2)
    yield rules(ledger)
    ledger.called("a", ListenerCall.LOST, [R], 3)  # though nothing was dropped
    yield rules(ledger)


def s14_end():
    ledger = Ledger([R])
    ledger.called("a", ListenerCall.ASSIGNED, [R], 0)
    yield rules(ledger)
    ledger.ended("a", 1)
    yield rules(ledger)


def s15():
    ledger = Ledger([R])
    ledger.commit(R, 5, 0)
    ledger.commit(R, 5, 1)
    yield rules(ledger)
    ledger.commit(R, 4, 2)
    yield rules(ledger)


# Liveness


def l1():
    history = History.of(SIMPLE, 2, a="0", b="1")
    history.partitions["t"] = 3
    yield History.of(SIMPLE, 2, a="0", b="1").turn()
    yield history.turn(tell_all(assigned=()))


def settled() -> Play:
    play = Play(Setup(members=3, partitions=6, policy="simple", costs=QUICK))
    play.start_all()
    play.settle()
    return play


def l1_at_the_end():
    play = settled()
    check_balance(play)
    yield rules(play.world.ledger)
    play.world.crash(1)
    check_balance(play)
    yield rules(play.world.ledger)


def l1_that_never_settles():
    play = settled()
    yield rules(play.world.ledger)
    play.world.crash(0)
    play.world.crash(1)
    play.world.crash(2)
    play.settle()
    yield rules(play.world.ledger)


def l2_at_the_end():
    play = settled()
    check_balance(play)
    yield rules(play.world.ledger)
    a, b = play.world.slots[0].running, play.world.slots[1].running
    a |= b
    b.clear()
    check_balance(play)
    yield rules(play.world.ledger)


def wandering(policy: Policy) -> History:
    """Two and two become one and three, though nothing happens to anybody."""
    history = History.of(policy, 4, a="01", b="23")
    history.turn(together(tell_all(revoked=()), tell("a", revoked=t(0), assigned=t(1))))
    history.turn(together(tell("a", assigned=t(1)), tell("b", assigned=t(0, 2, 3))))
    return history


def l2():
    yield History.of(INCREMENTAL, 4, a="01", b="23").turn()
    yield wandering(INCREMENTAL).turn()


def l3():
    history = History.of(SIMPLE, 6, a="012", b="345")
    history.join("c")
    found = set()
    for _ in range(3):
        found |= history.turn()
    yield found
    yield wandering(SIMPLE).turn()


def l4():
    world = small_world()
    yield rules(world.ledger)
    world.rounds = MAX_ROUNDS + 100 * (world.causes + 1)
    world.start(2)
    world.run(world.now_ms + 8_000)
    yield rules(world.ledger)


def l5():
    history = waiting()
    yield history.turn()
    history.now_ms += 5_000
    yield history.turn(remember(waits(30_000)))


def l5_overdue():
    history = waiting()
    yield history.turn()
    history.now_ms += 60_000
    keep = together(tell_all(assigned=(), delay_ms=5_000), remember(lambda m: m))
    yield history.turn(keep)


def l6():
    history = waiting()
    yield history.turn(leader="b")
    history.now_ms += 5_000
    yield history.turn(remember(waits(30_000)), leader="c")


# Deferral


def d1():
    history = waiting()
    yield history.turn()
    yield history.turn(together(tell_all(delay_ms=0), tell("a", assigned=t(0, 3))))


def d2_by_identity():
    for bend in (None, together(tell("e", assigned=()), tell_all(delay_ms=20_000))):
        history = waiting(d="static")
        history.join("e")
        history.instances["e"] = "static"
        yield history.turn(bend)


def d2_newcomer():
    for bend in (None, together(tell("e", assigned=()), tell_all(delay_ms=20_000))):
        history = waiting()
        history.join("e")
        yield history.turn(bend)


def d3():
    for bend in (None, tell_all(assigned=())):
        history = waiting()
        history.partitions["new"] = 1
        for name, claim in history.members.items():
            history.members[name] = replace(claim, topics=("new", "t"))
        yield history.turn(bend)


def d4_more_partitions():
    for bend in (None, tell_all(assigned=())):
        history = waiting()
        history.partitions["t"] = 5
        yield history.turn(bend)


def d4_given_up():
    for bend in (None, tell_all(assigned=(), delay_ms=30_000)):
        history = History.of(DEFERRED, 3, a="01", b="2")
        history.join("c")
        assert history.turn() == set()
        yield history.turn(bend)


def d4_new_group():
    for bend in (None, tell_all(assigned=(), delay_ms=30_000)):
        history = History(DEFERRED, {"t": 2})
        history.join("a")
        yield history.turn(bend)


def d5():
    yield waiting().turn()
    yield waiting().turn(tell_all(delay_ms=DEFERRED.tolerance_ms))


def d6():
    history = History.of(replace(DEFERRED, delay_ms=0), 2, a="0", b="1")
    yield history.turn()
    yield history.turn(tell_all(delay_ms=1_000))


def d7():
    history = waiting()
    yield history.turn()
    yield history.turn(remember(waits(1_000_003)))  # what another process's clock shows


def d8():
    policy = replace(DEFERRED, clean_leave=When.IMMEDIATE)

    def waits_for_d(memory):
        gone = Remembered(member_id="d", delay_ms=30_000, owned=t(3))
        return replace(memory, members=(*(m for m in memory.members if m.member_id != "d"), gone))

    for bend in (None, remember(waits_for_d)):
        history = History.of(policy, 4, a="0", b="1", c="2", d="3")
        claim = history.members["d"]
        history.members["d"] = replace(claim, leaving=Leaving.FOR_GOOD, owned=())
        yield history.turn(bend)


# Two of Design III's and of the document's own


def iii():
    for batch in (1, 2):
        history = History.of(INCREMENTAL, 6, a="012", b="345")
        history.design = Designed(replace(INCREMENTAL, batch=batch))
        history.join("c")
        history.turn()
        moved = resources_of(history.members["a"].given_up)
        moved |= resources_of(history.members["b"].given_up)
        if batch == 1:
            assert len(moved) == 1
            yield rules(history.ledger)
    history = History.of(INCREMENTAL, 6, a="012", b="345")
    history.join("c")
    bent = together(
        tell("a", revoked=t(0), assigned=t(1, 2)), tell("b", revoked=t(3), assigned=t(4, 5))
    )
    yield history.turn(bent)


def again():
    for bend in (None, tell("b", revoked=None)):
        history = History.of(SIMPLE, 3, a="01", b="2")
        history.join("c")
        yield history.turn(bend)


HISTORIES = {
    "S1": [s1, s1_in_time],
    "S2": [s2, s2_commit],
    "S3": [s3],
    "S4": [s4],
    "S5": [s5],
    "S6": [s6],
    "S7": [s7, s7_kip_429],
    "S8": [s8],
    "S9": [s9, s9_delays],
    "S10": [s10, s10_reset, s10_in_time],
    "S11": [s11],
    "S12": [s12, s12_leaving],
    "S13": [s13],
    "S14": [s14, s14_lost, s14_end],
    "S15": [s15],
    "L1": [l1, l1_at_the_end, l1_that_never_settles],
    "L2": [l2, l2_at_the_end],
    "L3": [l3],
    "L4": [l4],
    "L5": [l5, l5_overdue],
    "L6": [l6],
    "D1": [d1],
    "D2": [d2_by_identity, d2_newcomer],
    "D3": [d3],
    "D4": [d4_more_partitions, d4_given_up, d4_new_group],
    "D5": [d5],
    "D6": [d6],
    "D7": [d7],
    "D8": [d8],
    "III": [iii],
    "again": [again],
}


def test_every_rule_of_the_protocol_is_checked_and_can_fail():
    named = [f"S{n}" for n in range(1, 16)]
    named += [f"L{n}" for n in range(1, 7)] + [f"D{n}" for n in range(1, 9)]
    assert list(RULES) == [*named, "III", "again"] == list(HISTORIES)


@pytest.mark.parametrize(
    ("rule", "history"),
    [(rule, history) for rule, histories in HISTORIES.items() for history in histories],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_history_in_order_breaks_nothing_and_the_bent_one_its_rule(rule, history):
    right, wrong = history()
    assert right == set()
    assert rule in wrong


@pytest.mark.parametrize("assignor", [Plain("range"), Plain("sticky"), CooperativeSticky()])
def test_plans_of_other_assignors_do_not_depend_on_order_either(assignor):
    offered = (assignor,)
    world = World(
        WorldOptions(assignors=lambda slot: offered, partitions={"t": 7, "u": 3}, costs=QUICK),
        seed=2,
    )
    for slot in range(4):
        world.start(slot)
    world.run(9_000)
    world.crash(1)
    world.run(30_000)
    assert world.checker.turns > 1
    assert world.ledger.violations == []
