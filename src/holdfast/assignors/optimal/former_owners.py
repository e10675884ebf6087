"""Partitions that must move, given to members that had them before: the goal after claims kept.

**Rules.** A *former owner* of a partition claims it under an older generation than another member,
or claims it as new as another member, so that it belongs to nobody. It may still have the
partition's state. Of all assignments with the best loads, reads across racks and claims kept, the
best one gives the most partitions that are not kept to a former owner.

For example, A and B own three partitions each, C joins, and C claims partition 4 of an older
generation. One of B's three must move to C: partition 4.

**Strategy.** The prices of the goals before say which moves cost nothing by those goals. Such moves
are the arcs of a small graph of members and of offers, an offer being a topic at a price. A cycle
of arcs on which the number of former owners rises is a better assignment. Cycles are found by
Bellman and Ford's search, all members at once, and taken until there is none; the distances are
then the proof. Nothing is done where nobody has an older or a double claim. The cycles are bounded:
where there are more, and where racks are known, the goal is approached and not proven.

References: KIP-54, "preserve"; ``prevAssignment`` of Kafka's AbstractStickyAssignor; Ahuja,
Magnanti, Orlin, "Network Flows", 9.6 (cycle cancelling).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.assignors.certificate import Certificate
from holdfast.assignors.claims import Claims
from holdfast.model.columns import I32, I64, NO_OWNER, Mask
from holdfast.model.measure import loads

MAX_CYCLES = 400
"""Searches in one call; a group that would need more is left as it is then, without a proof."""

MAX_ARCS = 2_000_000


@dataclass(frozen=True, slots=True, eq=False)
class _Arcs:
    """Moves that cost nothing by the goals before.

    ``tail`` and ``head`` are nodes: members, the store of load, offers. ``cost`` is how many more
    partitions are then with strangers, ``tp`` the partition that leaves the tail, -1 for none.
    """

    tail: I64
    head: I64
    cost: I64
    tp: I64
    n_nodes: int


def prefer_former(claims: Claims, target: I32, first: Certificate) -> Certificate | None:
    """Change ``target`` in place; return the certificate that has this goal too.

    Parameters
    ----------
    target : int32[n_tps]
        Proven by ``first`` and proven by it afterwards as well.
    first : Certificate
        Of the goals before.

    Returns
    -------
    Certificate or None
        None where the goal is not proven.

    References: KIP-54.
    """
    if first.rack_weight:
        return None
    former_tp, former_member = claims.all_former
    for _ in range(MAX_CYCLES):
        arcs = _arcs(claims, target, first, former_tp, former_member)
        if arcs is None:
            return None
        cycle, distance = _negative_cycle(arcs)
        if cycle is None:
            return _certificate(claims, target, first, distance)
        _follow(arcs, cycle, target, claims.group.n_members)
    return None


def _is_stranger(claims: Claims, target: I32) -> Mask:
    """Whether each partition is with a member that neither owned nor claimed it, bool[n_tps]."""
    former_tp, former_member = claims.all_former
    stranger: Mask = (target != NO_OWNER) & (target != claims.owner)
    stranger[former_tp[target[former_tp] == former_member]] = False
    return stranger


def _arcs(
    claims: Claims, target: I32, first: Certificate, former_tp: I32, former_member: I32
) -> _Arcs | None:
    """The arcs from each member to the store of load, to offers, and to former owners."""
    group, price = claims.group, first.member
    topics, n = group.topics, group.n_members
    if len(group.sub_topic) + len(target) > MAX_ARCS:
        return None
    stranger = _is_stranger(claims, target)
    held = np.flatnonzero(target != NO_OWNER)
    holder, topic = target[held].astype(np.int64), topics.topic_of[held].astype(np.int64)
    paid = (holder != claims.owner[held]) + price[holder]
    # Another member takes it for nothing if its price is what was paid, less the move.
    offers, offer = np.unique(np.stack((topic, paid - 1)), axis=1, return_inverse=True)
    # Of a member's partitions in one offer a stranger's goes first.
    order = np.lexsort((-stranger[held].astype(np.int64), offer, holder))
    firsts = np.append(True, (np.diff(holder[order]) != 0) | (np.diff(offer[order]) != 0))
    given = order[firsts]
    reader = np.repeat(np.arange(n), np.diff(group.sub_start))
    wanted = np.stack((group.sub_topic.astype(np.int64), price[reader]))
    at, known = _find(offers, wanted)
    back = np.flatnonzero((claims.owner[held] != NO_OWNER) & (claims.owner[held] != holder))
    owner = claims.owner[held[back]].astype(np.int64)
    back_fits = price[owner] == paid[back]
    place = np.full(len(target), -1, np.int64)
    place[held] = np.arange(len(held))
    pairs = np.flatnonzero(target[former_tp] != former_member)
    pairs = pairs[place[former_tp[pairs]] >= 0]
    fits = price[former_member[pairs]] == paid[place[former_tp[pairs]]] - 1
    pairs = pairs[fits]
    pair_tp, takers = former_tp[pairs].astype(np.int64), former_member[pairs].astype(np.int64)
    load = loads(target, n)
    weight = first.load_weight
    full = np.flatnonzero(price == weight * (2 * load + 1))
    spare = np.flatnonzero((load > 0) & (price == weight * (2 * load - 1)))
    given_tp, back_tp = held[given], held[back[back_fits]]
    zero, one, is_out = np.zeros(n, np.int64), np.ones(len(reader), np.int64), stranger.astype(int)
    parts = (
        (holder[given], n + 1 + offer[given], -is_out[given_tp], given_tp),
        (n + 1 + at[known], reader[known], one[known], None),
        (holder[back[back_fits]], owner[back_fits], -is_out[back_tp], back_tp),
        (target[pair_tp].astype(np.int64), takers, -is_out[pair_tp], pair_tp),
        (full, np.full(len(full), n), zero[full], None),
        (np.full(len(spare), n), spare, zero[spare], None),
    )
    return _Arcs(
        tail=np.concatenate([p[0] for p in parts]),
        head=np.concatenate([p[1] for p in parts]),
        cost=np.concatenate([p[2] for p in parts]),
        tp=np.concatenate([np.full(len(p[0]), -1) if p[3] is None else p[3] for p in parts]),
        n_nodes=n + 1 + offers.shape[1],
    )


def _find(offers: I64, wanted: I64) -> tuple[I64, Mask]:
    """Place of each wanted (topic, price) among the sorted offers, and whether it is there."""
    low = min(int(offers[1].min(initial=0)), int(wanted[1].min(initial=0)))
    high = max(int(offers[1].max(initial=0)), int(wanted[1].max(initial=0)))
    prices = np.unique(np.concatenate((offers[1], wanted[1], [low, high])))
    key = offers[0] * len(prices) + np.searchsorted(prices, offers[1])
    asked = wanted[0] * len(prices) + np.searchsorted(prices, wanted[1])
    at = np.minimum(np.searchsorted(key, asked), max(len(key) - 1, 0))
    known: Mask = key[at] == asked if len(key) else np.zeros(len(asked), bool)
    return at, known


def _negative_cycle(arcs: _Arcs) -> tuple[list[int] | None, I64]:
    """Arcs of a cycle of cost below 0, or None; and the distances of all nodes."""
    distance = np.zeros(arcs.n_nodes, np.int64)
    came = np.full(arcs.n_nodes, -1, np.int64)
    order = np.argsort(arcs.head, kind="stable")
    tail, cost, head = arcs.tail[order], arcs.cost[order], arcs.head[order]
    if not len(order):
        return None, distance
    starts = np.flatnonzero(np.append(True, np.diff(head) != 0))
    heads = head[starts]
    while True:
        length = distance[tail] + cost
        least = np.minimum.reduceat(length, starts)
        better = least < distance[heads]
        if not better.any():
            return None, distance
        row = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(head))))
        first = np.full(len(starts), len(head))
        np.minimum.at(first, row, np.where(length == least[row], np.arange(len(head)), len(head)))
        came[heads[better]] = order[first[better]]
        distance[heads[better]] = least[better]
        cycle = _cycle_of(arcs.tail, came)
        if cycle is not None:
            return cycle, distance


def _cycle_of(tail: I64, came: I64) -> list[int] | None:
    """A cycle in the graph of the arcs by which nodes were reached last."""
    before = np.where(came >= 0, tail[came], -1).tolist()
    seen = [0] * len(before)
    for start in range(len(before)):
        node, mark = start, start + 1
        while node >= 0 and not seen[node]:
            seen[node] = mark
            node = before[node]
        if node >= 0 and seen[node] == mark:
            cycle, at = [], node
            while True:
                cycle.append(int(came[at]))
                at = before[at]
                if at == node:
                    return cycle[::-1]
    return None


def _follow(arcs: _Arcs, cycle: list[int], target: I32, n_members: int) -> None:
    """Move the partitions of a cycle; an offer passes its partition on to the next node."""
    for place, arc in enumerate(cycle):
        tp = int(arcs.tp[arc])
        if tp < 0:
            continue
        head = int(arcs.head[arc])
        if head > n_members:
            head = int(arcs.head[cycle[(place + 1) % len(cycle)]])
        target[tp] = head


def _certificate(
    claims: Claims, target: I32, first: Certificate, distance: I64
) -> Certificate | None:
    """The prices of all goals: those before, and the distances behind them."""
    n = claims.group.n_members
    minor = distance[n] - distance[:n]
    span = int(np.abs(minor).max(initial=0))
    n_tps = int(np.count_nonzero(target != NO_OWNER))
    return first.with_former(claims, minor, move_weight=max(n_tps, 2 * span) + 2)
