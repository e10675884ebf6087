"""A new assignor is a function and one row: stock clients, replays and plans take it from there."""

from __future__ import annotations

import numpy as np
import pytest
from tests.members.plugin_group import Group
from tests.pipeline import local, worlds
from tests.pipeline.histories import generation
from tests.pipeline.test_plan import TOPICS, tables

from holdfast.core.assignors import registry
from holdfast.core.assignors.claims import Claims
from holdfast.core.assignors.registry import AssignorInfo
from holdfast.core.assignors.result import Solution
from holdfast.core.machine.supported_protocols import assignors_for
from holdfast.fleet.pipeline.plan.run import plan
from holdfast.fleet.pipeline.replay.run import Request, replay
from holdfast.fleet.pipeline.replay.trace import ReplaySettings
from holdfast.fleet.pipeline.replay.trace_builder import traces
from holdfast.members.clients.kafka.assignors import assignor

NAME = "all-to-first"


def all_to_first(claims: Claims) -> Solution:
    """Everything to the first member; all subscribe to all."""
    return Solution(target=np.zeros(claims.group.topics.n_tps, dtype=np.int32))


@pytest.fixture(autouse=True)
def row(monkeypatch):
    """The one row."""
    info = AssignorInfo(
        name=NAME, home=f"{__name__}:all_to_first", summary="all to the first member"
    )
    monkeypatch.setitem(registry._ROWS, NAME, info)


def test_a_stock_client_runs_a_group_with_it():
    group = Group(7)
    for member in ("a", "b"):
        group.join(member, assignor(NAME))
    for member in group.members.values():
        member.rejoin = True
    group.settle()
    assert [m.partitions() for m in group.members.values()] == [list(range(7)), []]


def test_a_policy_has_its_name_and_a_design_computes_targets_with_it():
    assert [a.name for a in assignors_for(NAME)] == [NAME]
    (design,) = assignors_for("holdfast-simple", assignors=(NAME,))
    assert (design.name, design.policy.assignor) == ("holdfast-simple", NAME)


def test_a_history_is_replayed_with_it(tmp_path):
    played = worlds.play("g", policy="eager", scenario="rolling-bounce", members=3, partitions=6)
    worlds.write(tmp_path / "dump", [played], topics=[("topic", 6)])
    told = list(traces(local.run(tmp_path / "dump", tmp_path / "tables"), {"topic": 6}))
    asked = ReplaySettings(policy="eager", assignor=NAME)
    rows = replay(None, told, Request(settings=(asked,))).to_pylist()
    assert [row["assignor"] for row in rows] == ["range", NAME]
    assert rows[1]["note"] is None and rows[1]["rebalances"] > 0


def test_groups_are_planned_with_it(tmp_path):
    owned = {"a-1": {"t": [0, 1]}, "b-1": {"t": [2, 3]}}
    made = tables(tmp_path, [generation("g", 7, owned)])
    (row,) = plan(None, made, TOPICS, NAME).to_pylist()
    assert (row["refused"], row["n_kept"], row["n_moved"], row["n_stopped"]) == (None, 2, 2, 4)
