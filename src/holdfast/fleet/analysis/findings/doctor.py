"""Examine a fleet: findings of every group, worst group first, and the same as JSON.

**Rules.** The JSON follows ``doctor.schema.json``, which is published in ``docs/``. Group names in
it are raw (JSON quotes them); texts are visible text. A fleet may be large: the rows of some groups
are in memory at one time (:meth:`~holdfast.fleet.tables.reading.Tables.parts`), and verdicts are
passed on one by one.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

from holdfast.cluster.snapshot import GONE
from holdfast.core.command_lines import NOT_KNOWN, GivenSource
from holdfast.fleet.analysis.findings.examination import (
    Examination,
    examine,
    with_age,
    worst_first,
)
from holdfast.fleet.analysis.findings.finding import Finding, Limits, few
from holdfast.fleet.analysis.findings.stored import Examined, StoredFindings
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.lag import NEVER
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroup, LiveGroups
from holdfast.fleet.analysis.group.overview import Overview, overview
from holdfast.fleet.analysis.group.rebuilding import CommitTimes
from holdfast.fleet.analysis.source_times import NOT_UPDATED, Age, window_end_ms
from holdfast.fleet.tables.columns.holdable import FIRST_US, LAST_US
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import GroupTables, SomeGroups, Tables, sort_rows

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


SortKey: TypeAlias = tuple[int, float, str]
"""What groups are sorted by (:func:`worst_first`)."""

Ranked: TypeAlias = tuple[SortKey, Callable[[], Verdict]]
"""The sort key of a group, and a function that makes its verdict before the next group comes."""


def worst_of(found: Iterable[Examination], most: int | None = None) -> list[Verdict]:
    """Return verdicts on groups, the worst first; ``most`` of them, or all."""
    return worst_ranked(map(as_ranked, found), most)


def worst_ranked(found: Iterable[Ranked], most: int | None = None) -> list[Verdict]:
    """Return verdicts on groups, as :func:`worst_of`.

    Notes
    -----
    Cost: O(g log g) of g groups; memory of the returned verdicts.
    """
    first = itemgetter(0)
    if most is None:
        return [verdict for _, verdict in sorted(((key, make()) for key, make in found), key=first)]
    kept: list[tuple[SortKey, Verdict]] = []
    for key, make in found:
        if len(kept) < most or key < kept[-1][0]:
            insort(kept, (key, make()), key=first)
            del kept[most:]
    return [verdict for _, verdict in kept]


def as_ranked(examination: Examination) -> Ranked:
    """Return the sort key of an examined group, and its verdict."""
    return worst_first(examination), partial(Verdict.of, examination)


def ranked(
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
) -> Iterator[Ranked]:
    """Yield groups in the given order, each with its sort key; arguments of :func:`examinations`.

    If every finding is stored, headings come from whole columns, and a verdict is made when the
    caller calls its function.
    """
    last = last_ms if last_ms is not None else window_end_ms(tables)
    if live is not NOT_QUERIED or Limits().are_stale(age) or not are_stored(tables, last, since_ms):
        examined = examinations(
            tables,
            groups,
            last,
            since_ms=since_ms,
            live=live,
            track=track,
            source=source,
            age=age,
            commits=commits,
        )
        yield from map(as_ranked, examined)
        return
    names = names_of(tables, groups, live)
    found = (
        one for some in tables.parts(names) for one in _ranked(some, tables, last, since_ms, source)
    )
    for _, one in zip(track(names), found, strict=True):
        yield one


def _ranked(
    some: SomeGroups, tables: Tables, last_ms: int | None, since_ms: int | None, source: GivenSource
) -> Iterator[Ranked]:
    begin_ms = NEVER if since_ms is None else since_ms
    figures = overview(some, last_ms, begin_ms)
    findings, is_polled = stored_findings(some, source), tables.is_polled

    def verdict(row: int) -> Verdict:
        heading = heading_of(figures, row, is_polled=is_polled, since_ms=begin_ms)
        n_owned = max(int(figures.n_owned[row]), 1)
        return Verdict(
            heading=heading, findings=findings.of_group(some.groups[row]), n_owned=n_owned
        )

    ranks, downtime_s = findings.ranks(some.groups).tolist(), figures.downtime_s.tolist()
    for row, name in enumerate(some.groups):
        yield (-ranks[row], -downtime_s[row], name), partial(verdict, row)


def are_stored(tables: Tables, last_ms: int | None, since_ms: int | None) -> bool:
    """Return whether the table ``findings`` has the findings of a window."""
    window = Examined.of(tables)
    return last_ms is not None and window == Examined(end_ms=last_ms, since_ms=since_ms)


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

    Findings are those of the table ``findings``, if its window is the requested one and the group's
    coordinator, if it was queried, reports what the last generation has. Otherwise the group is
    examined now.

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
    is_polled, is_stored = tables.is_polled, are_stored(tables, last, since_ms)
    each = _with_findings(tables, names, source if is_stored else None)
    for name, (stored, findings) in zip(track(names), each, strict=True):
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
        if findings is None or not history.is_as_recorded:
            yield examine(history)
        else:
            yield with_age(Examination(history=history, findings=findings.of_group(name)))


def _with_findings(
    tables: Tables, groups: Sequence[str], source: GivenSource | None
) -> Iterator[tuple[GroupTables, StoredFindings | None]]:
    """Yield the rows of each group, and the stored findings for a source."""
    for some in tables.parts(groups):
        findings = None if source is None else stored_findings(some, source)
        for stored in some.each():
            yield stored, findings


def stored_findings(some: SomeGroups, source: GivenSource) -> StoredFindings:
    """Return the stored findings of some groups, for a source."""
    return StoredFindings.of(sort_rows(some.table("findings").rows, TABLES["findings"]), source)


def names_of(
    tables: Tables, groups: Sequence[str] | None, live: LiveGroups = NOT_QUERIED
) -> Sequence[str]:
    """Return names of the requested groups; for None all of the tables and of the coordinators.

    A group that waits for its first assignment has no record yet.
    """
    return sorted({*tables.groups, *live.names}) if groups is None else tuple(groups)


def to_json(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Return a document that follows ``doctor.schema.json``."""
    return {"schema_version": SCHEMA_VERSION, "groups": [group_json(v) for v in verdicts]}


