"""Examine one group: run every rule, the worst finding first; findings as rows of a table.

**Rules.** Groups always have one order (:func:`worst_first`): by the severity of the worst active
finding, then by the best single estimate of their downtime, then by name. Findings that ended
before the window began are omitted. A finding that results from another one of the group follows
it (:data:`LEADS`): the finding that names the cause comes first, and its effects on the group's
rebalances below it.

A row of the table ``findings`` is of its batch: its window ends when the batch's source was read.
The moment of a reader and the answers of coordinators are joined on reading
(:class:`holdfast.fleet.analysis.findings.doctor.Doctor`). A stored command has placeholders for its
source, which the reader replaces by its own.

Only this module imports every module with rules. A new file of rules adds its name to that import.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.command_lines import GivenSource, holdfast_line, with_source
from holdfast.core.model.columns import I64
from holdfast.core.names import Visible
from holdfast.fleet.analysis.findings import (
    rules_anomalies,
    rules_lag,
    rules_members,
    rules_now,
    rules_pollers,
    rules_rebalances,
    rules_scaling,
)
from holdfast.fleet.analysis.findings.finding import (
    RULES,
    Basis,
    Evidence,
    Few,
    Finding,
    Rule,
    Severity,
    Symptom,
)
from holdfast.fleet.analysis.findings.finding import rule as register
from holdfast.fleet.analysis.findings.rules_lag import STALE
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.columnar import GroupedTable, codes
from holdfast.fleet.tables.columns.schemas import LAST_US, arrow_schema, from_columns
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import SomeGroups, sort_rows

RULE_MODULES = (
    rules_rebalances,
    rules_pollers,
    rules_scaling,
    rules_members,
    rules_anomalies,
    rules_lag,
    rules_now,
)
"""Importing them has registered their rules."""


FAILED: Final = "HF133"
"""Code of the finding about a rule that ended in an error."""

LEADS = {
    "HF127": ("HF101", "HF102", "HF103", "HF105", "HF111", "HF113", "HF118", "HF119", "HF124"),
    "HF124": ("HF101", "HF102", "HF103", "HF111"),
    "HF102": ("HF101", "HF103", "HF111"),
    "HF132": ("HF101", "HF103", "HF111", "HF119"),
}
"""Code of a cause -> what follows from it: a slow poller, a crash loop, a deploy or an
autoscaler makes storms, moves and visits of partitions elsewhere. The first cause that fits
counts."""

MOSTLY = 0.9
"""The part of a finding's rebalances that its cause has, at least, from when that began: the round
that follows the last return may lie after it."""

SOME = 1 / 3
"""The part of all of a finding's rebalances that its cause has, at least: a group starts before."""


EXAMINED: Final = "examined"
"""Note of a batch with findings: the window of its examination."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCode:
    """A code that was found in a group, of several findings the worst one."""

    code: str
    severity: Severity
    is_active: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupVerdict:
    """Summary of the findings of one group."""

    rank: int  # of the worst severity that is active; -1 where nothing is
    downtime_s: float  # the best single estimate, a partition
    codes: tuple[FoundCode, ...]  # worst first, each code once


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """One group: its history and its findings, worst first."""

    history: GroupHistory
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> GroupVerdict:
        """Return its short form."""
        found = (
            FoundCode(code=f.code, severity=f.severity, is_active=f.is_active)
            for f in self.findings
        )
        return GroupVerdict(
            rank=max((f.severity.rank for f in self.findings if f.is_active), default=-1),
            downtime_s=self.history.downtime_s,
            codes=found_codes(found),
        )


def found_codes(found: Iterable[FoundCode]) -> tuple[FoundCode, ...]:
    """Return each code once: the first active one, or the first one if none is active."""
    kept: dict[str, FoundCode] = {}
    for one in sorted(found, key=lambda one: not one.is_active):
        kept.setdefault(one.code, one)
    return tuple(kept.values())


def worst_first(examination: Examination) -> tuple[int, float, str]:
    """Return what groups are sorted by: the group that is worst now has the least."""
    verdict = examination.verdict
    return -verdict.rank, -verdict.downtime_s, examination.history.name


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return every rule, by code."""
    return tuple(sorted(RULES.values(), key=lambda rule: rule.code))


@cache
def _rules_of_lag() -> tuple[Rule, ...]:
    return tuple(replace(one, look=one.of_lag) for one in all_rules() if one.of_lag is not None)


def examine(history: GroupHistory) -> Examination:
    """Run all rules over one group.

    Active findings come first, the worst of them at the top; of equally bad ones those that name a
    cause. The effects of a cause follow it, and a cause is placed where its worst effect would be.
    """
    found = [f for rule in all_rules() for f in _find(rule, history)]
    found = _folded([f for f in found if f.ended_ms is None or f.ended_ms >= history.since_ms])
    return Examination(history=history, findings=_in_order(found))


