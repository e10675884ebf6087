"""KAFKA-9987, the constrained cooperative sticky assignor: its definitions and passes, by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.assignors.groups import run, settled, snapshot, tp
from tests.machine.player import Player
from tests.machine.subscribed import joining_members, round_of
from tests.strategies import snapshots

from holdfast.core.assignors import laws
from holdfast.core.assignors.claims import normalise
from holdfast.core.machine.actions import ComputeAssignment, Warn
from holdfast.core.machine.events import AssignmentComputed, JoinedMember
from holdfast.core.machine.leader.assignor_protocol import Assignor, MemberView
from holdfast.core.machine.leader.designs import (
    EAGER,
    CooperativeAssignor,
    DesignAssignor,
    EagerAssignor,
    compute,
)
from holdfast.core.machine.policy import Policy
from holdfast.core.model.constants import Design
from holdfast.core.model.group import Group
from holdfast.errors import InfeasibleError

NAME = "constrained-sticky"
COOPERATIVE = "constrained-cooperative-sticky"


def by_the_letter(group: dict[str, Any]) -> dict[str, set[tuple[str, int]]]:
    """The passes of the document, line by line, with plain sets and lists."""
    model = Group.from_dict(group)
    owner = normalise(model).owner
    members = sorted(model.member_ids)
    subscribed = {t for m in group["members"] for t in m["topics"] if t in group["partitions"]}
    partitions = sorted(
        ((t, p) for t in subscribed for p in range(group["partitions"][t])),
        key=lambda tp_: (tp_[1], tp_[0]),
    )
    newest = max((int(g) for g in model.generation), default=-1)
    c_f = len(partitions) // len(members)
    c_c = -(-len(partitions) // len(members))
    unassigned, unfilled, at_maximum = list(partitions), [], []
    assigned: dict[str, list[tuple[str, int]]] = {member: [] for member in members}
    for index, member in enumerate(members):
        owned = [
            tp_
            for tp_ in partitions
            if owner[model.topics.start[model.topics.index[tp_[0]]] + tp_[1]] == index
        ]
        if model.generation[index] != newest:
            owned = []
        if len(owned) < c_f:
            unfilled.append(member)
        elif len(owned) == c_f:
            owned = owned[:c_f]
        else:
            owned = owned[:c_c]
            at_maximum.append(member)
        assigned[member] = owned
        unassigned = [tp_ for tp_ in unassigned if tp_ not in owned]
    polled = list(at_maximum)
    for member in unfilled:
        while len(assigned[member]) < c_f:
            if unassigned:
                assigned[member].append(unassigned.pop(0))
            else:
                assigned[member].append(assigned[polled.pop(0)].pop())
    for member in members:
        if unassigned and member not in at_maximum:
            assigned[member].append(unassigned.pop(0))
    assert not unassigned
    return {member: set(own) for member, own in assigned.items()}


def rows_as_sets(rows: dict[str, dict[str, list[int]]]) -> dict[str, set[tuple[str, int]]]:
    return {m: {(t, p) for t, ps in own.items() for p in ps} for m, own in rows.items()}


@given(group=snapshots(equal=True))
def test_every_assignment_is_that_of_the_passes_line_by_line(group: dict[str, Any]) -> None:
    if group["members"]:
        assert rows_as_sets(run(group, NAME).to_dict()) == by_the_letter(group)


def test_all_owned_partitions_are_removed_if_the_generation_is_old() -> None:
    group = snapshot(
        {"t0": 4},
        ["a", "b"],
        owned={"a": {"t0": [2, 3]}, "b": {"t0": [0]}},
        generations={"a": 4, "b": 5},
    )
    assert run(group, NAME).to_dict() == tp("a: t0p1 t0p2; b: t0p0 t0p3")
    same = dict(group, members=[dict(member, generation=5) for member in group["members"]])
    assert run(same, NAME).to_dict() == tp("a: t0p2 t0p3; b: t0p0 t0p1")


def test_steal_one_partition_from_members_at_maximum_when_they_run_out() -> None:
    owned = {"a": {"t0": [0, 1, 2]}, "b": {"t0": [3, 4, 5]}, "c": {"t0": [6]}}
    result = run(snapshot({"t0": 7}, ["a", "b", "c"], owned=owned), NAME)
    assert result.to_dict() == tp("a: t0p0 t0p1; b: t0p3 t0p4 t0p5; c: t0p2 t0p6")
    assert result.quality.moved == 1


def test_partitions_transferring_ownership_are_removed_until_revoked() -> None:
    group = snapshot({"t0": 4}, ["a", "b"], owned={"a": {"t0": [0, 1, 2, 3]}})
    result = run(group, COOPERATIVE)
    assert result.to_dict() == tp("a: t0p0 t0p1; b:")
    laws.never_revokes_and_assigns(group, result)
    followup = run(settled(group, result.to_dict()), COOPERATIVE)
    assert followup.to_dict() == tp("a: t0p0 t0p1; b: t0p2 t0p3")


def test_eager_and_cooperative_have_the_same_target() -> None:
    group = snapshot({"t0": 9}, ["a", "b"], owned={"a": {"t0": range(9)}})
    assert run(group, NAME).target.tolist() == run(group, COOPERATIVE).target.tolist()


@pytest.mark.parametrize("name", [NAME, COOPERATIVE])
def test_unequal_subscriptions_are_refused_by_name(name: str) -> None:
    group = snapshot({"t0": 1, "t1": 1}, {"a": ["t0"], "b": ["t0"], "c": ["t0", "t1"]})
    with pytest.raises(InfeasibleError, match=r"members\[2\]: .*'a' and 'c'.*'t1'"):
        run(group, name)


DEPLOYED = {"A": ("t",), "B": ("t", "u")}  # B is restarted already and wants a new topic
OWNED = {"A": (("t", (0, 1)),), "B": ()}


def led(assignor: Assignor) -> AssignmentComputed:
    """One leader's turn in the middle of the deploy."""
    views = {
        name: MemberView(
            topics=topics,
            owned=() if assignor.rebalance_protocols == EAGER else resources(OWNED[name]),
            previous=resources(OWNED[name]),
            generation=3 if OWNED[name] else -1,
        )
        for name, topics in DEPLOYED.items()
    }
    request = round_of(assignor.name, joining_members(assignor, **views), {"t": 4, "u": 2}, 4)
    return compute((assignor,), request)


