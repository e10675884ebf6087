"""The graph by itself: partitions that are alike share a source, whatever the number of racks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from tests.strategies import snapshots

from holdfast.core.assignors.claims import normalise
from holdfast.core.assignors.optimal.flow_graph import Graph, build
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
