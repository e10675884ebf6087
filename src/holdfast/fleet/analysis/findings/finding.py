"""Findings of the doctor, and the decorator that registers a rule.

**Rules.** A code is stable: its meaning never changes, and a retired code is never reused. A
finding has the code and the texts of its rule, its basis (inferred or stated), its evidence and
its cost. A rule is a pure function of a group's history
(:mod:`holdfast.fleet.analysis.group.group_history`).

A finding is *active* or *past*, by its evidence alone (:func:`ended_ms`). Evidence of the present
reaches to the end of the window, so such a finding is active. An event is active for
:attr:`Limits.recent_s` after its last evidence: a storm whose last rebalance was 11 minutes ago is
past, and ended with that rebalance. What a record states of a generation
(:attr:`Lasts.GENERATION`) is active while that generation is the last one. All findings of a
deleted group are past.

**Strategy.** ``@rule(...)`` decorates the function that finds symptoms. The decorator has the
code, the usual severity and every text for people, and registers them as a ``Rule``.
:mod:`holdfast.fleet.analysis.findings.examination` imports the modules with rules, and so has all
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from glob import escape
from typing import Any, Generic, TypeVar

import numpy as np

from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.core.command_lines import holdfast_line, kafka_line, option
from holdfast.core.machine.upgrade import Client, has_way
from holdfast.core.model.columns import I64, Mask
from holdfast.core.names import harmless, visible
from holdfast.fleet.analysis.group.client_library import PLANNED
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.lag import LagRows

MAX_EVIDENCE = 10
_FIRST_STEP = "cooperative-sticky"

Item = TypeVar("Item")


class Severity(StrEnum):
    """How bad a finding is."""

    INFO = "info"
    WARN = "warn"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Return 0 for info to 2 for error."""
        return _RANKS[self]


_RANKS: dict[Severity, int] = {one: rank for rank, one in enumerate(Severity)}


class Basis(StrEnum):
    """How a finding is known."""

    STATED = "stated"
    INFERRED = "inferred"


class Lasts(StrEnum):
    """How long a finding lasts beyond the end of its evidence."""

    EVIDENCE = "evidence"  # not at all
    GENERATION = "generation"  # until the next generation


@dataclass(frozen=True, slots=True)
class Few(Generic[Item]):
    """The first items of many, and their total number."""

    shown: tuple[Item, ...] = ()  # at most ``MAX_EVIDENCE``
    total: int = 0  # number of all items

    @property
    def left_out(self) -> int:
        """Return how many items are not shown."""
        return self.total - len(self.shown)

    def text(self, separator: str, most: int = MAX_EVIDENCE) -> str:
        """Return the first items in a line, such as ``m-1, m-2 and 3 more``."""
        names = separator.join(str(value) for value in self.shown[:most])
        return names + more(self.total - len(self.shown[:most]))


NONE: Few[Any] = Few()


def more(number: int) -> str:
    """Return the text behind the first of many: `` and 3 more``, or nothing."""
    return f" and {number:,} more" if number else ""


def few(values: Iterable[Item]) -> Few[Item]:
    """Return the first ``MAX_EVIDENCE`` of some values, and their number."""
    found = list(values)
    return Few(tuple(found[:MAX_EVIDENCE]), len(found))


def few_names(names: Iterable[str]) -> Few[str]:
    """Return the same as :func:`few`, with names made visible."""
    found = few(names)
    return Few(tuple(visible(name) for name in found.shown), found.total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a finding rests on; of each list the first few are shown."""

    generations: Few[int] = NONE  # Kafka's generations
    # ``from_ms``, ``to_ms``: first and last moment, UTC milliseconds.
    from_ms: int = -1
    to_ms: int = -1
    # ``members``, ``partitions``: processes or member ids; ``topic-partition``.
    members: Few[str] = NONE
    partitions: Few[str] = NONE
    # Named measurements, units at the end of the name.
    figures: dict[str, float] = field(default_factory=dict)


def generations_of(evidence: Evidence) -> str:
    """Return generations of the evidence, such as ``generations 1-3 7``; empty without one."""
    seen = evidence.generations
    if not seen.total:
        return ""
    runs: list[list[int]] = []
    for number in sorted(seen.shown):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = (str(a) if a == b else f"{a} {b}" if b == a + 1 else f"{a}-{b}" for a, b in runs)
    noun = "generation" if seen.total == 1 else "generations"
    return f"{noun} {' '.join(shown)}{more(seen.left_out)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """Result of a rule's function for one group."""

    text: str
    evidence: Evidence
    # Replaces the rule's severity if the evidence is thin or the case is extreme.
    severity: Severity | None = None
    # ``cost_lower_s``, ``cost_upper_s``: partition-seconds of cost in the window, at least and at
    # most.
    cost_lower_s: float = 0.0
    cost_upper_s: float = 0.0
    command: str = ""
    basis: Basis = Basis.INFERRED  # stated by a record, or inferred from several
    # Indices of the group's rebalances that it concerns; empty if none.
    rebalances: frozenset[int] = frozenset()
    # Longest interval of a recurring symptom: the finding is active for twice as long after its
    # evidence, if that is longer than :attr:`Limits.recent_s`.
    every_s: float = 0.0


_SYMPTOM_FIELDS = tuple(one.name for one in fields(Symptom))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Symptom):
    """A symptom with its rule and its final severity.

    ``follows`` is the code of the finding that causes this one in the group; empty without a
    cause. ``ended_ms`` is the end of a past finding, in UTC milliseconds; None if active. Its text
    and command are :class:`~holdfast.core.names.Visible`: no writer escapes them again.
    """

    rule: Rule
    severity: Severity
    follows: str = ""
    ended_ms: int | None = None

    @property
    def is_active(self) -> bool:
        """Return whether it has not ended."""
        return self.ended_ms is None

    @property
    def code(self) -> str:
        """Return the code of its rule: ``HF1xx``."""
        return self.rule.code


