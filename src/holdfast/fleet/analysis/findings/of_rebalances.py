"""Symptoms that are about some of a group's rebalances.

**Rules.** Cost is partition-seconds without an owner, at least and at most.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from holdfast.core.model.columns import Mask
from holdfast.fleet.analysis.findings.finding import (
    Evidence,
    Severity,
    Symptom,
    few,
    few_names,
    on_group,
)
from holdfast.fleet.analysis.group.group_history import GroupHistory

FOLLOW_UP_MS = 10_000
"""The round that gives back what was revoked follows the last return by moments."""


def symptom_of(
    history: GroupHistory,
    chosen: Mask,
    text: str,
    command: str,
    *,
    severity: Severity | None = None,
    share: float = 1.0,
    members: Iterable[str] = (),
    rows: Iterable[int] = (),
    **figures: float | None,
) -> Symptom:
    """Return a symptom of rebalances: bool[n_rebalances] ``chosen``; ``rows`` are timeline rows.

    It costs their downtime, or the given fraction of it. A figure that is None is left out.
    """
    r = history.rebalances
    at = r.at_ms[chosen]
    return Symptom(
        severity=severity,
        text=text,
        evidence=Evidence(
            generations=few(r.generation[chosen].tolist()),
            from_ms=int(at.min()) if len(at) else -1,
            to_ms=int(at.max()) if len(at) else -1,
            members=few_names(members),
            partitions=few_names(history.partition_name(row) for row in rows),
            figures={name: value for name, value in figures.items() if value is not None},
        ),
        cost_lower_s=float(np.nansum(r.downtime_lower_s[chosen])) * share,
        cost_upper_s=summed_downtime_s(history, chosen) * share,
        command=command,
        rebalances=frozenset(np.flatnonzero(chosen).tolist()),
    )


def summed_downtime_s(history: GroupHistory, chosen: Mask) -> float:
    """Sum the partition-seconds without an owner that some rebalances cost at most."""
    return float(np.nansum(history.rebalances.downtime_upper_s[chosen]))


def show_rebalances(history: GroupHistory) -> str:
    """Return a command that shows the group's rebalances."""
    return on_group(history, "history", "--table", "rebalances")
