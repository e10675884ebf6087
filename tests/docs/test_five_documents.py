"""``docs/five-documents.md`` names tests, keys and scenarios that exist."""

import re
from pathlib import Path

from tests.source import TREES

from holdfast.sim.scenarios import SCENARIOS

pytestmark = TREES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "five-documents.md").read_text(encoding="utf-8")


def test_each_test_that_the_page_names_exists():
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests/kips").glob("*.py")
    )
    assert len(named) > 30
    assert named - set(re.findall(r"def (test_\w+)", sources)) == set()


def test_each_file_that_the_page_names_exists():
    tests = re.findall(r"`(?:tests/kips/)?(test_\w+\.py)`", PAGE)
    lists = re.findall(r"`(design_\w+\.txt)`", PAGE)
    files = [*(f"kips/{name}" for name in tests), *(f"transcripts/{name}" for name in lists)]
    assert tests
    assert lists
    assert [name for name in files if not (ROOT / "tests" / name).exists()] == []


def test_each_key_that_the_page_names_is_a_key():
    keys = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:holdfast|scheduled)(?:\.[a-z]+)+)[=`]", PAGE))
    assert {key for key in named if f"| `{key}` |" not in keys} == {"holdfast.members"}


def test_each_scenario_that_the_page_names_is_one_of_simulate():
    assert set(re.findall(r"--scenario ([a-z-]+)", PAGE)) <= set(SCENARIOS)
