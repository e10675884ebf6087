"""What an assignor returns, and the two ways to call one."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import holdfast
from holdfast import Group, assign, verify
from holdfast.assign import registry
from holdfast.assign.result import Quality


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
        "cross_rack": 0,
        "dropped_claims": {},
        "lags": {"a": 6, "b": 2},
        "lag_spread": 4,
    }
    assert {key: parts["quality"][key] for key in expected} == expected


def test_what_is_handed_out_is_a_valid_assignment() -> None:
    result = assign(group(), "cooperative-sticky")
    assert result.assignment.to_dict() == result.to_dict()
    assert not result.owner.flags.writeable


def test_the_package_is_the_public_function_too() -> None:
    """Python binds the subpackage over the name of the function; both can be called."""
    package = sys.modules["holdfast.assign"]
    assert isinstance(package, ModuleType)
    rows = package(group(), "sticky").to_dict()  # type: ignore[operator]
    assert rows == registry.assign(group(), "sticky").to_dict()
    assert holdfast.assign(group(), "sticky").to_dict() == rows


def test_an_assignor_without_a_certificate_is_not_called_optimal() -> None:
    result = assign(group(), "roundrobin")
    assert result.certificate is None
    assert not result.quality.optimal
    assert result.quality.needed_moves is None
    assert not verify(result)
