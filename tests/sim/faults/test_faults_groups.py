"""Fault scenarios from 1 to 34 that are scripts: what each comes to under its policy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.sim.faults.cases_groups import forget_the_last_generation
from tests.sim.faults.fault_case import (
    DELAY_MS,
    FOUND_MS,
    leader,
    loads,
    running,
    runs,
    tape,
    until,
)
from tests.sim.faults.played import ends_well, world

from holdfast.core.machine.policy import Policy
from holdfast.core.machine.states import GroupState, MemberState
from holdfast.core.model.designs import Design

INCREMENTAL = Policy(design=Design.INCREMENTAL, delay_ms=DELAY_MS, batch=1, interval_ms=2_000)


def test_01_one_member_joins_an_idle_group():
    w = ends_well(world(n=1))
    assert loads(w) == [6]
    assert w.rounds == 1


def test_02_two_members_join_in_one_round():
    w = world(n=2, settle=False)
    assert loads(ends_well(w)) == [3, 3]
    assert w.rounds <= 2
    w.start(2)
    w.start(3)
    rounds = w.rounds
    assert loads(ends_well(w)) == [1, 1, 2, 2]
    assert w.rounds <= rounds + 3  # one that the second join caused, and the two of a transfer


def test_03_a_join_during_the_revoking_round_of_a_transfer():
    w = world("holdfast-simple", 2)
    w.start(2)
    until(w, lambda: w.coordinator.state is GroupState.COMPLETING_REBALANCE)
    w.start(3)
    assert loads(ends_well(w)) == [1, 1, 2, 2]
    assert w.rounds <= 6


def test_04_a_join_between_the_revoking_and_the_assigning_round():
    w = world("holdfast-simple", 2)
    w.start(2)
    until(w, lambda: any(p.member.state is MemberState.REVOKING for p in w.living()))
    w.start(3)
    assert loads(ends_well(w)) == [1, 1, 2, 2]
    assert w.rounds <= 6


def test_05_a_clean_leave():
    w = world("holdfast-simple")
    kept = running(w, 0) | running(w, 1)
    rounds, gone = w.rounds, running(w, 2)
    w.stop(2)
    until(w, lambda: not w.slots[2].alive)
    until(w, lambda: runs(w, gone), 3_000)
    assert kept == {r for r in kept if w.ownership_log.runner(r)}
    ends_well(w)
    assert w.rounds == rounds + 1
    assert w.ownership_log.moved == len(gone)


def test_06_a_crash_found_by_the_session_timeout():
    w = world("holdfast-simple")
    gone = running(w, 2)
    w.crash(2)
    assert 2_000 < until(w, lambda: runs(w, gone)) <= FOUND_MS
    ends_well(w)
    assert w.ownership_log.moved == len(gone)


def test_08_all_leave_one_joins_immediate():
    w = world()
    for slot in range(3):
        w.stop(slot)
    until(w, lambda: not w.living())
    w.start(0)
    until(w, lambda: loads(w) == [6], 3_000)
    ends_well(w)


def test_09_a_bounce_faster_than_the_session_timeout_with_a_new_id():
    w = world()
    before = running(w, 2)
    w.crash(2)
    w.run(w.now_ms + 500)
    w.start(2)
    until(w, lambda: len(w.coordinator.members) == 4)  # the old one is a ghost
    ends_well(w)
    assert w.ownership_log.moved_to_third == 0
    assert running(w, 2) == before


def test_10_a_bounce_with_a_static_id():
    w = world(static=True)
    before, rounds = running(w, 2), w.rounds
    w.crash(2)
    w.run(w.now_ms + 8_000)
    w.start(2)
    until(w, lambda: running(w, 2) == before, 3_000)
    ends_well(w)
    assert w.ownership_log.moved == 0
    w.crash(2)
    w.run(w.now_ms + 2_000)  # within the session: no round at all
    rounds = w.rounds
    w.start(2)
    until(w, lambda: running(w, 2) == before, 3_000)
    ends_well(w)
    assert w.rounds == rounds


def test_12_a_rolling_bounce_within_the_delay_no_partition_visits_a_third_member():
    w = world()
    before = [running(w, slot) for slot in range(3)]
    for slot in range(3):
        w.stop(slot)
        w.run(w.now_ms + 3_000)
        w.start(slot)
        w.run(w.now_ms + 6_000)
    ends_well(w)
    assert w.ownership_log.moved == 0
    assert [running(w, slot) for slot in range(3)] == before


def test_13_a_rolling_bounce_slower_than_the_delay():
    w = world()
    for slot in range(3):
        gone = running(w, slot)
        w.stop(slot)
        until(w, lambda s=slot: not w.slots[s].alive)
        assert DELAY_MS - 1_000 < until(w, lambda g=gone: runs(w, g)) < DELAY_MS + 5_000
        w.start(slot)
        w.run(w.now_ms + 6_000)
    ends_well(w)
    assert w.ownership_log.moved > 0


def test_14_a_flapping_member():
    w = world()
    steady = w.slots[0]
    before = set(steady.running)
    for _ in range(4):
        w.crash(2)
        w.run(w.now_ms + 2_000)
        w.start(2)
        w.run(w.now_ms + 2_000)
        assert steady.running >= before
    ends_well(w)


def test_15_half_the_group_dies_at_once():
    w = world(n=4, partitions=8)
    gone = running(w, 2) | running(w, 3)
    w.crash(2)
    w.crash(3)
    until(w, lambda: runs(w, gone), FOUND_MS + DELAY_MS + 3_000)
    assert loads(ends_well(w)) == [4, 4]


@pytest.mark.parametrize(("group_batch", "most"), [(0, 3), (1, 1)])
def test_16_three_members_more_under_design_iii_with_batch_1(group_batch, most):
    """One move for each new member in a round, or one in the group."""
    paced = replace(INCREMENTAL, interval_ms=500, group_batch=group_batch)
    w = world("incremental", 2, partitions=8, policy=paced)
    led_rounds = tape(w).led_rounds
    for slot in (2, 3, 4):
        w.start(slot)
    assert loads(ends_well(w, 120_000)) == [1, 1, 2, 2, 2]
    taken = [sum(len(s.revoked) for s in leader_round.members) for leader_round in led_rounds]
    assert max(taken) == most
    assert sum(taken) == w.ownership_log.moved == 4  # no more than it takes
    spread = [max(len(s.after) for s in leader_round.members) for leader_round in led_rounds]
    assert spread == sorted(spread, reverse=True)  # from the fullest first


def test_19_the_leader_leaves_in_a_delay_an_old_member_leads_deadline_kept():
    w = world(n=4, partitions=8)
    lost, begin_ms = running(w, 3), w.now_ms
    w.crash(3)
    w.run(w.now_ms + FOUND_MS)
    first = leader(w)
    assert not runs(w, lost)
    w.crash(first)
    until(w, lambda: runs(w, lost), 30_000)
    assert leader(w) != first
    assert DELAY_MS < w.now_ms - begin_ms <= FOUND_MS + DELAY_MS + 2_000
    ends_well(w)


def test_22_the_leader_changes_in_the_middle_of_design_iii_s_batches():
    w = world("incremental", 3, partitions=12, policy=INCREMENTAL)
    led_rounds = tape(w).led_rounds
    w.start(3)
    until(w, lambda: w.slots[3].running)
    first, begin_ms = leader(w), w.now_ms
    w.stop(first)
    until(w, lambda: not w.slots[first].alive)
    w.start(first)
    until(w, lambda: loads(w) == [3, 3, 3, 3])
    assert leader(w) != first
    taken = [sum(len(s.revoked) for s in leader_round.members) for leader_round in led_rounds]
    assert max(taken) == 1
    assert w.now_ms - begin_ms >= INCREMENTAL.interval_ms  # no jump
    ends_well(w)


def test_33_the_coordinator_moves_in_the_middle_of_a_round():
    for state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE):
        w = world("holdfast-simple")
        before = [running(w, slot) for slot in range(3)]
        w.start(3)
        until(w, lambda w=w, state=state: w.coordinator.state is state)
        w.restart_coordinator(1_500)
        w.run(w.now_ms + 1_500)
        assert [running(w, slot) for slot in range(3)] == before  # processing goes on meanwhile
        assert loads(ends_well(w)) == [1, 1, 2, 2]


def test_34_the_coordinator_loses_the_group_record():
    w = world("holdfast-simple")
    w.start(3)
    until(w, lambda: w.slots[3].running)
    led_rounds = tape(w).led_rounds
    forget_the_last_generation(w)
    ends_well(w)
    first = led_rounds[0].members  # members joined again, and what they claim decides
    assert {m.name for m in first} == {p.member.member_id for p in w.living()}
    reset = [m for m in first if m.subscription.generation < 0]
    kept = [m for m in first if m.claims]
    assert reset
    assert kept
    assert not any(m.claims for m in reset)
    assert all(m.claims <= m.after for m in kept)
    assert len(led_rounds) == 1
    assert w.coordinator.state is GroupState.STABLE