class Limits:
    """Where a measurement becomes a finding."""

    storm_window_s = 600.0
    storm_rebalances = 10
    churn_per_restart = 1.5
    deploy_gap_s = 600.0
    avoidable_share = 0.2
    avoidable_moves = 5
    lag_skew = 3.0
    lag_records = 1000
    stuck_s = 300.0
    round_trip_s = 900.0
    unowned_s = 120.0
    unowned_restarts = 3.0
    load_spread = 2
    eager_downtime_s = 30.0
    spurious = 3
    missed = 3
    record_share = 0.5
    drained_s = 10.0
    crashes = 5
    crash_window_s = 600.0
    hesitant_s = 120.0
    evicted_s = 240.0
    lively_s = 60.0
    behind_s = 300.0
    forgotten_s = 3_600.0
    markers = 10
    hot_share = 0.8
    recent_s = 600.0
    rebalancing_s = 10.0
    apart_s = 10.0
    visitors = 3
    flap_gap_s = 1_200.0


Look = Callable[[GroupHistory], Iterable[Symptom]]
"""The function under ``@rule``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One code: its symptom and its texts."""

    # ``code``, ``name``: ``HF1xx`` and a short name in words.
    code: str
    name: str
    severity: Severity  # severity of its findings, unless a symptom has another one
    # ``what``, ``why``, ``how``, ``mend``: texts of ``holdfast explain``: what is seen, why it
    # matters, how it is recognized, what to do.
    what: str
    why: str
    how: str
    mend: str
    look: Look  # ``(history) -> symptoms``
    lasts: Lasts = Lasts.EVIDENCE  # how long its findings last after the end of their evidence
    # Part of ``look`` that judges the present lag, so that a commit alone may change its symptoms.
    # The rest uses commits only by :meth:`GroupHistory.had_work` and ``rebuilding``.
    of_lag: Look | None = None

    def find(self, history: GroupHistory) -> Iterator[Finding]:
        """Yield every symptom of this rule in one group, as a finding."""
        for symptom in self.look(history):
            replaced = {name: getattr(symptom, name) for name in _SYMPTOM_FIELDS}
            replaced["severity"] = symptom.severity or self.severity
            replaced |= {name: harmless(replaced[name]) for name in ("text", "command")}
            yield Finding(rule=self, ended_ms=ended_ms(symptom, self.lasts, history), **replaced)


def ended_ms(symptom: Symptom, lasts: Lasts, history: GroupHistory) -> int | None:
    """Return when a symptom ended, in UTC milliseconds; None where it is active.

    Examples
    --------
    Of a window that ends at 12:00, a storm with its last rebalance at 11:51 is active, and one with
    its last rebalance at 11:49 ended then. ``tests/report/test_active.py`` has every code.
    """
    end_ms, until_ms = history.end_ms, symptom.evidence.to_ms
    if until_ms < 0:
        until_ms = end_ms
    if lasts is Lasts.GENERATION:
        until_ms = history.generation_end_ms(until_ms)
    if history.gone_ms is not None:
        return min(until_ms, history.gone_ms)
    quiet_s = max(Limits.recent_s, 2 * symptom.every_s)
    return None if end_ms - until_ms <= quiet_s * 1000 else until_ms


RULES: dict[str, Rule] = {}
"""Rules of the modules imported so far, by code."""


def rule(
    code: str,
    *,
    severity: Severity,
    lasts: Lasts = Lasts.EVIDENCE,
    of_lag: Look | bool = False,
    **texts: str,
) -> Callable[[Look], Look]:
    """Register the function below as the rule of a code; :class:`Rule` explains the parameters.

    ``of_lag`` is True if all of it judges the present lag.
    """

    def register(look: Look) -> Look:
        assert code not in RULES, f"{code} is registered twice"
        part = look if of_lag is True else of_lag or None
        RULES[code] = Rule(
            code=code, severity=severity, look=look, lasts=lasts, of_lag=part, **texts
        )
        return look

    return register


def named_partitions(lag: LagRows, rows: I64) -> Few[str]:
    """Return the partitions of some rows of the lag, of which only the shown ones get a name."""
    return Few(
        tuple(visible(lag.partition_name(i)) for i in rows[:MAX_EVIDENCE].tolist()), len(rows)
    )


