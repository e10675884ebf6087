"""Every test is in one of `make test`, `make test-all` and `make soak`; CI runs the first two."""

from __future__ import annotations

import re
import subprocess
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from _pytest.mark.expression import Expression
from tests.suites import further
from tools import run_tests
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


def test_python_keeps_what_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    environments: list[dict[str, str]] = []
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(run_tests, "find_java", lambda: None)
    monkeypatch.setattr(run_tests.subprocess, "call", lambda _, env: environments.append(env) or 0)
    assert run_tests.main([]) == 0
    assert [env.get("PYTHONDONTWRITEBYTECODE") for env in environments] == [None]


HANGS = "import threading\ndef test_hangs(): threading.Event().wait()\ndef test_other(): pass\n"


def test_a_test_that_hangs_is_ended_and_named_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(HANGS, encoding="utf-8")
    runs: list[subprocess.CompletedProcess[str]] = []

    def run(command: list[str], env: dict[str, str]) -> int:
        done = subprocess.run(
            command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        runs.append(done)
        return done.returncode

    monkeypatch.setattr(run_tests, "find_java", lambda: None)
    monkeypatch.setattr(run_tests, "MOST_SECONDS", 3)
    monkeypatch.setattr(run_tests, "subprocess", SimpleNamespace(call=run))
    assert run_tests.main(["-n", "1"]) == 1
    assert "in test_hangs" in runs[0].stderr  # what its thread did
    assert re.search("^FAILED test_it.py::test_hangs - worker", runs[0].stdout, re.M)
    assert "1 failed, 1 passed" in runs[0].stdout


def test_of_the_cases_of_a_promise_the_first_is_quick() -> None:
    cases = further([("a", 1), ("b", 2)])
    assert cases == [("a", 1), pytest.param("b", 2, marks=pytest.mark.every)]
    assert further("abc", stays="b")[1] == "b"
