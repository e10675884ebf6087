"""Examine one group: run every rule, the worst finding first.

**Rules.** This module imports every module with rules, and is the only one that does. A new file of
rules is one more name in that import.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.report.findings import rules_lag, rules_members, rules_rebalances
from holdfast.report.findings.facts import Facts
from holdfast.report.findings.finding import RULES, Finding, Limits, Rule

RULE_MODULES = (rules_rebalances, rules_members, rules_lag)
"""Importing them has registered their rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """One group: its facts and its findings, worst first."""

    facts: Facts
    findings: tuple[Finding, ...]

    @property
    def badness(self) -> tuple[int, float, int]:
        """Worst severity, partition-seconds at most, number of findings."""
        worst = max((f.severity.rank for f in self.findings), default=-1)
        return worst, sum(f.cost_upper_s for f in self.findings), len(self.findings)


def all_rules() -> tuple[Rule, ...]:
    """Every rule, by code."""
    return tuple(sorted(RULES.values(), key=lambda rule: rule.code))


def examine(facts: Facts, limits: Limits | None = None) -> Examination:
    """Run all rules over one group; ``limits`` are the thresholds."""
    limits = limits or Limits()
    found = [f for rule in all_rules() for f in rule.find(facts, limits)]
    found.sort(key=lambda f: (-f.severity.rank, -f.cost_upper_s, f.code, f.text))
    return Examination(facts=facts, findings=tuple(found))
