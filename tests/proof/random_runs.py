"""Random faulty runs: safety during a phase of faults, then settling in a quiet phase.

**Rules.** Everything about a run comes from its seed: the policy, the sizes, the faults and their
times. When the faults end, messages are reliable and processes have no faults. The group must then
settle within :data:`SETTLE_MS`: everything is processed (L1), loads are even (L2), and there are no
more rounds (L4). A failure names the seed that repeats it.

**Strategy.** One list of weighted faults; each draws its own numbers from the run's generator.

References: :data:`tests.proof.rules.checkers.RULES`, L1 to L6; TigerBeetle's VOPR.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tests.proof.rules.attached import CheckedWorld

from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.policy import POLICIES, Policy, When, check_known, find_policy
from holdfast.core.machine.states import GroupState
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.errors import ConfigError, HoldfastError
from holdfast.sim.clock import Costs, Violation
from holdfast.sim.process import all_quiescent
from holdfast.sim.world import World, WorldOptions

FAULTS_MS = 60_000
SETTLE_MS = 400_000
ROUNDS_PER_CAUSE = 8

WEIGHTS = [4 if info.defers else 2 if info.cooperative else 1 for info in POLICIES.values()]
"""Frequencies of the policies in random runs."""

_LOCATIONS: tuple[Callable[[int], str] | None, ...] = (
    None,
    str,
    lambda slot: str(slot // 2),  # two slots have one location
    lambda slot: "everywhere",
)

_PLANS = 0, 400, 2_000
"""Time that a leader's plan takes, by seed."""

