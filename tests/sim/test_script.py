"""Scenario files: impossible steps, groups without members, deleted topics."""

from __future__ import annotations

import json

import pytest
from tests.cli.running import run
from tests.proof.random_runs import soak
from tests.proof.rules.attached import CheckedWorld, simulate

from holdfast.core.machine.policy import POLICIES
from holdfast.errors import ConfigError
from holdfast.sim.scenarios import Play, ScenarioStep, Setup, check_balance


def scripted(*steps: ScenarioStep, **more):
    setup = {"members": 3, "partitions": 4, "scenario": "story", "script": steps} | more
    return simulate(Setup(**setup))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            ScenarioStep(at_ms=5, do="crash", slot=9),
            r"crash at 5 ms: found slot 9, expected one of \[0",
        ),
        (
            ScenarioStep(at_ms=5, do="start", slot=1),
            "start at 5 ms: found slot 1, expected one that is",
        ),
        (ScenarioStep(at_ms=5, do="start", slot=-7), "found slot -7"),
        (ScenarioStep(at_ms=5, do="start", slot=-1), "expected one that is not up"),
        (
            ScenarioStep(at_ms=5, do="resize", topic="t", count=4),
            r"found topic 't', expected .*'topic'",
        ),
        (ScenarioStep(at_ms=5, do="resize", count=-1), "found count -1"),
    ],
)
def test_a_step_that_cannot_be_taken_says_why(step, words):
    with pytest.raises(ConfigError, match=words):
        scripted(step)


def test_nobody_is_left_and_no_rule_is_broken():
    report = scripted(*(ScenarioStep(at_ms=i, do="stop", slot=i, returns=False) for i in range(3)))
    assert report.violations == ()
    assert report.partition_seconds_stopped > 0


def test_a_group_that_failed_is_not_one_that_has_ended():
    play = Play(Setup(members=1, partitions=2), make_world=CheckedWorld)
    play.start_all()
    play.settle()
    play.world.crash(0)
    assert play.settled()
    check_balance(play)
    assert play.world.violations == []
    play.world.slots[0].failed = "FENCED"
    assert not play.settled()
    check_balance(play)
    assert [v.rule for v in play.world.violations] == ["L1"]


def test_a_topic_that_is_deleted_is_processed_by_nobody():
    report = scripted(ScenarioStep(at_ms=0, do="resize", count=0))
    assert report.violations == ()
    assert report.partitions == 0


@pytest.mark.parametrize("policy", ["deferred", "kip848"])
def test_scaling_down_by_a_crash_waits_for_the_session(policy):
    clean, crash = (
        simulate(Setup(scenario="scale-down", policy=policy, crash=crash))
        for crash in (False, True)
    )
    assert clean.violations == crash.violations == ()
    session_s = Setup().costs.session_ms / 1_000
    late_s = crash.time_to_balance_seconds - clean.time_to_balance_seconds
    assert session_s / 2 < late_s <= session_s + 3


@pytest.mark.parametrize("policy", ["eager", "deferred", "kip848"])
def test_one_member_dies_and_is_back(policy):
    report = simulate(Setup(scenario="process-death", policy=policy, members=1, partitions=3))
    assert report.violations == ()
    assert report.longest_stop_seconds > Setup().costs.restart_ms / 1_000


def test_an_assignor_that_moves_nothing_is_not_held_to_even_loads():
    assert simulate(Setup(policy="fairest-sticky", members=3, partitions=5)).violations == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"seed": -1}, "seed: found -1"),
        ({"steps": 0}, "steps: found 0"),
        ({"scenario": "15", "script": (ScenarioStep(at_ms=0, do="stop"),)}, "kip848 is a baseline"),
    ],
)
def test_numbers_and_scenarios_that_cannot_be(fields, words):
    with pytest.raises(ConfigError, match=words):
        simulate(Setup(policy="kip848", **fields))


def test_random_runs_of_one_policy_and_what_happened_in_them():
    lines: list[str] = []
    outcome = soak(7, 1, policy="eager", seen=lines.append)
    assert outcome.failures == ()
    assert lines[0] == "seed 7, eager"
    assert any("m0000.0 starts" in line for line in lines)
    again: list[str] = []
    assert soak(7, 1, policy="eager", seen=again.append).digest == outcome.digest
    assert again == lines
    for first, runs, policy in ((-1, 1, None), (0, 0, None), (0, 1, "kip848")):
        with pytest.raises(ConfigError, match="found"):
            soak(first, runs, policy=policy)
    assert "eager" in POLICIES


def test_a_clock_goes_backwards_and_nothing_else(tmp_path):
    def code(**step) -> int:
        file = tmp_path / "story.json"
        file.write_text(json.dumps({"steps": [{"at": "1s"} | step]}))
        return run("simulate", "--scenario", file, "--members", 2, "--partitions", 2).code

    assert code(do="jump-clock", **{"for": "-2h"}) == 0
    assert code(do="stall", slot=1, **{"for": "-2s"}) == 2
    assert code(do="stop", slot=1, returns="yes") == 2
