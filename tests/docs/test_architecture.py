"""The map of the code: the classes and the files that it names exist, and they are few."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = sorted((ROOT / "docs" / "packages").glob("*.md"))


def test_every_package_has_a_page_and_pages_are_short() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert {page.stem for page in PACKAGES} == packages
    assert all(len(page.read_text(encoding="utf-8").splitlines()) <= 100 for page in PACKAGES)
    assert len(PAGE.splitlines()) <= 200


@pytest.mark.parametrize("page", PACKAGES, ids=lambda page: page.stem)
def test_a_file_on_the_page_of_a_package_exists(page: Path) -> None:
    files = re.findall(r"`((?:\w+/)+[\w.]*)`", page.read_text(encoding="utf-8"))
    assert [f for f in files if not (SOURCE / f).exists() and not (ROOT / f).exists()] == []
