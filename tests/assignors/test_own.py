"""A function of the user as an assignor: both forms, every lie, and the laws on request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.assignors.groups import run, snapshot
from tests.live.own_policy import cooperative, eager, spares_last

import holdfast
from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.own import OwnAssignor
from holdfast.core.assignors.registry import ASSIGNORS, find, follow
from holdfast.core.machine.policy import Policy
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.core.model.group import Group
from holdfast.errors import ConfigError, LawError, ModelError, PlanError

GROUP = snapshot({"t": 4, "u": 1}, {"a": ["t"], "b": ["t"]}, owned={"a": {"t": [0, 1, 2]}})


def made(function: Callable[..., object], **options: Any) -> OwnAssignor:
    return holdfast.assignor("mine", function, **options)


def sticky_in_numbers(claims: Claims) -> Any:
    return find("sticky").function(claims).target


def test_a_function_of_names_sees_the_group_and_decides_it() -> None:
    seen: list[Any] = []

    def plan(members: Any, topics: Any, claims: Any) -> object:
        seen.append((members, topics, dict(claims)))
        claims.clear()
        return {(t, p): "b" for t, ps in topics.items() for p in ps}

    result = holdfast.assign(Group.from_dict(GROUP), made(plan))
    members, topics, claims = seen[0]
    assert [(m.member_id, m.topics, m.instance_id, m.rack) for m in members.values()] == [
        ("a", ("t",), None, None),
        ("b", ("t",), None, None),
    ]
    assert topics == {"t": (0, 1, 2, 3)}  # nobody subscribes to u
    assert claims == {("t", 0): "a", ("t", 1): "a", ("t", 2): "a"}
    assert result.to_dict() == {"a": {}, "b": {"t": [0, 1, 2, 3]}}
    assert (result.name, result.quality.moved) == ("mine", 3)


def test_a_fourth_parameter_is_the_lags() -> None:
    def plan(members: Any, topics: Any, claims: Any, lags: Any) -> object:
        assert lags == {"t": (5, 6)}
        return {("t", 0): "a", ("t", 1): "a"}

    mine = made(plan)
    assert mine.uses_lags
    assert run(snapshot({"t": 2}, ["a"], lags={"t": [5, 6]}), mine).to_dict() == {
        "a": {"t": [0, 1]}
    }


def test_a_function_of_numbers_is_an_assignor_of_the_core() -> None:
    mine = made(sticky_in_numbers, laws=["balanced", "sticky"])
    assert run(GROUP, mine).to_dict() == run(GROUP, "sticky").to_dict()
    holdfast.check_laws(mine, n_groups=60)
    holdfast.check_laws(replace(mine, cooperative=True), n_groups=60)


def test_what_a_cooperative_one_moves_is_withheld_for_a_round() -> None:
    group = snapshot({"t": 2}, ["a", "b"], owned={"a": {"t": [0, 1]}})
    assert run(group, eager).to_dict() == {"a": {"t": [0]}, "b": {"t": [1]}}
    result = run(group, cooperative)
    assert result.to_dict() == {"a": {"t": [0]}, "b": {}}
    assert result.withheld == {1: 0}


LIES: list[tuple[Callable[..., object], str]] = [
    (
        lambda m, t, c: {("t", 0): "a"},
        "mine: gives t-1 to nobody, and 'a' subscribes to it; 3 part",
    ),
    (lambda m, t, c: {("t", p): "zz" for p in range(4)}, "gives t-0 to 'zz', which is no member"),
    (lambda m, t, c: {("t", p): 0 for p in range(4)}, "gives t-0 to 0, which is no member"),
    (lambda m, t, c: {("t", p): ["a"] for p in range(4)}, r"to \['a'\], which is no member"),
    (lambda m, t, c: {("t", 9): "a"}, "gives t-9, which is none of the partitions"),
    (lambda m, t, c: {("v", 0): "a"}, "gives v-0, but there is no topic 'v'"),
    (lambda m, t, c: {("u", 0): "a"}, "gives u-0, but nobody subscribes to 'u'"),
    (lambda m, t, c: {"a": {"t": [0, 1, 2, 3, 3]}}, r"key 'a'; expected {\(topic, partition\)"),
    (lambda m, t, c: [0, 0, 0, 0], "returned list; expected"),
    (lambda m, t, c: None, "returned NoneType; expected"),
    (lambda m, t, c: 1 // 0, "its function raised ZeroDivisionError"),
    (lambda m, t, c: exit(), "its function raised SystemExit"),
    (lambda c: None, "returned NoneType of object"),
    (lambda c: [0, 0, 0, 0, 0.5], "of float64 and shape"),
    (lambda c: [0, 0], r"shape \(2,\); expected integers of shape \(5,\)"),
    (lambda c: [0, 0, 0, 2, -1], "gives t-3 to member 2; expected 0 to 1"),
    (lambda c: [0, 0, 0, -2, -1], "gives t-3 to member -2"),
    (lambda c: [0, 0, 0, -1, -1], "gives t-3 to nobody"),
    (lambda c: [0, 0, 0, 0, 0], "gives u-0 to 'a', which does not subscribe to it"),
]


@pytest.mark.parametrize(("function", "words"), LIES)
def test_a_function_that_lies_is_named_with_the_first_wrong_partition(
    function: Callable[..., object], words: str
) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        run(GROUP, made(function))
    assert str(caught.value).startswith("assignor mine: ")
    with pytest.raises(LawError) as broken:
        holdfast.check_laws(made(function), groups=[GROUP])
    assert broken.value.law == "valid"


def test_a_group_without_anything_to_give_asks_nobody() -> None:
    def plan(members: object, topics: object, claims: object) -> object:
        raise AssertionError

    assert run(snapshot({"t": 0}, ["a"]), made(plan)).to_dict() == {"a": {}}
    assert run(snapshot({"t": 2}, []), made(plan)).to_dict() == {}


@pytest.mark.parametrize(
    ("name", "function", "options", "words"),
    [
        ("sticky", spares_last, {}, "holdfast's own"),
        ("holdfast-deferred", spares_last, {}, "holdfast's own"),
        ("a,b", spares_last, {}, "letters, digits"),
        ("mine", 3, {}, "found int, expected a function"),
        ("mine", lambda a, b: {}, {}, r"found a function of \(a, b\)"),
        ("mine", lambda *, claims: {}, {}, r"found a function of \(claims\)"),
        ("mine", spares_last, {"laws": ["optimal"]}, "found law 'optimal'"),
        (
            "mine",
            spares_last,
            {"uses_lags": True},
            r"needs a function \(members, topics, claims, l",
        ),
        ("mine", spares_last, {"timeout_ms": 0}, "expected at least 1"),
    ],
)
def test_what_cannot_be_an_assignor_is_refused(
    name: str, function: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        holdfast.assignor(name, function, **options)


@pytest.mark.parametrize("name", [n for n, i in ASSIGNORS.items() if i.cooperative])
def test_every_law_of_the_registry_holds_on_drawn_groups(name: str) -> None:
    holdfast.check_laws(name, n_groups=60, seed=7)


def forgets(members: Any, topics: Any, claims: Any) -> object:
    """Everything to the member with the fewest claims: never at rest."""
    counts = {m: sum(owner == m for owner in claims.values()) for m in members}
    plan = {}
    for topic, partitions in topics.items():
        able = [i for i, m in members.items() if topic in m.topics]
        plan |= {(topic, p): min(able, key=lambda i: (counts[i], i)) for p in partitions}
    return plan


def changing() -> Callable[..., object]:
    turns = iter(range(10**9))

    def plan(members: Any, topics: Any, claims: Any) -> object:
        turn = next(turns)
        found = {}
        for topic, partitions in topics.items():
            able = [i for i, m in members.items() if topic in m.topics]
            found |= {(topic, p): able[(p + turn) % len(able)] for p in partitions}
        return found

    return plan


@pytest.mark.parametrize(
    ("assignor", "law"),
    [
        (made(forgets, laws=["sticky"]), "sticky"),
        (made(forgets, laws=["balanced"]), "balanced"),
        (made(forgets, laws=["keeps-all"]), "keeps-all"),
        (made(forgets, cooperative=True), "settles"),
        (made(changing()), "deterministic"),
    ],
)
def test_a_broken_law_is_named_with_the_group_that_shows_it(
    assignor: OwnAssignor, law: str
) -> None:
    with pytest.raises(LawError, match=r'mine .*; the group: {"partitions"') as caught:
        holdfast.check_laws(assignor)
    assert caught.value.law == law


def test_a_law_that_is_claimed_by_nobody_can_be_asked_for() -> None:
    holdfast.check_laws(made(forgets))
    with pytest.raises(LawError, match=r"^optimal: "):
        holdfast.check_laws(made(forgets), laws=["optimal"])
    with pytest.raises(ConfigError, match="law 'nonsense'"):
        holdfast.check_laws("sticky", laws=["nonsense"])


def test_a_cooperative_one_that_never_rests_is_no_endless_loop() -> None:
    other = {"a": "b", "b": "a"}

    def swaps(members: Any, topics: Any, claims: Any) -> object:
        return {("t", p): other[claims.get(("t", p), "a")] for p in (0, 1)}

    group = snapshot({"t": 2}, ["a", "b", "c"], owned={"a": {"t": [0]}})
    with pytest.raises(ModelError, match="mine still withholds after 8 rounds"):
        follow(Group.from_dict(group), made(swaps, cooperative=True))


def test_each_round_begins_with_what_the_round_before_left() -> None:
    """t-0 goes from a to b, and only then t-1 from b to a."""

    def one_by_one(members: Any, topics: Any, claims: Any) -> object:
        return {("t", 0): "b", ("t", 1): "b" if claims.get(("t", 0)) == "a" else "a"}

    group = snapshot({"t": 2}, ["a", "b"], owned={"a": {"t": [0]}, "b": {"t": [1]}})
    rounds = follow(Group.from_dict(group), made(one_by_one, cooperative=True))
    assert [len(result.withheld) for result in rounds] == [1, 1, 0]


def test_under_a_design_it_sees_kafkas_numbers_of_what_does_not_wait() -> None:
    group = Group.from_dict(snapshot({"t": 4, "u": 2}, ["a"]))
    rest, kept = group.without_partitions(np.array([1, 0, 0, 1, 0, 1], bool))
    assert [rest.topics.name_of(tp) for tp in range(3)] == [("t", 1), ("t", 2), ("u", 0)]
    seen: list[Any] = []

    def plan(members: Any, topics: Any, claims: Any) -> object:
        seen.append(topics)
        return {(t, p): "a" for t, ps in topics.items() for p in ps}

    holdfast.assign(rest, made(plan))
    assert seen == [{"t": (1, 2), "u": (0,)}]
    assert kept.tolist() == [1, 2, 4]


def test_a_design_refuses_a_target_that_ignores_claims() -> None:
    (design,) = assignors_for("deferred", Policy(), [eager])
    assert design.name == "holdfast-deferred"
    for name in ("deferred", "incremental"):
        with pytest.raises(ConfigError, match="mine ignores what members claim"):
            assignors_for(name, Policy(), [made(spares_last, uses_claims=False)])
