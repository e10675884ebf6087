"""The goals of the sticky assignors, and the best that a library's solver reaches."""

from __future__ import annotations

import numpy as np
from ortools.graph.python import min_cost_flow
from tests.oracles import is_cross_rack, owner_by_claims, subscribers

from holdfast.core.model.group import Group


def previous_pairs(group: Group) -> set[tuple[int, int]]:
    """Claims that are not the one that counts, by plain sets."""
    owners = owner_by_claims(group)
    claims = zip(group.claim_tp.tolist(), group.claim_members().tolist(), strict=True)
    return {(tp, member) for tp, member in claims if owners.get(tp) != member}


def goals(group: Group, target: list[int]) -> tuple[int, int, int, int]:
    """Sum of squared loads, reads across racks, kept, and moved partitions at a previous owner."""
    owners, previous = owner_by_claims(group), previous_pairs(group)
    held = [(tp, m) for tp, m in enumerate(target) if m >= 0]
    loads = np.bincount([m for _, m in held], minlength=group.n_members)
    kept = sum(owners.get(tp) == m for tp, m in held)
    crossed = sum(is_cross_rack(group, tp, m) for tp, m in held)
    return int((loads**2).sum()), crossed, kept, sum(pair in previous for pair in held)


def solver_goals(group: Group) -> tuple[int, int, int, int]:
    """The same of the best assignment, from one flow of integers."""
    may, owners, previous = subscribers(group), owner_by_claims(group), previous_pairs(group)
    n_tps, n_members = group.topics.n_tps, group.n_members
    move = n_tps + 1
    rack = move * (n_tps + 2)
    weight, sink = rack * (n_tps + 1), n_tps + n_members
    flow, supply = min_cost_flow.SimpleMinCostFlow(), 0
    for tp, members in enumerate(may):
        supply += bool(members)
        flow.set_node_supply(tp, int(bool(members)))
        for m in members:
            cost = 0 if owners.get(tp) == m else move if (tp, m) in previous else move + 1
            cost += rack * is_cross_rack(group, tp, m)
            flow.add_arc_with_capacity_and_unit_cost(tp, n_tps + m, 1, cost)
    for m in range(n_members):
        for k in range(sum(m in members for members in may)):
            flow.add_arc_with_capacity_and_unit_cost(n_tps + m, sink, 1, (2 * k + 1) * weight)
    flow.set_node_supply(sink, -supply)
    assert flow.solve() == flow.OPTIMAL
    squares, rest = divmod(flow.optimal_cost(), weight)
    crossed, rest = divmod(rest, rack)
    moved, strangers = divmod(rest, move)
    return squares, crossed, supply - moved, moved - strangers
