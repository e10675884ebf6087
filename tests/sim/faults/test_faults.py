"""Fault scenarios by number: each number has one test, and its world is the same every time."""

from __future__ import annotations

import pytest
from tests.proof.random_runs import Faults
from tests.sim.faults import test_faults_claims, test_faults_groups, test_faults_time
from tests.sim.faults.small_worlds import WORLDS
from tools.pages.faults import played_by_number


def test_every_number_is_a_test():
    assert sorted(played_by_number()) == list(range(1, 76))


@pytest.mark.parametrize(
    ("module", "number"),
    [
        (test_faults_groups, 7),
        (test_faults_groups, 27),
        (test_faults_claims, 38),
        (test_faults_time, 64),
    ],
)
def test_a_fault_scenario_repeats(module, number):
    (play,) = (
        value for name, value in vars(module).items() if name.startswith(f"test_{number:02}_")
    )
    play()
    first = [list(w.trace) for w in WORLDS]
    WORLDS.clear()
    play()
    assert first == [list(w.trace) for w in WORLDS]


def test_random_faults_are_the_same_world_twice():
    a, b = (Faults(5, None, None, trace=True).play().trace for _ in range(2))
    assert a == b
