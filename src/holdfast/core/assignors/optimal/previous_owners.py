"""The goal after claims kept: partitions that must move go to members that had them before.

**Rules.** A *previous owner* of a partition claims it under an older generation than another
member, or claims it under the same newest generation as another member, so that the partition
belongs to no member. A previous owner may still have the partition's state. Of all assignments with
the best loads, reads across racks and claims kept, the best one gives the most partitions that are
not kept to previous owners.

For example, A and B own three partitions each, C joins, and C claims partition 4 of an older
generation. One of B's three must move to C: partition 4.

**Strategy.** The prices of the earlier goals say which moves cost nothing by the earlier goals.
Such moves are the arcs of a small graph of members and of offers, an offer being a topic at a price
for the members of one rack. A cycle of arcs on which the number of previous owners rises is a
better assignment. Cycles are found by Bellman and Ford's search, all members at once. Cycles that
share no node are taken together, until no cycle is left; the distances are then the proof. Nothing
is done where no member has an older or a double claim.

The work is bounded by :data:`MAX_WORK`, because one member can send any number of claims. A group
that would need more keeps the best assignment found until then. It has the best loads, reads across
racks and claims kept, and ``quality.proven`` does not name ``previous``.

References: KIP-54, "preserve"; ``prevAssignment`` of Kafka's AbstractStickyAssignor; Ahuja,
Magnanti, Orlin, "Network Flows", 9.6 (cycle cancelling).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.assignors.certificate import Certificate, rack_crossings
from holdfast.core.assignors.claims import Claims
from holdfast.core.model.columns import I32, I64, NO_OWNER, Mask, row_sizes
from holdfast.core.model.group import Group
from holdfast.core.model.measure import crosses_rack, loads

MAX_WORK = 20_000_000
"""Bound on the arcs considered in one call, over all passes of all searches."""


@dataclass(frozen=True, slots=True, eq=False)
class _Arcs:
    """Moves that cost nothing by the earlier goals.

    ``tail`` and ``head`` are nodes: members, the pool of load, offers. ``cost`` is how many more
    partitions are then with members that neither owned nor claimed them, ``tp`` the partition that
    leaves the tail, -1 for none.
    """

    tail: I64
    head: I64
    cost: I64
    tp: I64
    n_nodes: int


@dataclass(frozen=True, slots=True, eq=False)
class _Offers:
    """What stays while partitions move: every partition that has an owner keeps having one.

    ``owned`` are these partitions. Entry i of ``offer`` is the offer that partition
    ``owned[rows[i]]`` is in. Member ``reader[i]`` can take offer ``taken[i]`` for nothing.
    """

    owned: I32
    rows: I64
    offer: I64
    reader: I64
    taken: I64
    n_offers: int


def prefer_previous(claims: Claims, target: I32, first: Certificate) -> Certificate | None:
    """Change ``target`` in place; return a certificate that includes previous owners.

    Parameters
    ----------
    target : int32[n_tps]
        Proven by ``first`` and proven by it afterwards as well.
    first : Certificate
        The certificate of the earlier goals.

    Returns
    -------
    Certificate or None
        None where the goal is not proven.
    """
    left, offers = MAX_WORK, _offers(claims.group, target, first)
    while True:
        arcs = _arcs(claims, target, first, offers)
        cycles, distance, work = _negative_cycles(arcs, left)
        left -= work
        if left < 0:
            return None
        if not cycles:
            return _certificate(claims, target, first, distance)
        for cycle in cycles:
            _follow(arcs, cycle, target, claims.group.n_members)


def _is_stranger(claims: Claims, target: I32) -> Mask:
    """Return whether each partition's member neither owned nor claimed it, bool[n_tps]."""
    previous_tp, previous_member = claims.all_previous
    stranger: Mask = (target != NO_OWNER) & (target != claims.owner)
    stranger[previous_tp[target[previous_tp] == previous_member]] = False
    return stranger


