"""Fewest partitions across racks, then most claims kept, at the most balanced loads.

**Rules.** Once the levels are known, a best assignment is any flow along arcs between equal levels
in which every member holds its level or one less. Among those this finds one of least cost: ``R`` a
unit read across racks, 1 a unit that is not its owner's claim, with ``R`` above the number of
partitions.

**Strategy.** Successive shortest paths. It starts from every claim on an equal level being kept,
which is the cheapest start there can be, if out of balance: some sources have units to place, some
members hold too much, some too little, and the *pool* (where members at their level and one below
meet) has too much or too little as well. Units then go along cheapest paths, so the flow is of
least cost at every moment; the potentials that the searches need are the proof in the end. Most
units are placed at once where the balanced loads had them, since a direct place is a cheapest path.

References
----------
KIP-54, goal 2; KIP-881; Ahuja, Magnanti, Orlin: "Network Flows", 9.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from holdfast.assign.flow_graph import Graph
from holdfast.assign.flow_levels import Held, Levels


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """A flow of least cost.

    Parameters
    ----------
    kept : list of dicts
        For each source: member to units of its own claim that it keeps.
    sent : list of dicts
        For each source: hub to units that go there and are nobody's claim.
    taken : list of int
        Units that each member takes from its hub.
    price : list of int
        Potential of each member below its level, in units of cost.
    """

    kept: Held
    sent: Held
    taken: list[int]
    price: list[int]


def cheapest(graph: Graph, levels: Levels, rack_weight: int) -> Moves:
    """Find the cheapest flow at these levels.

    Parameters
    ----------
    rack_weight : int
        Cost ``R`` of a unit across racks, above the number of partitions; 0 if none crosses.
    """
    flow = _Flow(graph, levels, rack_weight)
    flow.place_directly()
    flow.settle()
    pool = flow.potential[flow.pool]
    first = len(graph.supply) + len(graph.members_of)
    price = [pool - p for p in flow.potential[first : flow.pool]]
    return Moves(kept=flow.kept, sent=flow.sent, taken=flow.taken, price=price)


class _Flow:
    """A flow with excesses. Nodes: sources, then hubs, then members, then the pool.

    ``potential`` keeps ``cost + potential[tail] - potential[head] >= 0`` on every arc with room.
    """

    def __init__(self, graph: Graph, levels: Levels, rack_weight: int):
        n_sources, n_hubs = len(graph.supply), len(graph.members_of)
        hub_of = graph.hub_of.tolist()
        self.graph = graph
        self.levels = levels
        self.rack_weight = rack_weight
        self.first_hub, self.first_member = n_sources, n_sources + n_hubs
        self.pool = self.first_member + len(hub_of)
        self.hub_of = hub_of
        self.level = [levels.hub[hub] if hub >= 0 else 0 for hub in hub_of]
        self.hubs_of = [
            [hub for hub in hubs if levels.hub[hub] == level]
            for hubs, level in zip(graph.hubs_of, levels.source, strict=True)
        ]
        self.kept: Held = [{} for _ in range(n_sources)]
        self.keeps: Held = [{} for _ in hub_of]  # the same by member
        self.room: Held = [{} for _ in range(n_sources)]  # claims that are not kept
        self.sent: Held = [{} for _ in range(n_sources)]
        self.arrives: list[dict[int, int]] = [{} for _ in range(n_hubs)]  # the same by hub
        self.taken = [0] * len(hub_of)
        self.load = [0] * len(hub_of)
        self.low: list[list[int]] = [[] for _ in range(n_hubs)]  # members below level - 1
        self.even: list[list[int]] = [[] for _ in range(n_hubs)]  # members at level - 1
        self.excess = list(graph.supply)
        self._keep_claims()
        self.potential = [0] * n_sources + [1] * (self.pool + 1 - n_sources)
        both = list(zip(self.load, self.level, strict=True))
        self.surplus = [max(load - level, 0) for load, level in both]
        self.load = [min(load, level) for load, level in both]
        settled = sum(max(load, level - 1) for load, level in both if level) - sum(self.surplus)
        self.pool_lacks = sum(graph.supply) - settled

    def _keep_claims(self) -> None:
        """Keep every claim between equal levels that costs nothing; the others stay as room."""
        graph, levels, level = self.graph, self.levels.source, self.level
        for source, claimed in enumerate(graph.claims):
            for member, count in claimed.items():
                if level[member] != levels[source]:
                    continue
                if self.hub_of[member] in graph.cross[source]:
                    self.room[source][member] = count
                    continue
                self.kept[source][member] = self.keeps[member][source] = count
                self.load[member] += count
                self.excess[source] -= count

    def place_directly(self) -> None:
        """Send units where the balanced loads have them, to members with room; cost 1 each."""
        load, level, hub_of = self.load, self.level, self.hub_of
        for hub, members in enumerate(self.graph.members_of):
            self.low[hub] = [m for m in reversed(members) if load[m] < level[m] - 1]
            self.even[hub] = [m for m in reversed(members) if load[m] == level[m] - 1]
        for source, guide in enumerate(self.levels.held):
            if not self.excess[source]:
                continue
            cross, wanted = self.graph.cross[source], dict(guide)
            for member, units in self.kept[source].items():
                hub = hub_of[member]
                wanted[hub] = wanted.get(hub, 0) - units
            for hub in sorted(wanted):
                if hub not in cross:
                    self._fill(source, hub, wanted[hub])
            for hub in self.hubs_of[source] if self.excess[source] else ():
                if hub not in cross:
                    self._fill(source, hub, self.excess[source])

    def _fill(self, source: int, hub: int, units: int) -> None:
        """Send up to ``units`` to members of a hub: those too low first, then to the pool."""
        low, even = self.low[hub], self.even[hub]
        units = min(units, self.excess[source])
        while units > 0 and low:
            member = low[-1]
            self._send(source, hub, member)
            units -= 1
            if self.load[member] == self.level[member] - 1:
                even.append(low.pop())
        while units > 0 and even and self.pool_lacks > 0:
            self._send(source, hub, even.pop())
            self.pool_lacks -= 1
            units -= 1

    def _send(self, source: int, hub: int, member: int) -> None:
        sent = self.sent[source]
        sent[hub] = self.arrives[hub][source] = sent.get(hub, 0) + 1
        self.taken[member] += 1
        self.load[member] += 1
        self.excess[source] -= 1

    def settle(self) -> None:
        """Send every other excess along cheapest paths."""
        for source, units in enumerate(self.excess):
            for _ in range(units):
                self._augment(source)
        for member, units in enumerate(self.surplus):
            for _ in range(units):
                self._augment(self.first_member + member)
        while self.pool_lacks < 0:
            self.pool_lacks += 1
            self._augment(self.pool)

    def _augment(self, start: int) -> None:
        """Send one unit from ``start`` along a cheapest path to whoever lacks one."""
        potential, neighbours = self.potential, self._neighbours
        best: dict[int, int] = {start: 0}
        came_from: dict[int, int] = {}
        done: dict[int, int] = {}
        heap = [(0, start)]
        while True:
            distance, node = heappop(heap)
            if node in done:
                continue
            if self._lacks(node):
                break
            done[node] = distance
            base = distance + potential[node]
            for cost, other in neighbours(node):
                length = base + cost - potential[other]
                if other not in best or length < best[other]:
                    best[other] = length
                    came_from[other] = node
                    heappush(heap, (length, other))
        for other, length in done.items():
            potential[other] += length - distance
        self._push(node, came_from)

    def _lacks(self, node: int) -> bool:
        if node == self.pool:
            return self.pool_lacks > 0
        member = node - self.first_member
        return member >= 0 and self.load[member] < self.level[member] - 1

    def _neighbours(self, node: int) -> list[tuple[int, int]]:
        """Arcs with room out of a node, as (cost, head)."""
        if node < self.first_hub:
            return self._from_source(node)
        if node < self.first_member:
            return self._from_hub(node - self.first_hub)
        if node < self.pool:
            return self._from_member(node - self.first_member)
        first = self.first_member  # out of the pool: members at their level can do with one less
        rows = enumerate(zip(self.load, self.level, strict=True), first)
        return [(0, node) for node, (load, level) in rows if load == level > 0]

    def _from_source(self, source: int) -> list[tuple[int, int]]:
        first, weight, cross = self.first_hub, self.rack_weight, self.graph.cross[source]
        if not cross and not self.room[source]:
            return [(1, first + hub) for hub in self.hubs_of[source]]
        arcs = [(1 + weight if hub in cross else 1, first + hub) for hub in self.hubs_of[source]]
        for member in self.room[source]:
            cost = weight if self.hub_of[member] in cross else 0
            arcs.append((cost, self.first_member + member))
        return arcs

    def _from_hub(self, hub: int) -> list[tuple[int, int]]:
        first, weight = self.first_member, self.rack_weight
        arcs = [(0, first + member) for member in self.graph.members_of[hub]]
        arcs += [
            (-1 - weight if hub in self.graph.cross[source] else -1, source)
            for source in self.arrives[hub]
        ]
        return arcs

    def _from_member(self, member: int) -> list[tuple[int, int]]:
        hub, weight = self.hub_of[member], self.rack_weight
        arcs = [
            (-weight if hub in self.graph.cross[source] else 0, source)
            for source in self.keeps[member]
        ]
        if self.load[member] < self.level[member]:
            arcs.append((0, self.pool))
        if self.taken[member]:
            arcs.append((0, self.first_hub + hub))
        return arcs

    def _push(self, end: int, came_from: dict[int, int]) -> None:
        """Send one unit along the path that ends here."""
        if end == self.pool:
            self.pool_lacks -= 1
        else:
            self.load[end - self.first_member] += 1
        head = end
        while head in came_from:
            tail = came_from[head]
            self._move(tail, head)
            head = tail
        if head < self.first_hub:
            self.excess[head] -= 1

    def _move(self, tail: int, head: int) -> None:
        first_hub, first_member = self.first_hub, self.first_member
        if self.pool in (tail, head):
            member = (tail if head == self.pool else head) - first_member
            self.load[member] += 1 if head == self.pool else -1
        elif tail < first_hub and head < first_member:
            _add(self.sent[tail], self.arrives[head - first_hub], tail, head - first_hub, 1)
        elif head < first_hub and tail < first_member:
            _add(self.sent[head], self.arrives[tail - first_hub], head, tail - first_hub, -1)
        elif tail < first_hub:
            self._keep(tail, head - first_member, 1)
        elif head < first_hub:
            self._keep(head, tail - first_member, -1)
        elif tail < first_member:
            self.taken[head - first_member] += 1
        else:
            self.taken[tail - first_member] -= 1

    def _keep(self, source: int, member: int, units: int) -> None:
        _add(self.kept[source], self.keeps[member], source, member, units)
        room = self.graph.claims[source][member] - self.kept[source].get(member, 0)
        if room:
            self.room[source][member] = room
        else:
            del self.room[source][member]


def _add(
    by_source: dict[int, int], by_other: dict[int, int], source: int, other: int, units: int
) -> None:
    """Change one entry of a table that is kept by row and by column."""
    value = by_source.get(other, 0) + units
    if value:
        by_source[other] = by_other[source] = value
    else:
        del by_source[other], by_other[source]
