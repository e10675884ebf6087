"""Fault scenarios by number as fault cases: their events, and the required outcome.

**Strategy.** A table; :func:`play_case` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.sim.faults import (
    cases_claims,
    cases_data,
    cases_errors,
    cases_groups,
    cases_time,
)
from tests.sim.faults.fault_case import FaultCase

_MODULES = (cases_groups, cases_claims, cases_time, cases_data, cases_errors)

CASES: Mapping[int, Callable[[FaultCase], None]] = {
    int(name.removeprefix("case_")): vars(module)[name]
    for module in _MODULES
    for name in sorted(vars(module))
    if name.startswith("case_")
}
"""Number -> fault case."""


def play_case(number: int) -> FaultCase:
    """Play one to its end.

    Raises
    ------
    KeyError
        If the number has no scene.
    """
    return FaultCase().play(CASES[number])
