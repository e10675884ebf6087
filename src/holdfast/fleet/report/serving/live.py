"""Present states of groups from coordinators, and what they change in the index and the verdicts.

**Rules.** States of all groups are polled every :data:`NOW_S`, beside the requests: one request a
broker. Members are queried for groups that rebalance, and for groups whose pages were requested
within :data:`WANTED_S`; a page that was just opened gets an answer at once. An answer older than
:data:`OLD_S` is ignored. Without requests for pages, coordinators are not queried.

A rebalance in progress comes from the last answers, which are newer than batches. A group that
waits for its first assignment has no record yet, and nevertheless a row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from holdfast.cluster.snapshot import GONE, SeenGroup
from holdfast.fleet.analysis.findings.examination import FoundCode, GroupVerdict
from holdfast.fleet.analysis.findings.rules_now import CODE, severity_now
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroups
from holdfast.fleet.analysis.group.overview import joined, no_figures
from holdfast.fleet.report.serving.group_index import NO_LAG, GroupIndex, Verdicts

NOW_S: Final = 5.0
"""Between two questions."""
OLD_S: Final = 30.0
"""Age from which answers are ignored."""
WANTED_S: Final = 60.0
"""Time after a request for a group's page in which its members are queried."""
MOST_WANTED: Final = 100
"""Of so many groups at most."""

LiveQuery = Callable[[Callable[[SeenGroup], bool], Collection[str]], LiveGroups]
"""Takes a predicate for groups whose members are wanted, and the known groups; queries states and
returns what is known then."""


class LiveAnswers:
    """Polls the coordinators on a thread; does nothing without a coordinator.

    ``known`` returns the groups of the tables, ``rests`` whether no page was requested for long.
    """

    def __init__(
        self,
        query: LiveQuery | None,
        every_s: float,
        known: Callable[[], Collection[str]],
        rests: Callable[[], bool],
    ):
        self._query, self._every_s = query, min(every_s, NOW_S)
        self._known, self._rests = known, rests
        self._lock = threading.Lock()
        self._wake, self._closed = threading.Event(), threading.Event()
        self._wanted: dict[str, float] = {}
        self._live, self._number = NOT_QUERIED, 0

    def start(self) -> None:
        """Start polling."""
        if self._query is not None:
            threading.Thread(target=self._run, daemon=True, name="serve_now").start()

    def close(self) -> None:
        """Stop polling; an open query is abandoned."""
        self._closed.set()
        self._wake.set()

    def wake(self) -> None:
        """Poll now, and not at the end of the interval."""
        self._wake.set()

    @property
    def live(self) -> LiveGroups:
        """Present answers of coordinators; none if the last answer is old."""
        live = self._live
        is_old = live.seen is None or time.time_ns() / 1e6 - live.seen.queried_ms > 1000 * OLD_S
        return NOT_QUERIED if is_old else live

    @property
    def mark(self) -> str:
        """Differs after each change of what is shown; empty without polling."""
        if self._query is None:
            return ""
        return f"-{self._number}{'' if self.live.seen is not None else '-old'}"

    def want(self, group: str) -> None:
        """Query the members of a group from now on."""
        with self._lock:
            is_new = group not in self._wanted
            self._wanted[group] = time.monotonic()
            if len(self._wanted) > MOST_WANTED:
                del self._wanted[min(self._wanted, key=self._wanted.__getitem__)]
        if is_new:
            self._wake.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.clear()
            self._query_once()
            self._wake.wait(timeout=None if self._rests() else self._every_s)

    def _query_once(self) -> None:
        assert self._query is not None, "a cluster to query"
        since = time.monotonic() - WANTED_S
        with self._lock:
            self._wanted = {name: at for name, at in self._wanted.items() if at >= since}
            wanted = frozenset(self._wanted)

        def describe(group: SeenGroup) -> bool:
            return group.is_rebalancing or group.group in wanted

        live, before = self._query(describe, self._known()), self._live
        is_new = live.seen is not before.seen
        if is_new and (live.spans or before.spans or _differs(live, before)):
            self._number += 1  # also where only the seconds of a rebalance are others
        self._live = live


def _differs(live: LiveGroups, before: LiveGroups) -> bool:
    """Return whether two answers differ about a group."""
    if live.seen is None or before.seen is None:
        return live.seen is not before.seen
    return live.seen.groups != before.seen.groups or live.seen.gone != before.seen.gone


def index_now(index: GroupIndex, live: LiveGroups) -> GroupIndex:
    """Return the index with the coordinators' states, and with rows of groups without a record."""
    if live.seen is None:
        return index
    index = _with_rows(index, [name for name in live.rebalancing if name not in index.row_of])
    said, state = live.seen.groups, index.figures.state.copy()
    for row, name in enumerate(index.names):
        if name in live.seen.gone:
            state[row] = GONE
        elif name in said:
            state[row] = said[name].state
    return replace(index, figures=replace(index.figures, state=state))


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
    causes = [*index.cause, *("" for _ in names)]
    return replace(
        index,
        names=tuple(every[i] for i in order),
        figures=joined([index.figures, no_figures(names)]).at(order),
        cause=tuple(causes[i] for i in order),
        **changed,
    )


_EMPTY = {"recent": 0, "cause_share": 0.0, "lags": NO_LAG, "lag_s": np.nan}
"""Numeric columns of an index, and their values for a group of which nothing is known."""


def verdicts_now(verdicts: Verdicts, index: GroupIndex, live: LiveGroups) -> Verdicts:
    """Return the records' verdicts (:func:`of_records`), and which groups rebalance now."""
    changed = {}
    for name in live.rebalancing:
        group, row = live.of(name), index.row_of.get(name)
        if group is not None and row is not None:
            settled_ms = int(index.figures.settled_ms[row]) or None
            now = FoundCode(code=CODE, severity=severity_now(group, settled_ms))
            codes = verdicts[name].codes if name in verdicts else ()
            changed[name] = _verdict(float(index.figures.downtime_s[row]), [now, *codes])
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
            found[name] = group.known_s(int(index.figures.settled_ms[row]) or None)
    return found
