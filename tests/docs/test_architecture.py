"""The map of the code: the shapes and the files that it names exist, and there are few of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def rows(section: str) -> list[list[str]]:
    """Cells of the table in a section, without its head."""
    text = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (one,) = (part for part in text if part.startswith(section + "\n"))
    table = [line for line in one.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


SHAPES = rows("Shapes on the way")
ERRANDS = rows("A newcomer's errands")


@pytest.mark.parametrize(("thing", "shape", "where"), [row[:3] for row in SHAPES])
def test_a_shape_is_a_class_of_its_file(thing: str, shape: str, where: str) -> None:
    tree = ast.parse((SOURCE / where.strip("`")).read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert shape.strip("`") in names


def test_nothing_has_more_than_six_shapes_and_all_stand_in_the_drawing() -> None:
    drawing = PAGE.split("## Shapes on the way")[1].split("```")[1]
    for thing in ("subscription", "assignment", "member"):
        shapes = [row[1].strip("`") for row in SHAPES if row[0] == thing]
        assert 0 < len(shapes) == len(set(shapes)) <= 6
        assert {s for s in shapes if s not in drawing} <= {"SendSync"}  # drawn as bytes


@pytest.mark.parametrize("row", ERRANDS, ids=lambda row: row[0])
def test_an_errand_touches_few_files_that_exist(row: list[str]) -> None:
    files = re.findall(r"`([\w/.]+/[\w.]*)`", row[1])
    assert 0 < len(files) <= 5
    assert all((SOURCE / file).exists() for file in files)


def test_a_commit_passes_the_files_that_the_page_counts() -> None:
    section = PAGE.split("## A commit on its way to the page\n")[1].split("\n## ")[0]
    text, drawing, _ = section.split("```")
    files: list[Path] = []
    for name in re.findall(r"[\w/]+\.py", drawing):
        files.append(SOURCE / name if "/" in name else files[-1].with_name(name))
    assert all(file.is_file() for file in files)
    assert re.findall(r"(\d+) files", text) == [str(len(set(files)))]
