"""The ``sticky`` assignment of members with different subscriptions: from flows to partitions.

**Rules.** The flow has only numbers: how many claims a member keeps in each source, and how many
other partitions it takes from its hub. This module chooses the partitions by Kafka's order. A
member keeps its first partitions by number, then topic. Free partitions go by topic, then number,
round robin to the open slots.

**Strategy.** The closed form solves a part of the graph with one source and one hub. All other
parts together are one flow. Free partitions and open slots are each sorted once, and joined.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from holdfast.core.assignors.certificate import rack_weight_of
from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.optimal.flow_graph import (
    NO_SOURCE,
    Filling,
    Graph,
    LazyRows,
    balance,
    free_units,
    pass_on,
)
from holdfast.core.assignors.optimal.flow_moves import cheapest
from holdfast.core.assignors.optimal.sticky_equal import Part, Prices, balance_equal, fill_slots
from holdfast.core.assignors.optimal.sticky_spread import spread
from holdfast.core.model.columns import (
    I32,
    I64,
    NO_OWNER,
    positions_in,
    row_sizes,
    stable_order,
    starts,
    within,
)


def balance_flow(claims: Claims, graph: Graph, target: I32, prices: Prices) -> None:
    """Fill ``target`` and ``prices`` for the whole group.

    References: KIP-54, KIP-881.
    """
    group = claims.group
    alone = np.flatnonzero(row_sizes(graph.arc_start) == 1)  # sources with one hub
    hubs = graph.arc_hub[graph.arc_start[alone]]
    own = np.bincount(graph.arc_hub, minlength=len(graph.members_of))[hubs] == 1
    position = np.zeros(group.n_members, np.int32)
    for hub in hubs[own].tolist():
        members = np.array(graph.members_of[hub], np.int32)
        position[members] = np.arange(len(members), dtype=np.int32)
        row = group.subscription[members[0]]
        topics = group.set_topic[group.set_start[row] : group.set_start[row + 1]]
        part = Part(members=members, topics=topics, position=position)
        balance_equal(claims, part, target, prices)
    if own.sum() < len(graph.members_of):
        rest = _without(graph, alone[own], hubs[own]) if own.any() else graph
        _solve(claims, rest, target, prices)


def _without(graph: Graph, sources: I64, hubs: I32) -> Graph:
    """Return the graph without some sources and the one hub that reads each."""
    to_source = _renumbered(graph.n_sources, sources)
    to_hub = _renumbered(len(graph.members_of), hubs)
    degree = row_sizes(graph.arc_start)
    stays = to_source[:-1] >= 0
    hub_list = to_hub.tolist()
    return replace(
        graph,
        source_of=to_source[graph.source_of],
        supply=graph.supply[stays],
        arc_start=starts(degree[stays]),
        arc_hub=to_hub[graph.arc_hub[np.repeat(stays, degree)]],
        members_of=[m for m, hub in zip(graph.members_of, hub_list[:-1], strict=True) if hub >= 0],
        hub_of=to_hub[graph.hub_of],
        cross=[
            frozenset(hub_list[hub] for hub in cross)
            for cross, stay in zip(graph.cross, stays.tolist(), strict=True)
            if stay
        ],
    )


def _renumbered(n: int, gone: npt.NDArray[np.integer]) -> I32:
    """Return each of ``n``'s new number; NO_SOURCE for removed ones, and one more at the end."""
    stays = np.ones(n + 1, np.bool_)
    stays[gone] = stays[n] = False
    return np.where(stays, np.cumsum(stays) - 1, NO_SOURCE).astype(np.int32)


