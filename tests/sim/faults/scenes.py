"""Fault scenarios by number as scenes: what happens, and what must come of it.

**Strategy.** A table; :func:`play_scene` looks into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.sim.faults import (
    scenes_claims,
    scenes_data,
    scenes_errors,
    scenes_groups,
    scenes_time,
)
from tests.sim.faults.scene import Scene

_MODULES = (scenes_groups, scenes_claims, scenes_time, scenes_data, scenes_errors)

SCENES: Mapping[int, Callable[[Scene], None]] = {
    int(name.removeprefix("scene_")): vars(module)[name]
    for module in _MODULES
    for name in sorted(vars(module))
    if name.startswith("scene_")
}
"""Number -> scene."""


def play_scene(number: int) -> Scene:
    """Play one to its end.

    Raises
    ------
    KeyError
        If the number has no scene.
    """
    return Scene().play(SCENES[number])
