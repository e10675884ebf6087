from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.columns import distinct, frozen, row_of, stable_order, starts, within

counts = st.lists(st.integers(0, 4), max_size=8)


@given(counts)
def test_csr_pieces_agree_with_plain_lists(sizes: list[int]) -> None:
    start = starts(np.array(sizes, np.int64))
    rows = [row for row, size in enumerate(sizes) for _ in range(size)]
    places = [place for size in sizes for place in range(size)]
    assert start.tolist() == [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    assert row_of(start).tolist() == rows
    assert within(np.array(sizes, np.int64)).tolist() == places


@given(st.lists(st.integers(0, 9)))
def test_distinct_is_sorted_set(values: list[int]) -> None:
    assert distinct(np.array(values, np.int64)).tolist() == sorted(set(values))


@given(st.lists(st.integers(0, 9)), st.sampled_from([10, 1 << 17]))
def test_stable_order_is_that_of_sorted(values: list[int], n_values: int) -> None:
    order = stable_order(np.array(values, np.int64), n_values)
    assert order.tolist() == sorted(range(len(values)), key=values.__getitem__)


def test_frozen_columns_refuse_writing() -> None:
    column = frozen(np.zeros(2, np.int32))
    assert not column.flags.writeable
