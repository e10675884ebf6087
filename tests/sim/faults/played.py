"""Test helpers of the fault scenarios: fault cases whose expectations are asserted at once."""

from __future__ import annotations

from typing import Any

from tests.sim.faults.fault_case import FaultCase

from holdfast.sim.world.world import World


def world(name: str = "deferred", n: int = 3, **more: Any) -> World:
    """``n`` members under a policy, settled; see :meth:`FaultCase.world`."""
    case = FaultCase()
    w = case.world(name, n, **more)
    assert case.well
    return w


def ends_well(w: World, after_ms: int = 60_000) -> World:
    case = FaultCase()
    case.ends_well(w, after_ms)
    assert [e.text for e in case.expected if not e.holds] == []
    assert w.violations == []
    return w