def _offers(group: Group, target: I32, first: Certificate) -> _Offers:
    """Return the offers of all partitions with an owner, and the members that can take each."""
    owned = np.flatnonzero(target != NO_OWNER).astype(np.int32)
    spot, value, rows = _offered(group, owned, first.partition[owned], first.rack_weight)
    offers, offer = np.unique(np.stack((spot, value)), axis=1, return_inverse=True)
    reader = np.repeat(np.arange(group.n_members), row_sizes(group.sub_start))
    at, known = _find(offers, np.stack((_spot_of(group, reader), first.member[reader])))
    return _Offers(
        owned=owned,
        rows=rows,
        offer=offer,
        reader=reader[known],
        taken=at[known],
        n_offers=offers.shape[1],
    )


def _arcs(claims: Claims, target: I32, first: Certificate, offers: _Offers) -> _Arcs:
    """Return the arcs from each member to the pool of load, to offers, and to previous owners."""
    group, price = claims.group, first.member
    n = group.n_members
    is_out = _is_stranger(claims, target).astype(np.int64)
    owned, rows, offer = offers.owned, offers.rows, offers.offer
    holder = target[owned].astype(np.int64)
    # Of a member's partitions in one offer a stranger's goes first.
    order = np.lexsort((-is_out[owned[rows]], offer, holder[rows]))
    by_holder, by_offer = holder[rows][order], offer[order]
    firsts = np.append(True, (np.diff(by_holder) != 0) | (np.diff(by_offer) != 0))[: len(order)]
    given = order[firsts]
    back_tp, back = _takers(group, first, target, 0, (owned, claims.owner[owned]))
    pair_tp, pair = _takers(group, first, target, 1, claims.all_previous)
    load, weight = loads(target, n), first.load_weight
    full = np.flatnonzero(price == weight * (2 * load + 1))
    spare = np.flatnonzero((load > 0) & (price == weight * (2 * load - 1)))
    given_tp = owned[rows[given]].astype(np.int64)
    zero, one = np.zeros(n, np.int64), np.ones(len(offers.reader), np.int64)
    parts = (
        (target[given_tp].astype(np.int64), n + 1 + offer[given], -is_out[given_tp], given_tp),
        (n + 1 + offers.taken, offers.reader, one, None),
        (target[back_tp].astype(np.int64), back, -is_out[back_tp], back_tp),
        (target[pair_tp].astype(np.int64), pair, -is_out[pair_tp], pair_tp),
        (full, np.full(len(full), n), zero[full], None),
        (np.full(len(spare), n), spare, zero[spare], None),
    )
    return _Arcs(
        tail=np.concatenate([p[0] for p in parts]),
        head=np.concatenate([p[1] for p in parts]),
        cost=np.concatenate([p[2] for p in parts]),
        tp=np.concatenate([np.full(len(p[0]), -1) if p[3] is None else p[3] for p in parts]),
        n_nodes=n + 1 + offers.n_offers,
    )


def _rack_classes(group: Group) -> I32:
    """Return the rack of each member as far as racks count, int32[n_members]."""
    return group.rack if group.topics.rack_start is not None else np.full_like(group.rack, -1)


def _offered(group: Group, owned: I32, paid: I64, rack_weight: int) -> tuple[I64, I64, I64]:
    """Return the offers to the members of each rack: spot, price, row of ``owned``, int64[...].

    A spot is a topic and a rack. A member there takes the partition for nothing if its price is
    what was paid, less the move and less the reading across racks.
    """
    topic = group.topics.topic_of[owned].astype(np.int64)
    racks = np.unique(_rack_classes(group)).tolist()
    spots, values = [], []
    for index, rack in enumerate(racks):
        spots.append(topic * len(racks) + index)
        values.append(paid - 1 - rack_weight * rack_crossings(group, rack)[owned].astype(np.int64))
    rows = np.tile(np.arange(len(owned)), len(racks))
    return np.concatenate(spots), np.concatenate(values), rows


def _spot_of(group: Group, reader: I64) -> I64:
    """Return the spot of each topic of each member's subscription, int64[n_subscribed]."""
    racks, index = np.unique(_rack_classes(group), return_inverse=True)
    spot: I64 = group.sub_topic.astype(np.int64) * len(racks) + index[reader]
    return spot


