"""Every trait in the row of an assignor, held by what the assignor does."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.assignors.groups import run, snapshot

from holdfast.core.assignors.registry import ASSIGNORS, assign, check_options, find, for_protocol
from holdfast.core.model.group import Group
from holdfast.errors import ConfigError, InfeasibleError

MEMBERS = ["C0", "C1", "C2"]
ROWS = ASSIGNORS.values()


def groups() -> list[dict[str, Any]]:
    """Groups with claims, lags and racks, drawn from one seed; all subscriptions are equal."""
    rng, found = random.Random(5), []
    for _ in range(20):
        counts = {"t0": rng.randint(3, 8), "t1": rng.randint(3, 8)}
        owned: dict[str, dict[str, list[int]]] = {m: {"t0": [], "t1": []} for m in MEMBERS}
        for topic, count in counts.items():
            for partition in range(count):
                owned[rng.choice(MEMBERS)][topic].append(partition)
        lags = {topic: [rng.randint(0, 900) for _ in range(n)] for topic, n in counts.items()}
        group = snapshot(counts, MEMBERS, owned=owned, lags=lags)
        for member, rack in zip(group["members"], "abc", strict=True):
            member["rack"] = rack
        racks = {t: [[rng.choice("abc")] for _ in range(n)] for t, n in counts.items()}
        found.append(dict(group, racks=racks))
    return found


def without(group: dict[str, Any], what: str) -> dict[str, Any]:
    """The group without claims, lags or racks."""
    if what != "claims":
        return {key: value for key, value in group.items() if key != what}
    members = [
        {key: value for key, value in member.items() if key not in ("owned", "generation")}
        for member in group["members"]
    ]
    return dict(group, members=members)


def targets(group: dict[str, Any], name: str) -> list[int]:
    return assign(Group.from_dict(group), name).target.tolist()


@pytest.mark.parametrize("what", ["claims", "lags", "racks"])
@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_target_depends_on_what_the_row_names_and_on_nothing_else(name: str, what: str) -> None:
    differs = [targets(group, name) != targets(without(group, what), name) for group in groups()]
    assert any(differs) == getattr(find(name), f"uses_{what}")


@pytest.mark.parametrize("name", ASSIGNORS)
def test_unequal_subscriptions_are_refused_just_where_the_row_says_so(name: str) -> None:
    group = snapshot({"t0": 2, "t1": 2}, {"C0": ["t0"], "C1": ["t1"]})
    if find(name).needs_equal_subscriptions:
        with pytest.raises(InfeasibleError):
            run(group, name)
    else:
        assert run(group, name).quality.loads == {"C0": 2, "C1": 2}


@pytest.mark.parametrize("info", ROWS, ids=lambda info: info.name)
def test_twins_have_one_target_and_two_rebalance_protocols(info: Any) -> None:
    assert for_protocol(info.name, cooperative=info.cooperative) == info.name
    other = for_protocol(info.name, cooperative=not info.cooperative)
    assert (other or "") == info.twin
    if other is None:
        return
    assert find(other).twin == info.name, f"the row of {other} names {info.name} as its twin, too"
    assert find(other).function is info.function
    for group in groups():
        assert targets(group, other) == targets(group, info.name)


@pytest.mark.parametrize("info", ROWS, ids=lambda info: info.name)
def test_only_a_cooperative_assignor_withholds(info: Any) -> None:
    withheld = [assign(Group.from_dict(group), info.name).withheld for group in groups()]
    assert any(len(each) for each in withheld) == info.cooperative


def test_names_of_other_clients_belong_to_one_assignor_each() -> None:
    classes = [info.java_class for info in ROWS if info.java_class]
    assert len(classes) == len(set(classes))
    assert {info.name for info in ROWS if info.in_librdkafka} == {
        "range",
        "roundrobin",
        "cooperative-sticky",
    }


def test_options_are_checked_without_a_group() -> None:
    assert check_options("lag-sticky", {"hysteresis": 5}) == {"hysteresis": 5.0}
    assert check_options("lag", {"group_id": "g"}) == {"group_id": "g"}
    for name, options, text in (
        ("lag", {"group_id": 3}, "group_id: 3, expected a string"),
        ("lag-sticky", {"max_skow": 1}, "unknown option 'max_skow'; did you mean max_skew"),
        ("range", {"speed": 1}, "unknown option 'speed'; it takes none"),
        ("stiky", {}, "unknown assignor 'stiky'; did you mean sticky"),
        ("org.apache.kafka.clients.consumer.RangAssignor", {}, "did you mean org.*RangeAssignor"),
    ):
        with pytest.raises(ConfigError, match=text):
            check_options(name, options)
