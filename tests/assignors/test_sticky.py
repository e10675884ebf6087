"""``sticky`` and ``cooperative-sticky``: the optimum, by looking at every assignment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.assignors.groups import settled
from tests.oracles import as_assignment, best, goals, subscribers
from tests.strategies import snapshots

from holdfast.core.assignors.registry import assign
from holdfast.core.assignors.result import Result
from holdfast.core.model.group import Group

MAX_ASSIGNMENTS = 3_000


def owned(*claims: tuple[str, int]) -> list[list[Any]]:
    return [[topic, partition] for topic, partition in claims]


def sticky(partitions: dict[str, int], members: list[dict[str, Any]], **more: Any) -> Result:
    group = Group.from_dict({"partitions": partitions, "members": members, **more})
    result = assign(group, "sticky")
    assert result.quality.optimal
    return result


@st.composite
def mixed(draw: st.DrawFn) -> dict[str, Any]:
    """Groups in which the general path has work: few topics, many different subscriptions."""
    counts = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    partitions = {f"t{i}": n for i, n in enumerate(counts)}
    every = [(topic, p) for topic, n in partitions.items() for p in range(n)]
    n_members = draw(st.integers(2, 4))
    before = [draw(st.integers(-1, n_members - 1)) for _ in every]
    members = []
    for i in range(n_members):
        topics = draw(st.lists(st.sampled_from(list(partitions)), min_size=1, unique=True))
        also = draw(st.lists(st.sampled_from(every), max_size=2))
        mine = {tp for tp, m in zip(every, before, strict=True) if m == i} | set(also)
        members.append(
            {
                "id": f"m{i}",
                "topics": topics,
                "owned": [list(tp) for tp in sorted(mine)],
                "generation": draw(st.sampled_from([3, 4, 4, 4])),
                "rack": draw(st.sampled_from([None, "x", "y"])),
            }
        )
    group: dict[str, Any] = {"partitions": partitions, "members": members}
    if draw(st.booleans()):
        racks = st.lists(st.sampled_from("xy"), unique=True)
        group["racks"] = {t: [draw(racks) for _ in range(n)] for t, n in partitions.items()}
    return group


@settings(suppress_health_check=list(HealthCheck))
@given(snapshots() | mixed())
def test_it_reaches_the_goals_that_the_best_of_all_assignments_reaches(
    snapshot: dict[str, Any],
) -> None:
    group = Group.from_dict(snapshot)
    size = np.prod([float(max(len(may), 1)) for may in subscribers(group)])
    assume(size <= MAX_ASSIGNMENTS)
    for name in ("sticky", "cooperative-sticky"):
        result = assign(group, name)
        assert result.quality.optimal
        assert goals(group, as_assignment(group, result.target.tolist())) == best(group)


@given(mixed())
def test_a_second_round_with_the_same_members_moves_nothing(snapshot: dict[str, Any]) -> None:
    first = assign(Group.from_dict(snapshot), "sticky").to_dict()
    second = assign(Group.from_dict(settled(snapshot, first)), "sticky")
    assert second.quality.moved == 0
    assert second.to_dict() == first


@given(snapshots() | mixed())
def test_cooperative_reaches_the_eager_target_in_two_rounds(snapshot: dict[str, Any]) -> None:
    eager = assign(Group.from_dict(snapshot), "sticky")
    now = assign(Group.from_dict(snapshot), "cooperative-sticky")
    assert now.target.tolist() == eager.target.tolist()
    after = settled(snapshot, now.to_dict())
    then = assign(Group.from_dict(after), "cooperative-sticky")
    assert not then.withheld
    assert then.quality.balance_score == eager.quality.balance_score


def test_a_full_hub_is_fed_in_bulk() -> None:
    """Many units go along one chain: the steps do not grow with the partitions."""
    first = {"id": "a", "topics": ["x", "y"], "owned": owned(*(("x", p) for p in range(500)))}
    members = [first, {"id": "b", "topics": ["x"]}, {"id": "c", "topics": ["y"]}]
    result = sticky({"x": 500, "y": 10}, members)
    assert result.quality.loads == {"a": 250, "b": 250, "c": 10}
    assert result.quality.kept == 250


def test_members_without_topics_and_topics_without_members() -> None:
    result = sticky({"t": 2, "u": 3}, [{"id": "a", "topics": []}, {"id": "b", "topics": ["t"]}])
    assert result.to_dict() == {"a": {}, "b": {"t": [0, 1]}}
    assert sticky({"t": 2}, []).to_dict() == {}
    assert sticky({}, [{"id": "a", "topics": ["t"]}]).to_dict() == {"a": {}}
    assert sticky({"t": 0}, [{"id": "a", "topics": ["t"]}]).quality.balance_score == 0


def test_rack_locality_moves_an_owned_partition_but_never_costs_balance() -> None:
    rows = [
        {"id": "a", "topics": ["t"], "rack": "x", "owned": owned(("t", 0)), "generation": 1},
        {"id": "b", "topics": ["t"], "rack": "y", "owned": owned(("t", 1)), "generation": 1},
    ]
    swapped = sticky({"t": 2}, rows, racks={"t": [["y"], ["x"]]})
    assert swapped.to_dict() == {"a": {"t": [1]}, "b": {"t": [0]}}
    assert swapped.quality.cross_rack == 0
    lopsided = sticky({"t": 2}, rows, racks={"t": [["x"], ["x"]]})
    assert lopsided.quality.balance_score == 0
    assert lopsided.quality.cross_rack == 1
    assert lopsided.quality.kept == 2


def test_racks_that_nobody_is_in_cross_for_everyone_and_unknown_ones_for_none() -> None:
    rows = [{"id": "a", "topics": ["t"], "rack": "x"}, {"id": "b", "topics": ["t"]}]
    result = sticky({"t": 4}, rows, racks={"t": [["z"], ["z"], [], []]})
    assert result.quality.cross_rack == 0
    assert set(result.to_dict()["b"]["t"]) == {0, 1}


@pytest.mark.parametrize("n_new", [1, 3])
def test_a_new_member_gets_no_whole_topic(n_new: int) -> None:
    """KAFKA-16277, and a complaint about the lag assignor that must not happen here."""
    topics = [f"t{i:02}" for i in range(20)]
    old = [
        {
            "id": f"m{m}",
            "topics": topics,
            "generation": 1,
            "owned": owned(*((t, m) for t in topics)),
        }
        for m in range(8)
    ]
    new = [{"id": f"new{i}", "topics": topics} for i in range(n_new)]
    result = sticky(dict.fromkeys(topics, 8), old + new)
    assert all(len(p) == 1 for rows in result.to_dict().values() for p in rows.values())
    assert result.quality.kept == 160 - sum(result.quality.loads[m["id"]] for m in new)


def test_topics_are_exchanged_among_members_with_different_subscriptions() -> None:
    topics = ["a", "b", "c", "d"]
    old = [
        {"id": "m0", "topics": topics, "owned": owned(*(("a", p) for p in range(6)))},
        {"id": "m1", "topics": topics, "owned": owned(*(("b", p) for p in range(6)))},
        {"id": "n", "topics": topics[:3]},
    ]
    result = sticky({"a": 6, "b": 6, "c": 0, "d": 0}, old)
    assert result.to_dict()["n"] == {"a": [4, 5], "b": [4, 5]}


def test_a_topic_is_exchanged_only_where_no_goal_before_suffers() -> None:
    """All of topic a goes to n for its rack, crowded as it is; without racks it is spread."""
    rows = [{"id": "m", "topics": ["a", "b"], "rack": "x"}, {"id": "n", "topics": ["a", "b"]}]
    rows[1]["rack"] = "y"
    racks = {"a": [["y"]] * 4, "b": [["x"]] * 4}
    near = sticky({"a": 4, "b": 4}, rows, racks=racks)
    assert near.to_dict() == {"m": {"b": [0, 1, 2, 3]}, "n": {"a": [0, 1, 2, 3]}}
    even = sticky({"a": 4, "b": 4}, rows)
    assert {len(p) for own in even.to_dict().values() for p in own.values()} == {2}


@given(st.integers(1, 9), st.integers(1, 6), st.integers(1, 12))
def test_fresh_equal_members_have_every_topic_evenly(m: int, t: int, p: int) -> None:
    topics = [f"t{i}" for i in range(t)]
    result = sticky(dict.fromkeys(topics, p), [{"id": f"m{i}", "topics": topics} for i in range(m)])
    for topic in topics:
        counts = [len(rows.get(topic, ())) for rows in result.to_dict().values()]
        assert max(counts) - min(counts) <= 1
    assert result.quality.spread <= 1


def test_leaving_members_are_replaced_in_turn() -> None:
    """Free partitions go round robin to those below the floor, then one each to those at it."""
    rows = [
        {"id": name, "topics": ["t"], "owned": owned(*(("t", p) for p in held)), "generation": 1}
        for name, held in (("a", [0]), ("b", [1, 2]), ("c", [3]))
    ]
    result = sticky({"t": 8}, rows)
    assert result.to_dict() == {"a": {"t": [0, 4, 7]}, "b": {"t": [1, 2, 6]}, "c": {"t": [3, 5]}}
