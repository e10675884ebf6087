"""Rules about the locations of members, which holdfast members report in their subscriptions.

**Rules.** As :mod:`holdfast.fleet.report.findings.rules_rebalances`. A risk at the next
scale-up has cost nothing yet.

**Strategy.** The table ``anomalies`` names the members of each round that report the same
location.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from holdfast.fleet.columnar import ints, times_ms
from holdfast.fleet.report.findings.facts import Facts
from holdfast.fleet.report.findings.finding import (
    Basis,
    Evidence,
    Lasts,
    Limits,
    Severity,
    Symptom,
    count,
    few,
    few_names,
    on_group,
    rule,
)


@rule(
    "HF130",
    name="members in one location",
    severity=Severity.WARN,
    what="Several members of a group under Design II or III report one location: they have one "
    "host name and one client.id.",
    why="A leader recognizes a restarted process by its location. Members with the same one are "
    "distinguished by their member ids alone: after a scale-up a restart of one of them looks "
    "like the end of a replaced process, and until the delay has passed its partitions move as "
    "under Design I.",
    how="Stated by the members in their subscriptions of the last generation. A static member "
    "(group.instance.id) needs no location.",
    mend="Set `holdfast.location` (holdfast.aiokafka and holdfast.kafka: `holdfast_location`), or "
    "client.id, different for each process and the same after its restart. Restart one process at "
    "a time.",
    lasts=Lasts.GENERATION,
)
def _one_location(facts: Facts, limits: Limits) -> Iterator[Symptom]:
    rows = facts.anomalies_of("shared_location")
    g = facts.generations
    index = g.index_of(ints(rows, "generation"), times_ms(rows, "timestamp"))
    shared = rows["member_ids"].take(np.flatnonzero(index == facts.last)).to_pylist()
    if not shared:
        return
    who = sorted({member for members in shared for member in members})
    locations = "one location" if len(shared) == 1 else f"{len(shared)} locations"
    yield Symptom(
        text=f"{count(len(who), 'member')} have {locations}: after a scale-up their restarts move "
        "partitions",
        evidence=Evidence(
            generations=few([int(g.number[facts.last])]),
            from_ms=int(g.at_ms[facts.last]),
            to_ms=facts.end_ms,
            members=few_names(who),
        ),
        cost_upper_s=0.0,
        command=on_group(facts, "history", "--table", "members"),
        basis=Basis.STATED,
    )
