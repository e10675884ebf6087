"""Every test is in one of `make test`, `make test-all` and `make soak`; CI runs the first two."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression
from tests.suites import further
from tools.run_tests import SUITES
from tools.soak import PARTS

ROOT = Path(__file__).parents[1]
MARKS = ("spark", "broker", "browser", "every", "slow")


def suites_of(marks: set[str]) -> list[str]:
    """Names of the suites that take a test with these marks."""
    return [
        name
        for name, expression in SUITES.items()
        if Expression.compile(expression).evaluate(lambda mark, **_: mark in marks)
    ]


def test_whatever_its_marks_a_test_is_in_one_suite(pytestconfig: pytest.Config) -> None:
    known = {line.split(":")[0] for line in pytestconfig.getini("markers")}
    assert set(MARKS) <= known
    for chosen in product((False, True), repeat=len(MARKS)):
        marks = {mark for mark, has in zip(MARKS, chosen, strict=True) if has}
        assert len(suites_of(marks)) == 1, marks


def test_a_test_without_marks_is_in_the_quick_suite() -> None:
    assert suites_of(set()) == ["test"]
    assert suites_of({"broker", "every"}) == ["test-all"]
    assert suites_of({"broker", "every", "slow"}) == ["slow"]


def test_ci_runs_two_suites_and_the_soak_runs_the_third() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("make test")] == [
        "make test",
        "make test-all",
    ]
    recipes = dict(
        re.findall(
            r"^(test|test-all): .*\n(?:\t.*\n)*\t(.*run_tests.*)",
            (ROOT / "Makefile").read_text(encoding="utf-8"),
            re.M,
        )
    )
    assert ["--all" in recipes[name] for name in ("test", "test-all")] == [False, True]
    soaked = {name: words for name, words in PARTS.items() if words[:2] == ["-m", "pytest"]}
    laws = soaked.pop("laws")
    assert "exhaustive" in laws and laws[-1].startswith("hypothesis and ")
    assert soaked
    assert all(words[words.index("-q") + 2] == SUITES["slow"] for words in soaked.values())


def test_of_the_cases_of_a_promise_the_first_is_quick() -> None:
    cases = further([("a", 1), ("b", 2)])
    assert cases == [("a", 1), pytest.param("b", 2, marks=pytest.mark.every)]
    assert further("abc", stays="b")[1] == "b"
