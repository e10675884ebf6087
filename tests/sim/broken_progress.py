"""Histories that keep a rule of liveness or delayed rebalance and break it; as broken_safety."""

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
from tests.sim.history import History, override, override_all, rewrite_shard, together, waits

from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.core.machine.leader.subscriptions import hash_of_topic, identity_of
from holdfast.core.machine.policy import TOLERANCE_MS, Policy
from holdfast.core.model.partitions import resources_of
from holdfast.core.wire.layouts.container import Leaving
from holdfast.core.wire.layouts.state_shard import MemberEntry
from holdfast.sim.broker import MAX_ROUNDS
from holdfast.sim.scenarios import Play, Setup, check_balance

# Liveness


def l1():
    history = History.of(SIMPLE, 2, a="0", b="1")
    history.partitions["t"] = 3
    yield History.of(SIMPLE, 2, a="0", b="1").leader_round()
    yield history.leader_round(override_all(assigned=()))


def settled() -> Play:
    play = Play(Setup(members=3, partitions=6, policy="holdfast-simple", costs=QUICK))
    play.start_all()
    play.settle()
    return play


def l1_at_the_end():
    play = settled()
    check_balance(play)
    yield rules(play.world.ownership_log)
    play.world.crash(1)
    check_balance(play)
    yield rules(play.world.ownership_log)


def l1_that_never_settles():
    play = settled()
    yield rules(play.world.ownership_log)
    for slot in range(3):
        play.world.crash(slot)
        play.world.slots[slot].failed = "FENCED"  # not by the scenario's will
    play.settle()
    yield rules(play.world.ownership_log)


def l2_at_the_end():
    play = settled()
    check_balance(play)
    yield rules(play.world.ownership_log)
    a, b = play.world.slots[0].running, play.world.slots[1].running
    a |= b
    b.clear()
    check_balance(play)
    yield rules(play.world.ownership_log)


def wandering(policy: Policy) -> History:
    """Two and two become one and three, though nothing happens to anybody."""
    history = History.of(policy, 4, a="01", b="23")
    history.leader_round(
        together(override_all(revoked=()), override("a", revoked=t(0), assigned=t(1)))
    )
    history.leader_round(together(override("a", assigned=t(1)), override("b", assigned=t(0, 2, 3))))
    return history


def l2():
    yield History.of(INCREMENTAL, 4, a="01", b="23").leader_round()
    yield wandering(INCREMENTAL).leader_round()


def l2_by_weight():
    weighted = replace(INCREMENTAL, weights={"t": 3})
    yield History.of(weighted, 4, a="01", b="23").leader_round()
    yield wandering(weighted).leader_round()


def l2_by_kind():
    isolated = replace(INCREMENTAL, isolate=True)
    yield History.of(isolated, 4, a="01", b="23").leader_round()
    yield wandering(isolated).leader_round()


def l3():
    history = History.of(SIMPLE, 6, a="012", b="345")
    history.join("c")
    found = set()
    for _ in range(3):
        found |= history.leader_round()
    yield found
    yield wandering(SIMPLE).leader_round()


def l4():
    world = small_world()
    yield rules(world.ownership_log)
    world.counts.rounds = MAX_ROUNDS + 100 * (world.counts.causes + 1)
    world.start(2)
    world.run(world.now_ms + 8_000)
    yield rules(world.ownership_log)


def l5():
    history = waiting()
    yield history.leader_round()
    history.now_ms += 5_000
    yield history.leader_round(rewrite_shard(waits(30_000)))


def l5_overdue():
    history = waiting()
    yield history.leader_round()
    history.now_ms += 60_000
    keep = together(override_all(assigned=(), delay_ms=5_000), rewrite_shard(lambda m: m))
    yield history.leader_round(keep)


def l6():
    history = waiting()
    yield history.leader_round(leader="b")
    history.now_ms += 5_000
    yield history.leader_round(rewrite_shard(waits(30_000)), leader="c")


# Delayed rebalance


def d1():
    history = waiting()
    yield history.leader_round()
    yield history.leader_round(together(override_all(delay_ms=0), override("a", assigned=t(0, 3))))


def d1_new_member():
    for bend in (None, together(override("e", assigned=t(3)), override("a", assigned=t(0, 4)))):
        history = waiting(lost="34")
        history.join("e")
        yield history.leader_round(bend)


def grown_by_e(after_ms: int = 60_000) -> History:
    """a to d have been there for so long, and e comes."""
    history = History.of(DEFERRED, 4, a="0", b="1", c="2", d="3")
    history.now_ms += after_ms
    assert history.leader_round() == set()
    history.join("e")
    assert history.leader_round() == set()
    history.now_ms += 10_000
    return history


def d1_with_a_successor():
    history = grown_by_e()
    history.leave("d")
    yield history.leader_round()
    assert history.members["e"].owned == t(3)
    history.leave("c")
    yield history.leader_round(together(override_all(delay_ms=0), override("a", assigned=t(0, 2))))


def d1_successor_of_long_ago():
    for later_ms in (0, DEFERRED.delay_ms):
        history = grown_by_e()
        history.now_ms += later_ms
        history.leave("d")
        bend = together(override_all(delay_ms=0), override("a", assigned=t(0, 3)))
        yield history.leader_round(bend if later_ms else None)


def d1_successor_of_a_start():
    for after_ms in (60_000, 5_000):
        history = grown_by_e(after_ms)
        history.leave("d")
        bend = together(override_all(delay_ms=0), override("a", assigned=t(0, 3)))
        yield history.leader_round(None if after_ms == 60_000 else bend)


