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
from holdfast.core.model.assignment import Assignment
from holdfast.core.model.columns import NO_OWNER
from holdfast.core.model.group import Group
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
