"""The index and the verdicts of a fleet by the coordinators' answers: states, present rebalances.

**Rules.** A rebalance in progress comes from the last answers, which are newer than batches. A
group that waits for its first assignment has no record yet, and nevertheless a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from holdfast.cluster.snapshot import GONE
from holdfast.fleet.analysis.findings.examination import FoundCode, GroupVerdict
from holdfast.fleet.analysis.findings.rules_now import CODE, severity_now
from holdfast.fleet.analysis.group.live import LiveGroups
from holdfast.fleet.report.serving.group_index import NO_LAG, GroupIndex, Verdicts


def index_now(index: GroupIndex, live: LiveGroups) -> GroupIndex:
    """Return the index with the coordinators' states, and with rows of groups without a record."""
    if live.seen is None:
        return index
    index = _with_rows(index, [name for name in live.rebalancing if name not in index.row_of])
    said = live.seen.groups
    states = (
        GONE if name in live.seen.gone else said[name].state if name in said else before
        for name, before in zip(index.names, index.state, strict=True)
    )
    return replace(index, state=tuple(states))


def _with_rows(index: GroupIndex, names: list[str]) -> GroupIndex:
    """Return the index with rows of more groups, of which nothing is known."""
    if not names:
        return index
    every = [*index.names, *names]
    order = np.asarray(sorted(range(len(every)), key=every.__getitem__), np.int64)
    changed: dict[str, Any] = {
        name: np.concatenate([column, np.full((len(names), *column.shape[1:]), empty)])[order]
        for name, empty in _EMPTY.items()
        for column in (getattr(index, name),)
    }
    texts: dict[str, Any] = {
        name: tuple(np.asarray([*getattr(index, name), *["" for _ in names]], object)[order])
        for name in ("state", "cause")
    }
    return replace(index, names=tuple(every[i] for i in order), **texts, **changed)


_EMPTY = {
    **dict.fromkeys(("n_members", "n_rebalances", "n_owned", "settled_ms", "recent"), 0),
    **dict.fromkeys(("downtime_lower_s", "downtime_s", "cause_share"), 0.0),
    **dict.fromkeys(("lag", "lags"), NO_LAG),
}
"""Numeric columns of an index, and their values for a group of which nothing is known."""


def verdicts_now(verdicts: Verdicts, index: GroupIndex, live: LiveGroups) -> Verdicts:
    """Return the records' verdicts (:func:`of_records`), and which groups rebalance now."""
    changed = {}
    for name in live.rebalancing:
        group, row = live.of(name), index.row_of.get(name)
        if group is not None and row is not None:
            settled_ms = int(index.settled_ms[row]) or None
            now = FoundCode(code=CODE, severity=severity_now(group, settled_ms))
            codes = verdicts[name].codes if name in verdicts else ()
            changed[name] = _verdict(float(index.downtime_s[row]), [now, *codes])
    return {**verdicts, **changed} if changed else verdicts


def of_records(verdict: GroupVerdict) -> GroupVerdict:
    """Return a verdict without a rebalance in progress, which coordinators report sooner."""
    others = [one for one in verdict.codes if one.code != CODE]
    return verdict if len(others) == len(verdict.codes) else _verdict(verdict.downtime_s, others)


def _verdict(downtime_s: float, codes: list[FoundCode]) -> GroupVerdict:
    ordered = sorted(codes, key=lambda one: (not one.is_active, -one.severity.rank))
    rank = max((one.severity.rank for one in codes if one.is_active), default=-1)
    return GroupVerdict(rank=rank, downtime_s=downtime_s, codes=tuple(ordered))


def rebalancing_s(index: GroupIndex, live: LiveGroups) -> Mapping[str, float]:
    """Return the least seconds of present rebalances, by name."""
    found = {}
    for name in live.rebalancing:
        group, row = live.of(name), index.row_of.get(name)
        if group is not None and row is not None:
            found[name] = group.known_s(int(index.settled_ms[row]) or None)
    return found