def d1_successor_that_is_back_late():
    bend = together(override_all(delay_ms=0), override("a", assigned=t(0, 2)))
    for plan in (None, bend):
        history = waiting()
        history.now_ms += 60_000
        assert history.leader_round() == set()
        history.join("e")
        assert history.leader_round() == set()
        history.leave("c")
        yield history.leader_round(plan)


def d1_successor_of_a_static_member():
    for plan in (None, together(override_all(delay_ms=0), override("a", assigned=t(0, 3)))):
        history = History.of(DEFERRED, 4, a="0", b="1", c="2")
        history.instances = {"d": "static"}
        history.join("d")
        assert history.leader_round() == set()
        history.now_ms += 60_000
        history.join("e")
        assert history.leader_round() == set()
        history.leave("d")
        yield history.leader_round(plan)


def d1_made_a_successor_by_the_state():
    def names_b(shard):
        recent_joiner = MemberEntry(
            identity=identity_of(subscribed("b", topics=("t",)))[: shard.sizes.identity_bits],
            delay_ms=20_000,
        )
        return replace(shard, waiting=(*shard.waiting, recent_joiner))

    for bend in (None, rewrite_shard(names_b)):
        yield waiting().leader_round(bend)


def d2_by_identity():
    for bend in (None, together(override("e", assigned=()), override_all(delay_ms=20_000))):
        history = waiting(d="static")
        history.join("e")
        history.instances["e"] = "static"
        yield history.leader_round(bend)


def d2_new_member():
    for bend in (None, together(override("e", assigned=()), override_all(delay_ms=20_000))):
        history = waiting()
        history.join("e")
        yield history.leader_round(bend)


def d2_after_a_round_without_a_plan():
    for bend in (None, override("e", assigned=())):
        history = waiting(d="static")
        history.join("e")
        history.instances["e"] = "static"
        history.round_without_a_plan()
        yield history.leader_round(bend)


def d3():
    for bend in (None, override_all(assigned=())):
        history = waiting()
        history.partitions["new"] = 1
        for name, claim in history.members.items():
            history.members[name] = replace(claim, topics=("new", "t"))
        yield history.leader_round(bend)


def d4_more_partitions():
    for bend in (None, override_all(assigned=())):
        history = waiting()
        history.partitions["t"] = 5
        yield history.leader_round(bend)


def d4_already_revoked():
    for bend in (None, override_all(assigned=(), delay_ms=30_000)):
        history = History.of(DEFERRED, 3, a="01", b="2")
        history.join("c")
        assert history.leader_round() == set()
        yield history.leader_round(bend)


def d4_new_group():
    for bend in (None, override_all(assigned=(), delay_ms=30_000)):
        history = History(DEFERRED, {"t": 2})
        history.join("a")
        yield history.leader_round(bend)


def d5():
    yield waiting().leader_round()
    yield waiting().leader_round(override_all(delay_ms=TOLERANCE_MS))


def d6():
    history = History.of(replace(DEFERRED, delay_ms=0), 2, a="0", b="1")
    yield history.leader_round()
    yield history.leader_round(override_all(delay_ms=1_000))


def d7():
    history = waiting()
    yield history.leader_round()
    yield history.leader_round(
        rewrite_shard(waits(1_000_003))
    )  # what another process's clock shows


def d8():
    def waits_for_d(shard):
        gone = MemberEntry(
            identity=identity_of(subscribed("d", topics=("t",))),
            delay_ms=30_000,
            owned=((hash_of_topic("t")[: shard.sizes.topic_bits], (3,)),),
        )
        return replace(shard, waiting=(gone,))

    for bend in (None, rewrite_shard(waits_for_d)):
        history = History.of(DEFERRED, 4, a="0", b="1", c="2", d="3")
        claim = history.members["d"]
        history.members["d"] = replace(claim, leaving=Leaving.FOR_GOOD, owned=())
        yield history.leader_round(bend)


def d9():
    for bend in (None, override_all(revoked=None, delay_ms=20_000)):
        history = waiting(lost="3", d="static")
        history.partitions["t"] = 12
        assert history.leader_round() == set()
        history.join("e")
        yield history.leader_round(bend)


def d10():
    failback_policy = replace(DEFERRED, failback=True)
    for bends in (False, True):
        history = waiting(failback_policy, d="static")
        assert history.members["a"].owned == t(0, 3)
        history.partitions["t"] = 5
        history.join("e")
        history.instances["e"] = "static"
        kept = together(override_all(assigned=(), revoked=None), override("e", assigned=t(4)))
        yield history.leader_round(kept if bends else None)


def d11():
    moved = together(
        override("a", revoked=t(0), assigned=t(*range(1, 6))),
        override("b", revoked=t(6), assigned=t(*range(7, 12))),
    )
    for bend in (None, moved):
        history = settled_pair()
        history.join("c")
        yield history.leader_round(bend)


# Two of Design III's and of the document's own


def iii():
    for batch in (1, 2):
        history = History.of(INCREMENTAL, 6, a="012", b="345")
        history.design = DesignAssignor(replace(INCREMENTAL, batch=batch))
        history.join("c")
        history.leader_round()
        moved = resources_of(history.members["a"].already_revoked)
        moved |= resources_of(history.members["b"].already_revoked)
        if batch == 1:
            assert len(moved) == 1
            yield rules(history.ownership_log)
    history = History.of(INCREMENTAL, 6, a="012", b="345")
    history.join("c")
    bent = together(
        override("a", revoked=t(0), assigned=t(1, 2)), override("b", revoked=t(3), assigned=t(4, 5))
    )
    yield history.leader_round(bent)


def again():
    for bend in (None, override("b", revoked=None)):
        history = History.of(SIMPLE, 3, a="01", b="2")
        history.join("c")
        yield history.leader_round(bend)
