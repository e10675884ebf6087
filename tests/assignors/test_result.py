"""What an assignor returns, the two ways to call one, and the rounds until nothing is withheld."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from tests.assignors.groups import run, snapshot
from tests.strategies import snapshots

import holdfast
from holdfast import Group, assign, verify
from holdfast.core.assignors import registry
from holdfast.core.assignors.registry import follow
from holdfast.core.assignors.result import Quality


def group() -> Group:
    members = [
        {"id": "a", "topics": ["t"], "owned": [["t", 0], ["t", 1], ["t", 2]], "generation": 2},
        {"id": "b", "topics": ["t"]},
    ]
    lags = {"t": [5, 1, 2]}
    racks = {"t": [["x"], [], []]}
    return Group.from_dict(
        {"partitions": {"t": 3}, "members": members, "lags": lags, "racks": racks}
    )


def test_the_parts_are_plain_data() -> None:
    result = assign(group(), "cooperative-sticky")
    parts = json.loads(json.dumps(result.to_json()))
    assert parts["assignment"] == {"a": {"t": [0, 1]}, "b": {}}
    assert parts["withheld"] == {"t-2": "b"}
    assert result.withheld == {2: 0}
    assert set(parts["quality"]) == set(Quality.__dataclass_fields__)
    expected = {
        "balance_score": 1,
        "loads": {"a": 2, "b": 1},
        "spread": 1,
        "kept": 2,
        "moved": 1,
        "needed_moves": 1,
        "withheld": 1,
        "optimal": True,
        "proven": ["balance", "racks", "kept", "topics"],
        "rack_matches": 0,
        "cross_rack": 0,
        "topic_excess": 0,
        "dropped_claims": {},
        "lags": {"a": 6, "b": 2},
        "lag_spread": 4,
    }
    assert {key: parts["quality"][key] for key in expected} == expected


def test_what_is_handed_out_is_a_valid_assignment() -> None:
    result = assign(group(), "cooperative-sticky")
    assert result.assignment.to_dict() == result.to_dict()
    assert not result.owner.flags.writeable


def test_the_public_function_is_the_registrys() -> None:
    assert holdfast.assign(group(), "sticky").to_dict() == assign(group(), "sticky").to_dict()
    assert isinstance(sys.modules["holdfast.core.assignors"], ModuleType)
    assert holdfast.assign is registry.assign


def test_rack_matches_count_what_is_read_at_home() -> None:
    members = [{"id": m, "topics": ["t"], "rack": r} for m, r in ("ax", "by")]
    racks = {"t": [["x"], ["y", "x"], ["y"], []]}
    snapshot = {"partitions": {"t": 4}, "members": members, "racks": racks}
    quality = assign(Group.from_dict(snapshot), "sticky").quality
    assert (quality.rack_matches, quality.cross_rack) == (3, 0)
    plain = assign(Group.from_dict({**snapshot, "racks": None}), "sticky").quality
    assert (plain.rack_matches, plain.cross_rack) == (None, None)
    assert plain.proven == ("balance", "kept", "topics")


def test_what_is_proven_is_named_goal_by_goal() -> None:
    """Balance is proven by loads within one of each other, claims by the certificate alone."""
    owned = {"a": {"t": [3]}, "b": {"t": [0, 1]}}
    group = Group.from_dict(snapshot({"t": 4}, ["a", "b"], owned=owned))
    for name in ("sticky", "constrained-sticky"):
        assert assign(group, name).quality.proven == ("balance", "kept", "topics")
    fair = assign(group, "fair").quality
    assert (fair.proven, fair.optimal, fair.needed_moves) == (("balance", "topics"), True, None)
    assert fair.moved > 0
    dealt = assign(group, "roundrobin").quality
    assert (dealt.proven, dealt.optimal) == (("balance", "topics"), False)
    uneven = run(snapshot({"t": 4}, {"a": ["t"], "b": []}), "range").quality
    assert uneven.proven == ("topics",)


def test_topics_that_the_search_cannot_even_out_are_not_called_proven() -> None:
    """Keeping all claims is worth more than spreading the topic of each."""
    owned = {"a": {"t": [0, 1]}, "b": {"u": [0, 1]}}
    quality = run(snapshot({"t": 2, "u": 2}, ["a", "b"], owned=owned), "sticky").quality
    assert (quality.topic_excess, quality.kept) == (4, 4)
    assert quality.proven == ("balance", "kept")


def test_constrained_is_not_proven_where_more_could_be_kept() -> None:
    """A member behind the newest generation loses its whole claim, as the document says."""
    claims = {"owned": {"a": {"t": [1]}, "b": {"t": [0]}}, "generations": {"a": 2, "b": 3}}
    group = Group.from_dict(snapshot({"t": 4}, ["a", "b"], **claims))
    quality = assign(group, "constrained-sticky").quality
    assert assign(group, "sticky").quality.kept == 2
    assert (quality.kept, quality.dropped_claims) == (1, {"stale-generation": 1})
    kept = assign(group, "constrained-sticky").target[:2].tolist() == [1, 0]
    assert quality.optimal == kept
    assert "balance" in quality.proven


def test_an_assignor_without_a_certificate_is_not_called_optimal() -> None:
    result = assign(group(), "roundrobin")
    assert result.certificate is None
    assert not result.quality.optimal
    assert result.quality.needed_moves is None
    assert not verify(result)


@given(snapshots())
@pytest.mark.parametrize("name", ["cooperative-sticky", "constrained-cooperative-sticky"])
def test_rounds_go_on_until_nothing_is_withheld(name: str, snapshot: dict[str, Any]) -> None:
    group = Group.from_dict(snapshot)
    if group.n_sets > 1 and name.startswith("constrained"):
        return
    *earlier, last = follow(group, name)
    assert all(result.withheld for result in earlier)
    assert last.owner.tolist() == last.target.tolist()


@given(snapshots())
def test_an_eager_assignor_needs_one_round(snapshot: dict[str, Any]) -> None:
    assert len(follow(Group.from_dict(snapshot), "sticky")) == 1
