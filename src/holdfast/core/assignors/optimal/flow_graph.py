"""The small graph of a group: equivalent partitions are one node, and so are equivalent members.

**Rules.** Topic-partitions that the same members may read from the same racks form one *source*.
Members with the same subscription and rack form one *hub*. A unit of flow is one topic-partition
that goes from a source to a member. Two groups with equal graphs have equal optima.

**Strategy.** Sources and hubs are far fewer than partitions and members, and their number does not
grow with the number of partitions. So the graph is small enough for plain lists. Claims are kept
per source and member: all claimed partitions of one source are worth the same to their claimant.

References: KIP-54; Harvey, Ladner, Lovasz, Tamir: "Semi-matchings for bipartite graphs and load
balancing".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

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
