"""The rule about a number of members that goes up and down, and the changes behind it.

**Rules.** As :mod:`holdfast.fleet.report.findings.rules_rebalances`. In a deploy new processes
replace the previous ones, and stay. A flapping autoscaler leaves most processes running: it stops
those that it started.

**Strategy.** :mod:`holdfast.fleet.report.columns.turnover` has the periods in which processes
joined and left.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from holdfast.fleet.report.columns.spans import span
from holdfast.fleet.report.columns.turnover import Lives, Turnover, read_lives, turnovers
from holdfast.fleet.report.findings.facts import Facts
from holdfast.fleet.report.findings.finding import Limits, Severity, Symptom, count, rule
from holdfast.fleet.report.findings.of_rebalances import FOLLOW_UP_MS, show_rebalances, symptom_of
from holdfast.fleet.report.findings.rules_pollers import slow_pollers


def changes_of(facts: Facts, gap_s: float) -> tuple[Lives, list[Turnover]]:
    """Return lives of processes other than slow pollers, and when processes joined and left.

    A process that is known by its member id alone counts as a new one at each start.
    """
    p, settled = facts.presence, facts.generations
    who = facts.timeline.identities.identity
    slow = {int(who[d.member]) for one in slow_pollers(facts) for d in one.went}
    lives = read_lives(p.generation, p.identity, len(settled.number)).without(slow)
    return lives, turnovers(lives, settled.at_ms, gap_s, facts.since_ms)


@rule(
    "HF132",
    name="autoscaler flapping",
    severity=Severity.WARN,
    what="Members joined and left again, three or more in a short time, while the others stayed.",
    why="Each change rebalances the group, and partitions move to members that leave soon. While "
    "the group rebalances its lag grows, for which an autoscaler by lag adds members again.",
    how="A member that joined for the first time and left for good before most of the others "
    "did; member ids of one process are combined as for HF102. In a deploy the previous members "
    "leave, too.",
    mend="Give the autoscaler a longer cooldown or stabilization window, a target further from "
    "the usual lag, or a fixed number of members. With cooperative-sticky the others continue to "
    "read meanwhile.",
)
def _flapping(facts: Facts, limits: Limits) -> Iterator[Symptom]:
    lives, found = changes_of(facts, limits.flap_gap_s)
    at, settled_ms = facts.rebalances.at_ms, facts.generations.at_ms
    chosen = np.zeros(len(at), dtype=bool)
    visitors: list[int] = []
    for one in found:
        if one.is_deploy or len(one.visitors) < limits.visitors or not one.stayed:
            continue
        end_ms = settled_ms[one.end] + FOLLOW_UP_MS
        chosen[slice(*np.searchsorted(at, [settled_ms[one.begin], end_ms]))] = True
        visitors += one.visitors
    if not chosen.any():
        return
    stays_s = (settled_ms[lives.went[visitors]] - settled_ms[lives.came[visitors]]) / 1000
    names = facts.timeline.identities.names
    sizes = facts.generations.n_members[facts.rebalance_index[chosen]]
    yield symptom_of(
        facts,
        chosen,
        f"{count(len(visitors), 'member')} joined and left after {span(float(stays_s.max()))} "
        f"at most, while others stayed: {sizes.min()} to {sizes.max()} members",
        show_rebalances(facts),
        members=[names[lives.process[i]] for i in visitors],
        longest_stay_s=float(stays_s.max()),
        visits=float(len(visitors)),
    )
