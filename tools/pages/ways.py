"""The tables of ``docs/policies.md``: moves and downtime of a bounce and an autoscaler, by policy.

Every cell is a run of the simulation under one seed, so a reader sees moves and downtime of one
bench side by side.
"""

from __future__ import annotations

from dataclasses import replace

from tools.pages.tables import table

from holdfast.cli.commands.simulate import draw
from holdfast.core.machine.policy import Policy
from holdfast.sim.clock import Costs
from holdfast.sim.scenarios import Report, ScenarioStep, Setup, simulate

WAYS = (
    ("`eager` (range)", "eager", False),
    ("`simple`", "simple", False),
    ("`deferred`, `incremental`", "deferred", False),
    ("`failback`", "failback", False),
    ("`damped`", "damped", False),
    ("`simple`, static ids", "simple", True),
    ("KIP-848 (model)", "kip848", False),
)
"""Name of a row, the policy, and whether members have instance ids."""

DRAWN = ("eager", "simple", "deferred", "failback")
"""Policies of the drawing, from the one that stops most."""

RESTARTS_MS, REBUILDS_MS = (3_000, 60_000), (0, 10_000)
DELAY_MS = 120_000


def policies_drawing() -> str:
    """Return the drawing of one bounce under four policies, as SVG."""
    small = Setup(members=4, partitions=12, timeline=True)
    return draw([simulate(replace(small, policy=policy)) for policy in DRAWN])


def ways_part() -> str:
    """Return moves, then the downtime for each restart and each cost of state."""
    head = ["policy", "moves"]
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
    return "\n".join((*table(tuple(head), rows), "", *_flaps()))


FLAPS, MORE, UP_MS, EVERY_MS = 3, 3, 34_000, 67_000
"""So often three more members come to a group of two, stay for so long, and so often."""
FLAPPED = ("simple", "failback", "deferred", "incremental", "damped")


def _flaps() -> list[str]:
    """Return moves and stops under an autoscaler that flaps, policy by policy."""
    text = [
        f"An autoscaler flaps: three members join two and leave {UP_MS // 1000} s later, "
        f"{FLAPS} times (`deferred` waits 30 s):",
        "",
    ]
    rows = []
    for policy in FLAPPED:
        found = [_flap(policy, rebuild_ms) for rebuild_ms in REBUILDS_MS]
        moves = list(dict.fromkeys(str(run.moved) for run in found))
        stopped = [f"{run.partition_seconds_stopped:,.0f}" for run in found]
        rows.append((f"`{policy}`", ", ".join(moves), *stopped))
    return [*text, *table(("policy", "moves", "no state", "10 s of state"), rows)]


def _flap(policy: str, rebuild_ms: int) -> Report:
    steps = []
    for flap in range(FLAPS):
        for slot in range(2 + MORE * flap, 2 + MORE * (flap + 1)):
            at_ms = 100_000 + EVERY_MS * flap
            steps.append(ScenarioStep(at_ms=at_ms, do="start", slot=slot))
            steps.append(ScenarioStep(at_ms=at_ms + UP_MS, do="stop", slot=slot))
    return simulate(
        Setup(
            policy=policy,
            scenario="script",
            script=tuple(steps),
            members=2,
            settings=Policy(delay_ms=30_000),
            costs=replace(Costs(), rebuild_ms=rebuild_ms, slow_members=0),
        )
    )


def _run(policy: str, restart_ms: int, rebuild_ms: int, *, static: bool) -> Report:
    costs = replace(Costs(), restart_ms=restart_ms, rebuild_ms=rebuild_ms, slow_members=0)
    settings = Policy(delay_ms=DELAY_MS)
    return simulate(Setup(policy=policy, settings=settings, costs=costs, static=static))
