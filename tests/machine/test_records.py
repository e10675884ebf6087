"""Records of members and groups: a copy continues as the original, a group keeps to its table."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from tests.machine.clients import COMPLETING, EMPTY, PREPARING, STABLE, Group
from tests.machine.player import T0, T1, Player
from tests.proof import copies

import holdfast.core.machine.coordinator
from holdfast.core.machine.coordinator import coordinator, group, rebalance
from holdfast.core.machine.events import RejoinRequested
from holdfast.core.machine.member.holdings import Holdings, Limit, Revocation, RevocationStep
from holdfast.core.machine.shared_values import Identity
from holdfast.core.machine.states import GROUP_TRANSITIONS, GroupState


def test_time_that_passes_moves_the_revocation():
    identity = Identity(generation=1, member_id="m", instance_id=None)
    job = Revocation(
        token=3,
        resources=frozenset({T0}),
        identity=identity,
        step=RevocationStep.WAITING,
        deadline_ms=100,
        limit=Limit(ms=60, setting="a.key"),
        retry_ms=50,
    )
    data = Player().member.data
    data.holdings.revocation = job
    copies.shift_member(data, 7)
    assert data.holdings.revocation == replace(job, deadline_ms=93, retry_ms=43)
    data.holdings.revocation = replace(job, retry_ms=None)
    copies.shift_member(data, 7)
    assert data.holdings.revocation == replace(job, deadline_ms=93, retry_ms=None)


def test_a_state_that_is_put_back_goes_on_as_it_would_have():
    play = Player().stable(T0, T1)
    copy = copies.saved_member(play.member.data)
    first = play(RejoinRequested())
    other = Player(play.script)
    copies.restore_member(other.member.data, copy)
    assert other(RejoinRequested()) == first
    assert copies.saved_member(other.member.data) == copies.saved_member(play.member.data)


# The group's table

ALL = [(a, b) for a in GroupState for b in GroupState]
ROWS = {(a, b) for a, causes in GROUP_TRANSITIONS.items() for b in causes.values()}


@pytest.mark.parametrize(("state", "to"), ALL)
def test_a_group_enters_no_state_past_its_table(state, to):
    data = Group().group.data
    data.state = state
    if (state, to) in ROWS:
        group.go(data, to)
        assert data.state is to
    else:
        with pytest.raises(AssertionError):
            group.go(data, to)
        assert data.state is state


def test_a_groups_state_is_set_in_one_place():
    places = []
    for path in Path(holdfast.core.machine.coordinator.__path__[0]).glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                places += [
                    (path.stem, function.name)
                    for node in ast.walk(function)
                    if isinstance(node, ast.Attribute)
                    and node.attr == "state"
                    and isinstance(node.ctx, ast.Store)
                ]
    assert sorted(places) == [("group", "go")]


def test_a_coordinator_takes_every_row_of_its_table(monkeypatch):
    taken = set()

    def go(data, to):
        taken.add((data.state, to))
        group.go(data, to)

    monkeypatch.setattr(rebalance, "go", go)
    monkeypatch.setattr(coordinator, "go", go)
    g = Group()
    (a,) = g.stable("a")
    assert taken == {(EMPTY, PREPARING), (PREPARING, COMPLETING), (COMPLETING, STABLE)}
    g.join("a", a, metadata=b"new")
    assert (STABLE, PREPARING) in taken
    g.enter("b")
    assert (COMPLETING, PREPARING) in taken
    for member_id in list(g.group.members):
        g.leave("a", member_id)
    assert g.group.state is EMPTY
    assert (PREPARING, EMPTY) in taken
    after_a_failover = Group()
    for record in g.records[:1]:
        after_a_failover.group.replay(record.key, record.value)
    after_a_failover.group.load(0)
    assert after_a_failover.group.state is STABLE
    assert taken == ROWS


def test_holdings_are_equal_by_value():
    settings = dict.fromkeys(copies.HOLDINGS_SETTINGS, 1)
    assert Holdings(**settings) == Holdings(**settings)
    assert Holdings(**settings, owned=frozenset({T0})) != Holdings(**settings)
