"""A policy of the user wherever a name is accepted: every client, workers, ``simulate``."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest
from tests.cli.running import run
from tests.live.waiting import until
from tests.machine.test_resolvers import owned, play, settled_pair
from tests.members.configured import NEEDED
from tests.members.test_every_client import POLICY, every_client, offered

import holdfast
from holdfast import Consumer, Worker
from holdfast.core.machine.leader import imbalance as resolvers
from holdfast.core.machine.policy import TOLERANCE_MS
from holdfast.errors import ConfigError, PlanError
from holdfast.members.config.own_assignors import resolve_policy


def patient(imbalance):
    """Hold back what new members would gain, for 20 s."""
    found = resolvers.deferred(imbalance)
    left_ms = 20_000 - imbalance.age_ms[imbalance.moves(found.waits_ms).taker]
    held = left_ms > TOLERANCE_MS
    pause_ms = int(left_ms[held].min()) if held.any() else 0
    return replace(found, may_move=~held, pause_ms=pause_ms)


ROW = holdfast.policy("row", patient, failback=True, timeout_ms=5_000)
"""What ``module:name`` names."""


@every_client
@pytest.mark.parametrize("given", [patient, f"{__name__}:patient"], ids=["function", "name"])
def test_every_client_takes_a_function(client, given):
    (design,) = offered(client, holdfast_policy=given)
    assert design.name == "holdfast-deferred"
    assert (design.policy.own.name, design.policy.failback) == ("patient", False)


@every_client
@pytest.mark.parametrize("given", [ROW, f"{__name__}:ROW"], ids=["row", "name"])
def test_every_client_takes_a_policy_that_was_made(client, given):
    (design,) = offered(client, holdfast_policy=given)
    own = design.policy.own
    assert (own.name, own.timeout_ms, design.policy.failback) == ("row", 5_000, True)


def test_a_worker_takes_a_function():
    worker = Worker({**NEEDED, POLICY: patient}, {"shard": 2})
    assert worker.assignors[0].name == "holdfast-deferred"
    assert worker.assignors[0].policy.own.name == "patient"


@every_client
def test_every_client_takes_damped_and_its_window(client):
    (design,) = offered(client, holdfast_policy="damped", holdfast_damped_stabilization_ms=5_000)
    assert (design.name, design.policy.damps) == ("holdfast-deferred", True)
    assert design.policy.stabilization_ms == 5_000


@pytest.mark.parametrize(
    "given", ["damped", "failback", patient], ids=["damped", "failback", "own"]
)
def test_a_policy_of_a_whole_group_is_none_of_a_kind(given):
    config = {**NEEDED, POLICY: "deferred", "holdfast.kinds": {"t": {POLICY: given}}}
    with pytest.raises(ConfigError, match="is a policy of a whole group"):
        Consumer(config)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("nowhere:at_all", "holdfast.policy: nowhere:at_all: No module named 'nowhere'"),
        (f"{__name__}:absent", "has no attribute 'absent'"),
        (f"{__name__}:NEEDED", "expected a function of one argument"),
        (lambda a, b: None, "policy lambda: expected a function of one argument"),
        ("bogus", "bogus"),
    ],
    ids=["module", "name", "mapping", "two arguments", "unknown"],
)
def test_what_is_no_policy_is_refused_when_a_member_is_made(given, text):
    for make in (Consumer, lambda config: Worker(config, {"shard": 2})):
        with pytest.raises(ConfigError, match=text):
            make({**NEEDED, POLICY: given})


def test_a_function_that_is_late_fails_the_plan_and_is_not_asked_again_before_it_ends():
    go = threading.Event()

    def slow(imbalance):
        go.wait(10)
        return patient(imbalance)

    row = resolve_policy(holdfast.policy("slow", slow, timeout_ms=20))
    history = settled_pair()
    history.design = replace(history.design, policy=replace(history.policy, damps=False, own=row))
    for text in ("gave no answer within 20 ms", "still works on an earlier round"):
        with pytest.raises(PlanError, match=f"policy slow: its function {text}"):
            history.leader_round()
    go.set()
    until(lambda: not row.resolver.is_busy, "the function to end")
    play(history)
    assert owned(history) == {"a": 6, "b": 6}


STEPS = [
    {"at": "60s", "do": "start", "slot": 2},
    {"at": "75s", "do": "stop", "slot": 2},
]


def test_simulate_plays_a_function_of_the_user(tmp_path):
    file = tmp_path / "flap.json"
    file.write_text(json.dumps({"steps": STEPS}))
    words = ("--scenario", str(file), "--members", "2", "--format", "json")
    moved = {
        policy: json.loads(run("simulate", "--policy", policy, *words).out)
        for policy in ("simple", f"{__name__}:patient", "damped")
    }
    assert [found["moved"] for found in moved.values()] == [16, 0, 0]
    assert [found["policy"] for found in moved.values()] == ["simple", "patient", "damped"]


def test_simulate_has_the_window_of_damped(tmp_path):
    file = tmp_path / "up.json"
    file.write_text(json.dumps({"steps": STEPS[:1]}))
    words = ("--scenario", str(file), "--policy", "damped", "--members", "2", "--format", "json")
    short, long = (
        json.loads(run("simulate", *words, "--stabilization", window).out)
        for window in ("5s", "50s")
    )
    assert short["moved"] == long["moved"] == 8
    assert long["time_to_balance_seconds"] - short["time_to_balance_seconds"] > 40
