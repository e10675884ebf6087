"""Former owners: the goal after claims kept, against a library's solver."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ortools.graph.python import min_cost_flow
from tests.oracles import owner_by_claims, subscribers

from holdfast.assignors.certificate import proves
from holdfast.assignors.claims import normalise
from holdfast.assignors.registry import assign
from holdfast.model.group import Group


def former_pairs(group: Group) -> set[tuple[int, int]]:
    """Claims that are not the one that counts, by plain sets."""
    owners = owner_by_claims(group)
    claims = zip(group.claim_tp.tolist(), group.claim_members().tolist(), strict=True)
    return {(tp, member) for tp, member in claims if owners.get(tp) != member}


def goals(group: Group, target: list[int]) -> tuple[int, int, int]:
    """Sum of squared loads, claims kept, and moved partitions at a former owner."""
    owners, former = owner_by_claims(group), former_pairs(group)
    held = [(tp, m) for tp, m in enumerate(target) if m >= 0]
    loads = np.bincount([m for _, m in held], minlength=group.n_members)
    kept = sum(owners.get(tp) == m for tp, m in held)
    return int((loads**2).sum()), kept, sum(pair in former for pair in held)


def solver_goals(group: Group) -> tuple[int, int, int]:
    """The same of the best assignment, from one flow of integers."""
    may, owners, former = subscribers(group), owner_by_claims(group), former_pairs(group)
    n_tps, n_members = group.topics.n_tps, group.n_members
    move = n_tps + 1
    weight, sink = move * (n_tps + 2), n_tps + n_members
    flow, supply = min_cost_flow.SimpleMinCostFlow(), 0
    for tp, members in enumerate(may):
        supply += bool(members)
        flow.set_node_supply(tp, int(bool(members)))
        for m in members:
            cost = 0 if owners.get(tp) == m else move if (tp, m) in former else move + 1
            flow.add_arc_with_capacity_and_unit_cost(tp, n_tps + m, 1, cost)
    for m in range(n_members):
        for k in range(sum(m in members for members in may)):
            flow.add_arc_with_capacity_and_unit_cost(n_tps + m, sink, 1, (2 * k + 1) * weight)
    flow.set_node_supply(sink, -supply)
    assert flow.solve() == flow.OPTIMAL
    squares, rest = divmod(flow.optimal_cost(), weight)
    moved, strangers = divmod(rest, move)
    return squares, supply - moved, moved - strangers


def drawn(rng: np.random.Generator, *, equal: bool) -> Group:
    """Members with claims of several generations, some of them double."""
    counts = {f"t{i}": int(rng.integers(1, 8)) for i in range(rng.integers(1, 5))}
    members = []
    for i in range(int(rng.integers(2, 8))):
        topics = [t for t in counts if equal or rng.random() < 0.6] or [min(counts)]
        every = [[t, p] for t in topics for p in range(counts[t])]
        owned = [tp for tp in every if rng.random() < 0.35]
        members.append(
            {"id": f"m{i}", "topics": topics, "owned": owned, "generation": int(rng.integers(1, 4))}
        )
    return Group.from_dict({"partitions": counts, "members": members})


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_as_many_former_owners_as_the_solver_finds_and_the_certificate_proves_it(seed, equal):
    rng = np.random.default_rng(seed)
    for _ in range(40):
        group = drawn(rng, equal=equal)
        result = assign(group, "sticky")
        assert goals(group, result.target.tolist()) == solver_goals(group)
        assert result.optimal
        if former_pairs(group):
            assert result.certificate.prefers_former
            assert "former" in result.proven


def test_the_certificate_proves_no_assignment_with_fewer_former_owners():
    rng, found = np.random.default_rng(11), 0
    for _ in range(60):
        group = drawn(rng, equal=True)
        result = assign(group, "sticky")
        best, target = goals(group, result.target.tolist()), result.target.tolist()
        for tp in range(len(target)):
            for other in range(tp):
                changed = list(target)
                changed[tp], changed[other] = changed[other], changed[tp]
                now = goals(group, changed)
                if now[:2] == best[:2] and now[2] < best[2]:
                    column = np.array(changed, np.int32)
                    assert not proves(result.certificate, normalise(group), column)
                    first = replace(result.certificate, move_weight=1)
                    assert not proves(first, normalise(group), column)
                    found += 1
    assert found > 50


def test_what_must_move_goes_to_whom_had_it():
    snapshot = {
        "partitions": {"t": 6},
        "members": [
            {"id": "a", "topics": ["t"], "owned": [["t", p] for p in (0, 1, 2)], "generation": 7},
            {"id": "b", "topics": ["t"], "owned": [["t", p] for p in (3, 4, 5)], "generation": 7},
            {"id": "c", "topics": ["t"], "owned": [["t", 0], ["t", 4]], "generation": 5},
        ],
    }
    assert assign(Group.from_dict(snapshot), "sticky").to_dict()["c"] == {"t": [0, 4]}
    for member in snapshot["members"]:  # claimed twice alike: it belongs to nobody, but c had it
        member["generation"] = 7
    assert assign(Group.from_dict(snapshot), "sticky").to_dict()["c"] == {"t": [0, 4]}
