"""The document's scenarios, measured: bounce, death, scaling, first start, under any policy.

**Rules.** Members are slots 0 to n - 1; the first ``Costs.slow_members`` of them are slow. Except
in ``first-start`` the group settles before measuring begins. Times and moves come from the
ownership log.

**Strategy.** :func:`simulate` builds a world for a policy, plays the scenario, waits for balance
and reports. :mod:`holdfast.sim.kip848` is not a policy but a baseline.

References: Incremental Cooperative Rebalancing, "Motivation" and "Characteristics".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from holdfast.core.assignors.own import OwnAssignor
from holdfast.core.assignors.registry import Named, find
from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.policy import DEFAULTS, POLICIES, Policy, PolicyInfo, find_policy
from holdfast.core.machine.states import MemberState
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.errors import ConfigError, PlanError
from holdfast.sim import BASELINES
from holdfast.sim.clock import Costs, Ownership, OwnershipLog, Violation
from holdfast.sim.kip848 import Group848
from holdfast.sim.process import Process, all_quiescent
from holdfast.sim.world import World, WorldOptions

SETTLE_LIMIT_MS = 3_600_000
QUIET_MS = 4_000
LEADER = -1  # slot of a step: the member that leads when the step is taken

Track = Callable[[range], Iterable[int]]
"""Passes on the members that are bounced, and may count them."""

MakeWorld = Callable[[WorldOptions, int], World]
"""Makes the world of a scenario from its options and its seed; a test may check more."""

SIMULATED = (*POLICIES, *BASELINES)
"""Policies and baselines. A setup may name an assignor as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioStep:
    """One entry of a scenario file.

    ``do`` is start, stop, crash, stall, split, resize (to ``count`` partitions, 0 none), jump-clock
    or restart-coordinator, which loses ``count`` records at the end of its log. ``slot`` -1 is
    the member that leads at that time.
    """

    at_ms: int
    do: str
    slot: int = 0
    for_ms: int = 0
    topic: str = "topic"
    count: int = 0
    returns: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The setup of a simulation."""

    scenario: str = "rolling-bounce"  # a name of :data:`SCENARIOS`
    # A name of :data:`holdfast.core.machine.policy.POLICIES`, an assignor's, or a baseline's. Or
    # a user's own policy.
    policy: str | PolicyInfo = "deferred"
    members: int = 6
    partitions: int = 24  # of one topic, unless ``topics`` says otherwise
    seed: int = 0
    settings: Policy = DEFAULTS  # delay, batch and so on
    # The assignors of members under a policy without a design, instead of the policy's own; under a
    # design the assignor of targets. A baseline has none.
    assignor: Named | None = None
    costs: Costs = field(default_factory=Costs)
    static: bool = False
    # Slot -> the location that its processes report; by default each slot has its own.
    location: Callable[[int], str] | None = str
    crash: bool = False  # whether bounces and scaling down are crashes rather than clean stops
    steps: int = 1
    topics: Mapping[str, int] | None = None
    script: tuple[ScenarioStep, ...] = ()
    trace: bool = False
    timeline: bool = False  # whether the report has the owner of every resource over time


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The costs of a scenario; seconds are of virtual time."""

    scenario: str
    policy: str
    seed: int
    members: int
    partitions: int
    rounds: int
    moved: int
    moved_to_third: int
    partition_seconds_unowned: float
    partition_seconds_stopped: float
    longest_stop_seconds: float
    time_to_balance_seconds: float
    bytes_per_round: int
    largest_round_bytes: int
    violations: tuple[Violation, ...]
    trace: tuple[str, ...] = ()
    begin_ms: int = 0
    timeline: tuple[Ownership, ...] = ()

    def to_dict(self, *, sizes: bool = False) -> dict[str, Any]:
        """Return the JSON of ``holdfast simulate``; ``sizes`` adds bytes on the wire a round."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        left_out = {"trace", "timeline", "begin_ms"}
        if not sizes:
            left_out |= {"bytes_per_round", "largest_round_bytes"}
        values["violations"] = [v.to_dict() for v in self.violations]
        return {
            "schema_version": 1,
            **{
                name: round(value, 3) if isinstance(value, float) else value
                for name, value in values.items()
                if name not in left_out
            },
        }


class Play:
    """A scenario in progress: a world and the steps of scenarios."""

    def __init__(self, setup: Setup, track: Track = iter, make_world: MakeWorld = World):
        self.setup = setup
        self.track = track
        self.costs = setup.costs
        offered = assignors_of(setup)
        self.world = make_world(
            WorldOptions(
                assignors=lambda slot: offered,
                partitions=dict(setup.topics or {"topic": setup.partitions}),
                costs=setup.costs,
                static=setup.static,
                location=setup.location,
                trace=setup.trace,
            ),
            setup.seed,
        )

    def start_all(self) -> None:
        """Start every member within a second, in order."""
        for slot in range(self.setup.members):
            self.world.start(slot)
            self.world.run(self.world.now_ms + 1000 // max(1, self.setup.members))

    def settled(self) -> bool:
        """Return whether all is quiescent and processed, and no round was recent."""
        world = self.world
        living = world.living()
        if not living:  # the scenario ended all processes, or all failed
            return not any(p.failed for p in world.slots.values())
        quiet = world.now_ms - world.counts.last_round_ms >= QUIET_MS
        return (
            quiet and all_quiescent(living) and _processed(world) == sum(world.partitions.values())
        )

    def settle(self) -> None:
        """Wait until the group has settled."""
        limit_ms = self.world.now_ms + SETTLE_LIMIT_MS
        if not self.world.clock.run_while(lambda: not self.settled(), limit_ms):
            self.world.ownership_log.fail("L1", self.world.now_ms, "the group did not settle")

    def rebuilt(self) -> None:
        """Wait until all state is rebuilt."""
        busy_ms = max((p.rebuilt_ms for p in self.world.living()), default=0)
        self.world.run(max(self.world.now_ms, busy_ms))

    def bounce(self, slot: int) -> None:
        """End a process, start it again after the restart time, wait until it has work."""
        world = self.world
        process = world.slots[slot]
        if self.setup.crash:
            world.crash(slot)
        else:
            world.stop(slot)
            limit_ms = world.now_ms + 2 * self.costs.rebalance_ms
            world.clock.run_while(lambda: process.alive, limit_ms, 50)
            if process.alive:
                world.crash(slot)
        world.run(world.now_ms + self.costs.restart_ms)
        back = world.start(slot)

        def waits() -> bool:
            return not (back.running and back.member.state is MemberState.STABLE)

        world.clock.run_while(waits, world.now_ms + self.patience_ms(), 100)
        world.run(world.now_ms + self.costs.pause_ms)

    def patience_ms(self) -> int:
        """Return the time that a scenario waits for a member to work, in ms."""
        return 2 * self.costs.rebalance_ms + self.costs.session_ms


def rolling_bounce(play: Play) -> None:
    """End and restart each member, one after the other."""
    for slot in play.track(range(play.setup.members)):
        play.bounce(slot)


def surge(play: Play) -> None:
    """Roll out as a Deployment: new processes start, and as many old ones end when they work.

    ``steps`` processes start at once, as with a ``maxSurge`` of that number. A new process is ready
    ``pause_ms`` after it became a member. Before the surge the group rests for a minute.
    """
    world, costs = play.world, play.costs
    world.run(world.now_ms + 60_000)
    slots = play.setup.members
    for first in range(0, slots, play.setup.steps):
        old = range(first, min(slots, first + play.setup.steps))
        new = [world.start(slots + slot) for slot in old]

        def waits(new: list[Process] = new) -> bool:
            return not all(p.member.state is MemberState.STABLE for p in new)

        world.clock.run_while(waits, world.now_ms + play.patience_ms(), 100)
        world.run(world.now_ms + costs.pause_ms)
        for slot in old:
            if play.setup.crash:
                world.crash(slot)
            else:
                world.stop(slot)
    world.run(world.now_ms + costs.pause_ms)


def process_death(play: Play) -> None:
    """Crash one process, which its orchestrator starts again (``steps`` times)."""
    last = play.setup.members - 1
    for step in range(play.setup.steps):
        slot = last - step % play.setup.members
        play.world.crash(slot)
        play.world.run(play.world.now_ms + play.costs.restart_ms)
        play.world.start(slot)
        play.settle()


def scale_up(play: Play) -> None:
    """Start ``steps`` more members."""
    for step in range(play.setup.steps):
        play.world.start(play.setup.members + step)


def scale_down(play: Play) -> None:
    """End ``steps`` members for good."""
    for step in range(play.setup.steps):
        slot = play.setup.members - 1 - step
        if play.setup.crash:
            play.world.crash(slot)
        else:
            play.world.stop(slot, returns=False)


def first_start(play: Play) -> None:
    """Start the group from nothing."""
    play.start_all()


def scripted(play: Play) -> None:
    """Take the steps of a scenario file in the order of time."""
    begin_ms = play.world.now_ms
    for step in sorted(play.setup.script, key=lambda s: s.at_ms):
        play.world.run(begin_ms + step.at_ms)
        _do(play.world, step)


def _leading(world: World) -> int:
    """Return the slot that leads, or the lowest that is up."""
    group = world.coordinator
    living = world.living()
    leads = [p.slot for p in living if group and p.member.member_id == group.leader_id]
    return next(iter(leads), living[0].slot if living else 0)


def _processed(world: World) -> int:
    """Count the existing partitions that are being processed."""
    count = world.partitions.get
    return sum(p < count(topic, 0) for q in world.living() for topic, p in q.running)


def _check(world: World, step: ScenarioStep) -> None:
    """Raise ConfigError if a step cannot be taken now."""
    at = f"{step.do} at {step.at_ms} ms"
    up = [p.slot for p in world.living() if not p.exiting]
    if step.do == "start" and (step.slot < 0 or step.slot in up):
        raise ConfigError(f"{at}: found slot {step.slot}, expected one that is not up; up: {up}")
    if step.do in ("stop", "crash", "stall", "split") and step.slot not in world.slots:
        raise ConfigError(f"{at}: found slot {step.slot}, expected one of {sorted(world.slots)}")
    if step.do == "resize" and step.topic not in world.options.partitions:
        topics = sorted(world.options.partitions)
        raise ConfigError(f"{at}: found topic {step.topic!r}, expected one of {topics}")
    if step.count < 0:
        raise ConfigError(f"{at}: found count {step.count}, expected 0 or more")


def _do(world: World, step: ScenarioStep) -> None:
    if step.slot == LEADER:
        step = replace(step, slot=_leading(world))
    _check(world, step)
    match step.do:
        case "start":
            world.start(step.slot)
        case "stop":
            world.stop(step.slot, returns=step.returns)
        case "crash":
            world.crash(step.slot)
        case "stall":
            world.stall(step.slot, step.for_ms)
        case "split":
            world.split(step.slot, step.for_ms)
        case "resize":
            world.resize(step.topic, step.count)
        case "restart-coordinator":
            world.restart_coordinator(step.for_ms, lose=min(step.count, len(world.log)))
        case "jump-clock":
            world.jump_clock(step.for_ms)
        case _:
            raise ConfigError(
                f"do: found {step.do!r}, expected start, stop, crash, stall, split, "
                "resize, jump-clock or restart-coordinator"
            )


SCENARIOS: Mapping[str, Callable[[Play], None]] = {
    "rolling-bounce": rolling_bounce,
    "process-death": process_death,
    "scale-up": scale_up,
    "scale-down": scale_down,
    "first-start": first_start,
    "surge": surge,
}
"""Name -> function that plays the scenario."""


def assignors_of(setup: Setup) -> Sequence[Assignor]:
    """Return the assignors that members of a policy support."""
    named = () if setup.assignor is None else (setup.assignor,)
    return assignors_for(setup.policy, setup.settings, named)


def simulate(
    setup: Setup,
    *,
    ended: Callable[[World], None] | None = None,
    track: Track = iter,
    make_world: MakeWorld = World,
) -> Report:
    """Play a scenario and measure it.

    Parameters
    ----------
    setup : Setup
        Scenario, policy, sizes, costs, seed.
    ended : callable, optional
        Called with the world at the end of the run, to inspect it.
    track : callable
        Passes on the members of a rolling bounce as they are bounced.
    make_world : callable
        Function that makes the world, by default its class.

    Returns
    -------
    Report
        Numbers and broken rules; the same for the same setup in any process.

    Raises
    ------
    ConfigError
        If a name is unknown or a number is out of range.
    PlanError
        If the function of a user's own assignor or policy raised, or returned an invalid plan.
    """
    _validate(setup)
    if setup.policy == "kip848":
        if ended is not None:
            raise ConfigError("kip848 is a baseline without a coordinator's log")
        return _kip848(setup)
    play = Play(setup, track, make_world)
    world = play.world
    if setup.timeline:
        world.ownership_log.timeline = []
    if setup.scenario != "first-start":
        play.start_all()
        play.settle()
        play.rebuilt()
        world.ownership_log.begin(world.now_ms)
    begin_ms, rounds, sizes = world.now_ms, world.rounds, len(world.counts.round_bytes)
    SCENARIOS.get(setup.scenario, scripted)(play)
    play.settle()
    ended_ms = world.counts.last_round_ms
    play.rebuilt()
    world.ownership_log.finish(world.now_ms)
    check_balance(play)
    of_the_user = isinstance(setup.assignor, OwnAssignor) or isinstance(setup.policy, PolicyInfo)
    if of_the_user and world.application.failed_plan is not None:
        raise PlanError(world.application.failed_plan.removeprefix("PlanError: "))
    if ended is not None:
        ended(world)
    in_rounds = world.counts.round_bytes[sizes:]
    return _report(
        setup,
        world.ownership_log,
        partitions=sum(world.partitions.values()),
        rounds=world.rounds - rounds,
        balance_ms=max(0, ended_ms - begin_ms),
        bytes_per_round=sum(in_rounds) // max(1, len(in_rounds)),
        largest_round_bytes=max(in_rounds, default=0),
        trace=tuple(world.trace),
    )


def _kip848(setup: Setup) -> Report:
    """Play the scenario with the baseline's model."""
    group = Group848({"topic": setup.partitions}, setup.costs, setup.seed)
    ownership_log, clock = group.ownership_log, group.clock
    ownership_log.timeline = [] if setup.timeline else None
    for slot in range(setup.members):
        group.start(slot)
        clock.run(clock.now_ms + 1000 // setup.members)
    begin_ms = epoch = size = 0
    if setup.scenario != "first-start":
        group.settle()
        group.rebuilt()
        begin_ms, epoch, size = clock.now_ms, group.epoch, group.bytes
        ownership_log.begin(begin_ms)
    group.play(setup.scenario, setup.members, setup.steps, crash=setup.crash)
    clock.run(clock.now_ms + (setup.costs.session_ms if setup.crash else setup.costs.revoke_ms))
    group.settle()
    ended_ms = group.changed_ms
    group.rebuilt()
    ownership_log.finish(clock.now_ms)
    rounds = group.epoch - epoch
    return _report(
        setup,
        ownership_log,
        partitions=setup.partitions,
        rounds=rounds,
        balance_ms=max(0, ended_ms - begin_ms),
        bytes_per_round=(group.bytes - size) // max(1, rounds),
        largest_round_bytes=0,
    )


def _report(
    setup: Setup, ownership_log: OwnershipLog, *, partitions: int, balance_ms: int, **counts: Any
) -> Report:
    """Return the costs of a run, by its ownership log."""
    return Report(
        scenario=setup.scenario,
        policy=setup.policy if isinstance(setup.policy, str) else setup.policy.name,
        seed=setup.seed,
        members=setup.members,
        partitions=partitions,
        moved=ownership_log.moved,
        moved_to_third=ownership_log.moved_to_third,
        partition_seconds_unowned=ownership_log.unowned_seconds,
        partition_seconds_stopped=ownership_log.stopped_seconds,
        longest_stop_seconds=ownership_log.longest_seconds,
        time_to_balance_seconds=balance_ms / 1000,
        violations=tuple(ownership_log.violations),
        begin_ms=ownership_log.begin_ms,
        timeline=tuple(ownership_log.timeline or ()),
        **counts,
    )


def check_balance(play: Play) -> None:
    """Check L1 and L2: everything is owned, and loads differ by one at most."""
    if play.settled() and not play.world.living():
        return  # the scenario has ended every process
    loads = np.array([len(p.running) for p in play.world.living()], np.int64)
    total, processed = sum(play.world.partitions.values()), _processed(play.world)
    if processed != total:
        text = f"{total - processed} of {total} are not processed at the end"
        play.world.ownership_log.fail("L1", play.world.now_ms, text)
    elif not _levels(play.setup):
        return
    elif len(play.world.partitions) == 1 and loads.max() - loads.min() > 1:
        text = f"loads from {loads.min()} to {loads.max()}"
        play.world.ownership_log.fail("L2", play.world.now_ms, text)


def _levels(setup: Setup) -> bool:
    """Return whether the policy's assignor moves owned resources to make loads even."""
    if setup.policy in BASELINES:
        return True
    row = find_policy(setup.policy)
    if setup.assignor is not None:
        name = setup.assignor
    else:
        name = setup.settings.assignor if row.design is not None else row.assignors[0]
    info = find(name)
    return (
        "balanced" in info.laws if isinstance(info, OwnAssignor) else "keeps-all" not in info.laws
    )


def _validate(setup: Setup) -> None:
    if setup.scenario not in SCENARIOS and not setup.script:
        known = ", ".join(SCENARIOS)
        raise ConfigError(f"unknown scenario {setup.scenario!r}; known: {known}")
    if setup.members < 1 or setup.partitions < 1:
        raise ConfigError(f"members and partitions: found {setup.members} and {setup.partitions}")
    if setup.seed < 0:
        raise ConfigError(f"seed: found {setup.seed}, expected 0 or more")
    if setup.steps < 1:
        raise ConfigError(f"steps: found {setup.steps}, expected 1 or more")
    if setup.scenario == "scale-down" and setup.members <= setup.steps:
        raise ConfigError(f"steps: found {setup.steps}, expected less than {setup.members} members")
    if setup.assignor is not None and setup.policy in BASELINES:
        raise ConfigError(f"{setup.policy} is a baseline with an assignor of its own")
    if setup.policy == "kip848" and setup.scenario not in SCENARIOS:
        raise ConfigError(f"kip848 is a baseline that plays {', '.join(SCENARIOS)} only")
