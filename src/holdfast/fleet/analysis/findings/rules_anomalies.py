"""Rules about rows of the table ``anomalies``: what records, members and workers state themselves.

**Rules.** As :mod:`holdfast.fleet.analysis.findings.rules_rebalances`. Cost is partition-seconds, a
resource counted as a partition, with two owners, or in which no worker does the work on a resource.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.compute as pc

from holdfast.core.model.columns import Mask
from holdfast.fleet.analysis.findings.finding import (
    NONE,
    Basis,
    Evidence,
    Few,
    Lasts,
    Severity,
    Symptom,
    count,
    few,
    few_names,
    last_evidence,
    on_group,
    rule,
)
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.columnar import ArrowTable, ints, times_ms


def failed_in(history: GroupHistory) -> dict[int, list[dict[str, Any]]]:
    """Return the failures that workers reported: rows of ``anomalies``, by generation index."""
    rows = history.anomalies_of("failed_resource")
    if not rows.num_rows:
        return {}
    index = history.generations.index_of(ints(rows, "generation"), times_ms(rows, "timestamp"))
    found: dict[int, list[dict[str, Any]]] = {}
    for at, row in zip(index.tolist(), rows.to_pylist(), strict=True):
        found.setdefault(at, []).append(row)
    return found


def unreadable_members(history: GroupHistory) -> Mask:
    """Return members whose assignment could not be read: their load is unknown."""
    p, g, known = history.presence, history.generations, history.members
    found = np.zeros(len(p.generation), dtype=bool)
    rows = history.anomalies_of("unreadable_assignment")
    for row in rows.to_pylist() if rows.num_rows else ():
        members = np.asarray([name in (row["member_ids"] or ()) for name in known], dtype=bool)
        found |= (g.number[p.generation] == row["generation"]) & members[p.member]
    return found


@rule(
    "HF108",
    name="two owners",
    severity=Severity.ERROR,
    lasts=Lasts.GENERATION,
    what="One generation's assignment gives a partition to two members.",
    why="Records are processed twice and commits overwrite each other.",
    how="Stated by the group's record.",
    mend="The leader's assignor is wrong: find the leader in the table generations and change "
    "its assignor.",
)
def _double_owner(history: GroupHistory) -> Iterator[Symptom]:
    rows = history.anomalies_of("double_owner")
    if not rows.num_rows:
        return
    g, at_ms = history.generations, times_ms(rows, "timestamp")
    index = g.index_of(ints(rows, "generation"), at_ms)
    until = np.append(g.at_ms[1:], history.end_ms)[index]
    named = zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)
    yield _stated(
        history,
        rows,
        f"{count(rows.num_rows, 'partition')} assigned to two members in one generation",
        partitions=few_names(f"{topic}-{partition}" for topic, partition in named),
        cost_s=float((until - at_ms)[index >= 0].sum()) / 1000,
    )


@rule(
    "HF121",
    name="unreadable member",
    severity=Severity.WARN,
    lasts=Lasts.GENERATION,
    what="A member's subscription or assignment has an unknown layout.",
    why="Tools, and perhaps the leader, do not see its partitions.",
    how="Stated by the group's record.",
    mend="Find the client of that member in the table members.",
)
def _unreadable(history: GroupHistory) -> Iterator[Symptom]:
    rows = history.anomalies_of("unreadable")
    if not rows.num_rows:
        return
    times = count(rows.num_rows, "time")
    yield _stated(history, rows, f"{times} a member's subscription or assignment could not be read")


def _stated(
    history: GroupHistory,
    rows: ArrowTable,
    text: str,
    *,
    partitions: Few[str] = NONE,
    cost_s: float = 0.0,
) -> Symptom:
    """Return the symptom that some rows of the table ``anomalies`` state."""
    at_ms = times_ms(rows, "timestamp")
    return Symptom(
        text=text,
        evidence=Evidence(
            generations=few(rows["generation"].unique().to_pylist()),
            from_ms=int(at_ms.min()),
            to_ms=int(at_ms.max()),
            members=few_names(pc.list_flatten(rows["member_ids"]).unique().to_pylist()),
            partitions=partitions,
        ),
        cost_lower_s=cost_s,
        cost_upper_s=cost_s,
        command=on_group(history, "history", "--table", "anomalies"),
        basis=Basis.STATED,
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
def _one_location(history: GroupHistory) -> Iterator[Symptom]:
    rows = history.anomalies_of("shared_location")
    if not rows.num_rows:
        return
    index = history.generations.index_of(ints(rows, "generation"), times_ms(rows, "timestamp"))
    shared = rows["member_ids"].take(np.flatnonzero(index == history.last)).to_pylist()
    if not shared:
        return
    who = sorted({member for members in shared for member in members})
    locations = "one location" if len(shared) == 1 else f"{len(shared)} locations"
    yield Symptom(
        text=f"{count(len(who), 'member')} have {locations}: after a scale-up their restarts move "
        "partitions",
        evidence=last_evidence(history, who),
        command=on_group(history, "history", "--table", "members"),
        basis=Basis.STATED,
    )


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
def _failed_resource(history: GroupHistory) -> Iterator[Symptom]:
    if not (now := failed_in(history).get(history.last)):
        return
    owners, since_ms = _owners_now(history), int(history.generations.at_ms[history.last])
    split: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for row in now:
        who = owners.get((row["topic"], row["partition"]))
        split[who is None or who in row["member_ids"]].append(row)
    for is_idle, found in split.items():
        if not found:
            continue
        errors = ", ".join(sorted({row["detail"] for row in found}))
        what = "no worker does it" if is_idle else "another worker does it"
        yield Symptom(
            severity=None if is_idle else Severity.WARN,
            text=f"the work on {count(len(found), 'resource')} has failed ({errors}): {what}",
            evidence=last_evidence(
                history,
                sorted({name for row in found for name in row["member_ids"]}),
                few_names(f"{row['topic']}-{row['partition']}" for row in found),
            ),
            cost_upper_s=len(found) * (history.end_ms - since_ms) / 1000 if is_idle else 0.0,
            command=on_group(history, "history", "--table", "anomalies"),
            basis=Basis.STATED,
        )


def _owners_now(history: GroupHistory) -> dict[tuple[str, int], str]:
    """Return the owner's member id of each topic and partition in the last generation."""
    t, owner = history.timeline, history.owner_at(history.last)
    return {
        (t.topics[t.row_topic[row]], int(t.row_partition[row])): t.members[owner[row]]
        for row in np.flatnonzero(owner >= 0)
    }
