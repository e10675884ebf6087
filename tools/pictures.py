"""Draw the pictures of the docs with a browser: ``python -m tools.pictures``.

Both show groups that lived on a broker side by side (``tests/live/situations.py``), at the same
moment: ``docs/serve.png`` is their list, ``docs/report.png`` the report of one with a member that
polls too rarely. Look at both before they are committed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.report.browser import Opened, browser
from tests.report.captured.capture_disturbed import together
from tests.report.served import following, serving

from holdfast.fleet.report.drawing.writing import write
from holdfast.fleet.tables.reading import Tables

DOCS = Path(__file__).parents[1] / "docs"
INCIDENT = "slow-confluent-20-beside-2"


def draw_report(chromium: Any, tables: Tables, folder: Path) -> None:
    """The group whose one member polls too rarely, beside two well ones."""
    page = write(tables, folder / "report.html", title=f"Group {INCIDENT}", groups=[INCIDENT])
    light = {"viewport": {"width": 1200, "height": 1440}, "color_scheme": "light"}
    opened = Opened(chromium, page, **light)
    opened.page.screenshot(path=str(DOCS / "report.png"))
    opened.close()


def draw_list(chromium: Any, folder: Path) -> None:
    """The list of the fleet."""
    with following(folder / "cluster-7") as served, serving(served) as url:
        size = {"width": 1200, "height": 1000}
        page = chromium.new_context(viewport=size, color_scheme="light").new_page()
        page.goto(url)
        page.screenshot(path=str(DOCS / "serve.png"))
        page.context.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made, browser() as started:
        held = together(Path(made) / "cluster-7")
        draw_report(started, held, Path(made))
        draw_list(started, Path(made))
