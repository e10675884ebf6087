"""Previous owners: the goal after claims kept, against a library's solver."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from tests.assignors.solver import goals, previous_pairs, solver_goals
from tests.oracles import subscribers
from tests.suites import further

from holdfast.core.assignors.certificate import proves
from holdfast.core.assignors.claims import normalise
from holdfast.core.assignors.optimal import previous_owners
from holdfast.core.assignors.registry import assign
from holdfast.core.model.group import Group


def brute_force_goals(group: Group) -> tuple[int, int, int, int]:
    """The same of the best assignment, by looking at every one."""
    choices = [sorted(members) or [-1] for members in subscribers(group)]
    found = (goals(group, list(target)) for target in product(*choices))
    squares, crossed, kept, previous = min((a, b, -c, -d) for a, b, c, d in found)
    return squares, crossed, -kept, -previous


def drawn(
    rng: np.random.Generator,
    *,
    equal: bool,
    racks: bool = False,
    most: tuple[int, int, int] = (4, 7, 7),
) -> dict[str, Any]:
    """Members with claims of several generations, some of them double; at most so many things."""
    n_topics, n_partitions, n_members = most
    counts = {
        f"t{i}": int(rng.integers(1, n_partitions + 1))
        for i in range(rng.integers(1, n_topics + 1))
    }
    members: list[dict[str, Any]] = []
    for i in range(int(rng.integers(2, n_members + 1))):
        topics = [t for t in counts if equal or rng.random() < 0.6] or [min(counts)]
        every = [[t, p] for t in topics for p in range(counts[t])]
        owned = [tp for tp in every if rng.random() < 0.35]
        members.append(
            {"id": f"m{i}", "topics": topics, "owned": owned, "generation": int(rng.integers(1, 4))}
        )
        if racks and rng.random() < 0.9:
            members[-1]["rack"] = f"r{rng.integers(3)}"
    snapshot = {"partitions": counts, "members": members}
    if racks:
        snapshot["racks"] = {
            t: [[f"r{r}" for r in range(3) if rng.random() < 0.4] for _ in range(n)]
            for t, n in counts.items()
        }
    return snapshot


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("racks", [False, True])
@pytest.mark.parametrize("seed", further(range(6)))
def test_as_many_previous_owners_as_the_solver_finds_and_the_certificate_proves_it(
    seed, racks, equal
):
    rng = np.random.default_rng(seed)
    for _ in range(40):
        group = Group.from_dict(drawn(rng, equal=equal, racks=racks))
        result = assign(group, "sticky")
        assert goals(group, result.target.tolist()) == solver_goals(group)
        assert result.optimal
        if previous_pairs(group):
            assert result.certificate.prefers_previous
            assert "previous" in result.proven


@pytest.mark.parametrize("racks", further([True, False]))
def test_small_groups_by_brute_force_in_every_order_of_their_members(racks):
    rng, with_previous = np.random.default_rng(3), 0
    for _ in range(60):
        snapshot = drawn(rng, equal=bool(rng.random() < 0.5), racks=racks, most=(2, 3, 4))
        group = Group.from_dict(snapshot)
        best = brute_force_goals(group)
        with_previous += best[3] > 0
        names, targets = group.member_ids, set()
        for members in permutations(snapshot["members"]):
            result = assign(Group.from_dict(snapshot | {"members": list(members)}), "sticky")
            assert result.group.member_ids == names
            assert goals(group, result.target.tolist()) == best
            assert result.optimal
            assert result.certificate.prefers_previous == bool(previous_pairs(group))
            targets.add(tuple(result.target.tolist()))
        assert len(targets) == 1
    assert with_previous > 10


def test_beyond_the_bound_of_work_the_goals_before_are_proven_and_this_one_is_not(monkeypatch):
    rng = np.random.default_rng(1)
    groups = [Group.from_dict(drawn(rng, equal=True, racks=True)) for _ in range(20)]
    monkeypatch.setattr(previous_owners, "MAX_WORK", 3)
    for group in filter(previous_pairs, groups):
        result = assign(group, "sticky")
        assert result.optimal
        assert goals(group, result.target.tolist())[:3] == solver_goals(group)[:3]
        assert {"balance", "racks", "kept"} <= set(result.proven)
        assert "previous" not in result.proven


def test_the_certificate_proves_no_assignment_with_fewer_previous_owners():
    rng, found = np.random.default_rng(11), 0
    for _ in range(60):
        group = Group.from_dict(drawn(rng, equal=True))
        result = assign(group, "sticky")
        best, target = goals(group, result.target.tolist()), result.target.tolist()
        for tp in range(len(target)):
            for other in range(tp):
                changed = list(target)
                changed[tp], changed[other] = changed[other], changed[tp]
                now = goals(group, changed)
                if now[:3] == best[:3] and now[3] < best[3]:
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
