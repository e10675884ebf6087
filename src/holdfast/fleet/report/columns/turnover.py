"""Processes of a group that came for the first time, and that went for good.

**Rules.** A process is one of :mod:`holdfast.fleet.report.columns.identity`. One that is back under
its name did neither. Generations are named by their index.

**Strategy.** The first and the last generation of each process, by one pass over the members.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.core.model.columns import I32, I64

START_S: Final = 10.0
"""Longest interval between joins of the members with which a group starts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lives:
    """When each process of a group was a member.

    Parameters
    ----------
    process : int32[n]
        Index of the process, ascending.
    came, went : int64[n]
        The first generation with it, and the first one without it for good; ``came`` is 0 for a
        process of the first generation, and ``went`` the number of generations for one of the
        last.
    """

    process: I32
    came: I64
    went: I64

    def without(self, processes: Iterable[int]) -> Lives:
        """Return the lives without some processes."""
        kept = ~np.isin(self.process, np.fromiter(processes, np.int32))
        return Lives(process=self.process[kept], came=self.came[kept], went=self.went[kept])


@dataclass(frozen=True, slots=True, kw_only=True)
class Turnover:
    """A period in which processes joined and left.

    Parameters
    ----------
    begin, end : int
        First and last generation in which one joined or left.
    stayed, gone, replaced : int
        How many of the previous processes stayed; how many of them left; and how many of all that
        left were replaced by a new one.
    visitors : tuple of int
        Indices in ``Lives`` of processes that joined and left in it.
    """

    begin: int
    end: int
    stayed: int
    gone: int
    replaced: int
    visitors: tuple[int, ...]

    @property
    def is_deploy(self) -> bool:
        """Whether at least half of the previous processes were replaced by new ones."""
        return self.gone >= 2 and self.replaced >= 2 and self.gone >= self.stayed


def read_lives(generation: I64, process: I32, n_generations: int) -> Lives:
    """Read lives of the processes of one group's members, a row for each generation and member."""
    who, place = np.unique(process, return_inverse=True)
    came = np.full(len(who), n_generations, dtype=np.int64)
    went = np.zeros(len(who), dtype=np.int64)
    np.minimum.at(came, place, generation)
    np.maximum.at(went, place, generation + 1)
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
