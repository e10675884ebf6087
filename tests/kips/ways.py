"""The way of a group whose members are all alike, as ``upgrade-check --plan`` prints it."""

from __future__ import annotations

from itertools import pairwise

from holdfast.core.machine.upgrade import Config, check_step, plan_group
from holdfast.errors import ConfigError


def plan_upgrade(start: Config, goal: Config) -> list[Config]:
    """The configuration after each bounce; a ``ConfigError`` where the way is not safe."""
    first, *steps = (configs[0] for configs in plan_group([start], [goal]))
    for before, after in pairwise([first, *steps]):
        if unsafe := [f for f in check_step([before], [after]) if f.unsafe]:
            raise ConfigError(f"stop all first: {unsafe[0].text}; {unsafe[0].advice}")
    return steps
