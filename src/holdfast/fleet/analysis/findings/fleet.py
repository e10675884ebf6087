"""A fleet for its report: the figures of every group, and examinations of the first ones.

**Rules.** What is in memory of a group that is not listed is one row of figures. Groups are in the
order that was requested, or the worst first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from holdfast.core.command_lines import NOT_KNOWN, GivenSource
from holdfast.core.model.columns import I64
from holdfast.fleet.analysis.findings.doctor import (
    Track,
    are_stored,
    examinations,
    names_of,
    stored_findings,
)
from holdfast.fleet.analysis.findings.examination import Examination, GroupVerdict, worst_first
from holdfast.fleet.analysis.group.lag import NEVER
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroups
from holdfast.fleet.analysis.group.overview import Overview, joined, overview
from holdfast.fleet.analysis.group.rebuilding import CommitTimes
from holdfast.fleet.analysis.source_times import window_end_ms
from holdfast.fleet.tables.reading import SomeGroups, Tables

MOST_LISTED: Final = 500
"""Groups that a report lists, each with its figures and the codes of its findings."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExaminedFleet:
    """Groups with their findings.

    Parameters
    ----------
    figures : Overview
        One row a group, in the order of the groups.
    since_ms : int
        Begin of the window in UTC milliseconds; below 0 without one.
    codes : frozenset of str
        Codes of all findings.
    listed : sequence of Examination
        The first MOST_LISTED groups.
    worst : Examination or None
        The group that is worst now; None without groups.
    """

    figures: Overview
    since_ms: int
    codes: frozenset[str]
    listed: Sequence[Examination]
    worst: Examination | None

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


def examine_fleet(
    tables: Tables,
    groups: Sequence[str] | None = None,
    last_ms: int | None = None,
    *,
    since_ms: int | None = None,
    live: LiveGroups = NOT_QUERIED,
    track: Track = iter,
    source: GivenSource = NOT_KNOWN,
    commits: CommitTimes | None = None,
) -> ExaminedFleet:
    """Examine groups; arguments of :func:`~holdfast.fleet.analysis.findings.doctor.examinations`.

    Without ``groups`` the worst come first.
    """
    last = last_ms if last_ms is not None else window_end_ms(tables)
    names = names_of(tables, groups, live)
    options: dict[str, Any] = {"since_ms": since_ms, "live": live, "source": source}
    options["commits"] = commits
    begin_ms = NEVER if since_ms is None else since_ms
    if len(names) <= MOST_LISTED:
        found = list(examinations(tables, names, last, track=track, **options))
        if groups is None:
            found.sort(key=worst_first)
        ordered = [one.history.name for one in found]
        return ExaminedFleet(
            figures=joined(overview(some, last, begin_ms) for some in tables.parts(ordered)),
            since_ms=begin_ms,
            codes=_codes(found),
            listed=found,
            worst=min(found, key=worst_first, default=None),
        )
    if live is NOT_QUERIED and are_stored(tables, last, since_ms):
        figures, ranks, codes = _stored(tables, names, last, begin_ms, track)
    else:
        figures = joined(overview(some, last, begin_ms) for some in tables.parts(names))
        ranks, codes = _ranked(examinations(tables, names, last, track=track, **options))
    by_badness = np.lexsort((np.argsort(np.argsort(figures.names)), -figures.downtime_s, -ranks))
    order = by_badness if groups is None else np.arange(len(names))
    listed = list(examinations(tables, [names[i] for i in order[:MOST_LISTED]], last, **options))
    worst = names[by_badness[0]]
    here = (one for one in listed if one.history.name == worst)
    return ExaminedFleet(
        figures=_taken(figures, order),
        since_ms=begin_ms,
        codes=codes,
        listed=listed,
        worst=next(here, None) or next(examinations(tables, [worst], last, **options)),
    )


def stored_verdicts(
    some: SomeGroups, last_ms: int | None, since_ms: int | None
) -> list[GroupVerdict]:
    """Return the verdicts on some groups whose findings are stored."""
    figures = overview(some, last_ms, NEVER if since_ms is None else since_ms)
    findings = stored_findings(some, NOT_KNOWN)
    codes = findings.found_codes(some.groups)
    ranks, downtime_s = findings.ranks(some.groups).tolist(), figures.downtime_s.tolist()
    return [
        GroupVerdict(rank=rank, downtime_s=seconds, codes=found)
        for rank, seconds, found in zip(ranks, downtime_s, codes, strict=True)
    ]


def _codes(examined: Iterable[Examination]) -> frozenset[str]:
    return frozenset(f.code for one in examined for f in one.findings)


def _ranked(examined: Iterable[Examination]) -> tuple[I64, frozenset[str]]:
    """Return the rank of each examined group, and the codes of all findings."""
    ranks, codes = list[int](), set[str]()
    for one in examined:
        ranks.append(one.verdict.rank)
        codes |= _codes([one])
    return np.asarray(ranks, np.int64), frozenset(codes)


def _stored(
    tables: Tables, names: Sequence[str], last_ms: int | None, begin_ms: int, track: Track
) -> tuple[Overview, I64, frozenset[str]]:
    """Return figures, ranks and codes of groups whose findings are stored, from whole columns."""
    figures, ranks, codes = list[Overview](), list[I64](), set[str]()
    progress: Iterator[str] = iter(track(names))
    for some in tables.parts(names):
        findings = stored_findings(some, NOT_KNOWN)
        figures.append(overview(some, last_ms, begin_ms))
        ranks.append(findings.ranks(some.groups))
        codes |= findings.codes
        for _ in zip(some.groups, progress, strict=False):
            pass
    next(progress, None)  # its bar ends
    return joined(figures), np.concatenate(ranks), frozenset(codes)


def _taken(figures: Overview, order: I64) -> Overview:
    """Return the rows of an overview in another order."""
    names = (one.name for one in fields(Overview) if one.name != "rebalances_ms")
    columns: dict[str, Any] = {name: getattr(figures, name)[order] for name in names}
    return replace(figures, **columns)
