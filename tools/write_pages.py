"""Write every page of the docs that the code can write: ``python -m tools.write_pages``.

**Rules.** A page is a function of the code and nothing else, so a test compares it with its file
(`tests/docs/test_pages.py`). A page may end in a part that people write; that part begins with the
heading named in :data:`PAGES` and stays as it is. Or people write the page, and the code writes the
part between two marks.

**Strategy.** :data:`PAGES` is the only list of generated pages: one row a page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.pages.assignors import traits_part
from tools.pages.bounces import bounces_part
from tools.pages.clients import clients_part
from tools.pages.columns import columns_part
from tools.pages.commands import commands_page
from tools.pages.configuration import configuration_page
from tools.pages.designs import designs_page
from tools.pages.doctor import doctor_page
from tools.pages.faults import faults_page
from tools.pages.machines import machines_page
from tools.pages.rollouts import rollouts_part
from tools.pages.ways import policies_drawing, ways_part

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What writes a page, and which part of the page it writes.

    Parameters
    ----------
    text : callable
        Returns what the code writes.
    by_hand_from : str
        Heading at which the part by hand begins; "" where there is no such part.
    between_marks : bool
        The code writes only the text between the two :data:`MARKS`.
    """

    text: Callable[[], str]
    by_hand_from: str = ""
    between_marks: bool = False


MARKS = ("<!-- begin: written by tools/write_pages.py -->", "<!-- end -->")
"""Comments around what the code writes of a page by hand."""

PAGES: Mapping[str, Page] = {
    "docs/assignors.md": Page(text=traits_part, between_marks=True),
    "docs/clients.md": Page(text=clients_part, between_marks=True),
    "docs/commands.md": Page(text=commands_page),
    "docs/configuration.md": Page(text=configuration_page),
    "docs/doctor.md": Page(text=doctor_page),
    "docs/policies.md": Page(text=ways_part, between_marks=True),
    "docs/policies.svg": Page(text=policies_drawing),
    "docs/machines.md": Page(text=machines_page, by_hand_from="## What may be committed"),
    "docs/measured/bounce.md": Page(text=bounces_part, between_marks=True),
    "docs/measured/designs.md": Page(text=designs_page),
    "docs/measured/rollout.md": Page(text=rollouts_part, between_marks=True),
    "docs/metrics.md": Page(text=columns_part, between_marks=True),
    "tests/sim/faults/README.md": Page(text=faults_page),
}
"""File below the root -> what writes it."""


def whole_text(name: str) -> str:
    """A page as its file must be: what the code writes, then the part by hand, unchanged."""
    page, file = PAGES[name], ROOT / name
    if page.between_marks:
        before, begin, rest = file.read_text(encoding="utf-8").partition(MARKS[0])
        _, end, after = rest.partition(MARKS[1])
        assert begin and end, f"{name}: expected the marks {MARKS}"
        return f"{before}{begin}\n{page.text()}\n{end}{after}"
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
