"""The world as a Hypothesis state machine: any order of joins, losses and faults, every checker on.

Hypothesis picks what happens and shrinks it; the world judges with the same checkers as the
simulation. At the end all faults stop and the group must settle, balanced, without endless rounds.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.proof.random_runs import Faults
from tests.proof.rules.checkers import RoundChecker

from holdfast.core.machine.policy import POLICIES

MOST_MEMBERS = 6
MOST_MS = 90_000

slots = st.integers(0, MOST_MEMBERS - 1)
pauses = st.sampled_from([1, 40, 700, 2_500, 7_000, 16_000])


class Group(RuleBasedStateMachine):
    """One group under one policy."""

    policy: str

    @initialize(seed=st.integers(0, 10_000), n=st.integers(1, 4))
    def group(self, seed: int, n: int) -> None:
        self.faults = Faults(seed, self.policy, None, trace=True)
        self.world = self.faults.world
        for slot in range(n):
            self.world.start(slot)
        self.world.run(self.world.now_ms + 2_000)

    def _up(self, slot: int) -> bool:
        process = self.world.slots.get(slot)
        return process is not None and process.alive and not process.exiting

    @precondition(lambda self: self.world.now_ms < MOST_MS)
    @rule(for_ms=pauses)
    def time_passes(self, for_ms: int) -> None:
        self.world.run(self.world.now_ms + for_ms)

    @rule(slot=slots)
    def a_member_joins(self, slot: int) -> None:
        process = self.world.slots.get(slot)
        if process is None or not process.alive:
            self.world.start(slot)

    @rule(slot=slots, returns=st.booleans())
    def a_member_leaves(self, slot: int, returns: bool) -> None:
        if self._up(slot):
            self.world.stop(slot, returns=returns)

    @rule(slot=slots)
    def a_member_crashes(self, slot: int) -> None:
        if self._up(slot):
            self.world.crash(slot)

    @rule(how=st.sampled_from(["crash", "stop", "stall", "split"]))
    def the_leader_goes(self, how: str) -> None:
        group = self.world.coordinator
        for process in self.world.living():
            if group and process.member.member_id == group.leader_id and self._up(process.slot):
                more = (9_000,) if how in ("stall", "split") else ()
                getattr(self.world, how)(process.slot, *more)
                return

    @rule(slot=slots, for_ms=st.sampled_from([800, 5_000, 12_000]))
    def a_member_stalls(self, slot: int, for_ms: int) -> None:
        if self._up(slot):
            self.world.stall(slot, for_ms)

    @rule(slot=slots, for_ms=st.sampled_from([800, 5_000, 12_000]))
    def a_member_is_cut_off(self, slot: int, for_ms: int) -> None:
        if self._up(slot):
            self.world.split(slot, for_ms)

    @rule(
        drop=st.sampled_from([0.0, 0.05, 0.3]),
        duplicate=st.sampled_from([0.0, 0.2]),
        slow=st.sampled_from([0.0, 0.2]),
    )
    def the_network_changes(self, drop: float, duplicate: float, slow: float) -> None:
        rates = self.world.network.rates
        rates.drop, rates.duplicate, rates.slow = drop, duplicate, slow

    @rule(down_ms=st.sampled_from([100, 3_000]), lose=st.integers(0, 2))
    def the_coordinator_restarts(self, down_ms: int, lose: int) -> None:
        self.world.restart_coordinator(down_ms, lose=min(lose, len(self.world.log)))

    @rule(more=st.integers(1, 3))
    def a_topic_grows(self, more: int) -> None:
        topic = min(self.world.partitions)
        self.world.resize(topic, self.world.partitions[topic] + more)

    @rule(by_ms=st.integers(-(10**7), 10**7))
    def the_wall_clock_jumps(self, by_ms: int) -> None:
        self.world.jump_clock(by_ms)

    @rule(faults=st.sampled_from([0.0, 0.5]), extra_ms=st.sampled_from([0, 600, 18_000]))
    def applications_misbehave(self, faults: float, extra_ms: int) -> None:
        for process in self.world.living():
            process.listener_faults, process.revoke_extra_ms = faults, extra_ms

    @rule(times=st.integers(1, 3))
    def plans_fail(self, times: int) -> None:
        for process in self.world.living():
            process.plan_fails = times

    @invariant()
    def no_rule_is_broken(self) -> None:
        if hasattr(self, "world"):
            assert self.world.violations == [], self.world.trace[-40:]

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.faults.quiet()
            assert self.world.violations == [], self.world.trace[-40:]


EXAMPLES_MORE = {"default": 1, "ci": 5, "exhaustive": 100}  # by HYPOTHESIS_PROFILE


def case(policy: str, *, examples: int, phases: tuple[Phase, ...] = tuple(Phase)) -> type:
    """A test class for one policy."""
    machine = type(f"Group_{policy}", (Group,), {"policy": policy})
    machine.TestCase.settings = settings(
        max_examples=examples * EXAMPLES_MORE[os.environ.get("HYPOTHESIS_PROFILE", "default")],
        stateful_step_count=14,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    return machine.TestCase


TestEager = case("eager", examples=10)
TestSticky = case("eager-sticky", examples=8)
TestCooperativeSticky = case("simple", examples=14)
TestDesignI = case("holdfast-simple", examples=14)
TestDesignII = case("deferred", examples=16)
TestDesignIII = case("incremental", examples=16)
TestFailback = case("failback", examples=8)
TestDamped = case("damped", examples=8)


def test_every_soaked_policy_has_a_machine() -> None:
    assert {each.policy for each in Group.__subclasses__()} == set(POLICIES)


def test_a_broken_rule_ends_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: RoundChecker, *_: object, **__: object) -> None:
        self.ownership_log.fail("S1", 0, "planted")

    monkeypatch.setattr(RoundChecker, "_safety", broken)
    machine = case("holdfast-simple", examples=2, phases=(Phase.generate,))
    with pytest.raises(AssertionError, match="planted"):
        machine("runTest").runTest()