def examine_lag(history: GroupHistory, kept: Sequence[Finding]) -> Examination:
    """Run the rules of the lag over a group in which nothing else has changed.

    ``kept`` are findings of the other rules: no finding of the lag is a cause or an effect of them.
    """
    found = [f for rule in _rules_of_lag() for f in _find(rule, history)]
    return Examination(history=history, findings=_in_order([*kept, *found]))


def _find(rule: Rule, history: GroupHistory) -> list[Finding]:
    """Run one rule; an error of it becomes a finding, and the other rules run."""
    try:
        return list(rule.find(history))
    except Exception as error:  # a defect of ours: all other findings are true
        failed = replace(RULES[FAILED], look=partial(_failed, rule, error))
        return list(failed.find(history))


@register(
    FAILED,
    name="rule failed",
    severity=Severity.WARN,
    what="A rule of the doctor ended in an error in this group, so its findings are missing.",
    why="It is a defect of holdfast. The other rules ran, and their findings are complete.",
    how="Stated: the finding names the rule and the error.",
    mend="Report it with its text. Until then the finding's command explains what the rule looks "
    "for.",
)
def _no_rule_failed(history: GroupHistory) -> Iterable[Symptom]:
    return ()  # found by :func:`_find` alone


def _failed(rule: Rule, error: Exception, history: GroupHistory) -> list[Symptom]:
    """Return the symptom of a rule that ended in an error."""
    text = f"rule {rule.code} ({rule.name}) failed: {type(error).__name__}: {error}"
    evidence = Evidence(from_ms=history.begin_ms, to_ms=history.end_ms)
    command = holdfast_line("explain", rule.code)
    return [Symptom(text=text, evidence=evidence, command=command, basis=Basis.STATED)]


def with_age(examination: Examination) -> Examination:
    """Add the finding about old tables, which depends on the reader's clock."""
    history = examination.history
    if not history.age.is_stale():
        return examination
    found = [*examination.findings, *RULES[STALE].find(history)]
    return replace(examination, findings=_in_order(found))


def _in_order(found: list[Finding]) -> tuple[Finding, ...]:
    """Return findings of a group, effects below their cause."""
    found.sort(key=lambda f: (*_badness(f), -f.cost_upper_s, f.code, f.text))
    below = {lead: [f for f in found if f.follows == lead] for lead in LEADS}
    families = [[f, *below.get(f.code, ())] for f in found if not f.follows]
    families.sort(key=lambda family: (*min(map(_badness, family)), family[0].code not in LEADS))
    return tuple(f for family in families for f in family)


def _badness(finding: Finding) -> tuple[bool, int]:
    """Return what findings are sorted by first: active before past, then the worst severity."""
    return not finding.is_active, -finding.severity.rank


