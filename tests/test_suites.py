"""Every test is in one of `make test`, `make test-all` and `make soak`; CI runs the first two."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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


@pytest.mark.parametrize("scheduling", further(["WholeFiles", "OnceEach"]))
def test_a_test_that_ends_its_worker_runs_once_and_the_others_of_its_file_run(
    scheduling: str, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text(
        "def pytest_xdist_make_scheduler(config, log):\n"
        "    from tests import scheduling\n"
        f"    return scheduling.{scheduling}(config, log)\n",
        encoding="utf-8",
    )
    (tmp_path / "test_it.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.parametrize('at', range(6))\n"
        "def test_it(at):\n"
        "    assert at != 2 or os._exit(1)\n",
        encoding="utf-8",
    )
    out = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "xdist",
            "-n",
            "2",
            "--dist",
            "loadgroup",
            "--max-worker-restart",
            "3",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "1 failed, 5 passed" in out.stdout, out.stdout
    assert "test_it[2]" in out.stdout
