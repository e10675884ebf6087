"""``bench/whatif.py``: a recording outlives a group that does not come up."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture()
def whatif(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import whatif

    yield whatif
    for name in ("whatif", "bounce", "bounce_member"):
        sys.modules.pop(name, None)


def test_a_group_that_does_not_come_up_is_one_line_and_the_others_are_played(
    whatif, tmp_path, monkeypatch, capsys
):
    """Three ways in which a group fails; the history is written at the end all the same."""
    from holdfast.cluster.broker.broker import Broker

    wrong = {
        "ours-eager": SystemExit("2 members read 4"),
        "java-coop": BrokenPipeError("the member is gone"),
        "java-848": RuntimeError("no topic"),
    }

    def run(bounce):
        if bounce.member in wrong:
            raise wrong[bounce.member]

    monkeypatch.setattr(whatif.TimedBounce, "run", run)
    monkeypatch.setattr(
        whatif.TimedBounce, "truth", lambda bounce: {"type": "run", "group": bounce.topic}
    )
    monkeypatch.setattr(whatif, "java_classes", lambda folder: "")
    monkeypatch.setattr(whatif, "versions", dict)
    monkeypatch.setattr(
        Broker, "start", lambda settings: nullcontext(SimpleNamespace(bootstrap="b:1"))
    )
    commands = []
    monkeypatch.setattr(whatif.subprocess, "run", lambda command, **_: commands.append(command))
    kinds = (*wrong, "ours-simple")
    options = argparse.Namespace(
        folder=tmp_path,
        kinds=kinds,
        cases=("clean-free",),
        repeat=1,
        parallel=1,
        members=4,
        partitions=12,
        down=2.0,
    )
    whatif.record(options)
    lines = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [line["type"] for line in lines] == ["failed"] * 3 + ["run"]
    assert "2 members read 4" in lines[0]["error"] and "BrokenPipeError" in lines[1]["error"]
    (command,) = commands
    assert command[1] == "history"
    assert [run["type"] for run in whatif.read_runs([tmp_path])] == ["run"]
    assert len(capsys.readouterr().out.splitlines()) == 5
