"""The graph of a group, and the flow without a search: even, complete, declined only for cause."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from tests.oracles import best
from tests.strategies import snapshots

from holdfast.core.assignors.claims import normalise
from holdfast.core.assignors.optimal.flow_graph import Graph, build
from holdfast.core.assignors.optimal.sticky_flow import Even, keep_all
from holdfast.core.model.group import Group


def check_sources(group: Group, graph: Graph) -> None:
    """Two partitions share a source exactly if the same members read them from the same racks."""
    rows = np.split(group.sub_topic, group.sub_start[1:-1])
    member_racks = {group.topics.rack_names[rack] for rack in group.rack.tolist() if rack >= 0}
    seen: dict[Any, int] = {}
    for tp, source in enumerate(graph.source_of.tolist()):
        topic = group.topics.topic_of[tp]
        readers = tuple(m for m, row in enumerate(rows[: group.n_members]) if topic in row)
        if not readers:
            assert source == -1
            continue
        racks = group.topics.racks_of(tp)
        kind = readers, member_racks.intersection(racks) if racks else None
        key = readers, None if kind[1] is None else tuple(sorted(kind[1]))
        assert seen.setdefault(key, source) == source
        far = {
            int(graph.hub_of[m])
            for m in readers
            if racks and group.rack[m] >= 0 and group.topics.rack_names[group.rack[m]] not in racks
        }
        assert set(graph.cross[source]) == far
    assert len(set(seen.values())) == len(seen) == graph.n_sources


@given(snapshots())
def test_a_source_is_what_the_same_members_read_from_the_same_racks(
    snapshot: dict[str, Any],
) -> None:
    group = Group.from_dict(snapshot)
    check_sources(group, build(normalise(group)))


@pytest.mark.parametrize("n_racks", [3, 62, 63, 150])
def test_any_number_of_racks_is_told_apart(n_racks: int) -> None:
    """Sets of racks are held in words of 62 bits: the last of one and the first of the next."""
    rng = np.random.default_rng(n_racks)
    names = [f"r{i:03}" for i in range(n_racks)]
    racks = [rng.choice(names, rng.integers(0, 4), replace=False).tolist() for _ in range(200)]
    racks[:4] = [[names[0]], [names[-1]], [names[-1], names[0]], []]
    members = [
        {"id": f"m{i}", "topics": ["t"], "rack": name} for i, name in enumerate(names) if i != 1
    ]
    group = Group.from_dict({"partitions": {"t": 200}, "members": members, "racks": {"t": racks}})
    check_sources(group, build(normalise(group)))


def solved(snapshot: dict[str, Any]) -> tuple[Graph, Even | None]:
    group = Group.from_dict({**snapshot, "racks": None})
    graph = build(normalise(group))
    return graph, keep_all(graph, group.assignment_order) if graph.members_of else None


def group(
    partitions: dict[str, int], members: dict[str, str], **owned: list[tuple[str, int]]
) -> dict[str, Any]:
    """Members as ``name: "t u"``, claims by member."""
    rows = [
        {"id": m, "topics": topics.split(), "owned": [list(tp) for tp in owned.get(m, ())]}
        for m, topics in members.items()
    ]
    return {"partitions": partitions, "members": rows}


def loads(graph: Graph, even: Even) -> list[int]:
    own = np.bincount(graph.owner[graph.owned], minlength=len(graph.hub_of))
    load: list[int] = (own + even.taken).tolist()
    return load


def check_complete(graph: Graph, even: Even) -> None:
    """Every free partition is sent once, by an arc there is, and each hub gets what it takes."""
    free = graph.supply - np.bincount(graph.source_of[graph.owned], minlength=graph.n_sources)
    by_source, by_hub = Counter[int](), Counter[int]()
    for source, hub, units in even.sent.tolist():
        assert hub in graph.hubs_of[source]
        assert units > 0
        by_source[source] += units
        by_hub[hub] += units
    assert [by_source[s] for s in range(graph.n_sources)] == free.tolist()
    taken = Counter[int]()
    for hub, units in zip(graph.hub_of.tolist(), even.taken.tolist(), strict=True):
        assert units >= 0
        taken[hub] += units
    assert all(taken[hub] == by_hub[hub] for hub in {*taken, *by_hub})
    assert even.sent.tolist() == sorted(even.sent.tolist())


@given(snapshots())
def test_an_answer_is_complete_even_and_as_good_as_any(snapshot: dict[str, Any]) -> None:
    graph, even = solved(snapshot)
    if even is None:
        return
    check_complete(graph, even)
    load = [n for n, hub in zip(loads(graph, even), graph.hub_of.tolist(), strict=True) if hub >= 0]
    assert set(load) <= {even.level, even.level - 1}


def test_small_groups_are_answered_exactly_where_all_can_stay_and_be_even() -> None:
    """Against every assignment of 300 small groups: yes if and only if the best is such a one."""
    rng = np.random.default_rng(11)
    answered = 0
    for _ in range(300):
        names = ["t", "u", "v"]
        counts = {name: int(rng.integers(1, 3)) for name in names}
        members = {
            f"m{i}": " ".join(n for n in names if rng.random() < 0.7) or "t" for i in range(3)
        }
        owned: dict[str, list[tuple[str, int]]] = {}
        for name, count in counts.items():
            for p in range(count):
                readers = [m for m, topics in members.items() if name in topics.split()]
                if readers and rng.random() < 0.5:
                    owned.setdefault(str(rng.choice(readers)), []).append((name, p))
        snapshot = group(counts, members, **owned)
        graph, even = solved(snapshot)
        least, _, kept = best(Group.from_dict(snapshot))
        possible = least[0] - least[-1] <= 1 and -kept == sum(map(len, owned.values()))
        assert (even is not None) == possible, snapshot
        if even is not None:
            assert tuple(sorted(loads(graph, even), reverse=True)) == least
            check_complete(graph, even)
            answered += 1
    assert 50 < answered < 250


def test_a_hub_left_too_low_is_fed_along_a_chain() -> None:
    """``v`` is poured on b and c, both sources of a: the lowest hubs first is not enough."""
    members = {"a": "t", "b": "t u", "c": "u v", "d": "v"}
    graph, even = solved(group({"t": 2, "u": 2, "v": 4}, members, d=[("v", 0), ("v", 1)]))
    check_complete(graph, even)
    assert loads(graph, even) == [2, 2, 2, 2]


def test_who_has_the_even_share_already_is_first_to_hold_one_more() -> None:
    graph, even = solved(group({"t": 5}, {"a": "t", "b": "t", "c": "t"}, a=[("t", 4)]))
    assert (even.level, loads(graph, even)) == (2, [2, 2, 1])
    assert even.taken.tolist() == [1, 2, 1]
