"""Spreading topics: nothing before it suffers, and it never makes topics less even."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from tests.assignors.test_sticky import mixed, owned
from tests.oracles import as_assignment, goals
from tests.strategies import snapshots

from holdfast.core.assignors.claims import normalise
from holdfast.core.assignors.optimal import sticky_equal, sticky_flow, sticky_spread
from holdfast.core.assignors.registry import assign
from holdfast.core.model.group import Group
from holdfast.core.model.measure import topic_excess


@given(snapshots() | mixed())
def test_it_costs_no_goal_before_and_evens_topics(snapshot: dict[str, Any]) -> None:
    group = Group.from_dict(snapshot)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sticky_equal, "crowded", lambda group, target, tps: tps[:0])
        patch.setattr(sticky_flow, "spread", lambda *_: None)
        plain = assign(group, "sticky").target
    result = assign(group, "sticky")
    assert result.quality.optimal
    before, after = (as_assignment(group, t.tolist()) for t in (plain, result.target))
    assert goals(group, before) == goals(group, after)
    assert topic_excess(group, result.target) <= topic_excess(group, plain)


def test_members_above_their_share_give_of_the_topics_that_they_have_most_of() -> None:
    topics = ["a", "b", "c"]
    rows: list[dict[str, Any]] = [{"id": name, "topics": topics} for name in "klmn"]
    rows[0]["owned"] = owned(("b", 0), ("b", 3), ("c", 0))
    rows[2]["owned"] = owned(("a", 0), ("a", 1), ("b", 1), ("b", 2))
    group = Group.from_dict({"partitions": {"a": 2, "b": 4, "c": 1}, "members": rows})
    quality = assign(group, "sticky").quality
    assert (quality.kept, quality.topic_excess) == (4, 0)


def test_what_a_member_above_its_share_keeps_is_what_spreads_the_topics() -> None:
    """By number, m gives the last of its claims, c-0, to n, which then has all of c."""
    topics = ["a", "b", "c"]
    rows: list[dict[str, Any]] = [
        {"id": "m", "topics": topics, "owned": owned(("a", 0), ("b", 0), ("c", 0))},
        {"id": "n", "topics": topics, "owned": owned(("c", 1))},
    ]
    group = Group.from_dict({"partitions": {"a": 1, "b": 1, "c": 2}, "members": rows})
    quality = assign(group, "sticky").quality
    assert (quality.kept, quality.topic_excess) == (3, 0)


def crowded_group() -> Group:
    """n takes all it gets from a, b is free of it: an exchange with m helps."""
    rows = [
        {"id": "k", "topics": ["a", "b", "c"], "owned": owned(("c", 0), ("c", 1))},
        {"id": "m", "topics": ["a", "b"]},
        {"id": "n", "topics": ["a", "b"]},
    ]
    return Group.from_dict({"partitions": {"a": 2, "b": 2, "c": 2}, "members": rows})


def test_two_crowded_topics_are_exchanged() -> None:
    claims = normalise(crowded_group())
    target = np.array([1, 1, 2, 2, 0, 0], np.int32)
    free = np.arange(4, dtype=np.int32)
    sticky_spread.spread(claims, target, free, free[:0])
    assert sorted(target[:2]) == sorted(target[2:4]) == [1, 2]


@pytest.mark.parametrize("limit", ["MAX_TABLE", "MAX_WORK"])
def test_groups_beyond_the_bounds_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(sticky_spread, limit, 0)
    target = np.array([1, 1, 2, 2, 0, 0], np.int32)
    free = np.arange(4, dtype=np.int32)
    sticky_spread.spread(normalise(crowded_group()), target, free, free[:0])
    assert target.tolist() == [1, 1, 2, 2, 0, 0]


def test_nothing_is_crowded_among_nothing() -> None:
    group = crowded_group()
    none = np.empty(0, np.int32)
    assert len(sticky_spread.crowded(group, np.zeros(6, np.int32), none)) == 0


def test_free_partitions_are_exchanged_where_nobody_is_above_the_quota() -> None:
    """Dealt topic by topic, a-1 joins a-0 at m and n gets all of b: an exchange helps."""
    rows = [
        {"id": "m", "topics": ["a", "b"], "owned": owned(("a", 0))},
        {"id": "n", "topics": ["a", "b"]},
    ]
    result = assign(Group.from_dict({"partitions": {"a": 2, "b": 2}, "members": rows}), "sticky")
    assert topic_excess(result.group, result.target) == 4
    assert result.quality.kept == 1


@pytest.mark.parametrize(
    ("partitions", "members", "excess"),
    [
        # what is free is exchanged: 4 without
        (
            {"a": 3, "b": 3, "c": 4},
            {
                "k": ("ab", [("a", 0), ("b", 0)]),
                "m": ("bc", [("b", 0), ("c", 2)]),
                "n": ("abc", []),
            },
            2,
        ),
        # m keeps b or c, which of them is open: 4 without
        ({"a": 2, "b": 1, "c": 3}, {"k": ("bc", []), "m": ("abc", [("b", 0), ("c", 2)])}, 0),
    ],
)
def test_members_that_read_different_topics_exchange_too(
    partitions: dict[str, int], members: dict[str, Any], excess: int
) -> None:
    rows = [
        {"id": name, "topics": [*topics], "owned": owned(*claims)}
        for name, (topics, claims) in members.items()
    ]
    quality = assign(Group.from_dict({"partitions": partitions, "members": rows}), "sticky").quality
    assert quality.topic_excess == excess
