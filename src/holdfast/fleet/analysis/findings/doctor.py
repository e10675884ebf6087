"""The doctor: verdicts on the groups of a fleet, the worst group first, and the same as JSON.

**Rules.** The JSON follows ``doctor.schema.json``, which is published in ``docs/``. Group names in
it are raw (JSON quotes them); texts are visible text. A fleet may be large: the rows of some groups
are in memory at one time (:meth:`~holdfast.fleet.tables.reading.Tables.parts`), and verdicts are
passed on one by one. Of a group that a report does not list, one row of figures is in memory.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from holdfast.cluster.snapshot import GONE
from holdfast.core.command_lines import NOT_KNOWN, GivenSource
from holdfast.fleet.analysis.findings.examination import (
    Examination,
    Examined,
    examine,
    stored_findings,
    with_age,
)
from holdfast.fleet.analysis.findings.finding import Finding, few
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.lag import NEVER
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroup, LiveGroups
from holdfast.fleet.analysis.group.overview import Overview, joined, overview
from holdfast.fleet.analysis.group.rebalances import CommitTimes
from holdfast.fleet.analysis.times import NOT_UPDATED, Age, polls_text, window_end_ms
from holdfast.fleet.tables.columns.schemas import held_ms
from holdfast.fleet.tables.reading import SomeGroups, Tables

T = TypeVar("T")
SCHEMA_VERSION = 1
MOST_LISTED: Final = 500
"""Groups that a report lists, each with its figures and the codes of its findings."""

Track: TypeAlias = Callable[[Sequence[str]], Iterable[str]]
"""Iterates over names of groups and may show progress; ``iter`` shows nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result for a group: its heading, as in the JSON, and its findings, worst first.

    ``n_owned`` is the largest number of partitions with an owner at once: costs are printed per
    partition.
    """

    heading: dict[str, Any]
    findings: tuple[Finding, ...]
    n_owned: int


SortKey: TypeAlias = tuple[int, float, str]
"""What groups are sorted by (:func:`~holdfast.fleet.analysis.findings.examination.worst_first`)."""

Ranked: TypeAlias = tuple[SortKey, Callable[[], Verdict]]
"""The sort key of a group, and a function that makes its verdict before the next group comes."""


def worst_ranked(found: Iterable[Ranked], most: int | None = None) -> list[Verdict]:
    """Return verdicts on groups, the worst first; ``most`` of them, or all.

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExaminedFleet:
    """Groups with their findings."""

    figures: Overview  # one row a group, in the order of the groups
    since_ms: int  # begin of the window in UTC milliseconds; below 0 without one
    polled: str  # text about what polls of coordinators do not show; empty for other tables
    codes: frozenset[str]  # codes of all findings
    listed: Sequence[Examination]  # the first MOST_LISTED groups
    worst: Examination | None  # the group that is worst now; None without groups

    def __len__(self) -> int:
        return len(self.figures)

    @property
    def names(self) -> list[str]:
        """Names of the groups."""
        found: list[str] = self.figures.names.tolist()
        return found

    @property
    def downtime_bounds_s(self) -> tuple[float, float]:
        """Partition-seconds of downtime, at least and at most."""
        return _sum(self.figures.downtime_lower_s), _sum(self.figures.downtime_upper_s)

    @property
    def idle_s(self) -> tuple[float, float]:
        """Partition-seconds without an owner in which no record waited, at least and at most."""
        return _sum(self.figures.idle_lower_s), _sum(self.figures.idle_upper_s)

    @property
    def covered_ms(self) -> tuple[int, int] | None:
        """First generation, and end of the window, in UTC milliseconds; None without one."""
        known = self.figures.first_ms != 0
        if not known.any():
            return None
        return int(self.figures.first_ms[known].min()), int(self.figures.end_ms[known].max())


