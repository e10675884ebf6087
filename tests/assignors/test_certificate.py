"""The certificate: it proves every optimum, and nothing that is not one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.oracles import as_assignment, assignments, best, goals, subscribers
from tests.strategies import snapshots

from holdfast import verify
from holdfast.core.assignors.certificate import LARGEST, Certificate, certify, proves
from holdfast.core.assignors.claims import normalise
from holdfast.core.assignors.registry import assign
from holdfast.core.assignors.result import Result
from holdfast.core.model.columns import I32
from holdfast.core.model.group import Group
from holdfast.errors import ModelError


def sticky(snapshot: dict[str, Any]) -> Result:
    return assign(Group.from_dict(snapshot), "sticky")


def with_target(result: Result, target: I32) -> Result:
    certificate = result.certificate
    return replace(result, target=target, prove=lambda: certificate)


@given(snapshots())
def test_fair_is_proven_by_balance_and_racks_alone(snapshot: dict[str, Any]) -> None:
    group = Group.from_dict(snapshot)
    result = assign(group, "fair")
    assert verify(result)
    assert "kept" not in result.proven
    unclaimed = {
        **snapshot,
        "members": [{**member, "owned": []} for member in snapshot["members"]],
    }
    loads, crossed, _ = goals(group, as_assignment(group, result.target.tolist()))
    alone = sticky(unclaimed)
    least = goals(alone.group, as_assignment(alone.group, alone.target.tolist()))
    assert (loads, crossed) == least[:2]


@given(snapshots(equal=True))
def test_constrained_is_proven_exactly_where_it_is_as_good_as_sticky(
    snapshot: dict[str, Any],
) -> None:
    group = Group.from_dict(snapshot)
    result = assign(group, "constrained-sticky")
    reached, least = (
        goals(group, as_assignment(group, each.target.tolist()))
        for each in (result, assign(group, "sticky"))
    )
    assert verify(result) == (reached == least)
    one_generation = len({m["generation"] for m in snapshot["members"] if m.get("owned")}) < 2
    newest = result.claims.owner[result.claims.owner >= 0]
    up_to_date = (group.generation[newest] == group.generation.max(initial=-1)).all()
    if group.topics.rack_start is None and one_generation and up_to_date:
        assert verify(result)


@given(snapshots(), st.data())
def test_no_worse_assignment_is_proven_by_the_same_prices(
    snapshot: dict[str, Any], data: st.DataObject
) -> None:
    result = sticky(snapshot)
    group, target = result.group, result.target.copy()
    held = np.flatnonzero(target >= 0)
    assume(len(held))
    tp = data.draw(st.sampled_from(held.tolist()))
    target[tp] = data.draw(st.sampled_from(subscribers(group)[tp]))
    worse = goals(group, as_assignment(group, target.tolist())) != goals(
        group, as_assignment(group, result.target.tolist())
    )
    proven = verify(with_target(result, target))
    assert proven != worse


def test_proof_and_exhaustive_search_agree_on_every_assignment_of_a_small_group() -> None:
    members = [
        {"id": "a", "topics": ["t", "u"], "owned": [["t", 0], ["u", 0]], "rack": "x"},
        {"id": "b", "topics": ["t"], "owned": [["t", 1]], "rack": "y"},
        {"id": "c", "topics": ["u"], "rack": "x"},
    ]
    racks = {"t": [["x"], ["x"], ["y"]], "u": [["y"]]}
    result = sticky({"partitions": {"t": 3, "u": 1}, "members": members, "racks": racks})
    least = best(result.group)
    n_best = 0
    for assignment in assignments(result.group):
        target = np.array([assignment[tp] for tp in range(4)], np.int32)
        proven = verify(with_target(result, target))
        assert proven == (goals(result.group, assignment) == least)
        n_best += proven
    assert n_best >= 1


@pytest.mark.parametrize(
    "change",
    [
        {"load_weight": 1},
        {"rack_weight": 1},
        {"member": np.zeros(2, np.int64)},
        {"partition": np.zeros(3, np.int64)},
    ],
)
def test_a_certificate_with_wrong_weights_or_prices_proves_nothing(change: dict[str, Any]) -> None:
    members = [{"id": name, "topics": ["t"]} for name in "ab"]
    racks = {"t": [["x"], [], []]}
    result = sticky({"partitions": {"t": 3}, "members": members, "racks": racks})
    certificate = result.certificate
    assert proves(certificate, result.claims, result.target)
    assert not proves(replace(certificate, **change), result.claims, result.target)


def test_an_incomplete_assignment_is_not_proven_and_an_invalid_one_is_refused() -> None:
    result = sticky({"partitions": {"t": 1}, "members": [{"id": "a", "topics": ["t"]}]})
    assert not verify(with_target(result, np.array([-1], np.int32)))
    with pytest.raises(ModelError):
        verify(with_target(result, np.array([1], np.int32)))


def test_no_certificate_no_proof() -> None:
    result = sticky({"partitions": {"t": 1}, "members": [{"id": "a", "topics": ["t"]}]})
    assert not verify(replace(result, prove=None))


def test_prices_beyond_int64_are_not_written() -> None:
    result = sticky({"partitions": {"t": 1}, "members": [{"id": "a", "topics": ["t"]}]})
    level = np.array([LARGEST // 4], np.int64)
    claims = normalise(result.group)
    assert certify(claims, result.target, level, np.zeros(1, np.int64)) is None
    small = certify(claims, result.target, np.ones(1, np.int64), np.zeros(1, np.int64))
    assert isinstance(small, Certificate)
