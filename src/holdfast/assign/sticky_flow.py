"""The sticky optimum of members with different subscriptions: from flows back to partitions.

**Rules.** The flow says how many partitions of each source a member keeps of its own, and how many
more it takes from its hub. Which ones is decided here, by Kafka's order: a member keeps its first
partitions by number, then topic; free partitions go by number, then topic, round robin to the open
places.

**Strategy.** Parts with one source and one hub take the closed form. Everything else is one flow.
Naming the partitions is columns again: one sort of free partitions, one of open places, once per
level of the graph.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from holdfast.assign.certificate import rack_weight_of
from holdfast.assign.claims import Claims
from holdfast.assign.flow_graph import NO_SOURCE, Graph
from holdfast.assign.flow_levels import Held, balance
from holdfast.assign.flow_moves import Moves, cheapest
from holdfast.assign.sticky_equal import Part, Prices, balance_equal, hand_out
from holdfast.assign.sticky_spread import crowded, spread
from holdfast.model.columns import I32, I64, NO_OWNER, starts, within


def balance_flow(claims: Claims, graph: Graph, target: I32, prices: Prices) -> None:
    """Fill ``target`` and ``prices`` for the whole group.

    References
    ----------
    KIP-54, KIP-881.
    """
    group = claims.group
    simple = [
        (sources[0], hub)
        for hub, sources in enumerate(graph.sources_of)
        if len(sources) == 1 and len(graph.hubs_of[sources[0]]) == 1
    ]
    for _, hub in simple:
        members = np.array(graph.members_of[hub], np.int32)
        row = group.subscription[members[0]]
        topics = group.set_topic[group.set_start[row] : group.set_start[row + 1]]
        balance_equal(claims, Part(members=members, topics=topics), target, prices)
    if len(simple) < len(graph.members_of):
        rest = _without(graph, dict(simple)) if simple else graph
        _solve(claims, rest, target, prices)


def _without(graph: Graph, simple: dict[int, int]) -> Graph:
    """The graph without some sources and the one hub that reads each."""
    sources = [s for s in range(len(graph.supply)) if s not in simple]
    gone = set(simple.values())
    hubs = [h for h in range(len(graph.members_of)) if h not in gone]
    new_source = np.full(len(graph.supply) + 1, NO_SOURCE, np.int32)  # the last is NO_SOURCE's
    new_source[sources] = np.arange(len(sources))
    new_hub = np.full(len(graph.members_of) + 1, -1, np.int32)
    new_hub[hubs] = np.arange(len(hubs))
    to_hub, to_source = new_hub.tolist(), new_source.tolist()
    degree = np.diff(graph.arc_start)
    stays = np.repeat(new_source[:-1] >= 0, degree)
    return replace(
        graph,
        source_of=new_source[graph.source_of],
        supply=[graph.supply[s] for s in sources],
        arc_start=starts(degree[sources]),
        arc_hub=new_hub[graph.arc_hub[stays]],
        hubs_of=[[to_hub[h] for h in graph.hubs_of[s]] for s in sources],
        sources_of=[[to_source[s] for s in graph.sources_of[h]] for h in hubs],
        members_of=[graph.members_of[h] for h in hubs],
        hub_of=new_hub[graph.hub_of],
        claims=[graph.claims[s] for s in sources],
        cross=[frozenset(to_hub[h] for h in graph.cross[s]) for s in sources],
    )


def _solve(claims: Claims, graph: Graph, target: I32, prices: Prices) -> None:
    levels = balance(graph)
    moves = cheapest(graph, levels, rack_weight_of(claims.group))
    at = np.flatnonzero(graph.hub_of >= 0)
    prices.level[at] = np.array(levels.hub, np.int64)[graph.hub_of[at]]
    prices.minor[at] = np.array(moves.price, np.int64)[at]
    choice = _keep(claims, graph, moves.kept, target)
    free = np.flatnonzero((graph.source_of >= 0) & (target == NO_OWNER)).astype(np.int32)
    if len(free):
        _name_the_rest(claims, graph, moves, target, free)
        if len(crowded(claims.group, target, free)):
            spread(claims, target, free, choice)


def _keep(claims: Claims, graph: Graph, kept: Held, target: I32) -> I32:
    """Write the claims that stay: of each member and source the first, by number, then topic.

    Returns the claims of members that cannot keep all they have of a source: the choice is open.
    """
    topics, n_members = claims.group.topics, claims.group.n_members
    tps = np.flatnonzero((graph.source_of >= 0) & (claims.owner != NO_OWNER))
    row = graph.source_of[tps] * np.int64(n_members) + claims.owner[tps]
    cut = [
        source * n_members + member
        for source, claimed in enumerate(graph.claims)
        for member, count in claimed.items()
        if kept[source].get(member, 0) != count
    ]
    stays, some = np.ones(len(tps), np.bool_), tps[:0]
    if cut:
        some = np.flatnonzero(np.isin(row, cut))
        order = np.lexsort((tps[some], topics.partition_of[tps[some]], row[some]))
        some = some[order]
        distinct, counts = np.unique(row[some], return_counts=True)
        quota = [kept[key // n_members].get(key % n_members, 0) for key in distinct.tolist()]
        stays[some] = within(counts) < np.repeat(quota, counts)
    target[tps[stays]] = claims.owner[tps[stays]]
    return tps[some].astype(np.int32)


def _name_the_rest(claims: Claims, graph: Graph, moves: Moves, target: I32, free: I32) -> None:
    """Deal the free partitions of each source to its hubs, and those of each hub to members."""
    group = claims.group
    sent = [(s, hub, n) for s, row in enumerate(moves.sent) for hub, n in row.items()]
    free = free[np.argsort(graph.source_of[free], kind="stable")]
    to_hub = _deal(np.array(sorted(sent), np.int64))
    free = free[np.lexsort((free, to_hub))]
    place = np.empty(group.n_members, np.int64)  # of each member in the dealing order
    place[group.turn] = np.arange(len(place))
    taken = [
        (hub, int(place[member]), moves.taken[member])
        for hub, members in enumerate(graph.members_of)
        for member in members
        if moves.taken[member]
    ]
    slots = group.turn[_deal(np.array(sorted(taken), np.int64))]
    hand_out(claims, target, free, slots, np.sort(to_hub))


def _deal(places: I64) -> I64:
    """Receivers round robin within each giver.

    Parameters
    ----------
    places : int64[n, 3]
        Giver, receiver, units; sorted.

    Returns
    -------
    int64[sum of units]
        Receivers, giver after giver, one unit each in turn.
    """
    giver, receiver, units = places.T
    lap = within(units)
    giver, receiver = np.repeat(giver, units), np.repeat(receiver, units)
    return receiver[np.lexsort((receiver, lap, giver))]
