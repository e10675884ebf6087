"""The small graph of a group, and the most balanced loads on it: the first goal of ``sticky``.

**Rules.** Topic-partitions that the same members may read from the same racks form one *source*.
Members with the same subscription and rack form one *hub*. A unit of flow is one topic-partition
that goes from a source to a member. Two groups with equal graphs have equal optima.

In a hub of ``k`` members with load ``L`` each has ``L // k`` partitions, or one more if ``k`` does
not divide ``L``. Loads are best if and only if no chain of moves leads from a member to one with at
least two partitions fewer. The sorted loads are then the same whatever the chains were, and they
minimise every symmetric convex cost at once.

**Strategy.** Sources and hubs are far fewer than partitions and members, and their number does not
grow with the number of partitions. So the graph is small enough for plain lists. Claims are kept
per source and member: all claimed partitions of one source are worth the same to their claimant.

:func:`balance` starts from the claims and places the other partitions on the lowest hubs. Then it
takes the lowest hub and searches backwards for a hub that is two higher and can feed it. If there
is none, every hub and source that the search reached is settled: its *level* ``b`` is recorded, its
members hold ``b`` or ``b - 1`` partitions, and no later search enters it. The levels are the
potentials of the certificate. An arc from a source to a hub of a higher level carries nothing in
any best assignment.

References: KIP-54, "balanced"; Harvey, Ladner, Lovasz, Tamir: "Semi-matchings for bipartite graphs
and load balancing" (2006); Frank and Murota, "Decreasing minimization on M-convex sets".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush, heapreplace

import numpy as np
import numpy.typing as npt

from holdfast.core.assignors.claims import Claims
from holdfast.core.model.columns import (
    I32,
    I64,
    NO_OWNER,
    positions_in,
    ranked,
    row_of,
    row_sizes,
    stable_order,
    starts,
)
from holdfast.core.model.group import Group
from holdfast.core.model.topics import NO_RACK

_WORD = 62
"""Number of racks of which one int64 holds a set."""

NO_SOURCE = -1
"""Source of a topic-partition without a subscriber."""

Units = list[dict[int, int]]
"""For each source: hub to units, entries above 0 only."""


class LazyRows(dict[int, list[int]]):
    """The rows of a CSR pair, each a list made on first use: few of many are used."""

    def __init__(self, start: I64, values: npt.NDArray[np.integer]):
        super().__init__()
        self.start, self.flat = start, values

    def __missing__(self, row: int) -> list[int]:
        """Make the list of one row, and keep it."""
        made: list[int] = self.flat[self.start[row] : self.start[row + 1]].tolist()
        self[row] = made
        return made


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """Sources, hubs and claims. Lists are made on first use: the even case needs few of them."""

    source_of: I32  # int32[n_tps]: source of each topic-partition, or NO_SOURCE
    supply: I64  # int64[n_sources]: topic-partitions of each source
    # int64[n_sources + 1], int32[n_arcs]: hubs that may read each source, ascending.
    arc_start: I64
    arc_hub: I32
    members_of: list[list[int]]  # members of each hub, in assignment order
    hub_of: I32  # int32[n_members]: hub of each member; -1 for one with nothing to read
    owner: I32  # int32[n_tps]: member whose claim of the topic-partition counts, or NO_OWNER
    # For each source: hubs that would read it across racks; empty where no racks are known.
    cross: list[frozenset[int]]

    @property
    def n_sources(self) -> int:
        """Number of sources."""
        return len(self.supply)

    @cached_property
    def size(self) -> I64:
        """Members of each hub, int64[n_hubs]."""
        return np.bincount(self.hub_of[self.hub_of >= 0], minlength=len(self.members_of))

    @cached_property
    def owned(self) -> I32:
        """Topic-partitions of the graph's sources that have an owner, int32[...]."""
        found = np.flatnonzero((self.owner != NO_OWNER) & (self.source_of >= 0))
        return found.astype(np.int32)

    @cached_property
    def hubs_of(self) -> LazyRows:
        """Hubs that may read each source, ascending."""
        return LazyRows(self.arc_start, self.arc_hub)

    @cached_property
    def sources_of(self) -> LazyRows:
        """Sources that each hub may read, ascending."""
        n_hubs = len(self.members_of)
        by_hub = stable_order(self.arc_hub, n_hubs)
        start = starts(np.bincount(self.arc_hub, minlength=n_hubs))
        return LazyRows(start, row_of(self.arc_start)[by_hub])

    @cached_property
    def claim_rows(self) -> tuple[I64, I64, I64]:
        """Pairs of a source and a member that owns partitions in it, sorted, with their number.

        Keys (source times members plus member) and counts, int64[n] each, and the key of each of
        ``owned`` as an index into them.
        """
        key = self.source_of[self.owned] * np.int64(len(self.hub_of)) + self.owner[self.owned]
        keys, row, counts = np.unique(key, return_inverse=True, return_counts=True)
        return keys, counts, row

    @cached_property
    def claims(self) -> list[dict[int, int]]:
        """For each source: member to number of its partitions that the member owns."""
        keys, counts, _ = self.claim_rows
        result: list[dict[int, int]] = [{} for _ in range(self.n_sources)]
        sources, members = np.divmod(keys, max(len(self.hub_of), 1))
        triples = zip(sources.tolist(), members.tolist(), counts.tolist(), strict=True)
        for source, member, count in triples:
            result[source][member] = count
        return result


