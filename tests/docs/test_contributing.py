"""A maintainer's first errand: the assignor of CONTRIBUTING.md is added, and everything follows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SNAPSHOT = {
    "partitions": {"orders": 4},
    "members": [
        {"id": "C0", "topics": ["orders"], "owned": [["orders", 3]], "generation": 4},
        {"id": "C1", "topics": ["orders"]},
    ],
}
HOLDFAST = ("-c", "from holdfast.cli.app import main; main()")


class Tree:
    """A copy of the program to which the page's blocks were added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        blocks = dict(re.findall(r'^```python title="([^"]+)"\n(.*?)^```$', PAGE, re.M | re.S))
        (self.file,) = (folder / title for title in blocks if title.startswith("src/"))
        self.file.write_text(blocks[f"src/{self.file.relative_to(folder / 'src')}"], "utf-8")
        self.registry = self.file.with_name("registry.py")
        text = self.registry.read_text(encoding="utf-8")
        first = '        AssignorInfo(\n            name="sticky",'
        assert text.count(first) == 1
        self.registry.write_text(text.replace(first, blocks["a row"] + first), encoding="utf-8")

    def python(self, *arguments: str) -> str:
        """What a program prints that imports the copy; it must end well."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(self.folder / "src"), str(ROOT)]),
                "COLUMNS": "200",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("tree"))


def test_its_laws_and_traits_hold(tree: Tree) -> None:
    """The tests of the room, which find the row by themselves."""
    tests = [str(ROOT / "tests/assignors" / name) for name in ("test_laws.py", "test_traits.py")]
    quiet = ("-q", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"))
    printed = tree.python("-m", "pytest", *quiet, "-k", "tenure", *tests)
    (passed,) = re.findall(r"(\d+) passed", printed)
    assert int(passed) >= 7, printed  # one test of laws, six of traits


def test_the_command_line_has_it(tree: Tree) -> None:
    snapshot = tree.folder / "snapshot.json"
    snapshot.write_text(json.dumps(SNAPSHOT), encoding="utf-8")
    printed = tree.python(*HOLDFAST, "assign", str(snapshot), "--assignor", "tenure")
    assert re.search(r"^C0 +2 .*orders: \d 3 ", printed, re.M), printed
    assert "balance score 0, 1 kept, 0 moved" in printed
    assert "tenure" in tree.python(*HOLDFAST, "assign", "--help")


def test_the_written_pages_have_it(tree: Tree) -> None:
    printed = tree.python(
        "-c", "from tools.pages.assignors import traits_part; print(traits_part())"
    )
    assert "| `tenure` | eager | subscriptions, claims | sticky |" in printed


def test_it_is_written_as_the_tree_is(tree: Tree) -> None:
    files = [str(tree.file), str(tree.registry)]
    tree.python("-m", "ruff", "check", "--no-cache", *files)
    tree.python("-m", "ruff", "format", "--no-cache", "--check", *files)