def _sum(values: Any) -> float:
    """Add in the order of the groups, so that the order in which they are read does not matter."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: notes of the tables are read once
class Doctor:
    """Examines groups of some tables in a window of time.

    Findings are those of the table ``findings``, if its window is this one and the group's
    coordinator, if it was queried, reports what the last generation has. Otherwise the group is
    examined now.

    Parameters
    ----------
    groups : sequence of str, optional
        Groups to examine, in this order; by default all of the tables and of the coordinators.
    last_ms : int, optional
        End of the window in UTC milliseconds; by default the moment at which the tables' source was
        read (:func:`~holdfast.fleet.analysis.times.window_end_ms`).
    since_ms : int, optional
        Begin of the window in UTC milliseconds: earlier events yield no findings.
    live : LiveGroups, optional
        Present states of the groups from coordinators.
    track : callable
        Iterates over the names and may show progress.
    source : GivenSource, optional
        Where the tables come from, for the commands of findings.
    age : Age, optional
        Age of the tables (:func:`~holdfast.fleet.analysis.times.read_age`): old tables are a
        finding.
    commits : CommitTimes, optional
        Without it, no finding has the cost of a move.
    """

    tables: Tables
    groups: Sequence[str] | None = None
    last_ms: int | None = None
    since_ms: int | None = None
    live: LiveGroups = NOT_QUERIED
    track: Track = iter
    source: GivenSource = NOT_KNOWN
    age: Age = NOT_UPDATED
    commits: CommitTimes | None = None

    @cached_property
    def names(self) -> Sequence[str]:
        """Names of the groups; one that waits for its first assignment has no record yet."""
        if self.groups is not None:
            return tuple(self.groups)
        return sorted({*self.tables.groups, *self.live.names})

    @cached_property
    def _notes(self) -> Mapping[str, Any]:
        return self.tables.newest_notes()

    @cached_property
    def end_ms(self) -> int | None:
        """End of the window; None for tables of no time."""
        return self.last_ms if self.last_ms is not None else window_end_ms(self.tables, self._notes)

    @property
    def begin_ms(self) -> int:
        """Begin of the window; below 0 without one."""
        return NEVER if self.since_ms is None else self.since_ms

    @cached_property
    def polled(self) -> str:
        """Text about what polls of coordinators do not show; empty for other tables."""
        return polls_text(self._notes)

    @cached_property
    def has_findings(self) -> bool:
        """Whether the table ``findings`` has the findings of the window."""
        if self.end_ms is None:
            return False
        return Examined.of(self._notes) == Examined(end_ms=self.end_ms, since_ms=self.since_ms)

    @cached_property
    def has_verdicts(self) -> bool:
        """Whether the table ``findings`` has all findings, and no group needs to be examined."""
        return self.has_findings and self.live is NOT_QUERIED and not self.age.is_stale()

    def examinations(self) -> Iterator[Examination]:
        """Yield one group after the other in their order: its history, with findings."""
        return self._each(self._examined)

    def ranked(self) -> Iterator[Ranked]:
        """Yield one group after the other in their order, each with its sort key.

        If every finding is stored, a verdict is made when the caller calls its function.
        """
        return self._each(self._ranked)

    def _each(self, of: Callable[[SomeGroups, Iterator[str]], Iterator[T]]) -> Iterator[T]:
        """Yield what a function makes of groups that are read together, with their progress."""
        progress = iter(self.track(self.names))
        for some in self.tables.parts(self.names):
            yield from of(some, progress)
        next(progress, None)  # its bar ends

    def fleet(self) -> ExaminedFleet:
        """Examine all groups for a report; without ``groups`` the worst come first."""
        names, progress = self.names, iter(self.track(self.names))
        parts, ranks, codes = list[Overview](), list[int](), set[str]()
        known: dict[str, Examination] = {}
        for some in self.tables.parts(names):
            parts.append(self._figures(some))
            if self.has_verdicts:
                found = stored_findings(some, self.source)
                ranks += found.ranks(some.groups).tolist()
                codes |= found.codes
                deque(zip(some.groups, progress, strict=False), maxlen=0)
                continue
            for one in self._examined(some, progress):
                ranks.append(one.verdict.rank)
                codes |= {f.code for f in one.findings}
                if len(names) <= MOST_LISTED:
                    known[one.history.name] = one
        next(progress, None)
        figures = joined(parts)
        by_badness = figures.worst_first(np.asarray(ranks, np.int64))
        order = by_badness if self.groups is None else np.arange(len(names))
        listed, worst = order[:MOST_LISTED].tolist(), by_badness[:1].tolist()
        missing = [names[i] for i in dict.fromkeys([*listed, *worst]) if names[i] not in known]
        again = replace(self, groups=missing, last_ms=self.end_ms, track=iter)
        known |= {one.history.name: one for one in again.examinations()}
        return ExaminedFleet(
            figures=figures.at(order),
            since_ms=self.begin_ms,
            polled=self.polled,
            codes=frozenset(codes),
            listed=[known[names[i]] for i in listed],
            worst=known[names[worst[0]]] if worst else None,
        )

    def verdict(self, figures: Overview, row: int, findings: tuple[Finding, ...]) -> Verdict:
        """Return the verdict on a group, given its row in figures, and its findings."""
        begin_ms, end_ms = max(int(figures.first_ms[row]), self.begin_ms), int(figures.end_ms[row])
        is_known = bool(figures.is_known[row])
        live, n_owned = self.live.of(figures.names[row]), max(int(figures.n_owned[row]), 1)
        upper_s = float(figures.downtime_upper_s[row])
        heading = {
            "group": figures.names[row],
            "state": figures.state[row],
            "now": None if live is None else _now(live),
            "group_type": list(figures.group_type[row]),
            "protocol": figures.protocol[row],
            "members": int(figures.n_members[row]),
            "partitions": int(figures.n_partitions[row]),
            "generation": int(figures.generation[row]) if is_known else None,
            "window": {
                "from": moment(begin_ms) if is_known else None,
                "to": moment(end_ms) if is_known else None,
            },
            "polled": bool(self.polled),
            "rebalances": int(figures.n_rebalances[row]),
            "downtime_seconds": _rounded(upper_s / n_owned),
            "cost_partition_seconds": _bounds(figures.downtime_lower_s[row], upper_s),
            "idle_partition_seconds": _bounds(figures.idle_lower_s[row], figures.idle_upper_s[row]),
        }
        return Verdict(heading=heading, findings=findings, n_owned=n_owned)

    def _figures(self, some: SomeGroups) -> Overview:
        return overview(some, self.end_ms, self.begin_ms)

    def _examined(self, some: SomeGroups, progress: Iterator[str]) -> Iterator[Examination]:
        """Examine groups that were read together."""
        found = stored_findings(some, self.source) if self.has_findings else None
        for stored, _ in zip(some.each(), progress, strict=False):
            history = GroupHistory(
                stored=stored,
                last_ms=self.end_ms,
                since_ms=self.begin_ms,
                live=self.live.of(stored.group),
                source=self.source,
                age=self.age,
                commits=self.commits,
            )
            if found is None or not history.is_as_recorded:
                yield examine(history)
            else:
                findings = found.of_group(history.name)
                yield with_age(Examination(history=history, findings=findings))

    def _ranked(self, some: SomeGroups, progress: Iterator[str]) -> Iterator[Ranked]:
        """Yield groups that were read together, each with its sort key."""
        figures = self._figures(some)
        downtime_s = figures.downtime_s.tolist()

        def one(row: int, rank: int, findings: Callable[[], tuple[Finding, ...]]) -> Ranked:
            key = -rank, -downtime_s[row], some.groups[row]
            return key, lambda: self.verdict(figures, row, findings())

        if not self.has_verdicts:
            for row, examined in enumerate(self._examined(some, progress)):
                yield one(row, examined.verdict.rank, partial(getattr, examined, "findings"))
            return
        found = stored_findings(some, self.source)
        ranks = found.ranks(some.groups).tolist()
        for row, (group, _) in enumerate(zip(some.groups, progress, strict=False)):
            yield one(row, ranks[row], partial(found.of_group, group))


def to_json(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Return a document that follows ``doctor.schema.json``."""
    return {"schema_version": SCHEMA_VERSION, "groups": [group_json(v) for v in verdicts]}


def group_json(verdict: Verdict) -> dict[str, Any]:
    """Return the element of ``groups`` of the document."""
    findings = [_finding(f, verdict.n_owned) for f in verdict.findings]
    return {**verdict.heading, "findings": findings}


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
    stamp = datetime.fromtimestamp(held_ms(ms) / 1000, UTC).isoformat(timespec=timespec)
    return stamp.replace("+00:00", "Z")


def _bounds(lower: float, upper: float) -> dict[str, float]:
    return {"lower": _rounded(lower), "upper": _rounded(upper)}


def _rounded(value: float) -> float:
    return round(float(value), 3)