def group_json(verdict: Verdict) -> dict[str, Any]:
    """Return the element of ``groups`` of the document."""
    findings = [_finding(f, verdict.n_owned) for f in verdict.findings]
    return {**verdict.heading, "findings": findings}


def summary(history: GroupHistory) -> dict[str, Any]:
    """Return the heading of a group: state, protocol, members, generation, window, cost."""
    g, r, last = history.generations, history.rebalances, history.last
    is_known = last >= 0
    return _heading(
        group=history.name,
        state=history.recorded_state,
        now=None if history.live is None else _now(history.live),
        group_type=history.group_type,
        protocol=g.protocol[last] if is_known else "",
        members=int(g.n_members[last]) if is_known else 0,
        partitions=history.n_partitions,
        generation=int(g.number[last]) if is_known else None,
        window_ms=(history.begin_ms, history.end_ms) if is_known else None,
        polled=history.is_polled,
        rebalances=history.n_rebalances,
        downtime_s=history.downtime_s,
        cost_s=r.total_downtime_s,
        idle_s=r.idle_s,
    )


def heading_of(
    figures: Overview, row: int, *, is_polled: bool, since_ms: int = NEVER
) -> dict[str, Any]:
    """Return the heading of a group that no coordinator was queried about, as :func:`summary`."""
    is_known = bool(figures.is_known[row])
    begin_ms = max(int(figures.first_ms[row]), since_ms)
    upper_s = float(figures.downtime_upper_s[row])
    return _heading(
        group=figures.names[row],
        state=figures.state[row],
        now=None,
        group_type=figures.group_type[row],
        protocol=figures.protocol[row],
        members=int(figures.n_members[row]),
        partitions=int(figures.n_partitions[row]),
        generation=int(figures.generation[row]) if is_known else None,
        window_ms=(begin_ms, int(figures.end_ms[row])) if is_known else None,
        polled=is_polled,
        rebalances=int(figures.n_rebalances[row]),
        downtime_s=upper_s / max(int(figures.n_owned[row]), 1),
        cost_s=(float(figures.downtime_lower_s[row]), upper_s),
        idle_s=(float(figures.idle_lower_s[row]), float(figures.idle_upper_s[row])),
    )


def _heading(
    *,
    group_type: Sequence[str],
    window_ms: tuple[int, int] | None,
    polled: bool,
    rebalances: int,
    downtime_s: float,
    cost_s: tuple[float, float],
    idle_s: tuple[float, float],
    **first: Any,
) -> dict[str, Any]:
    """Return a heading with its keys in their order."""
    names = ("group", "state", "now")
    begin, end = (None, None) if window_ms is None else map(moment, window_ms)
    return {
        **{name: first.pop(name) for name in names},
        "group_type": list(group_type),
        **first,
        "window": {"from": begin, "to": end},
        "polled": polled,
        "rebalances": rebalances,
        "downtime_seconds": _rounded(downtime_s),
        "cost_partition_seconds": _bounds(*cost_s),
        "idle_partition_seconds": _bounds(*idle_s),
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
