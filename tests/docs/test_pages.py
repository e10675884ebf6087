"""Pages say what there is: generated ones, and tables of others that code or tests complete."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from tests.frameworks.test_frameworks import FRAMEWORKS
from tests.suites import further
from tools.pages import clients
from tools.write_pages import PAGES, ROOT, whole_text

from holdfast.cli import app as cli_app
from holdfast.core.assignors.registry import ASSIGNORS
from holdfast.fleet.report.metrics import METRICS
from holdfast.sim.scenarios import SCENARIOS

DEAR = {"docs/measured/designs.md", "docs/policies.md"}  # every design, every pair of policies


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", further(PAGES, stays=PAGES.keys() - DEAR))
def test_a_page_is_what_the_code_writes(name):
    assert (ROOT / name).read_text(encoding="utf-8") == whole_text(name)


def test_the_designs_measured_live_name_their_script():
    assert page("measured/bounce.md").count("`python bench/bounce.py") >= 4


def test_every_fragment_is_of_a_kind_that_the_change_log_has():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    kinds = {kind["directory"] for kind in options["tool"]["towncrier"]["type"]}
    fragments = sorted((ROOT / "changes").glob("*.md"))
    assert len(fragments) > 1
    assert {
        f.name: f.name.split(".")[-2] for f in fragments if f.name.split(".")[-2] not in kinds
    } == {}


def test_every_exit_code_is_described() -> None:
    codes = {v for name, v in vars(cli_app).items() if name.startswith("EXIT_")}
    assert {int(n) for n in re.findall(r"^\| (\d+) \|", page("cli.md"), re.M)} == {0, *codes}


def test_every_metric_is_listed_with_its_labels() -> None:
    listed = re.findall(r"^\| `(\w+)` \| ([^|]*) \| (.*) \|$", page("cli.md"), re.M)
    assert listed == [(m.name, ", ".join(m.labels), m.text) for m in METRICS.values()]


def test_every_public_name_of_a_client_is_in_its_drop_in_and_has_a_counterpart_or_a_reason():
    assert clients.missing() == []


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("NOT_HERE", "kafka.KafkaConsumer.highwater: no counterpart in Consumer"),
        ("COUNTERPARTS", "aiokafka.AIOKafkaConsumer.getone: no counterpart in Consumer"),
    ],
)
def test_a_name_without_an_answer_is_reported(monkeypatch, table, told):
    monkeypatch.setattr(clients, table, {})
    assert told in clients.missing()


FRAMEWORK = re.compile(r'^```python title="(?P<file>\w+)_app\.py"\n(?P<text>.*?)^```$', re.M | re.S)


def test_every_line_of_a_framework_is_one_that_its_test_runs():
    blocks = [(block["file"], block["text"]) for block in FRAMEWORK.finditer(page("frameworks.md"))]
    assert {name for name, _ in blocks} == set(FRAMEWORKS)
    for name, text in blocks:
        app = (ROOT / "tests" / "frameworks" / f"{name}_app.py").read_text(encoding="utf-8")
        assert text in app, name


def test_the_versions_of_frameworks_are_those_of_their_tests():
    for packages in FRAMEWORKS.values():
        cells = [re.sub(r"\[\w+\]", "", package).replace("==", " ") for package in packages]
        rows = [
            row
            for row in page("frameworks.md").splitlines()
            if all(f"| {cell} |" in row for cell in cells)
        ]
        assert len(rows) == 1, cells


def test_every_example_of_an_assignor_runs_in_order() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", page("assignors.md"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/assignors.md", "exec"), names)
    assert names["even"].name == "lag-sticky"


def test_the_policy_of_the_page_is_the_one_that_runs_live() -> None:
    module = (ROOT / "tests" / "live" / "own_policy.py").read_text(encoding="utf-8")
    _, _, shown = module.partition("\n\n")
    assert f"```python\n{shown}```" in page("assignors.md")


def test_every_assignor_and_option_is_described() -> None:
    """Outside the table of traits, which the code writes."""
    before, _, rest = page("assignors.md").partition("<!-- begin:")
    told = before + rest.partition("<!-- end")[2]
    does = before.split("## What each does\n")[1].split("\n## ")[0]
    for name, info in ASSIGNORS.items():
        assert f"`{name}`" in does, f"write a row for {name} under 'What each does'"
        for option in info.options:
            assert f"`{option}`" in told, f"describe the option {option} of {name}"


def test_each_test_that_the_five_documents_name_exists():
    named = set(re.findall(r"`(test_\w+)`", page("five-documents.md")))
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests/kips").glob("*.py")
    )
    assert len(named) > 30
    assert named - set(re.findall(r"def (test_\w+)", sources)) == set()


def test_each_file_that_the_five_documents_name_exists():
    tests = re.findall(r"`(?:tests/kips/)?(test_\w+\.py)`", page("five-documents.md"))
    lists = re.findall(r"`(design_\w+\.txt)`", page("five-documents.md"))
    files = [*(f"kips/{name}" for name in tests), *(f"transcripts/{name}" for name in lists)]
    assert tests
    assert lists
    assert [name for name in files if not (ROOT / "tests" / name).exists()] == []


def test_each_key_that_the_five_documents_name_is_a_key():
    keys = page("configuration.md")
    named = set(
        re.findall(r"`((?:holdfast|scheduled)(?:\.[a-z]+)+)[=`]", page("five-documents.md"))
    )
    assert {key for key in named if f"| `{key}` |" not in keys} == {"holdfast.members"}


def test_each_scenario_that_the_five_documents_name_is_one_of_simulate():
    assert set(re.findall(r"--scenario ([a-z-]+)", page("five-documents.md"))) <= set(SCENARIOS)
