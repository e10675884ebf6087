"""Examine one group: run every rule, the worst finding first.

**Rules.** A finding that comes of another one of the group follows it (:data:`LEADS`): the finding
that names the cause leads, and what it makes of a group's rebalances stands under it.

This module imports every module with rules, and is the only one that does. A new file of rules is
one more name in that import.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.fleet.report.findings import (
    rules_lag,
    rules_members,
    rules_rebalances,
    rules_workers,
)
from holdfast.fleet.report.findings.facts import Facts
from holdfast.fleet.report.findings.finding import RULES, Finding, Limits, Rule

RULE_MODULES = (rules_rebalances, rules_members, rules_lag, rules_workers)
"""Importing them has registered their rules."""


LEADS = {
    "HF124": ("HF101", "HF102", "HF103", "HF111"),
    "HF102": ("HF101", "HF103", "HF111"),
}
"""Code of a cause -> what follows from it: a crash loop or a deploy makes storms, moves and visits
of partitions elsewhere. The first cause that fits counts."""

MOSTLY = 0.9
"""The part of a finding's rebalances that its cause has, at least: the round that follows the last
return may lie after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupVerdict:
    """What was found in one group, in short."""

    badness: tuple[int, float, int]  # worst severity, partition-seconds at most, findings
    codes: tuple[tuple[str, str], ...]  # code and severity, worst first, each code once


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """One group: its facts and its findings, worst first."""

    facts: Facts
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> GroupVerdict:
        """The short form of it."""
        worst = max((f.severity.rank for f in self.findings), default=-1)
        cost = sum(f.cost_upper_s for f in self.findings if not f.follows)
        severity: dict[str, str] = {}
        for finding in self.findings:
            severity.setdefault(finding.code, str(finding.severity))
        badness = (worst, cost, len(self.findings))
        return GroupVerdict(badness=badness, codes=tuple(severity.items()))


def all_rules() -> tuple[Rule, ...]:
    """Every rule, by code."""
    return tuple(sorted(RULES.values(), key=lambda rule: rule.code))


def examine(facts: Facts, limits: Limits | None = None) -> Examination:
    """Run all rules over one group; ``limits`` are the thresholds.

    The findings come worst first; what follows from one comes right behind it, and a cause stands
    where the worst of what follows from it would.
    """
    limits = limits or Limits()
    found = _folded([f for rule in all_rules() for f in rule.find(facts, limits)])
    found.sort(key=lambda f: (-f.severity.rank, -f.cost_upper_s, f.code, f.text))
    below = {lead: [f for f in found if f.follows == lead] for lead in LEADS}
    families = [[f, *below.get(f.code, ())] for f in found if not f.follows]
    families.sort(key=lambda family: -max(f.severity.rank for f in family))
    return Examination(facts=facts, findings=tuple(f for family in families for f in family))


def _folded(found: Sequence[Finding]) -> list[Finding]:
    """The findings, each with the cause that it follows from."""
    causes = {f.code: f.rebalances for f in found if f.code in LEADS}
    follows: dict[str, str] = {}
    for cause, codes in LEADS.items():
        for f in found:
            if cause in causes and cause not in follows and f.code in codes and f.rebalances:
                inside = len(f.rebalances & causes[cause])
                if inside >= MOSTLY * len(f.rebalances):
                    follows.setdefault(f.code, cause)
    return [replace(f, follows=follows.get(f.code, "")) for f in found]