QUICK = Costs(
    heartbeat_ms=1_000,
    session_ms=6_000,
    poll_ms=300,
    slow_poll_ms=2_000,
    revoke_ms=100,
    rebuild_ms=50,
    restart_ms=3_000,
    initial_delay_ms=500,
    rebalance_ms=20_000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakRun:
    """One random run."""

    seed: int
    policy: str
    rounds: int
    digest: str
    violations: tuple[Violation, ...]
    trace: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakOutcome:
    """The outcome of many random runs."""

    runs: int
    rounds: int
    failures: tuple[SoakRun, ...]
    digest: str  # events of all runs


def soak(
    first_seed: int,
    runs: int,
    *,
    policy: str | None = None,
    track: Callable[[range], Iterable[int]] = iter,
    seen: Callable[[str], None] | None = None,
) -> SoakOutcome:
    """Run the seeds ``first_seed`` to ``first_seed + runs - 1``.

    Parameters
    ----------
    policy : str, optional
        Only this one; drawn from the seed otherwise.
    track : callable, optional
        Passes the seeds on one by one, and may show progress.
    seen : callable, optional
        Receives the trace of each run, line by line.

    Raises
    ------
    ConfigError
        If the policy is unknown, or a number is below 0 or 1.
    """
    if first_seed < 0 or runs < 1:
        raise ConfigError(f"seed and runs: found {first_seed} and {runs}, expected 0 and 1 or more")
    if policy is not None:
        check_known(policy, "policy of random runs")
    failures, rounds, digests = [], 0, hashlib.sha256()
    for seed in track(range(first_seed, first_seed + runs)):
        run = random_run(seed, policy=policy)
        rounds += run.rounds
        digests.update(run.digest.encode())
        if seen is not None:
            for line in (f"seed {seed}, {run.policy}", *run.trace):
                seen(line)
        if run.violations:
            failures.append(replace(run, trace=()))
    digest = digests.hexdigest()[:16]
    return SoakOutcome(runs=runs, rounds=rounds, failures=tuple(failures), digest=digest)


def random_run(
    seed: int,
    *,
    policy: str | None = None,
    assignors: Callable[[Sequence[Assignor]], Sequence[Assignor]] | None = None,
    trace: bool = True,
) -> SoakRun:
    """Play one random run.

    Parameters
    ----------
    assignors : callable, optional
        Replaces the assignors of members, as planted bugs do.
    """
    faults = Faults(seed, policy, assignors, trace=trace)
    world = faults.world
    try:
        faults.play()
    except (AssertionError, HoldfastError) as error:  # a machine that broke its own rules
        world.ownership_log.fail("machine", world.now_ms, f"{type(error).__name__}: {error}")
    lines = "\n".join(world.trace) + str(world.rounds) + str(len(world.log))
    return SoakRun(
        seed=seed,
        policy=faults.policy,
        rounds=world.rounds,
        digest=hashlib.sha256(lines.encode()).hexdigest()[:16],
        violations=tuple(world.violations),
        trace=tuple(world.trace),
    )


class Faults:
    """A world, and the faults that are drawn for it."""

    def __init__(
        self,
        seed: int,
        policy: str | None,
        change: Callable[[Sequence[Assignor]], Sequence[Assignor]] | None,
        *,
        trace: bool,
    ):
        self.rng = rng = np.random.Generator(np.random.PCG64(seed + 77_000_000))
        chances = np.array(WEIGHTS, float) / sum(WEIGHTS)
        drawn = tuple(POLICIES)[int(rng.choice(len(POLICIES), p=chances))]
        self.policy = policy or drawn
        self.n_members = int(rng.integers(2, 6))
        topics = {"a": int(rng.integers(1, 9))}
        if rng.random() < 0.4:
            topics["b"] = int(rng.integers(1, 5))
        delay_ms = int(rng.choice([0, 5_000, 12_000]))
        settings = Policy(
            delay_ms=delay_ms,
            stabilization_ms=delay_ms,
            batch=int(rng.integers(1, 4)),
            interval_ms=int(rng.choice([0, 1_000, 3_000])),
            first_member=When.DEFERRED if rng.random() < 0.2 else When.IMMEDIATE,
        )
        announces = bool(rng.random() < 0.3)
        self.settings = replace(settings, omit_unchanged=bool(rng.random() < 0.5))
        offered = assignors_for(self.policy, self.settings)
        if change is not None:
            offered = tuple(change(offered))
        self.world = CheckedWorld(
            WorldOptions(
                assignors=lambda slot: offered,
                partitions=topics,
                costs=replace(
                    QUICK,
                    slow_members=int(rng.integers(0, 2)),
                    plan_ms=_PLANS[seed // len(_LOCATIONS) % len(_PLANS)],
                ),
                static=bool(rng.random() < 0.35),
                location=_LOCATIONS[seed % len(_LOCATIONS)],
                announce_leave=announces,
                trace=trace,
            ),
            seed,
        )
        self.world.checker.waiting.slack_ms = 2 * QUICK.rebalance_ms + QUICK.session_ms
        self.next_slot = self.n_members

    def play(self) -> World:
        """Play faults, then a quiet phase."""
        world, rng = self.world, self.rng
        for slot in range(self.n_members):
            world.start(slot)
            world.run(world.now_ms + int(rng.integers(1_000)))
        world.run(world.now_ms + int(rng.integers(8_000)))
        if rng.random() < 0.7:
            rates = world.network.rates
            rates.drop = float(rng.choice([0, 0.01, 0.05]))
            rates.duplicate = float(rng.choice([0, 0.02]))
            rates.slow = float(rng.choice([0, 0.03]))
        end_ms = world.now_ms + FAULTS_MS
        self._jumps(end_ms)
        while world.now_ms < end_ms:
            world.run(world.now_ms + int(rng.integers(50, 8_000)))
            self.fault()
        self.quiet()
        return world

    def fault(self) -> None:
        """Draw one fault and make it happen."""
        rng = self.rng
        actions: list[tuple[int, Callable[[], None]]] = [
            (5, self._crash),
            (4, self._stop),
            (8, self._start),
            (2, self._stall),
            (2, self._split),
            (1, self._coordinator),
            (1, self._resize),
            (1, self._subscribe),
            (1, self._callbacks),
            (1, self._plans),
        ]
        weights = np.array([w for w, _ in actions], float)
        index = int(rng.choice(len(actions), p=weights / weights.sum()))
        actions[index][1]()

    def _jumps(self, end_ms: int) -> None:
        """Let the wall clock jump; drawn apart, so that a seed's other faults stay the same."""
        rng = np.random.Generator(np.random.PCG64(self.world.seed + 78_000_000))
        for _ in range(int(rng.integers(0, 4))):
            by_ms = int(rng.integers(-3_600_000, 3_600_000))
            when_ms = int(rng.integers(self.world.now_ms, end_ms))
            self.world.clock.at(when_ms, self.world.jump_clock, by_ms)

    def _living(self) -> list[int]:
        return [p.slot for p in self.world.living() if not p.exiting]

    def _pick(self, slots: list[int]) -> int | None:
        return slots[int(self.rng.integers(len(slots)))] if slots else None

    def _crash(self) -> None:
        slot = self._pick(self._living())
        if slot is not None:
            self.world.crash(slot)

    def _stop(self) -> None:
        slot = self._pick(self._living())
        if slot is not None:
            self.world.stop(slot, returns=bool(self.rng.random() < 0.7))

    def _start(self) -> None:
        slots = sorted(self.world.slots)
        dead = [s for s in slots if not self.world.slots[s].alive]
        if self.rng.random() < 0.2 and self.next_slot < self.n_members + 3:
            dead = [self.next_slot]
            self.next_slot += 1
        slot = self._pick(dead)
        if slot is not None:
            self.world.start(slot)

    def _stall(self) -> None:
        slot = self._pick(self._living())
        if slot is not None:
            self.world.stall(slot, int(self.rng.integers(500, 15_000)))

    def _split(self) -> None:
        slot = self._pick(self._living())
        if slot is not None:
            self.world.split(slot, int(self.rng.integers(500, 12_000)))

    def _coordinator(self) -> None:
        lose = int(self.rng.random() < 0.4)
        self.world.restart_coordinator(int(self.rng.integers(100, 6_000)), lose=lose)

    def _resize(self) -> None:
        topics = sorted(self.world.partitions)
        topic = topics[int(self.rng.integers(len(topics)))]
        count = self.world.partitions[topic] + int(self.rng.integers(1, 4))
        if self.rng.random() < 0.3 and len(topics) > 1:
            count = 0
        self.world.resize(topic, count)

    def _subscribe(self) -> None:
        slot = self._pick(self._living())
        topics = tuple(sorted(self.world.partitions))
        if slot is not None and len(topics) > 1:
            self.world.subscribe(slot, topics if self.rng.random() < 0.5 else topics[:1])

    def _callbacks(self) -> None:
        for process in self.world.living():
            process.listener_faults = 0.3
            process.revoke_extra_ms = int(self.rng.choice([0, 500, 18_000]))

    def _plans(self) -> None:
        for process in self.world.living():
            process.plan_fails = int(self.rng.integers(0, 3))

    def quiet(self) -> None:
        """End the faults: the group must settle, and stay settled."""
        world = self.world
        world.network.rates.drop = world.network.rates.duplicate = world.network.rates.slow = 0.0
        world.network.cut_until.clear()
        for process in world.living():
            process.listener_faults = 0.0
            process.revoke_extra_ms = process.plan_fails = 0
        if not self._living():
            world.start(min(world.slots))
        for slot in self._living():
            world.subscribe(slot, tuple(sorted(world.partitions)))
        limit_ms = world.now_ms + SETTLE_MS
        if not world.clock.run_while(self._unsettled, limit_ms):
            states = ", ".join(
                f"{p.client} {p.member.state} {len(p.running)}" for p in world.living()
            )
            world.ownership_log.fail("L1", world.now_ms, f"not settled in {SETTLE_MS} ms: {states}")
            return
        rounds = world.rounds
        world.run(world.now_ms + 60_000)
        if world.rounds != rounds:
            text = f"{world.rounds - rounds} rounds without a cause"
            world.ownership_log.fail("L4", world.now_ms, text)
        if world.rounds > ROUNDS_PER_CAUSE * (world.counts.causes + 5):
            text = f"{world.rounds} rounds for {world.counts.causes} causes"
            world.ownership_log.fail("L4", world.now_ms, text)
        self._balanced()

    def _unsettled(self) -> bool:
        """Return whether the group is unsettled; if all were fenced, restart one process.

        A coordinator that lost the record of a static member's return knows only the member's
        process from before. It fences the new process, and that process has to be started again.
        """
        if not self._living() and any(p.failed for p in self.world.slots.values()):
            self.world.start(min(self.world.slots))
        return not self._settled()

    def _settled(self) -> bool:
        """Return whether every member is quiescent and known, and all is processed."""
        world, group = self.world, self.world.coordinator
        living = world.living()
        if not living or group is None or group.state is not GroupState.STABLE:
            return False
        awake = all(p.stalled_until_ms <= world.now_ms for p in living)
        knowing = all(p.member.data.coordinator_known for p in living)
        known = sorted(group.members) == sorted(p.member.member_id for p in living)
        if not (awake and knowing and known and all_quiescent(living)):
            return False
        if world.now_ms - world.counts.last_round_ms < 8_000:
            return False
        return sum(len(p.running) for p in living) == len(world.resources())

    def _balanced(self) -> None:
        world = self.world
        loads = [len(p.running) for p in world.living()]
        if "range" in find_policy(self.policy).protocols and len(world.partitions) > 1:
            return  # range balances each topic by itself
        if max(loads) - min(loads) > 1:
            world.ownership_log.fail("L2", world.now_ms, f"loads {loads}")
