"""The table of ``docs/handover.md``: what a rolling bounce moves and stops, way by way.

Every cell is a run of the simulation under one seed, so a reader sees moves and standstill of one
bench side by side.
"""

from __future__ import annotations

from dataclasses import replace

from tools.pages.tables import table

from holdfast.core.machine.policy import Policy
from holdfast.sim.scenarios import Report, Setup, simulate
from holdfast.sim.world.costs import Costs

WAYS = (
    ("`eager` (range)", "eager", False),
    ("`simple`", "simple", False),
    ("`deferred`, `incremental`", "deferred", False),
    ("`lend`", "lend", False),
    ("`simple`, static ids", "simple", True),
    ("KIP-848 (model)", "kip848", False),
)
"""Name of a row, the policy, and whether members have instance ids."""

RESTARTS_MS, REBUILDS_MS = (3_000, 60_000), (0, 10_000)
DELAY_MS = 120_000


def ways_part() -> str:
    """Moves, then the standstill for each restart and each cost of state."""
    head = ["way", "moves"]
    for restart_ms in RESTARTS_MS:
        for rebuild_ms in REBUILDS_MS:
            state = f"{rebuild_ms // 1000} s of state" if rebuild_ms else "no state"
            head.append(f"{restart_ms // 1000} s restart, {state}")
    rows = []
    for name, policy, static in WAYS:
        found = [
            _run(policy, restart_ms, rebuild_ms, static=static)
            for restart_ms in RESTARTS_MS
            for rebuild_ms in REBUILDS_MS
        ]
        moves = list(dict.fromkeys(str(run.moved) for run in found))
        stopped = [f"{run.partition_seconds_stopped:,.0f}" for run in found]
        rows.append((name, ", ".join(moves), *stopped))
    return "\n".join(table(tuple(head), rows))


def _run(policy: str, restart_ms: int, rebuild_ms: int, *, static: bool) -> Report:
    costs = replace(Costs(), restart_ms=restart_ms, rebuild_ms=rebuild_ms, slow_members=0)
    settings = Policy(delay_ms=DELAY_MS)
    return simulate(Setup(policy=policy, settings=settings, costs=costs, static=static))
