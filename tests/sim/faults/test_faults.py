"""Fault scenarios by number: every fault case is played, and meets its expectations."""

from __future__ import annotations

import pytest
from tests.proof.random_runs import Faults
from tests.sim.faults.cases import CASES, play_case
from tests.sim.faults.fault_case import FaultCase, until
from tests.sim.faults.titles import TITLES, slug
from tools.pages.faults import played_by_number


def test_every_number_is_a_fault_case_or_a_test_with_its_title():
    tests = played_by_number()
    assert sorted([*CASES, *tests]) == sorted(TITLES) == list(range(1, 76))
    for number, test in tests.items():
        assert test.endswith(f"::test_{number:02}_{slug(number)}")


@pytest.mark.parametrize("number", [7, 27, 38, 64])
def test_a_fault_case_repeats(number):
    first, again = play_case(number), play_case(number)
    assert (first.expected, first.trace) == (again.expected, again.trace)


@pytest.mark.parametrize("number", CASES, ids=lambda n: f"{n:02}_{slug(n)}")
def test_a_fault_case(number):
    case = play_case(number)
    assert [e.text for e in case.expected if not e.holds] == []
    assert case.violations == ()
    assert case.expected


def test_a_fault_case_that_does_not_come_as_expected_says_so():
    def never(case: FaultCase) -> None:
        w = case.world()
        case.expect(w.rounds == 0, "there was no round")
        until(w, lambda: False, 10)

    case = FaultCase().play(never)
    assert not case.well
    failed = [e.text for e in case.expected if not e.holds]
    assert failed == ["there was no round", "it never came to that"]


def test_random_faults_are_the_same_world_twice():
    a, b = (Faults(5, None, None, trace=True).play().trace for _ in range(2))
    assert a == b
