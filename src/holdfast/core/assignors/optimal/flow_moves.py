"""The flow with the fewest reads across racks, then the most kept claims, at balanced loads.

**Rules.** Once the levels are known, an assignment has the best loads if and only if it is a flow
along arcs between equal levels, in which every member holds its level or one less. Of all such
flows this module finds one of least cost. A unit read across racks costs ``R``. A unit that its
member did not claim costs 1. ``R`` is larger than the number of partitions.

**Strategy.** Units are sent along shortest paths.

1. Every claim on an equal level is kept, unless it is read across racks. No start is cheaper, but
   it is not in balance: some sources have units to place, and some members hold too many units or
   too few. Each part of the graph also has a *pool*, which counts the members that hold their
   level. That number is known from the start, and a pool may lack units or have too many too.
2. Most units are placed at once where the balanced loads had them: a direct placement is a cheapest
   path.
3. The other units go along cheapest paths, so the flow is of least cost at every moment. In the end
   the potentials of the searches are the proof. No path leads from one part of the graph to
   another, so each part is settled alone. A search ends at the nearest node that lacks a unit; then
   every unit goes that can go for nothing more.

Nodes are numbered: sources, members, hubs of several members, pools. The hub of a single member is
that member.

References: KIP-54, goal 2; KIP-881; Ahuja, Magnanti, Orlin: "Network Flows", 9.8 (primal-dual).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from holdfast.core.assignors.optimal.flow_graph import Graph, LazyRows, Levels, Units
from holdfast.core.model.columns import I64, row_sizes

LARGE = 1 << 62

Arcs = list[tuple[int, Collection[int]]]
"""Arcs out of a node, as cost and the heads with that cost."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moves:
    """A flow of least cost."""

    kept: I64  # int64[n, 3]: source, member, and units that the member claimed and keeps
    # int64[n, 3]: source, hub, and units that go to the hub and are not kept claims; sorted.
    sent: I64
    taken: I64  # int64[n_members]: units that each member takes from its hub
    price: I64  # int64[n_members]: potential of each member against its pool, in units of cost


def cheapest(graph: Graph, levels: Levels, rack_weight: int) -> Moves:
    """Find the cheapest flow at ``levels``.

    Parameters
    ----------
    rack_weight : int
        Cost ``R`` of a unit across racks, above the number of partitions; 0 if none crosses.
    """
    flow = _Flow(graph, levels, rack_weight)
    flow.assign_directly()
    flow.settle()
    return flow.moves()


