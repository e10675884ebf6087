"""Histories that keep a rule of liveness or deferral and break it; as in broken_safety."""

from __future__ import annotations

from dataclasses import replace

from tests.machine.subscribed import subscribed
from tests.machine.test_resolvers import settled_pair
from tests.proof.random_runs import QUICK
from tests.sim.broken_safety import (
    DEFERRED,
    INCREMENTAL,
    SIMPLE,
    rules,
    small_world,
    t,
    waiting,
)
from tests.sim.history import History, remember, tell, tell_all, together, waits

from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.core.machine.leader.ring import hash_of_topic, identity_of
from holdfast.core.machine.policy import Policy
from holdfast.core.model.partitions import resources_of
from holdfast.core.wire.layouts.frames import Leaving
from holdfast.core.wire.layouts.memory import RememberedMember
from holdfast.sim.scenarios import Play, Setup, check_balance
from holdfast.sim.world.broker import MAX_ROUNDS

# Liveness


def l1():
    history = History.of(SIMPLE, 2, a="0", b="1")
    history.partitions["t"] = 3
    yield History.of(SIMPLE, 2, a="0", b="1").turn()
    yield history.turn(tell_all(assigned=()))


def settled() -> Play:
    play = Play(Setup(members=3, partitions=6, policy="holdfast-simple", costs=QUICK))
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
    for slot in range(3):
        play.world.crash(slot)
        play.world.slots[slot].failed = "FENCED"  # not by the scenario's will
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


def l2_by_weight():
    weighted = replace(INCREMENTAL, weights={"t": 3})
    yield History.of(weighted, 4, a="01", b="23").turn()
    yield wandering(weighted).turn()


def l2_by_kind():
    isolated = replace(INCREMENTAL, isolate=True)
    yield History.of(isolated, 4, a="01", b="23").turn()
    yield wandering(isolated).turn()


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
    world.counts.rounds = MAX_ROUNDS + 100 * (world.counts.causes + 1)
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


def d1_newcomer():
    for bend in (None, together(tell("e", assigned=t(3)), tell("a", assigned=t(0, 4)))):
        history = waiting(lost="34")
        history.join("e")
        yield history.turn(bend)


def grown_by_e(after_ms: int = 60_000) -> History:
    """a to d have been there for so long, and e comes."""
    history = History.of(DEFERRED, 4, a="0", b="1", c="2", d="3")
    history.now_ms += after_ms
    assert history.turn() == set()
    history.join("e")
    assert history.turn() == set()
    history.now_ms += 10_000
    return history


def d1_with_a_successor():
    history = grown_by_e()
    history.leave("d")
    yield history.turn()
    assert history.members["e"].owned == t(3)
    history.leave("c")
    yield history.turn(together(tell_all(delay_ms=0), tell("a", assigned=t(0, 2))))


def d1_successor_of_long_ago():
    for later_ms in (0, DEFERRED.delay_ms):
        history = grown_by_e()
        history.now_ms += later_ms
        history.leave("d")
        bend = together(tell_all(delay_ms=0), tell("a", assigned=t(0, 3)))
        yield history.turn(bend if later_ms else None)


def d1_successor_of_a_start():
    for after_ms in (60_000, 5_000):
        history = grown_by_e(after_ms)
        history.leave("d")
        bend = together(tell_all(delay_ms=0), tell("a", assigned=t(0, 3)))
        yield history.turn(None if after_ms == 60_000 else bend)


def d1_successor_that_is_back_late():
    bend = together(tell_all(delay_ms=0), tell("a", assigned=t(0, 2)))
    for plan in (None, bend):
        history = waiting()
        history.now_ms += 60_000
        assert history.turn() == set()
        history.join("e")
        assert history.turn() == set()
        history.leave("c")
        yield history.turn(plan)


def d1_successor_of_a_static_member():
    for plan in (None, together(tell_all(delay_ms=0), tell("a", assigned=t(0, 3)))):
        history = History.of(DEFERRED, 4, a="0", b="1", c="2")
        history.instances = {"d": "static"}
        history.join("d")
        assert history.turn() == set()
        history.now_ms += 60_000
        history.join("e")
        assert history.turn() == set()
        history.leave("d")
        yield history.turn(plan)


def d1_made_a_successor_by_the_memory():
    def names_b(share):
        arrival = RememberedMember(
            identity=identity_of(subscribed("b", topics=("t",)))[: share.identity_bits],
            delay_ms=20_000,
        )
        return replace(share, waiting=(*share.waiting, arrival))

    for bend in (None, remember(names_b)):
        yield waiting().turn(bend)


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
    def waits_for_d(share):
        gone = RememberedMember(
            identity=identity_of(subscribed("d", topics=("t",))),
            delay_ms=30_000,
            owned=((hash_of_topic("t")[: share.topic_bits], (3,)),),
        )
        return replace(share, waiting=(gone,))

    for bend in (None, remember(waits_for_d)):
        history = History.of(DEFERRED, 4, a="0", b="1", c="2", d="3")
        claim = history.members["d"]
        history.members["d"] = replace(claim, leaving=Leaving.FOR_GOOD, owned=())
        yield history.turn(bend)


def d9():
    for bend in (None, tell_all(revoked=None, delay_ms=20_000)):
        history = waiting(lost="3", d="static")
        history.partitions["t"] = 12
        assert history.turn() == set()
        history.join("e")
        yield history.turn(bend)


def d10():
    lend = replace(DEFERRED, lends=True)
    for bends in (False, True):
        history = waiting(lend, d="static")
        assert history.members["a"].owned == t(0, 3)
        history.partitions["t"] = 5
        history.join("e")
        history.instances["e"] = "static"
        kept = together(tell_all(assigned=(), revoked=None), tell("e", assigned=t(4)))
        yield history.turn(kept if bends else None)


def d11():
    moved = together(
        tell("a", revoked=t(0), assigned=t(*range(1, 6))),
        tell("b", revoked=t(6), assigned=t(*range(7, 12))),
    )
    for bend in (None, moved):
        history = settled_pair()
        history.join("c")
        yield history.turn(bend)


# Two of Design III's and of the document's own


def iii():
    for batch in (1, 2):
        history = History.of(INCREMENTAL, 6, a="012", b="345")
        history.design = DesignAssignor(replace(INCREMENTAL, batch=batch))
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
