"""Examine a fleet: findings of every group, worst group first, and the same as JSON.

**Rules.** The JSON follows ``doctor.schema.json``, which is published in ``docs/``. Group names in
it are raw (JSON quotes them); texts are visible text. The history of one group at a time is in
memory: a fleet may be large.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.cluster.snapshot import GONE
from holdfast.core.command_lines import NOT_KNOWN, GivenSource
from holdfast.fleet.analysis.findings.examination import (
    Examination,
    examine,
    with_age,
    worst_first,
)
from holdfast.fleet.analysis.findings.finding import Finding, few
from holdfast.fleet.analysis.findings.stored import Examined, StoredFindings
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.lag import NEVER
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroup, LiveGroups
from holdfast.fleet.analysis.group.rebuilding import CommitTimes
from holdfast.fleet.analysis.source_times import NOT_UPDATED, Age, window_end_ms
from holdfast.fleet.tables.columns.holdable import FIRST_US, LAST_US
from holdfast.fleet.tables.reading import Tables

SCHEMA_VERSION = 1
Track: TypeAlias = Callable[[Sequence[str]], Iterable[str]]
"""Iterates over names of groups and may show progress; ``iter`` shows nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result for a group: its heading (:func:`summary`) and its findings, worst first.

    ``n_owned`` is the largest number of partitions with an owner at once: costs are printed per
    partition.
    """

    heading: dict[str, Any]
    findings: tuple[Finding, ...]
    n_owned: int

    @classmethod
    def of(cls, examination: Examination) -> Verdict:
        """Return the verdict on an examined group."""
        history = examination.history
        heading = summary(history)
        return cls(heading=heading, findings=examination.findings, n_owned=max(history.n_owned, 1))


def worst_of(found: Iterable[Examination], most: int | None = None) -> list[Verdict]:
    """Return verdicts on groups, the worst first; ``most`` of them, or all.

    Notes
    -----
    Cost: O(g log g) of g groups; memory of one examination and of the returned verdicts.
    """
    rows = ((worst_first(e), Verdict.of(e)) for e in found)
    first = itemgetter(0)
    kept = sorted(rows, key=first) if most is None else heapq.nsmallest(most, rows, key=first)
    return [verdict for _, verdict in kept]


def examinations(
    tables: Tables,
    groups: Sequence[str] | None = None,
    last_ms: int | None = None,
    *,
    since_ms: int | None = None,
    live: LiveGroups = NOT_QUERIED,
    track: Track = iter,
    source: GivenSource = NOT_KNOWN,
    age: Age = NOT_UPDATED,
    commits: CommitTimes | None = None,
) -> Iterator[Examination]:
    """Yield one group after the other in the given order: its history, with findings.

    Findings are those of the table ``findings``, if its window is the requested one and no
    coordinator was queried about the group. Otherwise the group is examined now.

    Parameters
    ----------
    last_ms : int, optional
        End of the window in UTC milliseconds; by default the moment at which the tables' source was
        read (:func:`~holdfast.fleet.analysis.source_times.window_end_ms`).
    since_ms : int, optional
        Begin of the window in UTC milliseconds: earlier events yield no findings.
    live : LiveGroups, optional
        Present states of the groups from coordinators.
    track : callable
        Iterates over the names and may show progress.
    source : GivenSource, optional
        Where the tables come from, for the commands of findings.
    age : Age, optional
        Age of the tables (:func:`~holdfast.fleet.analysis.source_times.read_age`): old tables are a
        finding.
    commits : CommitTimes, optional
        Without it, no finding has the cost of a move.
    """
    last = last_ms if last_ms is not None else window_end_ms(tables)
    names = names_of(tables, groups, live)
    begin_ms = NEVER if since_ms is None else since_ms
    is_stored = last is not None and Examined.of(tables) == Examined(end_ms=last, since_ms=since_ms)
    findings = StoredFindings.of(_rows_of(tables, names), source) if is_stored else None
    is_polled = tables.is_polled
    for name, stored in zip(track(names), tables.each_group(names), strict=True):
        history = GroupHistory(
            stored=stored,
            last_ms=last,
            since_ms=begin_ms,
            live=live.of(name),
            source=source,
            age=age,
            commits=commits,
            is_polled=is_polled,
        )
        if findings is None or history.live is not None:
            yield examine(history)
        else:
            yield with_age(Examination(history=history, findings=findings.of_group(name)))


def _rows_of(tables: Tables, groups: Sequence[str]) -> pa.Table:
    """Return the stored findings of some groups: those of a large fleet take long to decode."""
    rows = tables.table("findings")
    return rows.filter(pc.is_in(rows["group"], pa.array(groups, pa.string())))


def names_of(
    tables: Tables, groups: Sequence[str] | None, live: LiveGroups = NOT_QUERIED
) -> Sequence[str]:
    """Return names of the requested groups; for None all of the tables and of the coordinators.

    A group that waits for its first assignment has no record yet.
    """
    return sorted({*tables.groups, *live.names}) if groups is None else tuple(groups)


def to_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return a document that follows ``doctor.schema.json``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "groups": [
            {**v.heading, "findings": [_finding(f, v.n_owned) for f in v.findings]}
            for v in verdicts
        ],
    }


def summary(history: GroupHistory) -> dict[str, Any]:
    """Return the heading of a group: state, protocol, members, generation, window, cost."""
    g, r, last = history.generations, history.rebalances, history.last
    return {
        "group": history.name,
        "state": history.recorded_state,
        "now": None if history.live is None else _now(history.live),
        "group_type": list(history.group_type),
        "protocol": g.protocol[last] if last >= 0 else "",
        "members": int(g.n_members[last]) if last >= 0 else 0,
        "partitions": history.n_partitions,
        "generation": int(g.number[last]) if last >= 0 else None,
        "window": {
            "from": moment(history.begin_ms) if last >= 0 else None,
            "to": moment(history.end_ms) if last >= 0 else None,
        },
        "polled": history.is_polled,
        "rebalances": history.n_rebalances,
        "downtime_seconds": _rounded(history.downtime_s),
        "cost_partition_seconds": _bounds(*r.total_downtime_s),
        "idle_partition_seconds": _bounds(*r.idle_s),
    }


def _now(live: LiveGroup) -> dict[str, Any]:
    """Return the coordinator's answer about a group."""
    seen = live.seen
    members = few(() if seen is None or seen.members is None else seen.members)
    return {
        "asked_at": moment(live.queried_ms),
        "state": GONE if live.is_gone else None if seen is None else seen.state,
        "refused": (seen.refused or None) if seen is not None else None,
        "n_members": None if seen is None or seen.members is None else members.total,
        "members": [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "client_id": one.client_id,
                "client_host": one.client_host,
                "partitions": sum(len(numbers) for _, numbers in one.partitions),
            }
            for one in members.shown
        ],
    }