class _Flow:
    """A flow with units still to place.

    ``potential`` keeps ``cost + potential[tail] - potential[head] >= 0`` on every arc with room.
    ``kept[s]`` maps a member node to units of its claim, ``sent[s]`` a hub node to other units;
    ``keeps`` and ``arrives`` are the same by node.
    """

    def __init__(self, graph: Graph, levels: Levels, rack_weight: int):
        n_sources, n_members = graph.n_sources, len(graph.hub_of)
        self.graph, self.rack_weight, self.guide = graph, rack_weight, levels.sent
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
        self.out = _equal_arcs(graph, levels, node_of_hub)
        self.source_level = levels.source
        self.node_level = dict(zip(node_of_hub, levels.hub, strict=True))
        self.cheapest_of: dict[int, tuple[list[int], list[int]]] = {}
        self.cross = [
            frozenset(node_of_hub[hub] for hub in hubs) if hubs else hubs for hubs in graph.cross
        ]
        self.kept: Units = [{} for _ in range(n_sources)]
        self.room: Units = [{} for _ in range(n_sources)]  # claims that are not kept
        self.sent: Units = [{} for _ in range(n_sources)]
        self.keeps: Units = [{} for _ in range(self.end)]
        self.arrives: Units = [{} for _ in range(self.first_pool)]
        self.taken = [0] * n_members
        self.load = [0] * n_members
        self.supply: list[int] = graph.supply.tolist()
        self.excess = list(self.supply)
        self._keep_claims(levels)
        self._balance_pools()
        n_nodes = self.first_pool + len(self.pool_lacks)
        self.potential = [0] * n_sources + [1] * (n_nodes - n_sources)
        self.arcs: dict[int, Arcs] = {}
        self.across: dict[int, Arcs] = {}

    def _keep_claims(self, levels: Levels) -> None:
        """Keep every claim between equal levels that costs nothing; the others stay as room."""
        first, level_of, load, keeps = self.first, self.level, self.load, self.keeps
        for source, claimed in enumerate(self.graph.claims):
            level, cross = levels.source[source], self.cross[source]
            kept = self.kept[source]
            for member, count in claimed.items():
                if level_of[member] != level:
                    continue
                node = first + member
                if cross and self.node_of[member] in cross:
                    self.room[source][node] = count
                    continue
                kept[node] = keeps[node][source] = count
                load[member] += count
                self.excess[source] -= count

    def _balance_pools(self) -> None:
        """Find the parts of the graph, and what the pool of each lacks.

        A part holds as many units as its sources have. Its members hold their level or one less, so
        it is known how many members hold their level: the pool counts them.
        """
        both = list(zip(self.load, self.level, strict=True))
        self.surplus = {m: load - level for m, (load, level) in enumerate(both) if load > level}
        self.load = [min(load, level) for load, level in both]
        part_of_node = self._parts()
        heads = self.out.flat[self.out.start[:-1]]  # the first of each source
        self.part_of_source = [part_of_node[node] for node in heads.tolist()]
        self.part_of = [part_of_node[node] if node >= 0 else -1 for node in self.node_of]
        n_parts = max(part_of_node.values(), default=-1) + 1
        self.part_members: list[list[int]] = [[] for _ in range(n_parts)]
        self.pool_lacks = [0] * len(self.part_members)
        for part, supply in zip(self.part_of_source, self.supply, strict=True):
            self.pool_lacks[part] += supply
        for member, part in enumerate(self.part_of):
            if part >= 0:
                self.part_members[part].append(member)
                self.pool_lacks[part] -= max(self.load[member], self.level[member] - 1)

    def _parts(self) -> dict[int, int]:
        """Return the part of each hub node: nodes that share sources at equal levels."""
        out, source_level, part = self.out, self.source_level, dict[int, int]()
        sources_of = self.graph.sources_of
        hub_of_node = {node: hub for hub, node in enumerate(self.node_of_hub)}
        met = [False] * self.graph.n_sources
        n_parts = 0
        for seed in hub_of_node:
            if seed in part:
                continue
            part[seed] = n_parts
            stack = [seed]
            while stack and len(part) < len(hub_of_node):
                node = stack.pop()
                level = self.node_level[node]
                for source in sources_of[hub_of_node[node]]:
                    if not met[source] and level == source_level[source]:
                        met[source] = True
                        for other in out[source]:
                            if other not in part:
                                part[other] = n_parts
                                stack.append(other)
            n_parts += 1
        return part

    def assign_directly(self) -> None:
        """Send units where the balanced loads have them, to members with room; cost 1 each."""
        for source, left in enumerate(self.excess):
            if not left:
                continue
            cross = self.cross[source]
            wanted = {self.node_of_hub[hub]: n for hub, n in self.guide[source].items()}
            for node, claimed in self.kept[source].items():
                hub_node = self.node_of[node - self.first]
                wanted[hub_node] = wanted.get(hub_node, 0) - claimed
            for node in sorted(wanted):
                if node not in cross:
                    self._fill(source, node, wanted[node])
            for node in self.out[source] if self.excess[source] else ():
                if node not in cross:
                    self._fill(source, node, self.excess[source])

    def _cheapest_of(self, node: int) -> tuple[list[int], list[int]]:
        """Return members of a hub below level less one, and at it; the next served is last."""
        load, level = self.load, self.level
        alone = node < self.end
        members = [node - self.first] if alone else self.graph.members_of[node - self.end]
        low = [m for m in reversed(members) if load[m] < level[m] - 1]
        return low, [m for m in reversed(members) if load[m] == level[m] - 1]

    def _fill(self, source: int, node: int, units: int) -> None:
        """Send up to ``units`` to members of a hub: those too low first, then to the pool."""
        if node not in self.cheapest_of:
            self.cheapest_of[node] = self._cheapest_of(node)
        low, even = self.cheapest_of[node]
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
        """Send every other unit along cheapest paths, part by part: none leads to another part."""
        first, first_pool, part_of = self.first, self.first_pool, self.part_of
        waiting: list[dict[int, int]] = [{} for _ in self.pool_lacks]
        for source, units in enumerate(self.excess):
            if units:
                waiting[self.part_of_source[source]][source] = units
        for member, units in self.surplus.items():
            waiting[part_of[member]][first + member] = units
        for part, units in enumerate(self.pool_lacks):
            if units < 0:
                waiting[part][first_pool + part] = -units
        self.lacking = {first_pool + part for part, n in enumerate(self.pool_lacks) if n > 0} | {
            first + member
            for member, (load, level) in enumerate(zip(self.load, self.level, strict=True))
            if load < level - 1
        }
        for there in waiting:
            while there:
                self._reprice(there)
                self._send_free(there)

    def _send_free(self, waiting: dict[int, int]) -> None:
        """Send every waiting unit that has a path of cost 0; blocked nodes are not tried twice."""
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
        """Change potentials until a waiting unit has a path of cost 0 to where one lacks.

        Dijkstra's search up to the nearest such node; there are few distances, so nodes wait in one
        list for each. Nodes that are as far, or farther, keep their potential.
        """
        potential, lacking, arcs = self.potential, self.lacking, self.arcs
        best = dict.fromkeys(waiting, 0)
        done: dict[int, int] = {}
        reached = {0: list(waiting)}
        distances = [0]
        nearest = LARGE
        while (distance := distances[0]) < nearest:
            if not reached[distance]:
                del reached[heappop(distances)]
                continue
            node = reached[distance].pop()
            if node in done:
                continue
            done[node] = distance
            base = distance + potential[node]
            for cost, heads in arcs.get(node) or self._arcs(node):
                start = base + cost
                for other in heads:
                    length = start - potential[other]
                    if length < best.get(other, nearest):
                        best[other] = length
                        if other in lacking:
                            nearest = length
                        if length not in reached:
                            reached[length] = []
                            heappush(distances, length)
                        reached[length].append(other)
        if nearest:
            for node, length in done.items():
                potential[node] += length - nearest

    def _free_path(self, start: int, dead: set[int]) -> list[int]:
        """Return nodes of a path of cost 0 to a node that lacks a unit; empty for none.

        Nodes that lead nowhere are added to ``dead``; so are, for the moment, the nodes on the
        path.
        """
        lacking = self.lacking
        path = [start]
        ahead = [self._free_heads(start, dead)]
        dead.add(start)
        while path:
            heads = ahead[-1]
            if not heads:
                path.pop()
                ahead.pop()
                continue
            node = heads.pop()
            if node in dead:
                continue
            path.append(node)
            if node in lacking:
                dead.difference_update(path)
                return path
            dead.add(node)
            ahead.append(self._free_heads(node, dead))
        return path

    def _free_heads(self, node: int, dead: set[int]) -> list[int]:
        """Return heads of arcs with room that cost nothing more, the first one last."""
        potential, free = self.potential, []
        at = potential[node]
        for cost, heads in self.arcs.get(node) or self._arcs(node):
            level = at + cost
            for head in heads:
                if potential[head] == level and head not in dead:
                    free.append(head)  # noqa: PERF401 - few heads: a generator costs more
        free.reverse()
        return free

    def _arcs(self, node: int) -> Arcs:
        """Return arcs with room out of a node, kept until a path changes them.

        Without racks the arcs between sources and other nodes are the tables themselves, which
        change.
        """
        self.arcs[node] = found = self._arcs_anew(node)
        return found

    def _arcs_anew(self, node: int) -> Arcs:
        if node < self.first:
            if not self.rack_weight:
                return [(1, self.out[node]), (0, self.room[node])]
            if node not in self.across:
                self.across[node] = self._across(node, self.out[node], 1)
            return [*self.across[node], *self._across(node, self.room[node], 0)]
        if node >= self.first_pool:  # members at their level can do with one less
            members = self.part_members[node - self.first_pool]
            return [(0, [self.first + m for m in members if self.load[m] == self.level[m]])]
        arcs = self._back(node, self.arrives[node], -1)
        if node >= self.end:
            members = self.graph.members_of[node - self.end]
            return [*arcs, (0, [self.first + member for member in members])]
        arcs += self._back(node, self.keeps[node], 0)
        member = node - self.first
        if self.load[member] < self.level[member]:
            arcs.append((0, (self.first_pool + self.part_of[member],)))
        if self.taken[member] and self.node_of[member] != node:
            arcs.append((0, (self.node_of[member],)))
        return arcs

    def _back(self, node: int, sources: Collection[int], cost: int) -> Arcs:
        """Return arcs from a hub or member to sources, on which a unit returns its cost."""
        if not self.rack_weight:
            return [(cost, sources)]
        hub_node = self.node_of[node - self.first] if node < self.end else node
        near = [source for source in sources if hub_node not in self.cross[source]]
        far = [source for source in sources if hub_node in self.cross[source]]
        return [(cost, near), (cost - self.rack_weight, far)]

    def _across(self, source: int, nodes: Collection[int], cost: int) -> Arcs:
        """Return arcs from a source to nodes in its racks, and to nodes in other racks."""
        cross, first, end = self.cross[source], self.first, self.end
        hub_of = {n: self.node_of[n - first] if n < end else n for n in nodes}
        near = [node for node, hub_node in hub_of.items() if hub_node not in cross]
        far = [node for node, hub_node in hub_of.items() if hub_node in cross]
        return [(cost, near), (cost + self.rack_weight, far)]

    def _push(self, path: list[int]) -> None:
        """Send one unit along a path; the last node of the path then lacks one unit less."""
        end = path[-1]
        if end >= self.first_pool:
            self.pool_lacks[end - self.first_pool] -= 1
            served = not self.pool_lacks[end - self.first_pool]
        else:
            member = end - self.first
            self.load[member] += 1
            served = self.load[member] == self.level[member] - 1
        if served:
            self.lacking.discard(end)
        for tail, head in pairwise(path):
            self._move(tail, head)

    def _move(self, tail: int, head: int) -> None:
        """Send one unit along an arc, in the direction of cost 0 where there are two."""
        if self.rack_weight or (tail >= self.first and head >= self.first):
            self.arcs.pop(tail, None)
            self.arcs.pop(head, None)
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
        """Return whether the claim of the member has units to keep (1) or to give (-1)."""
        return node in (self.room[source] if units > 0 else self.kept[source])

    def moves(self) -> Moves:
        """Return the flow and its prices, in hubs and members again."""
        hub_of_node = dict(zip(self.node_of_hub, range(len(self.node_of_hub)), strict=True))
        kept = [(s, node, n) for s, row in enumerate(self.kept) for node, n in row.items()]
        sent = [(s, hub_of_node[to], n) for s, row in enumerate(self.sent) for to, n in row.items()]
        potential, part = np.array(self.potential, np.int64), np.array(self.part_of, np.int64)
        price = potential[self.first_pool + part] - potential[self.first : self.end]
        return Moves(
            kept=np.array(kept, np.int64).reshape(-1, 3) - (0, self.first, 0),
            sent=np.array(sorted(sent), np.int64).reshape(-1, 3),
            taken=np.array(self.taken, np.int64),
            price=np.where(part >= 0, price, 0),
        )


def _equal_arcs(graph: Graph, levels: Levels, node_of_hub: list[int]) -> LazyRows:
    """Return hub nodes of the same level as each source that may read it."""
    degree = row_sizes(graph.arc_start)
    level = np.array(levels.hub, np.int64)[graph.arc_hub]
    equal = level == np.repeat(np.array(levels.source, np.int64), degree)
    start = np.append(0, np.cumsum(equal))[graph.arc_start]
    return LazyRows(start, np.array(node_of_hub, np.int64)[graph.arc_hub[equal]])


def _add(
    by_source: dict[int, int], by_other: dict[int, int], source: int, other: int, units: int
) -> None:
    """Change one entry of a table that is kept by row and by column."""
    value = by_source.get(other, 0) + units
    if value:
        by_source[other] = by_other[source] = value
    else:
        del by_source[other], by_other[source]
