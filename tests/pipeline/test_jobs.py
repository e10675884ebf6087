"""The jobs for spark-submit say their arguments, before Spark is started."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest

JOBS = sorted((Path(__file__).parents[2] / "jobs").glob("*.py"))


def arguments_of(job: Path) -> set[str]:
    """What the job asks its parser for."""
    calls = [node for node in ast.walk(ast.parse(job.read_text())) if isinstance(node, ast.Call)]
    added = [c for c in calls if isinstance(c.func, ast.Attribute)]
    return {
        str(key.value.value)
        for call in added
        if call.func.attr == "add_argument"
        for key in call.keywords
        if key.arg == "metavar"
    }


@pytest.fixture
def ends(monkeypatch):
    """Run a job with these arguments in this process: its exit code."""

    def run(job, *arguments):
        monkeypatch.setattr(sys, "argv", [str(job), *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(job), run_name="__main__")
        return ended.value.code

    return run


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.stem)
def test_help_names_every_argument(job, ends, capsys):
    assert ends(job, "--help") == 0
    said = capsys.readouterr().out
    assert arguments_of(job)
    assert all(name in said for name in arguments_of(job))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.stem)
def test_a_job_without_arguments_says_what_is_missing(job, ends, capsys):
    assert ends(job) == 2
    assert "the following arguments are required: " in capsys.readouterr().err


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.stem)
def test_a_job_knows_holdfast_by_its_module_for_spark_alone(job):
    tree = ast.walk(ast.parse(job.read_text()))
    names = {alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names}
    tree = ast.walk(ast.parse(job.read_text()))
    names |= {node.module for node in tree if isinstance(node, ast.ImportFrom)}
    assert {name for name in names if name.startswith("holdfast")} == {"holdfast.spark"}
