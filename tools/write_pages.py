"""Write every page of the docs that the code can write: ``python -m tools.write_pages``.

**Rules.** A page is a function of the code and nothing else, so a test compares it with its file
(`tests/docs/test_pages.py`). A page may end in a part that people write; that part begins with the
heading named in :data:`PAGES` and stays as it is.

**Strategy.** :data:`PAGES` is the only list of generated pages: one row a page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.pages.designs import designs_page
from tools.pages.faults import faults_page
from tools.pages.machines import machines_page

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a file generates, and the heading at which the part by hand begins, if there is one."""

    text: Callable[[], str]
    by_hand_from: str = ""


PAGES: Mapping[str, Page] = {
    "docs/designs.md": Page(text=designs_page, by_hand_from="## Measured live"),
    "docs/machines.md": Page(text=machines_page),
    "tests/sim/faults/README.md": Page(text=faults_page),
}
"""File below the root -> what writes it."""


def whole_text(name: str) -> str:
    """A page as its file must be: what the code writes, then the part by hand as it stands."""
    page, file = PAGES[name], ROOT / name
    if not page.by_hand_from:
        return page.text()
    heading = f"\n{page.by_hand_from}\n"
    _, found, by_hand = file.read_text(encoding="utf-8").partition(heading)
    assert found, f"{name}: expected the heading {page.by_hand_from!r}"
    return page.text() + heading + by_hand


def main() -> int:
    """Write every page; print the names of those that changed."""
    for name in PAGES:
        file, text = ROOT / name, whole_text(name)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
