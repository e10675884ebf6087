"""Departed members of one group: last evidence of each, and when its process came back.

**Rules.** A process is identified by its static name, or else by client id and host, which stay
the same if it leaves and returns without a restart. Generations are named by their index.

**Strategy.** Departed members are set differences on (generation, member) numbers. A departure is
matched with the next new member id of its process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.model.columns import I64


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A departed member.

    Parameters
    ----------
    row : int
        Its last row among those of the group's members.
    member : int
        Its member id, by index.
    gone : int
        First generation without it.
    back : int
        First generation with a new member id of its process, ``gone`` or later; -1 for none.
    unseen_s : float
        Seconds from its last evidence, a commit of its own or the round before, to the record
        without it.
    has_committed : bool
        Whether that evidence is a commit.
    """

    row: int
    member: int
    gone: int
    back: int
    unseen_s: float
    has_committed: bool


def read_departures(
    generation: I64,
    member: I64,
    process: Callable[[int], str],
    at_ms: I64,
    unseen_ms: Mapping[int, Sequence[int]],
) -> dict[str, list[Departure]]:
    """Return departures of one group by process, in their order.

    Parameters
    ----------
    generation, member : int64[n]
        The group's members, a row for each generation: ascending by generation and member id.
    process : callable
        Returns the process of a row.
    at_ms : int64[n_generations]
        Time of the record of each generation.
    unseen_ms : mapping
        Generation without some members -> ``unseen_ms`` of its rebalance. Members that left in
        another one are omitted, and those without evidence.

    Notes
    -----
    Cost: a sort of the rows, and some steps for each departure and each member id.
    """
    n_members = int(member.max(initial=0)) + 1
    people = generation * n_members + member
    last = len(at_ms) - 1
    went = np.flatnonzero(~np.isin(people + n_members, people) & (generation < last))
    _, first = np.unique(member, return_index=True)
    arrivals: dict[str, list[tuple[int, int]]] = defaultdict(list)
    if len(went):
        for row in np.sort(first).tolist():
            arrivals[process(row)].append((int(generation[row]), int(member[row])))
    for one in arrivals.values():
        one.sort()
    found: dict[str, list[Departure]] = defaultdict(list)
    next_of: dict[int, int] = defaultdict(int)
    for row in went.tolist():
        gone, name = int(generation[row]) + 1, process(row)
        spans, at = unseen_ms.get(gone, ()), next_of[gone]
        next_of[gone] += 1
        if at >= len(spans) or spans[at] < 0:
            continue
        unseen = spans[at] / 1000
        since_round_s = float(at_ms[gone] - at_ms[gone - 1]) / 1000
        found[name].append(
            Departure(
                row=row,
                member=int(member[row]),
                gone=gone,
                back=_back(arrivals[name], gone, int(member[row])),
                unseen_s=unseen,
                has_committed=unseen < since_round_s - 0.05,
            )
        )
    return dict(found)


def _back(arrivals: Sequence[tuple[int, int]], gone: int, member: int) -> int:
    """Return the first generation from ``gone`` on that another member id joined."""
    after = bisect_left(arrivals, (gone, -1))
    return next((at for at, who in arrivals[after : after + 2] if who != member), -1)
