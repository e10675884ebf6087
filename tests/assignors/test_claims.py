"""Claims: the written rules against a slow twin, and each odd claim by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.oracles import owner_by_claims
from tests.strategies import snapshots

from holdfast.core.assignors.claims import normalise
from holdfast.core.assignors.registry import assign
from holdfast.core.model.group import Group


def group_of(claims: dict[str, tuple[int, list[int]]], n_partitions: int = 4) -> Group:
    members = [
        {"id": name, "topics": ["t"], "generation": generation, "owned": [["t", p] for p in owned]}
        for name, (generation, owned) in claims.items()
    ]
    return Group.from_dict({"partitions": {"t": n_partitions}, "members": members})


@given(snapshots())
def test_owner_is_the_one_claimant_of_the_highest_generation(snapshot: dict[str, Any]) -> None:
    group = Group.from_dict(snapshot)
    owners = owner_by_claims(group)
    claims = normalise(group)
    assert claims.owner.tolist() == [owners.get(tp, -1) for tp in range(group.topics.n_tps)]
    used = len(claims.previous_tp) + len(claims.double_tp) + int((claims.owner >= 0).sum())
    assert used == len(group.claim_tp)


@given(snapshots())
def test_withheld_is_exactly_what_goes_to_another_than_the_newest_claimant(
    snapshot: dict[str, Any],
) -> None:
    group = Group.from_dict(snapshot)
    result = assign(group, "cooperative-sticky")
    claims = set(zip(group.claim_tp.tolist(), group.claim_members().tolist(), strict=True))
    claims |= set(zip(group.foreign_tp.tolist(), group.foreign_member.tolist(), strict=True))
    target = result.target.tolist()
    waits = set()
    for tp, goes_to in enumerate(target):
        others = [int(group.generation[m]) for each, m in claims if each == tp and m != goes_to]
        newest = (tp, goes_to) in claims and group.generation[goes_to] > max(others, default=-2)
        if goes_to != -1 and others and not newest:
            waits.add(tp)
    assert set(result.withheld) == waits
    for tp, claimant in result.withheld.items():
        assert (tp, claimant) in claims
        assert claimant != target[tp]
    handed = [-1 if tp in waits else member for tp, member in enumerate(target)]
    assert result.owner.tolist() == handed
    assert list(result.withheld) == sorted(waits)


@pytest.mark.parametrize(
    ("claims", "owner", "dropped"),
    [
        ({"a": (5, [0]), "b": (5, [0])}, -1, {"double-claim": 2}),
        ({"a": (5, [0]), "b": (5, [0]), "c": (6, [0])}, 2, {"stale-generation": 2}),
        ({"a": (5, [0]), "b": (4, [0])}, 0, {"stale-generation": 1}),
        ({"a": (-1, [0]), "b": (0, [0])}, 1, {"stale-generation": 1}),
        ({"a": (-1, [0])}, 0, {}),
        ({"a": (-1, [0]), "b": (-1, [0])}, -1, {"double-claim": 2}),
    ],
)
def test_scenarios_37_and_38_of_several_claims(
    claims: dict[str, tuple[int, list[int]]], owner: int, dropped: dict[str, int]
) -> None:
    result = assign(group_of(claims), "sticky")
    assert result.claims.owner[0] == owner
    assert result.quality.dropped_claims == dropped


def test_an_old_claim_takes_nothing_from_the_newest_owner() -> None:
    """As ``adjustAssignment`` of Kafka's CooperativeStickyAssignor: m0 and m1 hold on to 0 and 4,
    which "stale" held two rounds ago; what m0 and m1 do not claim is not affected.
    """
    claims = {"m0": (7, [0, 1, 2, 3]), "m1": (7, [4, 5, 6, 7]), "stale": (5, [0, 4])}
    result = assign(group_of(claims, n_partitions=9), "cooperative-sticky")
    kept = {m: own.get("t", []) for m, own in result.to_dict().items()}
    target = result.target.tolist()
    assert kept["m0"] == [p for p in (0, 1, 2, 3) if target[p] == 0]
    assert kept["m1"] == [p for p in (4, 5, 6, 7) if target[p] == 1]
    assert len(kept["m0"]) == len(kept["m1"]) == 3
    # Of the two that go to "stale", none is the one that it claims: the other's owner has to stop.
    assert 8 in kept["stale"]
    claims = {f"m{i}": (7, list(range(20 * i, 20 * i + 20))) for i in range(5)}
    claims["stale"] = (3, list(range(100)))
    rows = assign(group_of(claims, n_partitions=100), "cooperative-sticky").to_dict()
    assert sum(len(own.get("t", [])) for m, own in rows.items() if m != "stale") == 84
    assert not rows["stale"].get("t")


def test_an_equal_claim_outside_the_subscription_still_holds_back() -> None:
    """Of two claims at one generation at most one is true, whoever subscribes."""
    rows = [
        {"id": "a", "topics": ["t"], "owned": [["t", 0]], "generation": 4},
        {"id": "b", "topics": [], "owned": [["t", 0]], "generation": 4},
    ]
    group = Group.from_dict({"partitions": {"t": 1}, "members": rows})
    assert assign(group, "cooperative-sticky").withheld == {0: 1}
    rows[1]["generation"] = 3
    group = Group.from_dict({"partitions": {"t": 1}, "members": rows})
    assert assign(group, "cooperative-sticky").withheld == {}


def test_a_claim_outside_the_subscription_is_no_right_but_must_be_revoked_first() -> None:
    rows = [
        {"id": "a", "topics": [], "owned": [["t", 0]], "generation": 1},
        {"id": "b", "topics": ["t"]},
    ]
    group = Group.from_dict({"partitions": {"t": 1}, "members": rows})
    result = assign(group, "cooperative-sticky")
    assert result.claims.owner.tolist() == [-1]
    assert result.withheld == {0: 0}
    assert result.target.tolist() == [1]
    assert assign(group, "sticky").to_dict() == {"a": {}, "b": {"t": [0]}}