def _takers(
    group: Group, first: Certificate, target: I32, move: int, pairs: tuple[I32, I32]
) -> tuple[I64, I64]:
    """Return the ``pairs`` of partition and member whose move costs nothing, int64[...] each.

    ``move`` is 0 for owners by claims, else 1. A partition without an owner, and a member that has
    it already, are left out.
    """
    tps, members = pairs
    there = (members != NO_OWNER) & (target[tps] != NO_OWNER) & (target[tps] != members)
    tps, members = tps[there], members[there]
    sought = first.member[members] + first.rack_weight * crosses_rack(group, tps, members)
    fits = sought + move == first.partition[tps]
    return tps[fits].astype(np.int64), members[fits].astype(np.int64)


def _find(offers: I64, wanted: I64) -> tuple[I64, Mask]:
    """Return each wanted (topic, price)'s position in the sorted offers, and whether it exists."""
    low = min(int(offers[1].min(initial=0)), int(wanted[1].min(initial=0)))
    high = max(int(offers[1].max(initial=0)), int(wanted[1].max(initial=0)))
    prices = np.unique(np.concatenate((offers[1], wanted[1], [low, high])))
    key = offers[0] * len(prices) + np.searchsorted(prices, offers[1])
    sought = wanted[0] * len(prices) + np.searchsorted(prices, wanted[1])
    at = np.minimum(np.searchsorted(key, sought), max(len(key) - 1, 0))
    known: Mask = key[at] == sought if len(key) else np.zeros(len(sought), bool)
    return at, known


def _negative_cycles(arcs: _Arcs, limit: int) -> tuple[list[list[int]], I64, int]:
    """Return arcs of cycles of cost below 0 that share no node, none for none.

    Also return the distances of all nodes, and how many arcs were considered; above ``limit`` the
    search ends without a result.
    """
    distance = np.zeros(arcs.n_nodes, np.int64)
    came = np.full(arcs.n_nodes, -1, np.int64)
    order = np.argsort(arcs.head, kind="stable")
    tail, cost, head = arcs.tail[order], arcs.cost[order], arcs.head[order]
    work = arcs.n_nodes
    if not len(order):
        return [], distance, work
    starts = np.flatnonzero(np.append(True, np.diff(head) != 0))
    heads = head[starts]
    row = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(head))))
    while work <= limit:
        work += len(order) + arcs.n_nodes
        length = distance[tail] + cost
        least = np.minimum.reduceat(length, starts)
        better = least < distance[heads]
        if not better.any():
            return [], distance, work
        first = np.full(len(starts), len(head))
        np.minimum.at(first, row, np.where(length == least[row], np.arange(len(head)), len(head)))
        came[heads[better]] = order[first[better]]
        distance[heads[better]] = least[better]
        if cycles := _cycles_of(arcs.tail, came):
            return cycles, distance, work
    return [], distance, work


def _cycles_of(tail: I64, came: I64) -> list[list[int]]:
    """Return the cycles in the graph of the arcs by which nodes were reached last.

    A node was reached by one arc, so no two cycles share a node. Each of them costs less than 0,
    because the arc that closed it made a distance shorter.
    """
    before = np.where(came >= 0, tail[came], -1).tolist()
    seen = [0] * len(before)
    cycles = []
    for start in range(len(before)):
        node, mark = start, start + 1
        while node >= 0 and not seen[node]:
            seen[node] = mark
            node = before[node]
        if node >= 0 and seen[node] == mark:
            cycle, at = [int(came[node])], before[node]
            while at != node:
                cycle.append(int(came[at]))
                at = before[at]
            cycles.append(cycle[::-1])
    return cycles


def _follow(arcs: _Arcs, cycle: list[int], target: I32, n_members: int) -> None:
    """Move the partitions of a cycle; an offer passes its partition on to the next node."""
    for position, arc in enumerate(cycle):
        tp = int(arcs.tp[arc])
        if tp < 0:
            continue
        head = int(arcs.head[arc])
        if head > n_members:
            head = int(arcs.head[cycle[(position + 1) % len(cycle)]])
        target[tp] = head


def _certificate(
    claims: Claims, target: I32, first: Certificate, distance: I64
) -> Certificate | None:
    """Return the prices of all goals: prices of the earlier goals, then the distances."""
    n = claims.group.n_members
    minor = distance[n] - distance[:n]
    span = int(np.abs(minor).max(initial=0))
    n_tps = int(np.count_nonzero(target != NO_OWNER))
    return first.with_previous(claims, minor, move_weight=max(n_tps, 2 * span) + 2)
