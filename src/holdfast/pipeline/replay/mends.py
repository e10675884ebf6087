"""Which cost would bring a replay of low fidelity to the records: tried, and named.

**Rules.** A cost is named only if a replay with it agrees much better in rounds and moves. None is
taken by itself: it may fit by chance, and only who runs the members knows.

**Strategy.** Heartbeats, polls, rebuilding and restarts decide which departures and returns fall
into one round. Of each group the history is read and its actual setting is replayed with the
values of :data:`TRIED`, one at a time, as ``--cost`` would do. Only groups whose rounds or moves
differ are tried, and at most :data:`MOST_TRIED` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from holdfast.model.fidelity import LOW_FIDELITY
from holdfast.pipeline.replay.happenings import Story
from holdfast.pipeline.replay.run import Request, rounds_and_moves
from holdfast.sim.world.costs import Costs

TRIED: Final = {
    "heartbeat_ms": (300, 1_000, 3_000),
    "poll_ms": (50, 500),
    "rebuild_ms": (0, 1_000),
    "restart_ms": (2_000, 10_000),
}
"""Costs, and the values that are tried where the user gives none."""

MOST_TRIED: Final = 10
MUCH: Final = 0.1
ENOUGH: Final = 0.5
"""A cost is named if the agreement rises by ``MUCH`` and to ``ENOUGH`` at least."""


def with_mends(rows: pa.Table, read: Callable[[str, Costs], Story], request: Request) -> pa.Table:
    """Rows of a replay whose ``caution`` names the cost that would mend it.

    Parameters
    ----------
    rows : Table
        From :func:`holdfast.pipeline.replay.run.replay`.
    read : callable
        The story of a group, read with these costs.
    """
    if request.given is None:
        return rows
    listed = rows.to_pylist()
    wanted = [row for row in listed if row["actual"] and _differs(row)][:MOST_TRIED]
    found = {row["group"]: _mend(row, read, request) for row in wanted}
    told = [_told(row, found.get(row["group"], "")) for row in listed]
    return rows.set_column(
        rows.schema.get_field_index("caution"), "caution", pa.array(told, pa.string())
    )


def _differs(row: Mapping[str, Any]) -> bool:
    """Whether rounds or moves are off."""
    found = [row["fidelity_rebalances"], row["fidelity_moves"]]
    return any(value is not None and value < LOW_FIDELITY for value in found)


def _mend(row: Mapping[str, Any], read: Callable[[str, Costs], Story], request: Request) -> str:
    given = request.given or frozenset()
    agreement = min(row["fidelity_rebalances"], row["fidelity_moves"])
    found: dict[tuple[str, int], float] = {}
    for name, values in TRIED.items():
        for value_ms in () if name in given else values:
            changed: dict[str, Any] = {name: value_ms}
            costs = replace(request.costs, **changed)
            asked = replace(request, costs=costs, given=given | {name})
            found[name, value_ms] = rounds_and_moves(read(row["group"], costs), asked)
    best = max(found, key=lambda pair: found[pair], default=None)
    if best is None or found[best] < max(agreement + MUCH, ENOUGH):
        return ""
    name = best[0].removesuffix("_ms").replace("_", "-")
    return (
        f"with --cost {name}={best[1]}ms rounds and moves agree with the records to "
        f"{found[best]:.0%}"
    )


def _told(row: Mapping[str, Any], mend: str) -> str | None:
    said: str | None = row["caution"]
    return f"{said}; {mend}" if said and mend else said
