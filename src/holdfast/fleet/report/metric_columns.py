"""The samples of many groups from whole columns of their tables.

**Rules.** They are those that :func:`holdfast.fleet.report.metrics.group_samples` makes of the
history of a group about which no coordinator was queried (``tests/report/test_many_groups.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from holdfast.core.kinds import CLASSIC, kind_of
from holdfast.core.model.columns import F64, I64
from holdfast.fleet.analysis.findings.examination import Examination
from holdfast.fleet.analysis.findings.stored import StoredFindings
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.overview import (
    first_and_last,
    group_keys,
    group_sums,
    owned_partitions,
    returned_groups,
    rows_of,
    texts_at,
    values_at,
)
from holdfast.fleet.analysis.group.rebalances import downtime_bounds_s
from holdfast.fleet.columnar import DecodedRows
from holdfast.fleet.report.metrics import Sample, group_samples
from holdfast.fleet.tables.reading import GroupTables, SomeGroups

_named_kind = lru_cache(maxsize=1024)(kind_of)


def samples_of(some: SomeGroups, findings: StoredFindings) -> Iterator[tuple[str, Sample]]:
    """Yield the samples of some groups, one group after the other."""
    generations, of = rows_of(some, "generations")
    at, _, last = first_and_last(generations, of, len(some.groups))
    odd = set(returned_groups(generations, of, at).tolist())
    present = _Present(some, generations, of, at, last)
    past, active = _Past(some), _active(some, findings)
    for i, name in enumerate(some.groups):
        if i in odd:
            history = GroupHistory(stored=GroupTables(name, some.table))
            found = findings.of_group(name)
            yield from group_samples(Examination(history=history, findings=found))
            continue
        group = {"group": name}
        if last[i] >= 0:
            yield from present.of(i, name, group)
        yield from past.of(i, group)
        for code, severity, n in active.get(i, ()):
            yield "holdfast_group_findings", ({**group, "code": code, "severity": severity}, n)


class _Present:
    """Columns about the last generation of each group."""

    def __init__(self, some: SomeGroups, generations: DecodedRows, of: I64, at: I64, last: I64):
        self.n_members, self.number, self.at_ms = (
            values_at(column, last).tolist()
            for column in (
                generations.ints("n_members"),
                generations.ints("generation"),
                generations.times_ms("timestamp"),
            )
        )
        self.state = texts_at(generations, "state", last, "")
        self.kind = _kinds(generations, of, len(last))
        number = generations.ints("generation")
        keys = group_keys(of[at], number[at])
        newest = last[last >= 0]
        unowned = owned_partitions(some, keys)
        self.unowned = unowned - owned_partitions(some, group_keys(of[newest], number[newest]))
        self.roles = _roles(some, values_at(number, last))

    def of(self, i: int, name: str, group: dict[str, str]) -> Iterator[tuple[str, Sample]]:
        """Yield the samples of a group."""
        yield "kafka_consumergroup_members", ({"consumergroup": name}, self.n_members[i])
        yield "holdfast_group_generation", (group, self.number[i])
        yield "holdfast_group_kind", ({**group, "kind": self.kind[i]}, 1)
        for role, count in sorted(self.roles.get(i, {}).items()):
            yield "holdfast_group_assigned", ({**group, "role": role}, count)
        yield "holdfast_group_state", ({**group, "state": self.state[i]}, 1)
        last_s = self.at_ms[i] / 1000
        yield "holdfast_group_last_rebalance_timestamp_seconds", (group, last_s)
        yield "holdfast_group_unowned_partitions", (group, int(self.unowned[i]))


def _kinds(generations: Any, of: I64, n: int) -> list[str]:
    """Return the kind of each group, by its last generation with members."""
    order = np.lexsort((generations.ints("log_offset"), generations.times_ms("timestamp"), of))
    peopled = order[generations.ints("n_members", 0)[order] != 0]
    last = np.full(n, -1, np.int64)
    last[of[peopled]] = peopled
    named = last[last >= 0]
    group_type = generations.texts("group_type", "", named)
    others = (generations.texts(name, None, named) for name in ("protocol_type", "protocol"))
    found = np.full(n, CLASSIC.name, object)
    words = zip(group_type, *others, strict=True)
    found[last >= 0] = [_named_kind(*one).name for one in words]
    kinds: list[str] = found.tolist()
    return kinds


def _roles(some: SomeGroups, number: I64) -> dict[int, dict[str, int]]:
    """Return the partitions or tasks of each group in a generation, by role."""
    rows, of = rows_of(some, "assignments")
    role, roles = rows.codes("role")
    parent, _ = rows.lists("partitions")
    is_now = (rows.ints("generation") == number[of])[parent]
    found: dict[int, dict[str, int]] = {}
    keys = (of[parent] * (len(roles) + 1) + role[parent] + 1)[is_now]
    for key, count in zip(*(a.tolist() for a in np.unique(keys, return_counts=True)), strict=True):
        group, at = divmod(key, len(roles) + 1)
        name, own = "active" if at == 0 else roles[at - 1], found.setdefault(group, {})
        own[name] = own.get(name, 0) + count
    return found


class _Past:
    """Columns about the rebalances of each group, of all time."""

    def __init__(self, some: SomeGroups):
        rows, of = rows_of(some, "rebalances")
        n = len(some.groups)
        order = np.lexsort((rows.ints("generation"), rows.times_ms("timestamp"), of))
        of = of[order]
        self.causes = _causes(rows, order, of)
        self.moved = _totals(rows.ints("n_moved")[order], of, n)
        gaps = _totals(rows.ints("n_moved_through_gap")[order], of, n)
        self.moved = np.where(self.moved < 0, -1, self.moved + np.maximum(gaps, 0))
        self.avoidable = _totals(rows.ints("n_avoidable_moves")[order], of, n)
        self.downtime_s = {
            bound: _known_sums(column[order], of, n)
            for bound, column in zip(("lower", "upper"), downtime_bounds_s(rows), strict=True)
        }

    def of(self, i: int, group: dict[str, str]) -> Iterator[tuple[str, Sample]]:
        """Yield the samples of a group."""
        for cause, count in self.causes.get(i, ()):
            labels = {**group, "cause": cause or "unknown"}
            yield "holdfast_group_rebalances_total", (labels, count)
        if self.moved[i] >= 0:
            yield "holdfast_group_partitions_moved_total", (group, int(self.moved[i]))
        if self.avoidable[i] >= 0:
            yield "holdfast_group_avoidable_moves_total", (group, int(self.avoidable[i]))
        for bound, column in self.downtime_s.items():
            if not np.isnan(column[i]):
                total = round(float(column[i]), 3)
                yield f"holdfast_group_downtime_{bound}_seconds_total", (group, total)


def _causes(rows: Any, order: I64, of: I64) -> dict[int, list[tuple[str, int]]]:
    """Return how many rebalances of each group have each cause, without the first generation."""
    code, names = rows.codes("cause")
    texts = ["", *names]
    found: dict[int, Counter[str]] = {}
    keys = of * len(texts) + code[order] + 1
    for key, count in zip(*(a.tolist() for a in np.unique(keys, return_counts=True)), strict=True):
        group, at = divmod(key, len(texts))
        if texts[at] != "first_seen":
            found.setdefault(group, Counter())[texts[at]] += count
    return {group: sorted(counts.items()) for group, counts in found.items()}


def _totals(column: I64, of: I64, n: int) -> I64:
    """Return the sum of each group's known counts; -1 if none is known."""
    known = column >= 0
    total = np.zeros(n, np.int64)
    np.add.at(total, of[known], column[known])
    total[np.bincount(of[known], minlength=n) == 0] = -1
    return total


def _known_sums(column: F64, of: I64, n: int) -> F64:
    """Return the sum of each group's known values; NaN if none is known."""
    total = group_sums(of, np.nan_to_num(column, nan=0.0), n)
    total[np.bincount(of[~np.isnan(column)], minlength=n) == 0] = np.nan
    return total


def _active(some: SomeGroups, findings: StoredFindings) -> dict[int, list[tuple[str, str, int]]]:
    """Return how often each group has each active finding, sorted."""
    rows = findings.grouped.rows.select(["group", "code", "severity", "ended_timestamp"])
    rows = rows.filter(rows["ended_timestamp"].is_null())
    counted = rows.group_by(["group", "code", "severity"]).aggregate([([], "count_all")])
    row_of = {name: i for i, name in enumerate(some.groups)}
    found: dict[int, list[tuple[str, str, int]]] = {}
    for row in counted.to_pylist():
        one = (row["code"], row["severity"], row["count_all"])
        found.setdefault(row_of[row["group"]], []).append(one)
    return {i: sorted(every) for i, every in found.items()}
