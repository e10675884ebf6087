"""Draw the pictures of the docs with a browser: ``python -m tools.pictures``.

``docs/serve.png`` is the list of the labelled fleet of the doctor's tests, ``docs/report.png`` the
report of a rolling bounce. Look at both before they are committed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.report import labelled
from tests.report.browser import Opened, browser
from tests.report.fleet import rolling_bounce, tables
from tests.report.served import following, serving

from holdfast.fleet.report.drawing.writing import write

DOCS = Path(__file__).parents[1] / "docs"


def draw_report(chromium: Any, folder: Path, target: Path) -> None:
    """The report of a group of four members, each restarted once."""
    bounce = rolling_bounce("orders", {"orders": 12}, 4)
    page = write(tables(bounce), folder / "report.html", title="A rolling bounce")
    opened = Opened(chromium, page, viewport={"width": 1200, "height": 760})
    opened.page.screenshot(path=str(target))
    opened.close()


def draw_list(chromium: Any, folder: Path, target: Path) -> None:
    """The list of a fleet with every problem that the doctor knows."""
    labelled.examined(folder, [*labelled.ill(), *labelled.sound()])
    kept = (folder / "tables").rename(folder / "cluster-7")
    with following(kept) as fleet, serving(fleet) as url:
        page = chromium.new_context(viewport={"width": 1200, "height": 1100}).new_page()
        page.goto(url)
        page.screenshot(path=str(target))
        page.context.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made, browser() as started:
        draw_report(started, Path(made), DOCS / "report.png")
        draw_list(started, Path(made), DOCS / "serve.png")
