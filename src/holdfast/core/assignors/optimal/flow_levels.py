"""The most balanced loads, the first goal of ``sticky``, from sources and hubs alone.

**Rules.** Members of one hub are equivalent, so in a hub of ``k`` members with load ``L`` each has
``L // k`` partitions, or one more if ``k`` does not divide ``L``. Loads are best if and only if no
chain of moves leads from a member to one with at least two partitions fewer. The sorted loads are
then the same whatever the chains were, and they minimise every symmetric convex cost at once.

**Strategy.** Start from the claims and place the other partitions on the lowest hubs. Then take the
lowest hub and search backwards for a hub that is two higher and can feed it. If there is none,
every hub and source that the search reached is settled: its *level* ``b`` is recorded, its members
hold ``b`` or ``b - 1`` partitions, and no later search enters it. The levels are the potentials of
the certificate. An arc from a source to a hub of a higher level carries nothing in any best
assignment.

References: KIP-54, "balanced"; Harvey et al. 2006; Frank and Murota, "Decreasing minimization on
M-convex sets".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace

import numpy as np

from holdfast.core.assignors.optimal.flow_graph import Graph
from holdfast.core.model.columns import row_sizes

Units = list[dict[int, int]]
"""For each source: hub to units, entries above 0 only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The most balanced loads."""

    sent: Units  # units that each source sends to each hub
    # Level of each source and hub.
    source: list[int]
    hub: list[int]


def free_units(graph: Graph) -> list[tuple[int, int]]:
    """Return sources that have unowned partitions, with their number; fewest readers first."""
    owned = np.bincount(graph.source_of[graph.owned], minlength=graph.n_sources)
    free = graph.supply - owned
    sources = np.flatnonzero(free)
    order = sources[np.argsort(row_sizes(graph.arc_start)[sources], kind="stable")]
    return list(zip(order.tolist(), free[order].tolist(), strict=True))


def balance(graph: Graph) -> Levels:
    """Find most balanced loads, close to the claims."""
    search = _LevelSearch(graph)
    search.fill()
    search.settle()
    return Levels(sent=search.sent, source=search.source_level, hub=search.hub_level)


class Filling:
    """Hubs that are filled, each source on its lowest ones.

    Parameters
    ----------
    load, size : lists of int
        Topic-partitions and members of each hub; ``load`` is changed in place.
    """

    def __init__(self, load: list[int], size: list[int]):
        self.load, self.size = load, size

    def pour(self, units: int, hubs: list[int], row: dict[int, int]) -> None:
        """Place units of one source on the lowest of its hubs, and count them in ``row``."""
        left = self._pour_many(units, hubs, row) if units > 8 * len(hubs) else units
        self._drip(left, hubs, row)

    def _drip(self, units: int, hubs: list[int], row: dict[int, int]) -> None:
        """Send units one by one to the hub that is lowest at that moment."""
        load, size = self.load, self.size
        heap = [(load[hub] // size[hub], hub) for hub in hubs]
        heapify(heap)
        for _ in range(units):
            hub = heap[0][1]
            row[hub] = row.get(hub, 0) + 1
            load[hub] += 1
            heapreplace(heap, (load[hub] // size[hub], hub))

    def _pour_many(self, units: int, hubs: list[int], row: dict[int, int]) -> int:
        """Raise the lowest hubs to a common level, all that fit; return the units left over."""
        load, size = self.load, self.size
        hubs = sorted(hubs, key=lambda hub: load[hub] / size[hub])
        members = filled = level = 0
        for hub in hubs:  # the highest level to which the units raise the hubs so far
            if members and load[hub] // size[hub] >= (units + filled) // members:
                break
            members += size[hub]
            filled += load[hub]
            level = (units + filled) // members
        for hub in hubs:
            raised = min(max(level * size[hub] - load[hub], 0), units)
            if raised:
                row[hub] = row.get(hub, 0) + raised
                load[hub] += raised
                units -= raised
        return units


class _LevelSearch:
    """State of one search; ``load[h]`` is always the sum of ``sent[s][h]`` over sources."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.size: list[int] = graph.size.tolist()
        self.sent: Units = []
        self.load = [0] * len(self.size)
        self.source_level = [0] * graph.n_sources
        self.hub_level = [0] * len(self.size)
        self.n_open = graph.n_sources  # sources without a level
        hub_of = graph.hub_of.tolist()
        for claimed in graph.claims:
            row: dict[int, int] = {}
            for member, count in claimed.items():
                hub = hub_of[member]
                row[hub] = row.get(hub, 0) + count
                self.load[hub] += count
            self.sent.append(row)

    def fill(self) -> None:
        """Place unclaimed units: sources with few readers first, each on its lowest hubs."""
        filling, graph, sent = Filling(self.load, self.size), self.graph, self.sent
        for source, units in free_units(graph):
            filling.pour(units, graph.hubs_of[source], sent[source])

    def settle(self) -> None:
        """Feed the lowest hubs, level by level, until no hub can feed another."""
        load, size, hub_level = self.load, self.size, self.hub_level
        heap = [(units // size[hub], hub) for hub, units in enumerate(load)]
        heapify(heap)
        while heap:
            low, hub = heappop(heap)
            if hub_level[hub]:
                continue
            if low != load[hub] // size[hub]:  # the hub was fed since
                heappush(heap, (load[hub] // size[hub], hub))
                continue
            giver = self._feed(hub, low)
            if giver >= 0:
                heappush(heap, (load[hub] // size[hub], hub))
                heappush(heap, (load[giver] // size[giver], giver))

    def _feed(self, seed: int, low: int) -> int:
        """Move units along the shortest chain to ``seed``; without one settle what was reached.

        Returns the hub that gave, or -1.
        """
        graph, sent, load, size = self.graph, self.sent, self.load, self.size
        source_level, hub_level = self.source_level, self.hub_level
        took_from: dict[int, int] = {seed: -1}  # hub: source through which it would give
        leads_to: dict[int, int] = {}  # source: hub that would take from it
        queue = deque((seed,))
        while queue and len(leads_to) < self.n_open:
            hub = queue.popleft()
            for source in graph.sources_of[hub]:
                if source in leads_to or source_level[source]:
                    continue
                leads_to[source] = hub
                for giver in sent[source]:
                    if giver not in took_from:
                        took_from[giver] = source
                        if load[giver] > (low + 1) * size[giver]:
                            self._shift(seed, giver, low, took_from, leads_to)
                            return giver
                        queue.append(giver)
        self.n_open -= len(leads_to)
        for source in leads_to:
            source_level[source] = low + 1
        for hub in took_from:
            hub_level[hub] = low + 1
        return -1

    def _shift(
        self,
        seed: int,
        giver: int,
        low: int,
        took_from: dict[int, int],
        leads_to: dict[int, int],
    ) -> None:
        """Move as many units as the chain carries from ``giver`` to ``seed``."""
        chain = []
        hub = giver
        while hub != seed:
            source = took_from[hub]
            chain.append((source, hub, leads_to[source]))
            hub = leads_to[source]
        level = low + 1
        units = min(
            self.load[giver] - level * self.size[giver],
            level * self.size[seed] - self.load[seed],
            *(self.sent[source][hub] for source, hub, _ in chain),
        )
        for source, hub, taker in chain:
            row = self.sent[source]
            row[taker] = row.get(taker, 0) + units
            row[hub] -= units
            if not row[hub]:
                del row[hub]
        self.load[giver] -= units
        self.load[seed] += units
