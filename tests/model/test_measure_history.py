"""Numbers about many generations: each row as the number of one assignment, or as by trying all."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.columns import I64
from holdfast.core.model.measure import balance_score, balance_scores, kept_portion, needed_moves

Row = list[tuple[int, int]]
rows = st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=5), max_size=4)
"""For each generation: load and partitions owned before of each member."""


def columns(generations: list[Row]) -> tuple[I64, I64, I64]:
    """Load, owned before and row of every member."""
    flat = [(load, before, row) for row, one in enumerate(generations) for load, before in one]
    load, before, row = np.array(flat, np.int64).reshape(-1, 3).T
    return load, before, row


@given(rows)
def test_balance_scores_are_those_of_each_generation_alone(generations: list[Row]) -> None:
    load, _, row = columns(generations)
    alone = [balance_score(np.array([n for n, _ in one], np.int64)) for one in generations]
    assert balance_scores(load, row, len(generations)).tolist() == alone


@given(rows)
def test_needed_moves_are_the_least_of_all_ways_to_be_even(generations: list[Row]) -> None:
    load, before, row = columns(generations)
    known = [sum(owned for _, owned in one) + 3 for one in generations]  # 3 of members that went
    found = needed_moves(load, before, row, np.array(known, np.int64))
    assert found.tolist() == [n - most_kept(one) for n, one in zip(known, generations, strict=True)]


def most_kept(members: Row) -> int:
    """Try everybody for the partition more that some have."""
    if not members:
        return 0
    share, extra = divmod(sum(load for load, _ in members), len(members))
    return max(
        sum(min(owned, share + (m in more)) for m, (_, owned) in enumerate(members))
        for more in combinations(range(len(members)), extra)
    )


def test_kept_share_is_not_a_number_where_nothing_was_owned() -> None:
    share = kept_portion(np.array([3, 0, 0], np.int64), np.array([1, 2, 0], np.int64))
    assert share[:2].tolist() == [0.75, 0.0]
    assert np.isnan(share[2])
