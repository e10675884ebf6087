"""Agreements: bounds, symmetry, and the longest common subsequence against the textbook's table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.measure import (
    agreement_of_counts,
    agreement_of_sequences,
    common_subsequence,
    fidelity,
)

amounts = st.floats(0, 1e9)
words = st.lists(st.sampled_from("abc"), max_size=12)


def textbook(left, right):
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i, x in enumerate(left):
        for j, y in enumerate(right):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
            )
    return table[-1][-1]


@given(left=words, right=words)
def test_common_subsequence_is_that_of_the_textbook(left, right):
    assert common_subsequence(left, right) == textbook(left, right)
    value = agreement_of_sequences(left, right)
    assert 0 <= value <= 1 and (value == 1) == (left == right)


@given(left=amounts, right=amounts)
def test_counts_agree_both_ways_and_fully_only_when_equal(left, right):
    value = agreement_of_counts(left, right)
    assert 0 < value <= 1 and value == agreement_of_counts(right, left)
    assert value == 1 or left != right


def test_examples():
    assert agreement_of_counts(0, 1) == 0.5 and agreement_of_counts(40, 40) == 1
    assert agreement_of_counts(3, 7) == 0.5
    assert agreement_of_sequences("abcd", "abd") == pytest.approx(6 / 7)


def test_fidelity_is_the_worst_that_is_known():
    assert fidelity([1.0, None, 0.4]) == 0.4
    assert fidelity([None, None]) is None
