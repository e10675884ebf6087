"""The assignment without a search: every claim stays, and all loads differ by at most one.

**Rules.** If no member claims more than the even share, and the unclaimed partitions fill the other
members up to that share, no assignment is better: the loads are even and every claim stays. The
same price for all members proves it. With racks this proves nothing, and the flow is solved.

**Strategy.** Unclaimed partitions go to the lowest hubs, sources with few hubs first, as at the
start of :mod:`~holdfast.core.assignors.optimal.flow_levels`. A hub that is still too low is fed
along chains of unclaimed partitions. Then everything is checked in columns. Most rounds of a large
group end here.

References: KIP-54, "Guarantees".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from holdfast.core.assignors.optimal.flow_graph import Graph, LazyRows
from holdfast.core.assignors.optimal.flow_levels import Filling, free_units
from holdfast.core.model.columns import I32, I64, places_in, stable_order, starts, within

Sent = dict[int, dict[int, int]]
"""For each source with free partitions: hub to units."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Even:
    """The destinations of the free partitions."""

    level: int  # every member holds this many partitions or one less
    sent: I64  # int64[n, 3]: source, hub and units, sorted
    taken: I64  # int64[n_members]: units that each member takes from its hub


def keep_all(graph: Graph, assignment_order: I32) -> Even | None:
    """Keep every claim and place the rest; None if the outcome is not even.

    Parameters
    ----------
    graph : Graph
        With at least one hub.
    assignment_order : int32[n_members]
        Members in the order in which partitions are assigned.
    """
    readers = assignment_order[graph.hub_of[assignment_order] >= 0]
    low, over = divmod(int(graph.supply.sum()), len(readers))
    own = np.bincount(graph.owner[graph.owned], minlength=len(graph.hub_of))[readers]
    if int(own.max(initial=0)) > low + (over > 0):
        return None
    hub, n_hubs = graph.hub_of[readers], len(graph.members_of)
    base = np.maximum(own, low)  # the least that each member shall hold
    above = np.bincount(hub, weights=own - low, minlength=n_hubs).astype(np.int64)
    filling = Filling(above.tolist(), graph.size.tolist())
    free = free_units(graph)
    sent: Sent = {}
    for source, units in free:
        sent[source] = {}
        filling.place(units, graph.hubs_of[source], sent[source])
    spare = np.array(filling.load) - np.bincount(hub, weights=base - low, minlength=n_hubs)
    extra = spare.astype(np.int64).tolist()
    if not _feed_all(graph, extra, sent):
        return None
    at_low = np.flatnonzero(base == low)
    room, more = np.bincount(hub[at_low], minlength=n_hubs), np.array(extra, np.int64)
    if (more > room).any():
        return None
    order = at_low[np.lexsort((own[at_low] < low, hub[at_low]))]  # members at ``low`` go first
    base[order[within(room) < more[hub[order]]]] += 1
    taken = base - own
    of_member = np.zeros(len(graph.hub_of), np.int64)
    of_member[readers] = taken
    rows = sorted((source, to, n) for source, row in sent.items() for to, n in row.items())
    return Even(level=low + 1, sent=np.array(rows, np.int64).reshape(-1, 3), taken=of_member)


def _feed_all(graph: Graph, load: list[int], sent: Sent) -> bool:
    """Pass free partitions on until no load is negative; False if that is impossible."""
    needy = [hub for hub, units in enumerate(load) if units < 0]
    if not needy:
        return True
    sources_of = _sent_to(graph, sent)
    for hub in needy:
        while load[hub] < 0:
            chain = _chain(hub, load, sources_of, sent)
            if not chain:
                return False
            for source, giver, taker in chain:
                row = sent[source]
                row[taker] = row.get(taker, 0) + 1
                row[giver] -= 1
                if not row[giver]:
                    del row[giver]
            load[chain[0][1]] -= 1
            load[hub] += 1
    return True


def _sent_to(graph: Graph, sent: Sent) -> LazyRows:
    """Return sources with free partitions that each hub may read, in the order of ``sent``."""
    sources, n_hubs = np.fromiter(sent, np.int64, len(sent)), len(graph.members_of)
    degree, at = places_in(graph.arc_start, sources)
    hub = graph.arc_hub[at]
    by_hub = stable_order(hub, n_hubs)
    start = starts(np.bincount(hub, minlength=n_hubs))
    return LazyRows(start, np.repeat(sources, degree)[by_hub])


def _chain(
    seed: int, load: list[int], sources_of: LazyRows, sent: Sent
) -> list[tuple[int, int, int]]:
    """Return the shortest chain of (source, giver, taker) that feeds ``seed``; empty for none."""
    came: dict[int, tuple[int, int]] = {seed: (-1, -1)}
    met: set[int] = set()
    queue = deque((seed,))
    while queue:
        taker = queue.popleft()
        for source in sources_of[taker]:
            if source in met:
                continue
            met.add(source)
            for giver in sent[source]:
                if giver in came:
                    continue
                came[giver] = (source, taker)
                if load[giver] > 0:
                    return _back_to(seed, giver, came)
                queue.append(giver)
    return []


def _back_to(seed: int, giver: int, came: dict[int, tuple[int, int]]) -> list[tuple[int, int, int]]:
    chain = []
    while giver != seed:
        source, taker = came[giver]
        chain.append((source, giver, taker))
        giver = taker
    return chain
