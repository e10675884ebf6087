"""``fair`` and ``fairest-sticky``, and the chains that level them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.assignors.groups import run, snapshot, tp
from tests.oracles import subscribers
from tests.strategies import snapshots

from holdfast.core.assignors.optimal.levelling import Levelling, spread_count
from holdfast.core.model.group import Group


def best_sum_of_squares(group: Group, owner: list[int]) -> int | None:
    """Least sum of squared loads over all ways to place what has no owner; None if too many."""
    choices = [
        [held] if held >= 0 else (readers or [-1])
        for held, readers in zip(owner, subscribers(group), strict=True)
    ]
    if np.prod([len(each) for each in choices], dtype=float) > 3000:
        return None
    return min(
        sum(n * n for n in np.bincount([m for m in row if m >= 0], minlength=1).tolist())
        for row in product(*choices)
    )


def sum_of_squares(loads: dict[str, int]) -> int:
    return sum(load * load for load in loads.values())


@given(group=snapshots())
def test_fairest_sticky_is_as_even_as_the_claims_leave_room_for(group: dict[str, Any]) -> None:
    result = run(group, "fairest-sticky")
    best = best_sum_of_squares(result.group, result.claims.owner.tolist())
    if best is not None:
        assert sum_of_squares(result.quality.loads) == best


@given(group=snapshots())
def test_fair_and_lag_sticky_are_as_even_as_can_be(group: dict[str, Any]) -> None:
    model = Group.from_dict(group)
    best = best_sum_of_squares(model, [-1] * model.topics.n_tps)
    if best is not None:
        assert sum_of_squares(run(group, "fair").quality.loads) == best
        assert sum_of_squares(run(group, "lag-sticky").quality.loads) == best


def test_a_chain_of_two_moves_finds_what_one_cannot() -> None:
    """Java's general algorithm stops one augmenting path short here (loads 1 2 2 2 3)."""
    members = {"a": ["t0"], "b": ["t0", "t1"], "c": ["t1", "t2"]}
    owned = {"b": {"t1": [0]}, "c": {"t2": [0, 1]}}
    free = snapshot({"t0": 2, "t1": 2, "t2": 2}, members, owned=owned)
    assert run(free, "fairest-sticky").quality.loads == {"a": 2, "b": 2, "c": 2}
    hoard = {"c": {"t1": [0, 1], "t2": [0, 1]}, "b": {"t0": [0, 1]}}
    held = snapshot({"t0": 2, "t1": 2, "t2": 2}, members, owned=hoard)
    quality = run(held, "lag-sticky").quality
    assert quality.loads == {"a": 2, "b": 2, "c": 2}
    assert quality.moved == 4


def test_a_chain_takes_partitions_that_break_no_claim_first() -> None:
    group = Group.from_dict(
        snapshot({"t0": 4, "t1": 0}, {"a": ["t0"], "b": ["t0", "t1"]}, owned={"a": {"t0": [1, 3]}})
    )
    owner = np.zeros(4, np.int32)
    claimed = np.array([-1, 0, 1, 0], np.int32)
    state = Levelling(group, owner, claimed, np.ones(2))
    moved = []
    while (moves := state.step()) is not None:
        state.apply(moves)
        moved += [(move.tp, state.cost([move])) for move in moves]
    assert moved == [(2, -1), (0, 0)]


def test_a_new_member_is_given_the_topics_it_has_least_of() -> None:
    members = {"a": ["t0", "t1", "t2"], "b": ["t0", "t1", "t2", "t3"]}
    owned = {"a": {f"t{i}": range(4) for i in range(3)}}
    rows = run(
        snapshot({"t0": 4, "t1": 4, "t2": 4, "t3": 0}, members, owned=owned), "lag-sticky"
    ).to_dict()
    assert {topic: len(ps) for topic, ps in rows["b"].items()} == {"t0": 2, "t1": 2, "t2": 2}


def test_new_partitions_of_one_topic_are_spread() -> None:
    rows = run(snapshot({"t0": 3, "t1": 3}, ["a", "b", "c"]), "fairest-sticky").to_dict()
    assert rows == tp("a: t0p0 t1p0; b: t0p1 t1p1; c: t0p2 t1p2")


@given(
    count=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    weights=st.lists(st.sampled_from([0.25, 1.0, 2.0, 7.5]), min_size=6, max_size=6),
    n=st.integers(0, 30),
)
def test_spread_count_takes_the_cheapest_one_by_one(
    count: list[int], weights: list[float], n: int
) -> None:
    weight = np.array(weights[: len(count)])
    new = spread_count(np.array(count), weight, n)
    slow = np.array(count)
    for _ in range(n):
        slow[int(np.argmin((2 * slow + 1) / weight))] += 1
    assert (new + count).tolist() == slow.tolist()


def test_a_greedy_placing_is_corrected_by_a_chain_over_unclaimed_partitions() -> None:
    members = {"C0": ["t1"], "C1": ["t0", "t1"], "C2": ["t0"]}
    result = run(snapshot({"t0": 1, "t1": 2}, members), "fairest-sticky")
    assert result.quality.loads == {"C0": 1, "C1": 1, "C2": 1}
