from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import is_cross_rack, is_rack_match, subscribers
from tests.strategies import snapshots

from holdfast.core.model import measure
from holdfast.core.model.columns import I64, NO_OWNER
from holdfast.core.model.group import Group
from holdfast.core.model.measure import Assignment
from holdfast.errors import ModelError

loads = st.lists(st.integers(0, 50), max_size=8)
owners = st.lists(st.integers(-1, 3), max_size=12)


@given(loads)
def test_balance_score_is_the_sum_over_pairs(load: list[int]) -> None:
    pairs = sum(abs(a - b) for a, b in combinations(load, 2))
    assert measure.balance_score(np.array(load, np.int64)) == pairs
    assert measure.spread(np.array(load, np.int64)) == max(load, default=0) - min(load, default=0)


@given(owners)
def test_loads_count_owned_partitions(owner: list[int]) -> None:
    count = Counter(owner)
    column = np.array(owner, np.int32)
    assert measure.loads(column, 4).tolist() == [count[m] for m in range(4)]
    lags = np.arange(len(owner), dtype=np.int64)
    expected = [sum(tp for tp, m in enumerate(owner) if m == member) for member in range(4)]
    assert measure.lag_per_member(column, lags, 4).tolist() == expected


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 2))))
def test_kept_and_moved_are_owned_before(pairs: list[tuple[int, int]]) -> None:
    before, after = (
        (np.array(column, np.int32) for column in zip(*pairs, strict=True))
        if pairs
        else (np.empty(0, np.int32),) * 2
    )
    assert measure.count_kept(before, after) == sum(a == b != -1 for a, b in pairs)
    assert measure.count_moved(before, after) == sum(a != b and -1 not in (a, b) for a, b in pairs)


def test_columns_of_different_length_are_refused() -> None:
    for count in (measure.count_kept, measure.count_moved):
        with pytest.raises(ModelError, match="2 entries, expected 1"):
            count(np.zeros(1, np.int32), np.zeros(2, np.int32))


@given(snapshots(), st.data())
def test_racks_and_topics_agree_with_counting_one_by_one(
    snapshot: dict[str, Any], data: st.DataObject
) -> None:
    group = Group.from_dict(snapshot)
    may = st.integers(-1, group.n_members - 1)
    owner = [data.draw(may) for _ in range(group.topics.n_tps)]
    column = np.array(owner, np.int32)
    crossed = sum(m >= 0 and is_cross_rack(group, tp, m) for tp, m in enumerate(owner))
    known = group.topics.rack_start is not None
    assert measure.count_cross_rack(group, column) == (crossed if known else None)
    matched = sum(m >= 0 and is_rack_match(group, tp, m) for tp, m in enumerate(owner))
    assert measure.count_rack_matches(group, column) == (matched if known else None)
    topics = group.topics.topic_of.tolist()
    pairs = Counter((topic, m) for topic, m in zip(topics, owner, strict=True) if m >= 0)
    assert measure.topic_excess(group, column) == sum(n * n for n in pairs.values())


@given(snapshots())
def test_topics_dealt_in_turn_have_the_least_excess(snapshot: dict[str, Any]) -> None:
    group = Group.from_dict(snapshot)
    may = subscribers(group)
    column = np.full(group.topics.n_tps, NO_OWNER, np.int32)
    for tp, partition in enumerate(group.topics.partition_of.tolist()):
        if may[tp]:
            column[tp] = may[tp][partition % len(may[tp])]
    assert measure.topic_excess(group, column) == measure.topic_floor(group)
    assert group.n_readers.tolist() == [
        len(may[start])
        if start < end
        else sum(t in _topics(group, m) for m in range(group.n_members))
        for t, (start, end) in enumerate(pairwise(group.topics.start.tolist()))
    ]


def _topics(group: Group, member: int) -> list[int]:
    topics: list[int] = group.sub_topic[
        group.sub_start[member] : group.sub_start[member + 1]
    ].tolist()
    return topics


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        ([0], r"owner: shape \(1,\), expected \(2,\)"),
        ([0, 2], r"owner\[1\]: member index 2 is out of range"),
        ([-2, 0], r"owner\[0\]: member index -2"),
        ([0, 1], r"owner\[1\]: t-1 is owned by 'b', which is not subscribed"),
    ],
)
def test_an_assignment_is_valid_or_refused(owner: list[int], text: str) -> None:
    members = [{"id": "a", "topics": ["t"]}, {"id": "b", "topics": []}]
    group = Group.from_dict({"partitions": {"t": 2}, "members": members})
    with pytest.raises(ModelError, match=text):
        Assignment(group=group, owner=np.array(owner, np.int32))
    fine = Assignment(group=group, owner=np.array([NO_OWNER, 0], np.int32))
    assert fine.to_dict() == {"a": {"t": [1]}, "b": {}}


# Numbers about many generations: each row as that of one assignment, or as by trying all

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
    alone = [measure.balance_score(np.array([n for n, _ in one], np.int64)) for one in generations]
    assert measure.balance_scores(load, row, len(generations)).tolist() == alone


@given(rows)
def test_needed_moves_are_the_least_of_all_ways_to_be_even(generations: list[Row]) -> None:
    load, before, row = columns(generations)
    known = [sum(owned for _, owned in one) + 3 for one in generations]  # 3 of members that went
    found = measure.needed_moves(load, before, row, np.array(known, np.int64))
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
    share = measure.kept_portion(np.array([3, 0, 0], np.int64), np.array([1, 2, 0], np.int64))
    assert share[:2].tolist() == [0.75, 0.0]
    assert np.isnan(share[2])


# Agreements, from 0 to 1, of a replay with what happened

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
    assert measure.common_subsequence(left, right) == textbook(left, right)
    value = measure.agreement_of_sequences(left, right)
    assert 0 <= value <= 1 and (value == 1) == (left == right)


@given(left=amounts, right=amounts)
def test_counts_agree_both_ways_and_fully_only_when_equal(left, right):
    value = measure.agreement_of_counts(left, right)
    assert 0 < value <= 1 and value == measure.agreement_of_counts(right, left)
    assert value == 1 or left != right


def test_examples():
    assert measure.agreement_of_counts(0, 1) == 0.5 and measure.agreement_of_counts(40, 40) == 1
    assert measure.agreement_of_counts(3, 7) == 0.5
    assert measure.agreement_of_sequences("abcd", "abd") == pytest.approx(6 / 7)


def test_fidelity_is_the_worst_that_is_known():
    assert measure.fidelity([1.0, None, 0.4]) == 0.4
    assert measure.fidelity([None, None]) is None
