"""What the page shows of one group, gathered once.

**Rules.** Pure: tables in, columns out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.report.drawing.history import Rebalances, read_rebalances
from holdfast.report.drawing.timeline import Timeline, build_timeline
from holdfast.report.findings.examination import examine
from holdfast.report.findings.facts import read_facts
from holdfast.report.findings.finding import Finding
from holdfast.tables.reading import Tables
from holdfast.tables.values import times_ms


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupView:
    """What the page shows of one group."""

    timeline: Timeline
    rebalances: Rebalances
    findings: tuple[Finding, ...] = ()

    @property
    def cost(self) -> tuple[float, int]:
        """Partition-seconds that stood still, then partitions moved."""
        moved = self.rebalances.total("n_moved") or 0
        return float(np.nansum(self.rebalances.pause_upper_s)), moved

    @property
    def badness(self) -> tuple[int, float, int]:
        """Worst finding, then cost: the order of the page."""
        worst = max((f.severity.rank for f in self.findings), default=-1)
        return worst, *self.cost


def view_of(
    tables: Tables, group: str, last_ms: int | None, *, findings: bool = False
) -> GroupView:
    """Everything the page shows of one group; ``findings`` runs the doctor's rules too."""
    timeline = build_timeline(tables, group, last_ms)
    if not findings:
        return GroupView(timeline=timeline, rebalances=read_rebalances(tables, group))
    facts = read_facts(tables, group, last_ms, timeline=timeline)
    found = examine(facts).findings
    return GroupView(timeline=timeline, rebalances=facts.rebalances, findings=found)


def last_time(tables: Tables) -> int | None:
    """Latest time that any table mentions, in UTC milliseconds."""
    columns = [
        times_ms(tables.stored(name), "timestamp")
        for name in ("offset_commits", "generations", "rebalances")
        if name in tables
    ]
    latest = [int(column.max()) for column in columns if len(column)]
    return max(latest, default=None)
