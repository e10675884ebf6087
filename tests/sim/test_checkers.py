"""Every rule can fail: a correct history breaks nothing, the same one altered breaks the rule.

The planted bugs (test_planted.py) alter the machines themselves; here each checker is tested with a
history written by hand, so that none can stop working unnoticed.
"""

from __future__ import annotations

import re

import pytest
from tests.proof.random_runs import QUICK
from tests.proof.rules.attached import CheckedWorld
from tests.proof.rules.checkers import RULES
from tests.sim import broken_progress, broken_safety
from tests.sim.history import History

from holdfast.core.machine.leader.designs import (
    CooperativeAssignor,
    EagerAssignor,
)
from holdfast.core.model.partitions import resources_of
from holdfast.sim.world import WorldOptions

NAMED = re.compile(r"([sld]\d+|iii|again)(_|$)")


def named(rule: str) -> list:
    """The histories that begin with a rule's name."""
    return [
        value
        for module in (broken_safety, broken_progress)
        for name, value in vars(module).items()
        if (found := NAMED.match(name)) and found[1].lower() == rule.lower()
    ]


HISTORIES = {rule: named(rule) for rule in RULES}


def test_every_rule_of_the_protocol_is_checked_and_can_fail():
    names = [f"S{n}" for n in range(1, 17)]
    names += [f"L{n}" for n in range(1, 7)] + [f"D{n}" for n in range(1, 12)]
    assert list(RULES) == [*names, "III", "again"]
    assert [rule for rule, histories in HISTORIES.items() if not histories] == []
    assert sum(map(len, HISTORIES.values())) >= 45


@pytest.mark.parametrize(
    ("rule", "history"),
    [(rule, history) for rule, histories in HISTORIES.items() for history in histories],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_history_in_order_breaks_nothing_and_the_bent_one_its_rule(rule, history):
    right, wrong = history()
    assert right == set()
    assert rule in wrong


def test_nothing_waits_for_a_member_that_was_there_in_a_round_without_a_plan():
    """Seed 1857 of the soak: b's SyncGroup fails, so b never learns of partition 3."""
    history = History(broken_safety.DEFERRED, {"t": 3}, instances={"b": "static"})
    history.join("a", "01", generation=3)
    history.join("b", "2", generation=3)
    assert history.leader_round() == set()
    before = history.members["b"]
    history.partitions["t"] = 4
    assert history.leader_round() == set()
    assert resources_of(history.members["b"].owned) == {("t", 2), ("t", 3)}
    history.members["b"] = before
    history.round_without_a_plan()
    history.join("c")
    assert history.leader_round() == set()
    assert resources_of(history.members["c"].owned) == {("t", 3)}


@pytest.mark.parametrize(
    "assignor", [EagerAssignor("range"), EagerAssignor("sticky"), CooperativeAssignor()]
)
def test_plans_of_other_assignors_do_not_depend_on_order_either(assignor):
    offered = (assignor,)
    world = CheckedWorld(
        WorldOptions(assignors=lambda slot: offered, partitions={"t": 7, "u": 3}, costs=QUICK),
        seed=2,
    )
    for slot in range(4):
        world.start(slot)
    world.run(9_000)
    world.crash(1)
    world.run(30_000)
    assert world.checker.rounds > 1
    assert world.violations == []
