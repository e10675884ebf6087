"""Rules about workers of ``holdfast.Worker``: work that fails.

**Rules.** As :mod:`holdfast.fleet.report.findings.rules_rebalances`. Cost is partition-seconds, a
resource counted as a partition, in which no worker does the work on a resource.

**Strategy.** Workers report failed work in their subscriptions; the table ``anomalies`` lists it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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


def failed_in(facts: Facts) -> dict[int, list[dict[str, Any]]]:
    """Return the failures that workers reported: rows of ``anomalies``, by generation index."""
    rows = facts.anomalies_of("failed_resource")
    index = facts.generations.index_of(ints(rows, "generation"), times_ms(rows, "timestamp"))
    found: dict[int, list[dict[str, Any]]] = {}
    for at, row in zip(index.tolist(), rows.to_pylist(), strict=True):
        found.setdefault(at, []).append(row)
    return found


@rule(
    "HF131",
    name="failed resource",
    severity=Severity.ERROR,
    what="The work on a resource of a Worker has failed repeatedly.",
    why="The resource has an owner, so nothing else looks wrong, and no worker does its work. Or "
    "another worker does it, and the worker where it failed has less capacity than the others.",
    how="Stated by the workers when they joined the last generation: work that failed at least "
    "twice in a row, and the type of the error. A worker requests a round when that changes.",
    mend="Read the log of the named workers, which has the whole error of each attempt. The work "
    "is retried automatically, at most `holdfast.restart.backoff.max.ms` after a failure, and on "
    "three workers of the group.",
    lasts=Lasts.GENERATION,
)
def _failed_resource(facts: Facts, limits: Limits) -> Iterator[Symptom]:
    if not (now := failed_in(facts).get(facts.last)):
        return
    g, owners = facts.generations, _owners_now(facts)
    since_ms = int(g.at_ms[facts.last])
    split: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for row in now:
        who = owners.get((row["topic"], row["partition"]))
        split[who is None or who in row["member_ids"]].append(row)
    for stands, found in split.items():
        if not found:
            continue
        errors = ", ".join(sorted({row["detail"] for row in found}))
        what = "no worker does it" if stands else "another worker does it"
        yield Symptom(
            severity=None if stands else Severity.WARN,
            text=f"the work on {count(len(found), 'resource')} has failed ({errors}): {what}",
            evidence=Evidence(
                generations=few([int(g.number[facts.last])]),
                from_ms=since_ms,
                to_ms=facts.end_ms,
                members=few_names(sorted({name for row in found for name in row["member_ids"]})),
                partitions=few_names(f"{row['topic']}-{row['partition']}" for row in found),
            ),
            cost_upper_s=len(found) * (facts.end_ms - since_ms) / 1000 if stands else 0.0,
            command=on_group(facts, "history", "--table", "anomalies"),
            basis=Basis.STATED,
        )


def _owners_now(facts: Facts) -> dict[tuple[str, int], str]:
    """Return the owner's member id of each topic and partition in the last generation."""
    t, owner = facts.timeline, facts.owner_at(facts.last)
    return {
        (t.topics[t.row_topic[row]], int(t.row_partition[row])): t.members[owner[row]]
        for row in np.flatnonzero(owner >= 0)
    }
