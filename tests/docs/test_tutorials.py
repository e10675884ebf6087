"""The tutorials run as they stand: files are written, commands typed, and their output is read.

A page's ``python title="FILE"`` blocks become files; its ``console`` blocks are typed into one
folder, line by line (``>`` goes on with the line before), and must print what stands below them,
where ``...`` is anything. The address ``localhost:9092`` is the run's broker.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.suites import further

from holdfast.core.machine.codes import ErrorCode, describe
from holdfast.local.jars import KAFKA_VERSION
from holdfast.members.config.settings import Settings

NEEDED = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
PAGES = Path(__file__).parents[2] / "docs" / "tutorials"
ALONE = ("simulation", "upgrade", "fleet")
LIVE = ("deferred", "worker")
CHECKED = ("confluent",)
"""Pages with a group that the doctor looks at: Spark starts for it."""
DEPLOYED = ("kubernetes",)
"""Pages whose program runs until SIGTERM: ``test_kubernetes.py`` runs it."""
BLOCK = re.compile(r'^```(python title="(?P<file>[^"]+)"|console)\n(?P<text>.*?)^```$', re.M | re.S)


def typed(block: str) -> list[tuple[str, str]]:
    """(command, expected output) of a console block."""
    found: list[tuple[str, str]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith("> ") and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", "")
        else:
            found[-1] = (found[-1][0], found[-1][1] + line + "\n")
    return found


def run_page(page: str, folder: Path, bootstrap: str = "localhost:9092") -> int:
    """Do what the page says; how many commands it had."""
    done = 0
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "NO_COLOR": "1",
        "COLUMNS": "120",
    }
    for block in BLOCK.finditer((PAGES / f"{page}.md").read_text(encoding="utf-8")):
        text = block["text"].replace("localhost:9092", bootstrap)
        if block["file"]:
            (folder / block["file"]).write_text(text, encoding="utf-8")
            continue
        for command, expected in typed(text):
            ended = subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=240,
                check=False,
            )
            assert ended.returncode == 0, f"$ {command}\n{ended.stdout}"
            pattern = ".*".join(re.escape(part) for part in expected.split("..."))
            assert re.fullmatch(pattern, ended.stdout, re.S), (
                f"$ {command}\nexpected:\n{expected}\nprinted:\n{ended.stdout}"
            )
            done += 1
    return done


def test_every_tutorial_is_run() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {*ALONE, *LIVE, *CHECKED, *DEPLOYED}


@pytest.mark.parametrize("page", further(["upgrade", "simulation"]))
def test_a_tutorial_that_needs_no_broker(page: str, tmp_path: Path) -> None:
    assert run_page(page, tmp_path) >= 4


@pytest.mark.spark
@pytest.mark.every
def test_the_fleet_tutorial(tmp_path: Path) -> None:
    assert run_page("fleet", tmp_path) >= 4


@pytest.mark.broker
@pytest.mark.parametrize("page", LIVE)
def test_a_tutorial_with_a_group(page: str, tmp_path: Path, broker) -> None:
    assert run_page(page, tmp_path, broker.bootstrap) == 1


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize("page", CHECKED)
def test_a_tutorial_whose_group_the_doctor_looks_at(page: str, tmp_path: Path, broker) -> None:
    assert run_page(page, tmp_path, broker.bootstrap) == 2


@pytest.mark.parametrize(
    ("expected", "printed"), [("a ... c\n", r"a b\n"), ("a\n", r"a\nb\n"), ("", r"warning\n")]
)
def test_a_page_that_says_something_else_fails(
    expected: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.PAGES", tmp_path)
    block = f"```console\n$ printf '{printed}'\n{expected}```\n"
    (tmp_path / "x.md").write_text(block, encoding="utf-8")
    with pytest.raises(AssertionError, match="printed"):
        run_page("x", tmp_path)


@pytest.mark.parametrize("page", [*ALONE, *LIVE, *CHECKED, *DEPLOYED])
def test_a_page_names_the_versions_that_it_was_run_with(page):
    """They are those that the other tests of the page run with now."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    last = text.splitlines()[-1]
    assert last.startswith("Run with ")
    for name, found in re.findall(r"([\w-]+) (\d[\w.]*\d)", last):
        assert found == (KAFKA_VERSION if name == "Kafka" else version(name)), name
    plugin = re.search(r"^from (kafka|confluent_kafka|aiokafka)", text, re.M)
    assert plugin is None or plugin[1].replace("_", "-") in last


def test_the_upgrade_guide_names_the_default_and_the_error_of_a_group_without_it():
    text = (PAGES / "upgrade.md").read_text(encoding="utf-8")
    default = Settings.parse(NEEDED)["partition.assignment.strategy"][0]
    assert f"The default of `partition.assignment.strategy` is `{default}`" in text
    error = describe(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert "upgrade-check" in error
    assert f"```\n{error}\n```\n" in text
