"""The rule about a number of members that goes up and down, and the changes behind it.

**Rules.** As :mod:`holdfast.fleet.analysis.findings.rules_rebalances`. In a deploy new processes
replace the previous ones, and stay. A flapping autoscaler leaves most processes running: it stops
those that it started. A process that is back under its name neither joined nor left.

**Strategy.** The first and the last generation of each process, by one pass over the members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.core.model.columns import I32, I64, distinct
from holdfast.fleet.analysis.findings.finding import (
    FOLLOW_UP_MS,
    Limits,
    Severity,
    Symptom,
    count,
    rule,
    show_rebalances,
    symptom_of,
)
from holdfast.fleet.analysis.findings.rules_pollers import slow_pollers
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.times import span

START_S: Final = 10.0
"""Longest interval between joins of the members with which a group starts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lives:
    """When each process of a group was a member."""

    process: I32  # int32[n]: index of the process, ascending
    # ``came``, ``went`` (int64[n]): the first generation with it, and the first one without it for
    # good; ``came`` is 0 for a process of the first generation, and ``went`` the number of
    # generations for one of the last.
    came: I64
    went: I64

    def without(self, processes: Iterable[int]) -> Lives:
        """Return the lives without some processes."""
        kept = ~np.isin(self.process, np.fromiter(processes, np.int32))
        return Lives(process=self.process[kept], came=self.came[kept], went=self.went[kept])


@dataclass(frozen=True, slots=True, kw_only=True)
class Turnover:
    """A period in which processes joined and left."""

    # ``begin``, ``end``: first and last generation in which one joined or left.
    begin: int
    end: int
    # ``stayed``, ``gone``, ``replaced``: how many of the previous processes stayed; how many of
    # them left; and how many of all that left were replaced by a new one.
    stayed: int
    gone: int
    replaced: int
    visitors: tuple[int, ...]  # indices in ``Lives`` of processes that joined and left in it

    @property
    def is_deploy(self) -> bool:
        """Whether at least half of the previous processes were replaced by new ones."""
        return self.gone >= 2 and self.replaced >= 2 and self.gone >= self.stayed


_NO_LIVES: Final = Lives(
    process=np.zeros(0, np.int32), came=np.zeros(0, np.int64), went=np.zeros(0, np.int64)
)


def read_lives(generation: I64, process: I32, n_generations: int) -> Lives:
    """Read lives of the processes of one group's members, a row for each generation and member."""
    who, index_of = np.unique(process, return_inverse=True)
    came = np.full(len(who), n_generations, dtype=np.int64)
    went = np.zeros(len(who), dtype=np.int64)
    np.minimum.at(came, index_of, generation)
    np.maximum.at(went, index_of, generation + 1)
    return Lives(process=who.astype(np.int32), came=came, went=went)


def _started(lives: Lives, at_ms: I64) -> int:
    """Return the first generation after the members joined with which a group starts."""
    came = np.unique(lives.came)
    pauses = np.flatnonzero(np.diff(at_ms[came]) > START_S * 1000)
    return int(came[pauses[0]] if len(pauses) else came[-1]) + 1 if len(came) else 0


def turnovers(lives: Lives, at_ms: I64, gap_s: float, since_ms: int) -> list[Turnover]:
    """Return periods in which processes joined and left, at intervals of at most ``gap_s``.

    ``at_ms`` are the times of the generations; those before ``since_ms`` do not count.
    """
    n = len(at_ms)
    first = max(int(np.searchsorted(at_ms, since_ms)), 1)
    changes = np.concatenate([lives.came[lives.came >= first], lives.went[lives.went < n]])
    changes = np.unique(changes[changes >= max(first, _started(lives, at_ms))])
    if not len(changes):
        return []
    cuts = np.flatnonzero(np.diff(at_ms[changes]) > gap_s * 1000) + 1
    found = []
    for part in np.split(changes, cuts):
        begin, end = int(part[0]), int(part[-1])
        before = (lives.came < begin) & (lives.went >= begin)
        came = (lives.came >= begin) & (lives.came <= end)
        went = (lives.went >= begin) & (lives.went <= end)
        found.append(
            Turnover(
                begin=begin,
                end=end,
                stayed=int((before & ~went).sum()),
                gone=int((before & went).sum()),
                replaced=int(min(went.sum(), came.sum())),
                visitors=tuple(np.flatnonzero(came & went).tolist()),
            )
        )
    return found


def changes_of(history: GroupHistory, gap_s: float) -> tuple[Lives, list[Turnover]]:
    """Return lives of processes other than slow pollers, and when processes joined and left.

    A process that is known by its member id alone counts as a new one at each start.
    """
    p, settled = history.presence, history.generations
    n = len(history.identities.names)
    if len(distinct(p.generation * n + p.identity)) == n * len(settled.number):
        return _NO_LIVES, []  # all of them were in every generation
    who = history.identities.identity
    slow = {int(who[d.member]) for one in slow_pollers(history) for d in one.went}
    lives = read_lives(p.generation, p.identity, len(settled.number)).without(slow)
    return lives, turnovers(lives, settled.at_ms, gap_s, history.since_ms)


@rule(
    "HF132",
    name="autoscaler flapping",
    severity=Severity.WARN,
    what="Members joined and left again, three or more in a short time, while the others stayed.",
    why="Each change rebalances the group, and partitions move to members that leave soon. While "
    "the group rebalances its lag grows, for which an autoscaler by lag adds members again.",
    how="A member that joined for the first time and left for good before most of the others "
    "did; member ids of one process are combined as for HF102. In a deploy the previous members "
    "leave, too.",
    mend="Give the autoscaler a longer cooldown or stabilization window, a target further from "
    "the usual lag, or a fixed number of members. With cooperative-sticky the others continue to "
    "read meanwhile.",
)
def _flapping(history: GroupHistory) -> Iterator[Symptom]:
    lives, found = changes_of(history, Limits.flap_gap_s)
    at, settled_ms = history.rebalances.at_ms, history.generations.at_ms
    chosen = np.zeros(len(at), dtype=bool)
    visitors: list[int] = []
    for one in found:
        if one.is_deploy or len(one.visitors) < Limits.visitors or not one.stayed:
            continue
        end_ms = settled_ms[one.end] + FOLLOW_UP_MS
        chosen[slice(*np.searchsorted(at, [settled_ms[one.begin], end_ms]))] = True
        visitors += one.visitors
    if not chosen.any():
        return
    stays_s = (settled_ms[lives.went[visitors]] - settled_ms[lives.came[visitors]]) / 1000
    names = history.identities.names
    sizes = history.generations.n_members[history.rebalance_index[chosen]]
    yield symptom_of(
        history,
        chosen,
        f"{count(len(visitors), 'member')} joined and left after {span(float(stays_s.max()))} "
        f"at most, while others stayed: {sizes.min()} to {sizes.max()} members",
        show_rebalances(history),
        members=[names[lives.process[i]] for i in visitors],
        longest_stay_s=float(stays_s.max()),
        visits=float(len(visitors)),
    )