def build(claims: Claims) -> Graph:
    """Build the graph of a group.

    Notes
    -----
    Cost: O(n_tps + n_members) columns, and O(distinct topics times hubs) for the arcs.
    """
    group = claims.group
    hub_of, hub_set, hub_rack = _hubs(group)
    topic_class, class_start, class_hub = _topic_classes(group, hub_set)
    source_of, source_class, source_racks = _sources(group, topic_class)
    degree, arcs = positions_in(class_start, np.array(source_class, np.int64))
    arc_start, arc_hub = starts(degree), class_hub[arcs]
    members_of: list[list[int]] = [[] for _ in hub_set]
    for member, hub in zip(
        group.assignment_order.tolist(), hub_of[group.assignment_order].tolist(), strict=True
    ):
        if hub >= 0:
            members_of[hub].append(member)
    return Graph(
        source_of=source_of,
        supply=np.bincount(source_of[source_of >= 0], minlength=len(source_class)),
        arc_start=arc_start,
        arc_hub=arc_hub,
        members_of=members_of,
        hub_of=hub_of,
        owner=claims.owner,
        cross=_crossings(arc_start, arc_hub, source_racks, hub_rack),
    )


def _hubs(group: Group) -> tuple[I32, list[int], list[int]]:
    """Return the hub of each member, and the subscription and rack of each hub."""
    width = len(group.topics.rack_names) + 1
    rack = group.rack if group.topics.rack_start is not None else np.full_like(group.rack, NO_RACK)
    key = group.subscription.astype(np.int64) * width + rack + 1
    reads = row_sizes(group.set_start)[group.subscription] > 0
    distinct, inverse = ranked(key[reads], group.n_sets * width)
    hub_of = np.full(group.n_members, -1, np.int32)
    hub_of[reads] = inverse
    return hub_of, (distinct // width).tolist(), (distinct % width - 1).tolist()


def _topic_classes(group: Group, hub_set: list[int]) -> tuple[I32, I64, I32]:
    """Return the class of each topic (-1 none) by equal hubs, and a CSR of each class's hubs."""
    n_topics = group.topics.n_topics
    sizes, arcs = positions_in(group.set_start, np.array(hub_set, np.int64))
    arc_hub = np.repeat(np.arange(len(hub_set), dtype=np.int32), sizes)
    arc_topic = group.set_topic[arcs]
    order = stable_order(arc_topic, n_topics)
    arc_hub = arc_hub[order]
    start = starts(np.bincount(arc_topic, minlength=n_topics))
    bounds, raw = start.tolist(), arc_hub.tobytes()
    classes: dict[bytes, int] = {}
    topic_class = np.full(n_topics, -1, np.int32)
    first: list[int] = []
    for topic in np.flatnonzero(row_sizes(start)).tolist():
        row = raw[4 * bounds[topic] : 4 * bounds[topic + 1]]
        found = classes.setdefault(row, len(first))
        if found == len(first):
            first.append(topic)
        topic_class[topic] = found
    if len(first) == n_topics:
        return topic_class, start, arc_hub
    degree, arcs = positions_in(start, np.array(first, np.int64))
    return topic_class, starts(degree), arc_hub[arcs]


def _sources(group: Group, topic_class: I32) -> tuple[I32, list[int], list[frozenset[int] | None]]:
    """Return each tp's source, and each source's topic class and racks (None: unknown)."""
    topics = group.topics
    class_of_tp = topic_class[topics.topic_of]
    ids, racks = _rack_sets(group)
    width = max(len(racks), 1)
    key = class_of_tp.astype(np.int64) * width + ids
    reads = class_of_tp >= 0
    distinct, inverse = ranked(key[reads], (int(topic_class.max(initial=0)) + 1) * width)
    source_of = np.full(topics.n_tps, NO_SOURCE, np.int32)
    source_of[reads] = inverse
    classes, sets = (distinct // width).tolist(), (distinct % width).tolist()
    return source_of, classes, [racks[i] for i in sets]


def _rack_sets(group: Group) -> tuple[I64, list[frozenset[int] | None]]:
    """Return each tp's distinct rack set, and the distinct sets; only members' racks matter."""
    topics = group.topics
    if topics.rack_start is None or topics.rack is None:
        return np.zeros(topics.n_tps, np.int64), [None]
    relevant = np.unique(group.rack[group.rack != NO_RACK])
    position = np.full(len(topics.rack_names), NO_RACK, np.int64)
    position[relevant] = np.arange(len(relevant))
    tp, at = row_of(topics.rack_start), position[topics.rack]
    ids = (row_sizes(topics.rack_start) > 0).astype(np.int64)
    for first in range(0, len(relevant), _WORD):
        mine = (at >= first) & (at < first + _WORD)
        bits = np.zeros(topics.n_tps, np.int64)
        np.bitwise_or.at(bits, tp[mine], np.int64(1) << (at[mine] - first))
        among = np.unique(bits, return_inverse=True)[1]
        ids = ids * (int(among.max(initial=0)) + 1) + among
        ids = np.unique(ids, return_inverse=True)[1]
    _, example, ids = np.unique(ids, return_index=True, return_inverse=True)
    wanted = frozenset(relevant.tolist())
    bounds = topics.rack_start
    sets = [
        wanted.intersection(topics.rack[bounds[one] : bounds[one + 1]].tolist())
        if bounds[one] < bounds[one + 1]
        else None
        for one in example.tolist()
    ]
    return ids, sets


def _crossings(
    arc_start: I64, arc_hub: I32, racks: list[frozenset[int] | None], hub_rack: list[int]
) -> list[frozenset[int]]:
    if all(known is None for known in racks):
        return [frozenset()] * len(racks)
    hubs_of = LazyRows(arc_start, arc_hub)
    return [
        frozenset()
        if known is None
        else frozenset(
            h for h in hubs_of[source] if hub_rack[h] != NO_RACK and hub_rack[h] not in known
        )
        for source, known in enumerate(racks)
    ]


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


def pass_on(
    chain: list[tuple[int, int, int]], units: int, sent: Units | dict[int, dict[int, int]]
) -> None:
    """Move units along a chain of sources, each with the hub that gives and the one that takes."""
    for source, giver, taker in chain:
        row = sent[source]
        row[taker] = row.get(taker, 0) + units
        row[giver] -= units
        if not row[giver]:
            del row[giver]


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
        self, seed: int, giver: int, low: int, took_from: dict[int, int], leads_to: dict[int, int]
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
        pass_on(chain, units, self.sent)
        self.load[giver] -= units
        self.load[seed] += units
