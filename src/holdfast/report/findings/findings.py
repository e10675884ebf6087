"""The doctor's findings: what a rule is, the one list of rules, and how a group is examined.

**Rules.** A code is stable: it is never given another meaning, and never used again once retired.
A finding says whether it is inferred or stated, what it rests on, and what it cost. Rules are pure
functions of :class:`holdfast.report.findings.facts.Facts`.

**Strategy.** ``RULES`` gathers the tables of the rule modules; ``examine`` runs all of them and
puts the worst first.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.model.columns import I64
from holdfast.report.findings.facts import Facts
from holdfast.report.names import visible

MAX_EVIDENCE = 10


class Severity(StrEnum):
    """How bad a finding is."""

    INFO = "info"
    WARN = "warn"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for info, 2 for error."""
        return list(Severity).index(self)


class Basis(StrEnum):
    """How a finding is known."""

    STATED = "stated"
    INFERRED = "inferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a finding rests on; each list holds at most ``MAX_EVIDENCE`` entries.

    Parameters
    ----------
    generations : tuple of int
        Kafka's generations.
    from_ms, to_ms : int
        First and last moment, UTC milliseconds.
    members, partitions : tuple of str
        Processes or member ids; ``topic-partition``.
    figures : dict of str to float
        Named measurements, units at the end of the name.
    """

    generations: tuple[int, ...] = ()
    from_ms: int = -1
    to_ms: int = -1
    members: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding about one group.

    Parameters
    ----------
    code : str
        ``HF1xx``.
    severity : Severity
        May be below the rule's own where the evidence is thin.
    text : str
        One sentence with the numbers that matter.
    evidence : Evidence
        What it rests on.
    cost_lower_s, cost_upper_s : float
        Partition-seconds that it cost in the window, at least and at most.
    command : str
        One command that helps.
    basis : Basis
        Stated by a record, or inferred from several.
    """

    code: str
    severity: Severity
    text: str
    evidence: Evidence
    cost_lower_s: float = 0.0
    cost_upper_s: float = 0.0
    command: str = ""
    basis: Basis = Basis.INFERRED


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a measurement becomes a finding."""

    storm_window_s: float = 600.0
    storm_rebalances: int = 10
    churn_per_restart: float = 1.5
    deploy_gap_s: float = 600.0
    avoidable_share: float = 0.2
    avoidable_moves: int = 5
    lag_skew: float = 3.0
    lag_records: int = 1000
    stuck_s: float = 300.0
    round_trip_s: float = 900.0
    unowned_s: float = 120.0
    unowned_restarts: float = 3.0
    load_spread: int = 2
    eager_pause_s: float = 30.0
    spurious: int = 3
    missed: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One code: what it looks for and what to say about it.

    Parameters
    ----------
    code, name : str
        ``HF1xx`` and a short name in words.
    severity : Severity
        Of its findings, as a rule.
    what, why, how, mend : str
        For ``holdfast explain``: what is seen, why it matters, how it is told, what to do.
    find : callable
        ``(facts, limits) -> findings``.
    """

    code: str
    name: str
    severity: Severity
    what: str
    why: str
    how: str
    mend: str
    find: Callable[[Facts, Limits], Iterable[Finding]]


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
    from holdfast.report.findings import rules_lag, rules_members, rules_rebalances

    rules = (*rules_rebalances.RULES, *rules_members.RULES, *rules_lag.RULES)
    return tuple(sorted(rules, key=lambda rule: rule.code))


def examine(
    facts: Facts, limits: Limits | None = None, rules: Sequence[Rule] | None = None
) -> Examination:
    """Run the rules over one group.

    Parameters
    ----------
    facts : Facts
        Of the group.
    limits : Limits, optional
        Thresholds.
    rules : sequence of Rule, optional
        All by default.
    """
    limits = limits or Limits()
    found = [f for rule in rules or all_rules() for f in rule.find(facts, limits)]
    found.sort(key=lambda f: (-f.severity.rank, -f.cost_upper_s, f.code, f.text))
    return Examination(facts=facts, findings=tuple(found))


def last_evidence(facts: Facts, members: Iterable[str], rows: I64, **figures: float) -> Evidence:
    """Evidence of how things stand: since the last generation, with some rows of the lag."""
    lag, g = facts.lag, facts.generations
    known = facts.last >= 0
    return Evidence(
        generations=(int(g.number[facts.last]),) if known else (),
        from_ms=int(g.at_ms[facts.last]) if known else facts.end_ms,
        to_ms=facts.end_ms,
        members=first_few(dict.fromkeys(members)),
        partitions=first_few(f"{lag.topic[i]}-{lag.partition[i]}" for i in rows),
        figures=figures,
    )


def first_few(values: Iterable[str]) -> tuple[str, ...]:
    """At most ``MAX_EVIDENCE`` of some names, visible."""
    kept: list[str] = []
    for value in values:
        if len(kept) == MAX_EVIDENCE:
            break
        kept.append(visible(value))
    return tuple(kept)


def count(number: int, noun: str) -> str:
    """A number and what it counts: ``1 member``, ``1,200 members``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def shell_word(name: str) -> str:
    """A name as one word of a command line that people can paste."""
    return shlex.quote(visible(name))