def last_evidence(
    history: GroupHistory,
    members: Iterable[str] = (),
    partitions: I64 | Few[str] = NONE,
    **figures: float,
) -> Evidence:
    """Return evidence of the present, since the last generation; partitions may be lag rows."""
    known = history.last >= 0
    return Evidence(
        generations=few([int(history.generations.number[history.last])]) if known else NONE,
        from_ms=int(history.generations.at_ms[history.last]) if known else history.end_ms,
        to_ms=history.end_ms,
        members=few_names(dict.fromkeys(members)),
        partitions=partitions
        if isinstance(partitions, Few)
        else named_partitions(history.lag, partitions),
        figures=figures,
    )


def marker_doubt(history: GroupHistory, rows: I64) -> tuple[Severity | None, str]:
    """Judge lag rows whose records may be control records of transactions.

    Return a lower severity and the end of a sentence, if each row is so few records behind that
    markers explain it, and no cluster decided it; else None and "".
    """
    lag = history.lag
    if not len(rows) or (lag.has_unread[rows] > 0).any() or (lag.lag[rows] > Limits.markers).any():
        return None, ""
    return Severity.WARN, "; the unread record may be a transaction marker"


def to_cooperative(history: GroupHistory, protocols: Iterable[str]) -> str:
    """Return a command that plans the migration of a group to a cooperative assignor.

    A plan is for the client that the members run: what one client accepts, another refuses. If the
    records do not show it, the command lists the clients that have a plan, for a person to choose
    from. If the group has a cooperative assignor already, none that a consumer can be configured
    with, or a client without a plan, the command shows the assignors of its members.
    """
    known = [name for name in protocols if name in ASSIGNORS]
    found, unplanned = history.clients, unplanned_of(history)
    replaced = found if found and None not in found and not unplanned else frozenset(PLANNED)
    choices = [one for one in PLANNED if one in replaced and has_way(one, known, [_FIRST_STEP])]
    is_open = known not in ([], [_FIRST_STEP]) and found != {*unplanned}
    if not history.kind.takes_assignors or not choices or not is_open:
        return on_group(history, "history", "--table", "members")
    words = ("--client", "|".join(choices), "--from", ",".join(known), "--to", _FIRST_STEP)
    return holdfast_line("upgrade-check", *words, "--plan")


def unplanned_of(history: GroupHistory) -> list[str]:
    """Return names of client libraries in the group for which ``upgrade-check`` has no plan."""
    return sorted(one for one in history.clients if one and not isinstance(one, Client))


def on_group(history: GroupHistory, command: str, *words: str) -> str:
    """Return a command of ours that reads this group from its source, with ``words`` at its end.

    ``--group`` accepts patterns: special characters in a name are escaped.
    """
    named = option("--group", escape(history.name))
    return holdfast_line(command, *history.source.options, *named, *words)


def describe(history: GroupHistory, *words: str) -> str:
    """Return a command that shows the group, with ``words`` at its end."""
    if not history.kind.tool:
        return on_group(history, "history", "--table", "assignments")
    return kafka_line(
        history.kind.tool, history.source, "--describe", *option("--group", history.name), *words
    )


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun: ``1 member``, ``1,200 members``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


FOLLOW_UP_MS = 10_000
"""The round that gives back what was revoked follows the last return by moments."""


def symptom_of(
    history: GroupHistory,
    chosen: Mask,
    text: str,
    command: str,
    *,
    severity: Severity | None = None,
    share: float = 1.0,
    members: Iterable[str] = (),
    rows: Iterable[int] = (),
    **figures: float | None,
) -> Symptom:
    """Return a symptom of rebalances: bool[n_rebalances] ``chosen``; ``rows`` are timeline rows.

    It costs their downtime, or the given fraction of it. A figure that is None is left out.
    """
    r = history.rebalances
    at = r.at_ms[chosen]
    return Symptom(
        severity=severity,
        text=text,
        evidence=Evidence(
            generations=few(r.generation[chosen].tolist()),
            from_ms=int(at.min()) if len(at) else -1,
            to_ms=int(at.max()) if len(at) else -1,
            members=few_names(members),
            partitions=few_names(history.partition_name(row) for row in rows),
            figures={name: value for name, value in figures.items() if value is not None},
        ),
        cost_lower_s=float(np.nansum(r.downtime_lower_s[chosen])) * share,
        cost_upper_s=summed_downtime_s(history, chosen) * share,
        command=command,
        rebalances=frozenset(np.flatnonzero(chosen).tolist()),
    )


def summed_downtime_s(history: GroupHistory, chosen: Mask) -> float:
    """Sum the partition-seconds without an owner that some rebalances cost at most."""
    return float(np.nansum(history.rebalances.downtime_upper_s[chosen]))


def show_rebalances(history: GroupHistory) -> str:
    """Return a command that shows the group's rebalances."""
    return on_group(history, "history", "--table", "rebalances")
