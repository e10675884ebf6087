"""The map of the code: the classes and the files that it names exist, and they are few."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = sorted((ROOT / "docs" / "packages").glob("*.md"))


def rows(section: str) -> list[list[str]]:
    """Cells of the table in a section, without its head."""
    text = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (one,) = (part for part in text if part.startswith(section + "\n"))
    table = [line for line in one.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


SHAPES = rows("Representations")
TASKS = rows("What to change for what")


@pytest.mark.parametrize(("thing", "shape", "where"), [row[:3] for row in SHAPES])
def test_a_representation_is_a_class_of_its_file(thing: str, shape: str, where: str) -> None:
    tree = ast.parse((SOURCE / where.strip("`")).read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert shape.strip("`") in names


def test_nothing_has_more_than_six_representations_and_all_are_in_the_drawing() -> None:
    drawing = PAGE.split("## Representations")[1].split("```")[1]
    for thing in ("subscription", "assignment", "member"):
        shapes = [row[1].strip("`") for row in SHAPES if row[0] == thing]
        assert 0 < len(shapes) == len(set(shapes)) <= 6
        assert {s for s in shapes if s not in drawing} <= {"SendSync"}  # drawn as bytes


MOST_FILES = {
    "a new assignor": 1,
    "a new record type": 1,
    "a record type of KIP-848, share or streams groups that a table shows": 4,
    "a new column shown in the report": 2,
    "a new command": 1,
    "the leader state of Design II": 5,
    "a new kind of group": 3,
    "a new client": 4,
    "a new file system": 2,
    "what a member reports to the leader of Design II": 4,
}
"""Most files of the program that a change edits; a row in a table of one line is not counted."""


def test_every_task_has_a_bound() -> None:
    assert {row[0] for row in TASKS} == set(MOST_FILES)


@pytest.mark.parametrize("row", TASKS, ids=lambda row: row[0])
def test_a_task_touches_few_files_that_exist(row: list[str]) -> None:
    files = re.findall(r"`([\w/.]+/[\w.]*)`", row[1])
    assert 0 < len(files) <= MOST_FILES[row[0]]
    assert all((SOURCE / file).exists() for file in files)


@pytest.mark.parametrize(
    ("page", "heading", "most"),
    [
        ("architecture.md", "How a commit reaches the page", 14),
        ("packages/fleet.md", "How a position reaches the terminal", 7),
    ],
)
def test_a_walk_passes_as_many_files_as_it_says(page: str, heading: str, most: int) -> None:
    """A file occurs once in a walk; a line may name more files of its folder."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    (number,) = re.findall(r"(\d+) files[.:]", section)
    folder, files = "", []
    for name in re.findall(r"[\w/]+\.py", section.split("```")[1]):
        folder = name.rpartition("/")[0] or folder
        files.append(f"{folder}/{name.rpartition('/')[2]}")
    assert [file for file in files if not (SOURCE / file).is_file()] == []
    assert len(set(files)) == len(files) == int(number) <= most


def test_every_package_has_a_page_and_pages_are_short() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert {page.stem for page in PACKAGES} == packages
    assert all(len(page.read_text(encoding="utf-8").splitlines()) <= 100 for page in PACKAGES)
    assert len(PAGE.splitlines()) <= 200


@pytest.mark.parametrize("page", PACKAGES, ids=lambda page: page.stem)
def test_a_file_on_the_page_of_a_package_exists(page: Path) -> None:
    files = re.findall(r"`((?:\w+/)+[\w.]*)`", page.read_text(encoding="utf-8"))
    assert [f for f in files if not (SOURCE / f).exists() and not (ROOT / f).exists()] == []
