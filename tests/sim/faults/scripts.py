"""Fault scenarios by number, as far as they are things that happen to processes.

**Rules.** A script is a function of the group's size and times of the cost model; under any policy
it must end settled, with no rule broken. Scenarios that bend single messages, subscriptions or
records are scenes (:mod:`tests.sim.faults.scenes`). All numbers stand in
:data:`~tests.sim.faults.titles.TITLES`.

**Strategy.** Steps of :mod:`holdfast.sim.scenarios`, built for the setup at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tests.sim.faults.titles import slug

from holdfast.sim.scenarios import LEADER, ScenarioStep, Setup

Script = Callable[[Setup], tuple[ScenarioStep, ...]]


def _start(at_ms: int, slot: int) -> ScenarioStep:
    return ScenarioStep(at_ms=at_ms, do="start", slot=slot)


def _crash(at_ms: int, slot: int) -> ScenarioStep:
    return ScenarioStep(at_ms=at_ms, do="crash", slot=slot)


def _stop(at_ms: int, slot: int, *, returns: bool = False) -> ScenarioStep:
    return ScenarioStep(at_ms=at_ms, do="stop", slot=slot, returns=returns)


def _resize(at_ms: int, count: int) -> ScenarioStep:
    return ScenarioStep(at_ms=at_ms, do="resize", count=count)


def _joins(*times_ms: int) -> Script:
    return lambda s: tuple(_start(at, s.members + i) for i, at in enumerate(times_ms))


def _bounces(away_ms: int) -> Script:
    """Every member in turn, each away for so long."""

    def script(s: Setup) -> tuple[ScenarioStep, ...]:
        every_ms = away_ms + 20_000
        pairs = [
            (_stop(i * every_ms, i, returns=True), _start(i * every_ms + away_ms, i))
            for i in range(s.members)
        ]
        return tuple(step for pair in pairs for step in pair)

    return script


def _flaps(s: Setup) -> tuple[ScenarioStep, ...]:
    return tuple(
        step for i in range(5) for step in (_crash(4_000 * i, 1), _start(4_000 * i + 2_000, 1))
    )


def _overtaken(s: Setup) -> tuple[ScenarioStep, ...]:
    """The member comes back as its deadline fires."""
    found_ms = s.costs.session_ms
    return _crash(0, s.members - 1), _start(found_ms + s.settings.delay_ms, s.members - 1)


SCRIPTS: Mapping[int, Script] = {
    1: _joins(0),
    2: _joins(0, 0),
    3: _joins(0, 300),
    4: _joins(0, 3_500),
    5: lambda s: (_stop(0, s.members - 1),),
    6: lambda s: (_crash(0, s.members - 1),),
    8: lambda s: (*(_stop(0, i) for i in range(s.members)), _start(60_000, s.members)),
    9: lambda s: (_crash(0, 1), _start(1_000, 1)),
    10: lambda s: (_stop(0, 1, returns=True), _start(s.costs.session_ms // 2, 1)),
    12: lambda s: _bounces(s.settings.delay_ms // 2)(s),
    13: lambda s: _bounces(s.settings.delay_ms + 15_000)(s),
    14: _flaps,
    15: lambda s: tuple(_crash(0, i) for i in range(s.members // 2)),
    16: _joins(0, 0, 0),
    19: lambda s: (_crash(0, s.members - 1), _crash(s.costs.session_ms + 5_000, LEADER)),
    22: lambda s: (*_joins(0, 0, 0)(s), _crash(15_000, LEADER)),
    33: lambda s: (
        *_joins(0)(s),
        ScenarioStep(at_ms=1_000, do="restart-coordinator", for_ms=1_500),
    ),
    34: lambda s: (ScenarioStep(at_ms=0, do="restart-coordinator", for_ms=300, count=1),),
    46: lambda s: (_stop(0, s.members - 1), _resize(8_000, s.partitions + 4)),
    48: lambda s: (_resize(0, max(1, s.partitions // 2)), _resize(40_000, s.partitions)),
    57: lambda s: (ScenarioStep(at_ms=0, do="stall", slot=1, for_ms=s.costs.session_ms * 3 // 2),),
    58: lambda s: (
        _crash(0, s.members - 1),
        ScenarioStep(at_ms=15_000, do="jump-clock", for_ms=3_600_000),
        ScenarioStep(at_ms=18_000, do="jump-clock", for_ms=-7_200_000),
    ),
    59: lambda s: (_stop(0, s.members - 1),),
    60: lambda s: (
        _crash(0, s.members - 1),
        *(_resize(13_000 + 4_000 * i, s.partitions + 1 + i) for i in range(4)),
    ),
    61: lambda s: (_crash(0, s.members - 1), _crash(s.costs.session_ms + 5_000, s.members - 2)),
    62: _overtaken,
    63: lambda s: (_crash(0, s.members - 1),),
}
"""Number -> what happens when; the numbers that have a script."""


def by_number(setup: Setup, number: int) -> Setup:
    """A setup that plays a fault scenario; the group needs three members or more."""
    if number == 63:
        setup = replace(setup, settings=replace(setup.settings, delay_ms=0))
    return replace(
        setup,
        scenario=f"{number:02}_{slug(number)}",
        script=SCRIPTS[number](setup),
        static=setup.static or number == 10,
    )
