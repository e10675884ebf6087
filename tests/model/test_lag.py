"""Offsets to lag, as columns; the scalar twin is in ``tests.oracles``."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import lag_of_offsets

from holdfast.core.model.lag import NO_COMMIT, lag_column_of, lag_of_columns, summable
from holdfast.errors import ModelError

RESETS = st.sampled_from(["latest", "LATEST", "earliest", "none", "by_duration:PT1H"])


def column(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@given(
    rows=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(-1, 300))),
    reset=RESETS,
)
def test_columns_agree_with_the_scalar_rule(rows: list[tuple[int, int, int]], reset: str) -> None:
    begin, size, committed = (
        (column(*each) for each in zip(*rows, strict=True))
        if rows
        else (
            column(),
            column(),
            column(),
        )
    )
    lags = lag_of_columns(begin, begin + size, committed, reset)
    assert lags.dtype == np.int64
    assert lags.tolist() == [
        lag_of_offsets(b, b + s, None if c == NO_COMMIT else c, reset) for b, s, c in rows
    ]


def test_an_end_before_its_beginning_is_refused_with_its_index() -> None:
    with pytest.raises(ModelError, match=r"end\[1\]: 9 is before the beginning 10"):
        lag_of_columns(column(0, 10), column(1, 9), column(0, 0), "latest")
    with pytest.raises(ModelError, match="equal lengths"):
        lag_of_columns(column(0), column(1, 2), column(0), "latest")


@pytest.mark.parametrize(
    ("values", "index"),
    [
        ([5, -1], 1),
        (np.array([-3], np.int32), 0),
        ([1, 2.5], 1),
        ([1, "2"], 1),
        ([True], 0),
        ([None, 1], 0),
        ([0, 2**63], 1),
        (np.array([1, 2], object) * -1, 0),
    ],
)
def test_lags_that_are_not_counts_are_refused_with_their_index(values: object, index: int) -> None:
    with pytest.raises(ModelError) as caught:
        lag_column_of(values)  # type: ignore[arg-type]
    assert caught.value.index == index


def test_lags_that_are_counts_become_a_column() -> None:
    assert lag_column_of([3, 0]).tolist() == [3, 0]
    assert lag_column_of([]).dtype == np.int64
    assert lag_column_of(np.array([7], np.uint8)).dtype == np.int64
    assert lag_column_of(np.array([7], object)).tolist() == [7]
    with pytest.raises(ModelError, match="one dimension"):
        lag_column_of([[1]])


def test_summable_keeps_small_lags_and_shifts_large_ones_together() -> None:
    assert summable(None, 3).tolist() == [0, 0, 0]
    assert summable(column(5, 7), 2).tolist() == [5, 7]
    large = summable(column(2**62, 2**61, 2**62), 3)
    assert float(large.sum()) < 2**61
    assert large[0] == large[2] == 2 * large[1]
