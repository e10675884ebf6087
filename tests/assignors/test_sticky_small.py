"""Two hundred groups after a change, against the optimum of a library's solver."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.assignors.groups import settled
from tests.assignors.solver import solver_goals
from tests.assignors.test_sticky import sticky
from tests.oracles import owner_by_claims

from holdfast.core.assignors.registry import assign
from holdfast.core.model.group import Group

Topics = tuple[str, ...]


def small_group(rng: np.random.Generator) -> Group:
    """3 to 8 members and topics of 1 to 6 partitions; one or two leave, join or resubscribe."""
    counts = {f"t{i}": int(rng.integers(1, 7)) for i in range(rng.integers(3, 9))}

    def subscription() -> list[str]:
        return [t for t in counts if rng.random() < 0.5] or [str(rng.choice(list(counts)))]

    members = [{"id": f"m{i}", "topics": subscription()} for i in range(rng.integers(3, 9))]
    group = {"partitions": counts, "members": members}
    members = settled(group, assign(Group.from_dict(group), "sticky").to_dict())["members"]
    change = rng.integers(3)
    if change == 0:
        members = members[int(rng.integers(1, 3)) :]
    elif change == 1:
        new = range(int(rng.integers(1, 3)))
        members += [{"id": f"n{i}", "topics": subscription()} for i in new]
    else:
        members[int(rng.integers(len(members)))]["topics"] = subscription()
    return Group.from_dict({"partitions": counts, "members": members})


@pytest.mark.parametrize("seed", range(10))
def test_small_groups_reach_the_optimum_of_the_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(20):
        group = small_group(rng)
        quality = assign(group, "sticky").quality
        squares = sum(load * load for load in quality.loads.values())
        assert (squares, quality.kept) == solver_goals(group)[::2]
        assert quality.optimal
        assert quality.needed_moves == len(owner_by_claims(group)) - quality.kept


def test_chains_of_members_that_share_topics_reach_the_optimum_of_the_solver() -> None:
    rng = np.random.default_rng(54)
    topics = [f"t{i:02}" for i in range(63)]
    counts = {topic: int(rng.integers(1, 13)) for topic in topics}
    members = [{"id": f"m{i:02}", "topics": topics[i : i + 4]} for i in range(60)]
    rows = sticky(counts, members).to_dict()
    members = settled({"members": members}, rows)["members"]
    left = [m for i, m in enumerate(members) if i % 9] + [{"id": "new", "topics": topics[20:24]}]
    result = sticky(counts, left)
    squares = sum(load * load for load in result.quality.loads.values())
    assert (squares, result.quality.kept) == solver_goals(result.group)[::2]


def test_hubs_of_many_members_reach_the_optimum_of_the_solver() -> None:
    """Members with equal subscriptions share a hub: its own arcs must carry units both ways."""
    rng = np.random.default_rng(7)
    for _ in range(30):
        counts = {f"t{i}": int(rng.integers(1, 9)) for i in range(4)}
        kinds = [["t0", "t1"], ["t1", "t2"], ["t2", "t3", "t0"]]
        every = [[t, p] for t, n in counts.items() for p in range(n)]
        members = [
            {
                "id": f"m{i}",
                "topics": kinds[int(rng.integers(3))],
                "owned": [tp for tp in every if rng.random() < 0.3],
                "generation": int(rng.integers(3)),
            }
            for i in range(9)
        ]
        group = Group.from_dict({"partitions": counts, "members": members})
        quality = assign(group, "sticky").quality
        squares = sum(load * load for load in quality.loads.values())
        assert (squares, quality.kept) == solver_goals(group)[::2]
        assert quality.optimal


def test_free_units_are_poured_onto_the_lowest_hubs() -> None:
    members = [{"id": f"a{i}", "topics": ["t"]} for i in range(3)]
    members += [{"id": f"b{i}", "topics": ["t", "u"]} for i in range(2)]
    members.append({"id": "c", "topics": ["u"], "owned": [["u", p] for p in range(90)]})
    result = sticky({"t": 100, "u": 90}, members)
    assert Counter(result.quality.loads.values()) == {31: 2, 32: 4}


def test_hubs_that_are_high_already_get_nothing_poured() -> None:
    full = {"id": "b", "topics": ["t", "u"], "owned": [["u", p] for p in range(90)]}
    result = sticky({"t": 100, "u": 90}, [{"id": "a", "topics": ["t"]}, full])
    assert result.quality.loads == {"a": 95, "b": 95}
    members = [{"id": "a", "topics": ["t"]}, full, {"id": "c", "topics": ["u"]}]
    assert sticky({"t": 40, "u": 90}, members).quality.loads == {"a": 40, "b": 45, "c": 45}