def resources(owned) -> tuple[tuple[str, int], ...]:
    return tuple((topic, p) for topic, numbers in owned for p in numbers)


@pytest.mark.parametrize(
    "assignor",
    [
        EagerAssignor(NAME),
        CooperativeAssignor(name=COOPERATIVE),
        DesignAssignor(Policy(design=Design.SIMPLE, assignor=COOPERATIVE)),
    ],
    ids=lambda a: a.name,
)
def test_a_deploy_that_adds_a_topic_is_planned_by_the_unconstrained_assignor(assignor) -> None:
    done = led(assignor)
    told = {name: assignor.read(data).assigned for name, data in done.assignments}
    every = {("t", p) for p in range(4)} | {("u", p) for p in range(2)}
    assert told["A"] | told["B"] == every  # nothing is without an owner until the deploy is over
    assert told["A"] >= {("t", 0), ("t", 1)}
    assert told["B"] >= {("u", 0), ("u", 1)}
    assert done.failure is None
    (note,) = done.notes
    assert "sticky plans this round instead of constrained" in note
    assert "'A' and 'B' do not subscribe to the same topics" in note


def test_a_member_says_which_assignor_planned() -> None:
    play = Player()
    play.start()
    play.join(leader=True, members=(JoinedMember(member_id="m", metadata=b""),))
    token = play.last(ComputeAssignment).token
    play(AssignmentComputed(token, (("m", b""),), notes=("sticky plans this round instead",)))
    assert play.last(Warn).text == "sticky plans this round instead"


def test_2100_members_of_2100_partitions() -> None:
    """The 2.5 minutes of the report."""
    group = snapshot({"t0": 2100}, [f"m{i:04}" for i in range(2100)])
    first = run(group, NAME)
    assert first.quality.spread == 0
    members = group["members"][1:]
    left = run(dict(settled(group, first.to_dict()), members=members), NAME)
    assert left.quality.spread == 1
    assert left.quality.moved == 0


def test_a_group_without_members_or_topics_gets_nothing() -> None:
    assert run(snapshot({"t0": 3}, []), NAME).to_dict() == {}
    assert run(snapshot({"t0": 3}, {"a": [], "b": []}), NAME).to_dict() == {"a": {}, "b": {}}
