"""Fewest partitions across racks, then most claims kept, at the most balanced loads.

**Rules.** Once the levels are known, a best assignment is any flow along arcs between equal levels
in which every member holds its level or one less. Among those this finds one of least cost: ``R`` a
unit read across racks, 1 a unit that is not its owner's claim, with ``R`` above the number of
partitions.

**Strategy.** Shortest paths, again and again. It starts from every claim on an equal level being
kept, the cheapest start there can be, if out of balance: some sources have units to place, some
members hold too much, some too little, and so do the *pools*, one for each part of the graph, where
members at their level and one below meet. Most units are placed at once where the balanced loads
had them, since a direct place is a cheapest path. The others go along cheapest paths, so the flow
is of least cost at every moment, and the potentials that the searches need are the proof in the
end. A search stops at the first node that lacks a unit; then every unit goes that can go for
nothing more.

Nodes are numbered: sources, members, hubs of several members, pools. The hub of a single member is
that member.

References
----------
KIP-54, goal 2; KIP-881; Ahuja, Magnanti, Orlin: "Network Flows", 9.8 (primal-dual).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from holdfast.assign.flow_graph import Graph
from holdfast.assign.flow_levels import Held, Levels

Arcs = list[tuple[int, int]]
"""Arcs with room out of a node, as (cost, head)."""


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
        Potential of each member against its pool, in units of cost.
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
    return flow.moves()


class _Flow:
    """A flow with units still to place.

    ``potential`` keeps ``cost + potential[tail] - potential[head] >= 0`` on every arc with room.
    ``kept[s]`` maps a member node to units of its claim, ``sent[s]`` a hub node to other units;
    ``keeps`` and ``arrives`` are the same by node.
    """

    def __init__(self, graph: Graph, levels: Levels, rack_weight: int):
        n_sources, n_members = len(graph.supply), len(graph.hub_of)
        self.graph, self.rack_weight, self.guide = graph, rack_weight, levels.held
        self.first, self.end = n_sources, n_sources + n_members  # member nodes
        self.node_of_hub = [
            n_sources + members[0] if len(members) == 1 else self.end + hub
            for hub, members in enumerate(graph.members_of)
        ]
        self.first_pool = self.end + len(graph.members_of)
        hub_of = graph.hub_of.tolist()
        self.hub_of, node_of_hub = hub_of, self.node_of_hub
        self.node_of = [node_of_hub[hub] if hub >= 0 else -1 for hub in hub_of]
        self.level = [levels.hub[hub] if hub >= 0 else 0 for hub in hub_of]
        self.out = [
            [node_of_hub[hub] for hub in hubs if levels.hub[hub] == level]
            for hubs, level in zip(graph.hubs_of, levels.source, strict=True)
        ]
        self.cross = [
            frozenset(node_of_hub[hub] for hub in hubs) if hubs else hubs for hubs in graph.cross
        ]
        self.kept: Held = [{} for _ in range(n_sources)]
        self.room: Held = [{} for _ in range(n_sources)]  # claims that are not kept
        self.sent: Held = [{} for _ in range(n_sources)]
        self.keeps: Held = [{} for _ in range(self.end)]
        self.arrives: Held = [{} for _ in range(self.first_pool)]
        self.taken = [0] * n_members
        self.load = [0] * n_members
        self.excess = list(graph.supply)
        self._keep_claims(levels)
        self._balance_pools()
        n_nodes = self.first_pool + len(self.pool_lacks)
        self.potential = [0] * n_sources + [1] * (n_nodes - n_sources)

    def _keep_claims(self, levels: Levels) -> None:
        """Keep every claim between equal levels that costs nothing; the others stay as room."""
        for source, claimed in enumerate(self.graph.claims):
            level, cross = levels.source[source], self.cross[source]
            kept = self.kept[source]
            for member, count in claimed.items():
                if self.level[member] != level:
                    continue
                node = self.first + member
                if self.node_of[member] in cross:
                    self.room[source][node] = count
                    continue
                kept[node] = self.keeps[node][source] = count
                self.load[member] += count
                self.excess[source] -= count

    def _balance_pools(self) -> None:
        """Find the parts of the graph, and what the pool of each lacks.

        A part holds as many units as its sources have. Its members hold their level or one less,
        so how many of them hold their level is known: the pool counts those.
        """
        both = list(zip(self.load, self.level, strict=True))
        self.surplus = {m: load - level for m, (load, level) in enumerate(both) if load > level}
        self.load = [min(load, level) for load, level in both]
        part_of_node = self._parts()
        self.part_of = [part_of_node[node] if node >= 0 else -1 for node in self.node_of]
        n_parts = max(part_of_node.values(), default=-1) + 1
        self.part_members: list[list[int]] = [[] for _ in range(n_parts)]
        self.pool_lacks = [0] * len(self.part_members)
        for source, out in enumerate(self.out):
            self.pool_lacks[part_of_node[out[0]]] += self.graph.supply[source]
        for member, part in enumerate(self.part_of):
            if part >= 0:
                self.part_members[part].append(member)
                self.pool_lacks[part] -= max(self.load[member], self.level[member] - 1)

    def _parts(self) -> dict[int, int]:
        """Part of each hub node: nodes that share sources at equal levels."""
        sources_of: dict[int, list[int]] = {node: [] for node in self.node_of_hub}
        for source, out in enumerate(self.out):
            for node in out:
                sources_of[node].append(source)
        part: dict[int, int] = {}
        seen = [False] * len(self.out)
        n_parts = 0
        for seed in sources_of:
            if seed in part:
                continue
            part[seed] = n_parts
            stack = [seed]
            while stack:
                for source in sources_of[stack.pop()]:
                    if not seen[source]:
                        seen[source] = True
                        fresh = [node for node in self.out[source] if node not in part]
                        for node in fresh:
                            part[node] = n_parts
                        stack += fresh
            n_parts += 1
        return part

    def place_directly(self) -> None:
        """Send units where the balanced loads have them, to members with room; cost 1 each."""
        load, level = self.load, self.level
        self.low: dict[int, list[int]] = {}
        self.even: dict[int, list[int]] = {}
        for node, members in zip(self.node_of_hub, self.graph.members_of, strict=True):
            self.low[node] = [m for m in reversed(members) if load[m] < level[m] - 1]
            self.even[node] = [m for m in reversed(members) if load[m] == level[m] - 1]
        for source, units in enumerate(self.excess):
            if not units:
                continue
            cross = self.cross[source]
            wanted = {self.node_of_hub[hub]: n for hub, n in self.guide[source].items()}
            for node, units in self.kept[source].items():
                hub_node = self.node_of[node - self.first]
                wanted[hub_node] = wanted.get(hub_node, 0) - units
            for node in sorted(wanted):
                if node not in cross:
                    self._fill(source, node, wanted[node])
            for node in self.out[source] if self.excess[source] else ():
                if node not in cross:
                    self._fill(source, node, self.excess[source])

    def _fill(self, source: int, node: int, units: int) -> None:
        """Send up to ``units`` to members of a hub: those too low first, then to the pool."""
        low, even = self.low[node], self.even[node]
        units = min(units, self.excess[source])
        while units > 0 and low:
            member = low[-1]
            self._send(source, node, member)
            units -= 1
            if self.load[member] == self.level[member] - 1:
                even.append(low.pop())
        while units > 0 and even and self.pool_lacks[self.part_of[even[-1]]] > 0:
            self.pool_lacks[self.part_of[even[-1]]] -= 1
            self._send(source, node, even.pop())
            units -= 1

    def _send(self, source: int, node: int, member: int) -> None:
        sent = self.sent[source]
        sent[node] = self.arrives[node][source] = sent.get(node, 0) + 1
        self.taken[member] += 1
        self.load[member] += 1
        self.excess[source] -= 1

    def settle(self) -> None:
        """Send every other unit along cheapest paths."""
        first, pool = self.first, self.first_pool
        waiting = {source: units for source, units in enumerate(self.excess) if units}
        waiting |= {first + member: units for member, units in self.surplus.items()}
        waiting |= {pool + part: -lacks for part, lacks in enumerate(self.pool_lacks) if lacks < 0}
        while waiting:
            self._reprice(waiting)
            dead: set[int] = set()
            for start in list(waiting):
                while start in waiting:
                    path = self._free_path(start, dead)
                    if not path:
                        break
                    self._push(path)
                    waiting[start] -= 1
                    if not waiting[start]:
                        del waiting[start]

    def _reprice(self, waiting: dict[int, int]) -> None:
        """Change potentials until some waiting unit has a path of cost 0 to a node that lacks one."""
        potential, neighbours = self.potential, self._neighbours
        best = dict.fromkeys(waiting, 0)
        done: dict[int, int] = {}
        heap = [(0, node) for node in waiting]
        heapify(heap)
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
                    heappush(heap, (length, other))
        if distance:
            for node, length in done.items():
                potential[node] += length - distance

    def _free_path(self, start: int, dead: set[int]) -> list[int]:
        """Nodes of a path of cost 0 from ``start`` to a node that lacks a unit; empty if none."""
        potential = self.potential
        path, seen = [start], {start}
        arcs: list[Iterator[tuple[int, int]]] = [iter(self._neighbours(start))]
        while path:
            at = potential[path[-1]]
            for cost, node in arcs[-1]:
                if node in seen or node in dead or cost + at != potential[node]:
                    continue
                path.append(node)
                if self._lacks(node):
                    return path
                seen.add(node)
                arcs.append(iter(self._neighbours(node)))
                break
            else:
                dead.add(path.pop())
                arcs.pop()
        return path

    def _lacks(self, node: int) -> bool:
        if node >= self.first_pool:
            return self.pool_lacks[node - self.first_pool] > 0
        if self.first <= node < self.end:
            return self.load[node - self.first] < self.level[node - self.first] - 1
        return False

    def _neighbours(self, node: int) -> Arcs:
        if node < self.first:
            return self._from_source(node)
        if node >= self.first_pool:  # members at their level can do with one less
            members = self.part_members[node - self.first_pool]
            return [(0, self.first + m) for m in members if self.load[m] == self.level[m]]
        weight, cross = self.rack_weight, self.cross
        arcs = [
            (-1 - weight if node in cross[source] else -1, source) for source in self.arrives[node]
        ]
        if node >= self.end:
            members = self.graph.members_of[node - self.end]
            return arcs + [(0, self.first + member) for member in members]
        member = node - self.first
        hub_node = self.node_of[member]
        for source in self.keeps[node]:
            arcs.append((-weight if hub_node in cross[source] else 0, source))
        if self.load[member] < self.level[member]:
            arcs.append((0, self.first_pool + self.part_of[member]))
        if self.taken[member] and hub_node != node:
            arcs.append((0, hub_node))
        return arcs

    def _from_source(self, source: int) -> Arcs:
        weight, cross = self.rack_weight, self.cross[source]
        if not cross and not self.room[source]:
            return [(1, node) for node in self.out[source]]
        arcs = [(1 + weight if node in cross else 1, node) for node in self.out[source]]
        for node in self.room[source]:
            claimed_across = self.node_of[node - self.first] in cross
            arcs.append((weight if claimed_across else 0, node))
        return arcs

    def _push(self, path: list[int]) -> None:
        """Send one unit along a path; its last node lacks it no more."""
        end = path[-1]
        if end >= self.first_pool:
            self.pool_lacks[end - self.first_pool] -= 1
        else:
            self.load[end - self.first] += 1
        for tail, head in zip(path[:-1], path[1:], strict=True):
            self._move(tail, head)

    def _move(self, tail: int, head: int) -> None:
        """Send one unit along an arc, the way its cost of 0 says where there are two."""
        if tail >= self.first_pool:
            self.load[head - self.first] -= 1
        elif head >= self.first_pool:
            self.load[tail - self.first] += 1
        elif tail < self.first:
            self._between(tail, head, 1)
        elif head < self.first:
            self._between(head, tail, -1)
        elif tail >= self.end:
            self.taken[head - self.first] += 1
        else:
            self.taken[tail - self.first] -= 1

    def _between(self, source: int, node: int, units: int) -> None:
        """Change the flow between a source and a node on the arc that costs nothing more."""
        cost = self.potential[node] - self.potential[source]
        weight = self.rack_weight if node < self.end and self._crosses(source, node) else 0
        if node < self.end and cost == weight and self._may_keep(source, node, units):
            _add(self.kept[source], self.keeps[node], source, node, units)
            room = self.graph.claims[source][node - self.first] - self.kept[source].get(node, 0)
            if room:
                self.room[source][node] = room
            else:
                del self.room[source][node]
            return
        _add(self.sent[source], self.arrives[node], source, node, units)
        if node < self.end:
            self.taken[node - self.first] += units

    def _crosses(self, source: int, node: int) -> bool:
        return self.node_of[node - self.first] in self.cross[source]

    def _may_keep(self, source: int, node: int, units: int) -> bool:
        """Whether the claim of the member has units to keep (1) or to give (-1)."""
        return node in (self.room[source] if units > 0 else self.kept[source])

    def moves(self) -> Moves:
        """The flow and its prices, in hubs and members again."""
        first = self.first
        hub_of_node = dict(zip(self.node_of_hub, range(len(self.node_of_hub)), strict=True))
        return Moves(
            kept=[{node - first: n for node, n in row.items()} for row in self.kept],
            sent=[{hub_of_node[node]: n for node, n in row.items()} for row in self.sent],
            taken=self.taken,
            price=[
                self.potential[self.first_pool + part] - self.potential[first + member]
                if part >= 0
                else 0
                for member, part in enumerate(self.part_of)
            ],
        )


def _add(
    by_source: dict[int, int], by_other: dict[int, int], source: int, other: int, units: int
) -> None:
    """Change one entry of a table that is kept by row and by column."""
    value = by_source.get(other, 0) + units
    if value:
        by_source[other] = by_other[source] = value
    else:
        del by_source[other], by_other[source]
