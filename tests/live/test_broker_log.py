"""The log of holdfast's broker says why its groups rebalance, and ``--broker-log`` reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.running import run
from tests.live.crew import Topic, fresh
from tests.live.disturbed import left_by
from tests.live.polled import StockMember
from tests.live.test_rebalance_now import n_members
from tests.live.waiting import until

pytestmark = pytest.mark.broker


def test_causes_of_rebalances_are_stated(
    broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(
        "holdfast.fleet.pipeline.session.open_session"
    )  # the pipeline runs in this process
    bootstrap, group = broker.bootstrap, fresh("g")
    topic = Topic(bootstrap, 2, 5, name=f"{group}-t")
    with StockMember(bootstrap, group, topic.name, "stays"):
        until(lambda: n_members(bootstrap, group) == 1, "the group's first member")
        with StockMember(bootstrap, group, topic.name, "leaves"):
            until(lambda: n_members(bootstrap, group) == 2, "the second member")
        until(lambda: n_members(bootstrap, group) == 1, "the end of the second member")
        left_by(bootstrap, group).dump(tmp_path / "dump")

    def causes(*words: str) -> list[tuple[str, str]]:
        source = ("--input", tmp_path / "dump", "--table", "rebalances", "--format", "json")
        done = run("history", *source, *words)
        assert done.code == 0, done.err
        return [(row["cause"], row["cause_basis"]) for row in json.loads(done.out)["rows"]]

    assert {basis for _, basis in causes()} == {"inferred"}
    stated = causes("--broker-log", broker.log)
    assert {("join", "stated"), ("leave", "stated")} <= set(stated), stated
