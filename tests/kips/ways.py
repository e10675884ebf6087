"""The way of a group whose members are all alike: what is printed of it, and the way itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations

from tests.proof.rules.attached import CheckedWorld

from holdfast.core.machine.leader.assignor_protocol import Assignor
from holdfast.core.machine.leader.designs import DesignAssignor
from holdfast.core.machine.upgrade import Client, Config, check_step, plan_group
from holdfast.errors import ConfigError
from holdfast.sim.broker import Hooks
from holdfast.sim.clock import Costs
from holdfast.sim.world import WorldOptions

DELAY_MS = 10_000
COSTS = Costs(
    heartbeat_ms=500,
    session_ms=6_000,
    slow_members=0,
    rebuild_ms=0,
    restart_ms=500,
    initial_delay_ms=200,
)


def plan_upgrade(start: Config, goal: Config) -> list[Config]:
    """The configuration after each bounce; a ``ConfigError`` where the way is not safe."""
    first, *steps = (configs[0] for configs in plan_group([start], [goal]))
    for before, after in pairwise([first, *steps]):
        if unsafe := [f for f in check_step([before], [after]) if f.unsafe]:
            raise ConfigError(f"stop all first: {unsafe[0].text}; {unsafe[0].advice}")
    return steps


def settings_of_java() -> set[str]:
    """What plans print for Java's consumer, whose constructor ``test_upgrades.py`` asks."""
    names = ("range", "roundrobin", "sticky", "cooperative-sticky")
    found = set()
    for pair in permutations(names, 2):
        first, goal = (Config(client=Client.JAVA, assignors=(name,)) for name in pair)
        found |= {config.setting for config in (first, *plan_upgrade(first, goal))}
    return found


def quick(supported: Sequence[Assignor]) -> list[Assignor]:
    """The same assignors; designs wait and pause for less than the default minutes."""
    return [
        replace(a, policy=replace(a.policy, delay_ms=DELAY_MS, interval_ms=500))
        if isinstance(a, DesignAssignor)
        else a
        for a in supported
    ]


def bounce(stages: Sequence[Sequence[Assignor]], hooks: Hooks | None = None) -> None:
    """Three members roll through the stages one by one; no rule is broken, nothing is unowned."""
    supported = [quick(stage) for stage in stages]
    phase = [0] * 3
    options = WorldOptions(
        assignors=lambda slot: supported[phase[slot]], partitions={"t": 6}, costs=COSTS
    )
    world = CheckedWorld(options, seed=1, hooks=hooks)
    for slot in range(3):
        world.start(slot)
    world.run(8_000)
    for stage in range(1, len(stages)):
        for slot in range(3):
            world.stop(slot)
            world.run(world.now_ms + 1_500)
            phase[slot] = stage
            world.start(slot)
            world.run(world.now_ms + 8_000)
    world.run(world.now_ms + 20_000)
    assert world.violations == []
    assert [p.failed for p in world.living()] == ["", "", ""]
    assert {p.member.data.protocol_name for p in world.living()} == {stages[-1][0].name}
    assert sorted(len(p.running) for p in world.living()) == [2, 2, 2]