def _folded(found: Sequence[Finding]) -> list[Finding]:
    """Return the findings, each with the cause that it follows from."""
    causes = {f.code: f.rebalances for f in found if f.code in LEADS}
    follows: dict[str, str] = {}
    for cause, effects in LEADS.items():
        for f in found:
            if cause in causes and cause not in follows and f.code in effects and f.rebalances:
                begun = min(causes[cause], default=0)
                inside = len(f.rebalances & causes[cause])
                since = sum(at >= begun for at in f.rebalances)
                if inside and inside >= MOSTLY * since and inside >= SOME * len(f.rebalances):
                    follows.setdefault(f.code, cause)
    return [replace(f, follows=follows.get(f.code, "")) for f in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The window in which the groups of some tables were examined, in UTC milliseconds."""

    end_ms: int
    since_ms: int | None = None

    def as_note(self) -> dict[str, int | None]:
        """Return the note of the batch, as JSON allows."""
        return {"end_ms": self.end_ms, "since_ms": self.since_ms}

    @classmethod
    def of(cls, notes: Mapping[str, Any]) -> Examined | None:
        """Return the window of the findings of a batch, of its notes; None if it holds none."""
        note = notes.get(EXAMINED)
        return None if note is None else cls(**note)


def finding_rows(examinations: Iterable[Examination]) -> pa.Table:
    """Return the findings of examinations as rows of the table ``findings``."""
    rows = [row for examination in examinations for row in _rows(examination)]
    names = arrow_schema("findings").names
    return from_columns("findings", {name: [row[name] for row in rows] for name in names})


def _rows(examination: Examination) -> Iterable[dict[str, Any]]:
    history = examination.history
    for number, found in enumerate(examination.findings):
        seen = found.evidence
        yield {
            "group": history.name,
            "number": number,
            "code": found.code,
            "severity": str(found.severity),
            "basis": str(found.basis),
            "text": found.text,
            "ended_timestamp": _us(found.ended_ms),
            "follows": found.follows or None,
            "cost_lower_seconds": found.cost_lower_s,
            "cost_upper_seconds": found.cost_upper_s,
            "generations": list(seen.generations.shown),
            "n_generations": seen.generations.total,
            "from_timestamp": _us(seen.from_ms),
            "to_timestamp": _us(seen.to_ms),
            "members": list(seen.members.shown),
            "n_members": seen.members.total,
            "topic_partitions": list(seen.partitions.shown),
            "n_partitions": seen.partitions.total,
            "figures": json.dumps(seen.figures),
            "command": found.command,
            "timestamp": _us(history.end_ms),
        }


def _us(ms: int | None) -> int | None:
    """Return microseconds, within the years that a table holds: a record may state any time."""
    return None if ms is None or ms < 0 else 1000 * min(ms, LAST_US // 1000)


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: rows are cached
class StoredFindings:
    """Findings of tables, by group."""

    grouped: GroupedTable
    source: GivenSource  # origin of the tables as the reader knows it, for commands

    @classmethod
    def of(cls, findings: pa.Table, source: GivenSource) -> StoredFindings:
        """Take rows of the table in its order."""
        return cls(grouped=GroupedTable.of(findings), source=source)

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = _with_ms(self.grouped.rows).to_pylist()
        return found

    @property
    def codes(self) -> frozenset[str]:
        """Codes of all findings."""
        return frozenset(pc.unique(self.grouped.rows["code"]).to_pylist())

    def ranks(self, groups: Sequence[str]) -> I64:
        """Return the rank of each group's worst active severity; -1 without an active finding."""
        rows = self.grouped.rows
        severity, names = codes(rows, "severity")
        rank = np.asarray([Severity(name).rank for name in names], np.int64)[severity]
        rank[pc.is_valid(rows["ended_timestamp"]).to_numpy()] = -1
        bounds = (self.grouped.bounds.get(group, (0, 0)) for group in groups)
        found = [rank[low:high].max(initial=-1) for low, high in bounds]
        return np.asarray(found, np.int64)

    def found_codes(self, groups: Sequence[str]) -> list[tuple[FoundCode, ...]]:
        """Return the codes of each group, as its verdict has them; equal ones are one object."""
        rows = self.grouped.rows
        active = rows["ended_timestamp"].is_null().to_pylist()
        every = list(
            zip(rows["code"].to_pylist(), rows["severity"].to_pylist(), active, strict=True)
        )
        bounds = (self.grouped.bounds.get(group, (0, 0)) for group in groups)
        return [_found_codes(tuple(every[low:high])) for low, high in bounds]

    def of_group(self, group: str) -> tuple[Finding, ...]:
        """Return the findings of a group, worst first."""
        low, high = self.grouped.bounds.get(group, (0, 0))
        return tuple(_finding(row, self.source) for row in self._rows[low:high])


def stored_findings(some: SomeGroups, source: GivenSource) -> StoredFindings:
    """Return the stored findings of some groups, for a source."""
    return StoredFindings.of(sort_rows(some.table("findings").rows, TABLES["findings"]), source)


@lru_cache(maxsize=65_536)
def _found_codes(found: tuple[tuple[str, str, bool], ...]) -> tuple[FoundCode, ...]:
    return found_codes(
        FoundCode(code=code, severity=Severity(severity), is_active=is_active)
        for code, severity, is_active in found
    )


def _with_ms(rows: pa.Table) -> pa.Table:
    """Return rows with times as UTC milliseconds."""
    for name in ("ended_timestamp", "from_timestamp", "to_timestamp"):
        at = rows.schema.get_field_index(name)
        whole = rows[name].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
        rows = rows.set_column(at, name, whole)
    return rows


def _finding(row: Mapping[str, Any], source: GivenSource) -> Finding:
    return Finding(
        rule=RULES[row["code"]],
        severity=Severity(row["severity"]),
        basis=Basis(row["basis"]),
        text=Visible(row["text"]),
        ended_ms=row["ended_timestamp"],
        follows=row["follows"] or "",
        cost_lower_s=row["cost_lower_seconds"],
        cost_upper_s=row["cost_upper_seconds"],
        command=with_source(row["command"], source),
        evidence=Evidence(
            generations=Few(tuple(row["generations"]), row["n_generations"]),
            from_ms=-1 if row["from_timestamp"] is None else row["from_timestamp"],
            to_ms=-1 if row["to_timestamp"] is None else row["to_timestamp"],
            members=Few(tuple(map(Visible, row["members"])), row["n_members"]),
            partitions=Few(tuple(map(Visible, row["topic_partitions"])), row["n_partitions"]),
            figures=json.loads(row["figures"]),
        ),
    )
