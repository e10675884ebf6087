"""The output, errors and exit codes of ``tests.proof.search`` and ``tests.proof.soak``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.proof import search, soak
from tests.proof.rules.checkers import RoundChecker
from tests.proof.walk import Found

ROOT = Path(__file__).parents[2]


def soak_in_a_process(hash_seed: str, seed: int) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.proof.soak", "--runs", "2", "--seed", str(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_seed_replays_bit_for_bit_in_another_process():
    first = soak_in_a_process("1", 9)
    assert soak_in_a_process("2", 9) == first
    assert soak_in_a_process("1", 10) != first


def test_a_random_run_can_be_looked_at(capsys):
    assert soak.main(["--runs", "1", "--seed", "7", "--policy", "eager", "--trace"]) == 0
    trace = capsys.readouterr().err
    assert "seed 7, eager" in trace
    assert "m0000.0 starts" in trace


def test_a_broken_rule_is_exit_code_1_with_the_run_that_broke_it(capsys, monkeypatch):
    monkeypatch.setattr(
        RoundChecker, "_safety", lambda self, *_: self.ownership_log.fail("S1", 0, "planted")
    )
    assert soak.main(["--runs", "1", "--seed", "5", "--policy", "eager"]) == 1
    printed = capsys.readouterr()
    violation = json.loads(printed.out)["violations"][0]
    assert (violation["rule"], violation["seed"]) == ("S1", 5)
    again = "again: python -m tests.proof.soak --runs 1 --seed 5 --policy eager --trace"
    assert printed.err.splitlines() == [again]


def test_a_search_prints_the_states_it_counted(capsys):
    states = []
    for partitions in (1, 2):
        assert search.main(["--policy", "eager", "--partitions", str(partitions)]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["complete"], found["violations"]) == (True, [])
        assert found["partitions"] == partitions
        states.append(found["states"])
    assert 1_000 < states[0] < states[1]


def test_a_search_that_did_not_end_is_exit_code_1(monkeypatch):
    monkeypatch.setattr(search.Search, "run", lambda self: Found(complete=False))
    assert search.main([]) == 1


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (search, ["--policy", "kip848"], "eager"),
        (search, ["--lost", "joins"], "expected join, sync"),
        (search, ["--partitions", "24"], "--partitions"),
        (search, ["--seed", "1"], "--seed"),
        (soak, ["--policy", "kip848"], "kip848"),
        (soak, ["--runs", "-3"], "expected"),
        (soak, ["--members", "3"], "--members"),
    ],
)
def test_what_means_nothing_is_refused(command, arguments, words, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err