def _solve(claims: Claims, graph: Graph, target: I32, prices: Prices) -> None:
    """Solve the other parts: without a search if every claim can stay, else by the flow."""
    at = np.flatnonzero(graph.hub_of >= 0)
    rack_weight, choice = rack_weight_of(claims.group), graph.owned[:0]
    even = None if rack_weight else keep_all(graph, claims.group.assignment_order)
    if even is not None:
        prices.level[at] = even.level
        target[graph.owned] = graph.owner[graph.owned]
        sent, taken = even.sent, even.taken
    else:
        levels = balance(graph)
        moves = cheapest(graph, levels, rack_weight)
        prices.level[at] = np.array(levels.hub, np.int64)[graph.hub_of[at]]
        prices.minor[at] = moves.price[at]
        choice = _keep(claims, graph, moves.kept, target)
        sent, taken = moves.sent, moves.taken
    free = _name_the_rest(claims, graph, sent, taken, target)
    spread(claims, target, free, choice)


def _keep(claims: Claims, graph: Graph, kept: I64, target: I32) -> I32:
    """Write the claims that stay: of each member and source the first, by number, then topic.

    Returns the claims of members that cannot keep all that they own of a source: the choice is
    open.
    """
    tps, (keys, counts, row) = graph.owned, graph.claim_rows
    quota = np.zeros(len(keys), np.int64)
    members = np.int64(claims.group.n_members)
    quota[np.searchsorted(keys, kept[:, 0] * members + kept[:, 1])] = kept[:, 2]
    cut = quota < counts
    some = np.flatnonzero(cut[row])
    some = some[np.lexsort((tps[some], claims.group.topics.partition_of[tps[some]], row[some]))]
    stays = np.ones(len(tps), np.bool_)
    stays[some] = within(counts[cut]) < quota[row[some]]
    target[tps[stays]] = graph.owner[tps[stays]]
    return tps[some]


def _name_the_rest(claims: Claims, graph: Graph, sent: I64, taken: I64, target: I32) -> I32:
    """Assign the free partitions of each source to hubs, and each hub's to members.

    Returns the free partitions.
    """
    free = np.flatnonzero((graph.source_of >= 0) & (target == NO_OWNER)).astype(np.int32)
    if not len(free):
        return free
    members = claims.group.assignment_order
    free = free[stable_order(graph.source_of[free], graph.n_sources)]
    to_hub = _deal(sent)
    free = free[np.lexsort((free, to_hub))]
    position = np.flatnonzero(taken[members])  # of each member that takes some, in assignment order
    hub, units = graph.hub_of[members[position]], taken[members[position]]
    order = stable_order(hub, len(graph.members_of))
    slots = members[_deal(np.stack((hub, position, units), axis=1).astype(np.int64)[order])]
    fill_slots(claims, target, free, slots, np.sort(to_hub))
    return free


def _deal(slots_of: I64) -> I64:
    """Return receivers round robin within each giver.

    Parameters
    ----------
    slots_of : int64[n, 3]
        Giver, receiver, units; sorted.

    Returns
    -------
    int64[sum of units]
        Receivers, giver after giver, one unit each in turn.
    """
    giver, receiver, units = slots_of.T
    lap = within(units)
    giver, receiver = np.repeat(giver, units), np.repeat(receiver, units)
    return receiver[np.lexsort((receiver, lap, giver))]


# The assignment without a search: every claim stays, and all loads differ by at most one.
#
# If no member claims more than the even quota, and the unclaimed partitions fill the other members
# up to that share, no assignment is better: the loads are even and every claim stays. The same
# price for all members proves it. With racks this proves nothing, and the flow is solved.
#
# Unclaimed partitions go to the lowest hubs, sources with few hubs first, as at the start of
# ``flow_graph.balance``. A hub that is still too low is fed along chains of unclaimed partitions.
# Then everything is checked in columns. Most rounds of a large group end here.
#
# References: KIP-54, "Guarantees".


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
        filling.pour(units, graph.hubs_of[source], sent[source])
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
            pass_on(chain, 1, sent)
            load[chain[0][1]] -= 1
            load[hub] += 1
    return True


def _sent_to(graph: Graph, sent: Sent) -> LazyRows:
    """Return sources with free partitions that each hub may read, in the order of ``sent``."""
    sources, n_hubs = np.fromiter(sent, np.int64, len(sent)), len(graph.members_of)
    degree, at = positions_in(graph.arc_start, sources)
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
