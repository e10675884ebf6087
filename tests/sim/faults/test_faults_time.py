"""Fault scenarios from 46 to 63 that are scripts: topics, clocks and delays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.sim.faults.fault_case import (
    COSTS,
    DEFERRED,
    DELAY_MS,
    FOUND_MS,
    running,
    runs,
    said,
    tape,
    until,
)
from tests.sim.faults.played import ends_well, world

from holdfast.core.machine.events import RejoinRequested
from holdfast.core.machine.member.member_data import NO_REQUEST


def test_57_the_process_pauses_longer_than_its_session():
    w = world("holdfast-simple")
    gone = running(w, 2)
    w.stall(2, 15_000)
    w.run(w.now_ms + 14_900)
    assert runs(w, gone)  # others have them since long
    until(w, lambda: w.slots[2].stalled_until_ms <= w.now_ms)
    assert said(w, "m0002.0 drops")
    assert not running(w, 2)  # before it could take another batch
    ends_well(w)


def test_58_clocks_jump():
    def play(jumps):
        w = world()
        lost = running(w, 2)
        w.crash(2)
        for after_ms, by_ms in jumps:
            w.clock.at(w.now_ms + after_ms, w.jump_clock, by_ms)
        until(w, lambda: runs(w, lost))
        ends_well(w)
        return [line for line in w.trace if "clock" not in line]

    hour_ms = 3_600_000
    quiet = play([])
    assert play([(7_000, hour_ms), (12_000, -30 * hour_ms), (21_000, 5_000)]) == quiet
    w = world()  # and no two processes ever have the same clock
    clocks = [p.member.data.now_ms - w.now_ms for p in w.living()]
    assert len({round(c, -5) for c in clocks}) == 3


def test_59_all_timers_fire_together_one_round():
    w = world()
    w.crash(2)
    w.run(w.now_ms + FOUND_MS)
    rounds, due = w.rounds, [p.deadline_ms for p in w.living()]
    assert all(p.member.data.rejoin_at_ms for p in w.living())
    assert due
    w.run(w.now_ms + 2 * DELAY_MS)
    assert w.rounds == rounds + 1
    ends_well(w)


def test_60_unrelated_rounds_during_a_delay():
    took = []
    for extra in (0, 8):
        w = world()
        lost = running(w, 2)
        w.crash(2)
        w.run(w.now_ms + FOUND_MS)
        rounds = w.rounds
        for _ in range(extra):
            w.slots[0].notify(RejoinRequested())
            w.slots[1].notify(RejoinRequested())
            w.run(w.now_ms + 1_500)
        assert w.rounds >= rounds + extra
        assert not runs(w, lost)
        took.append(until(w, lambda w=w, g=lost: runs(w, g)) + extra * 1_500)
        ends_well(w)
    assert abs(took[0] - took[1]) < 1_500


def test_61_a_second_loss_during_a_delay():
    w = world(n=4, partitions=8)
    first, second = running(w, 2), running(w, 3)
    w.crash(2)
    w.run(w.now_ms + 8_000)
    w.crash(3)
    one = until(w, lambda: runs(w, first))
    two = until(w, lambda: runs(w, second))
    assert abs(two - 8_000) < 3_000, (one, two)  # each has its own deadline
    ends_well(w)


def test_62_a_member_returns_in_the_round_of_the_deadline():
    for early_ms in (900, 520, 200, 0, -200):
        w = world()
        w.crash(2)
        until(w, lambda w=w: any(p.member.data.rejoin_at_ms for p in w.living()))
        w.run(w.now_ms + DELAY_MS - early_ms)
        w.start(2)
        ends_well(w)  # either outcome, and each partition once


def test_63_delay_0_is_now():
    w = world(policy=replace(DEFERRED, delay_ms=0))
    gone = running(w, 2)
    w.crash(2)
    assert until(w, lambda: runs(w, gone)) <= FOUND_MS
    assert not said(w, "delay")
    ends_well(w)


def test_46_a_topic_grows_during_a_delay():
    w = world()
    lost = running(w, 2)
    w.crash(2)
    w.run(w.now_ms + FOUND_MS)
    w.resize("a", 8)
    until(w, lambda: runs(w, [("a", 6), ("a", 7)]), 3_000)
    assert not any(w.ownership_log.runner(r) for r in lost)
    ends_well(w)


@pytest.mark.parametrize("policy", ["holdfast-simple", "deferred"])
def test_a_topic_grows_while_the_leader_plans(policy):
    """The plan does not know the new partitions, so the leader asks for one more round."""
    w = world(policy, 1, costs=replace(COSTS, plan_ms=2_000), settle=False)
    until(w, lambda: any(p.member.data.plan_token != NO_REQUEST for p in w.living()))
    w.resize("a", 8)
    assert not w.ownership_log.runner(("a", 7))
    ends_well(w)


def test_48_a_topic_is_recreated_smaller():
    w = world("holdfast-simple")
    led_rounds = tape(w).led_rounds
    w.resize("a", 2)
    w.start(3)
    w.run(w.now_ms + 10_000)
    assert led_rounds[-1].partitions == {"a": 2}
    assert sorted(r for p in w.living() for r in p.running) == [("a", 0), ("a", 1)]
    w.resize("a", 6)
    ends_well(w)