def _finding(finding: Finding, n_owned: int) -> dict[str, Any]:
    e = finding.evidence
    return {
        "code": finding.code,
        "name": finding.rule.name,
        "severity": str(finding.severity),
        "active": finding.is_active,
        "ended_at": None if finding.ended_ms is None else moment(finding.ended_ms),
        "follows": finding.follows or None,
        "basis": str(finding.basis),
        "text": finding.text,
        "downtime_seconds": _rounded(finding.cost_upper_s / n_owned),
        "cost_partition_seconds": _bounds(finding.cost_lower_s, finding.cost_upper_s),
        "evidence": {
            "generations": list(e.generations.shown),
            "from": moment(e.from_ms) if e.from_ms >= 0 else None,
            "to": moment(e.to_ms) if e.to_ms >= 0 else None,
            "members": list(e.members.shown),
            "partitions": list(e.partitions.shown),
            "left_out": {
                "generations": e.generations.left_out,
                "members": e.members.left_out,
                "partitions": e.partitions.left_out,
            },
            "figures": {name: _rounded(value) for name, value in e.figures.items()},
        },
        "command": finding.command,
    }


def moment(ms: int, timespec: str = "milliseconds") -> str:
    """Format UTC time as ISO 8601; a time outside of the supported years is clamped to them."""
    held = min(max(ms, FIRST_US // 1000), LAST_US // 1000)
    stamp = datetime.fromtimestamp(held / 1000, UTC).isoformat(timespec=timespec)
    return stamp.replace("+00:00", "Z")


def _bounds(lower: float, upper: float) -> dict[str, float]:
    return {"lower": _rounded(lower), "upper": _rounded(upper)}


def _rounded(value: float) -> float:
    return round(float(value), 3)
