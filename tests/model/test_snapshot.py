"""Every wrong place of a snapshot is refused by its path."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.model.group import Group
from holdfast.errors import ModelError

BASE = {"partitions": {"t": 2}, "members": [{"id": "m", "topics": ["t"]}]}


def with_member(**fields: Any) -> dict[str, Any]:
    return {**BASE, "members": [{"id": "m", "topics": ["t"], **fields}]}


@pytest.mark.parametrize(
    ("snapshot", "text"),
    [
        ([], "snapshot: list [], expected an object"),
        ({"partitions": {}}, "members: missing"),
        ({"members": []}, "partitions: missing"),
        ({**BASE, "memebers": []}, "snapshot: unknown key 'memebers'"),
        ({**BASE, 3: []}, "a key of snapshot: int 3, expected a string"),
        ({**BASE, "partitions": {"t": "2"}}, "partitions.t: str '2', expected an integer"),
        ({**BASE, "partitions": {"t": True}}, "partitions.t: bool True, expected an integer"),
        ({**BASE, "partitions": {"t": -1}}, "partitions.t: -1, expected 0 to 2147483646"),
        ({**BASE, "members": {}}, "members: dict {}, expected a list"),
        ({**BASE, "members": [{"topics": []}]}, "members[0].id: missing"),
        ({**BASE, "members": [{"id": "a"}]}, "members[0].topics: missing"),
        ({**BASE, "members": [{"id": None, "topics": []}]}, "members[0].id: null, expected"),
        ({**BASE, "members": BASE["members"] * 2}, "members[1].id: 'm' is also the id of mem"),
        (with_member(color=1), "members[0]: unknown key 'color'"),
        (with_member(topics=[1]), "members[0].topics[0]: int 1, expected a string"),
        (with_member(owned=[["t"]]), "members[0].owned[0]: 1 values, expected [topic"),
        (with_member(owned=[["t", 0.5]]), "members[0].owned[0][1]: float 0.5"),
        (with_member(owned=[[0, 0]]), "members[0].owned[0][0]: int 0"),
        (with_member(generation=2**31), "members[0].generation: 2147483648, expected"),
        (with_member(instance_id=7), "members[0].instance_id: int 7"),
        (with_member(rack=[]), "members[0].rack: list []"),
        ({**BASE, "racks": {"x": []}}, "racks.x: this topic has no partition count"),
        ({**BASE, "racks": {"t": [[]]}}, "racks.t: 1 entries, expected 2"),
        ({**BASE, "racks": {"t": [["a"], [1]]}}, "racks.t[1]: int 1, expected a string"),
        ({**BASE, "lags": {"t": [1, -1]}}, "lags.t[1]: -1, expected 0"),
        ({**BASE, "lags": {"t": [1, 0.5]}}, "lags.t[1]: float 0.5, expected an integer"),
        ({**BASE, "lags": {}, "offsets": {}}, "lags, offsets: both given"),
        ({**BASE, "auto_offset_reset": 1}, "auto_offset_reset: int 1"),
        ({**BASE, "offsets": {"t": [{}, {}]}}, "offsets.t[0].end: missing"),
        ({**BASE, "offsets": {"t": [{"end": 1, "x": 1}, {}]}}, "offsets.t[0]: unknown key 'x'"),
        (
            {**BASE, "offsets": {"t": [{"begin": 2, "end": 1}, {}]}},
            "offsets.t[0].end: 1, expected 2",
        ),
    ],
)
def test_the_wrong_place_is_named(snapshot: Any, text: str) -> None:
    with pytest.raises(ModelError) as caught:
        Group.from_dict(snapshot)
    assert str(caught.value).startswith(text)


def test_optional_fields_may_be_null_and_generations_below_minus_one_are_none() -> None:
    nulls = dict.fromkeys(("owned", "generation", "instance_id", "rack"))
    group = Group.from_dict({**with_member(**nulls), "racks": None, "lags": None})
    assert group.generation.tolist() == [-1]
    assert group.lags is None
    assert Group.from_dict(with_member(generation=-9)).generation.tolist() == [-1]
    assert Group.from_dict(with_member(rack="")).rack.tolist() == [-1]


@pytest.mark.parametrize(("reset", "unknown"), [("latest", 0), ("earliest", 90), ("none", 90)])
def test_lags_of_offsets_follow_the_reset_and_are_clamped(reset: str, unknown: int) -> None:
    offsets = [
        {"begin": 10, "end": 100, "committed": None},
        {"begin": 10, "end": 100, "committed": -1},
        {"begin": 10, "end": 100},
        {"begin": 10, "end": 100, "committed": 40},
        {"begin": 10, "end": 100, "committed": 3},
        {"end": 100, "committed": 400},
    ]
    snapshot = {
        "partitions": {"t": 6, "u": 1},
        "members": [],
        "offsets": {"t": offsets},
        "auto_offset_reset": reset,
    }
    lags = Group.from_dict(snapshot).lags
    assert lags.tolist() == [unknown, unknown, unknown, 60, 90, 0, 0]


def test_reset_is_read_whatever_its_case() -> None:
    snapshot = {
        "partitions": {"t": 1},
        "members": [],
        "offsets": {"t": [{"end": 5}]},
        "auto_offset_reset": "LATEST",
    }
    lags = Group.from_dict(snapshot).lags
    assert lags.tolist() == [0]


@pytest.mark.parametrize("counts", [{"t": 2**31 - 2}, {"t": 2**22, "u": 1}, {"t": 2**22 + 1}])
def test_a_few_bytes_do_not_ask_for_gigabytes(counts: dict[str, int]) -> None:
    snapshot = {"partitions": counts, "members": []}
    with pytest.raises(ModelError, match=r"partitions: \d+ topic-partitions in all, expected"):
        Group.from_dict(snapshot)


def test_the_limit_of_partitions_is_the_callers() -> None:
    snapshot = {"partitions": {"t": 5}, "members": []}
    assert Group.from_dict(snapshot, most_partitions=5).topics.n_tps == 5
    with pytest.raises(ModelError, match="5 topic-partitions in all, expected at most 4"):
        Group.from_dict(snapshot, most_partitions=4)
