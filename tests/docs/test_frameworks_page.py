"""docs/frameworks.md shows lines of the apps that tests/frameworks bounces, and their versions."""

import re
from pathlib import Path

from tests.frameworks.test_frameworks import FRAMEWORKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
BLOCK = re.compile(r'^```python title="(?P<file>\w+)_app\.py"\n(?P<text>.*?)^```$', re.M | re.S)


def test_every_line_of_a_framework_is_one_that_its_test_runs():
    blocks = [(block["file"], block["text"]) for block in BLOCK.finditer(PAGE)]
    assert {name for name, _ in blocks} == set(FRAMEWORKS)
    for name, text in blocks:
        app = (ROOT / "tests" / "frameworks" / f"{name}_app.py").read_text(encoding="utf-8")
        assert text in app, name


def test_the_versions_are_those_of_the_tests():
    for packages in FRAMEWORKS.values():
        cells = [re.sub(r"\[\w+\]", "", package).replace("==", " ") for package in packages]
        rows = [row for row in PAGE.splitlines() if all(f"| {cell} |" in row for cell in cells)]
        assert len(rows) == 1, cells
