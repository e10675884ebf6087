"""Fault scenarios by number as scenes: what happens, and what must come of it.

**Rules.** A number is a script for any policy (:mod:`tests.sim.faults.scripts`) or a scene; the
one that is neither needs a live client.

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

LIVE: Mapping[int, str] = {
    65: "it is about a client that asks a broker and is not answered in time; "
    "pytest tests/sim -k test_65 plays it, with a lag source that fails, hangs or lies: "
    "every member gets equally many partitions, and the log says why",
}
"""Number -> what checks it instead."""


def play_scene(number: int) -> Scene:
    """Play one to its end.

    Raises
    ------
    KeyError
        If the number has no scene.
    """
    return Scene().play(SCENES[number])
