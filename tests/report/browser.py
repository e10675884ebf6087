"""A real headless Chromium for the tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

ARGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    """Path of the system's Chromium."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    raise RuntimeError("no Chromium found: install it with `apt-get install chromium`")


@contextmanager
def browser() -> Iterator[Any]:
    """A running browser."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=ARGS)
        try:
            yield started
        finally:
            started.close()


class Opened:
    """A page opened from a file, and everything it said and asked for."""

    def __init__(self, browser: Any, path: Path, fragment: str = "", **context: Any):
        options = {"viewport": {"width": 1280, "height": 900}, **context}
        self.context = browser.new_context(offline=True, **options)
        self.page: Page = self.context.new_page()
        self.said: list[str] = []
        self.requested: list[str] = []
        self.page.on("console", lambda m: self.said.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.said.append(f"error: {e}"))
        self.page.on("dialog", lambda d: (self.said.append(f"dialog: {d.message}"), d.dismiss()))
        self.page.on("request", lambda r: self.requested.append(r.url))
        self._session = self.context.new_cdp_session(self.page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self._runs_scripts = options.get("java_script_enabled", True)
        self._load(path, fragment)

    def show(self, path: Path, fragment: str = "") -> None:
        """Open a page in place of the last one, of which nothing stays."""
        self.page.emulate_media(media="null")
        self.page.goto("about:blank")  # else another fragment would load nothing
        self.said.clear()
        self.requested.clear()
        self._load(path, fragment)

    def _load(self, path: Path, fragment: str) -> None:
        self.page.goto(path.as_uri() + fragment)
        if self._runs_scripts:
            self.until("performance.getEntriesByName('holdfast-first-draw').length > 0")

    def until(self, condition: str) -> None:
        """Wait for a condition (the page's policy forbids Playwright's own way, which is eval)."""
        for _ in range(600):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(25)
        raise AssertionError(f"never came true: {condition}; the page said {self.said}")

    def cpu_ms(self) -> float:
        """Processor time of the page's main thread since it was opened, in ms."""
        told = self._session.send("Performance.getMetrics")["metrics"]
        return 1000 * float(next(m["value"] for m in told if m["name"] == "TaskDuration"))

    def measures(self, name: str) -> list[float]:
        """Durations of a performance measure, in ms."""
        found: list[float] = self.page.evaluate(
            "name => performance.getEntriesByName(name).map(m => m.duration)", name
        )
        return found

    def point(self, x: float, y: float) -> str:
        """Put the pointer at a place of the canvas and return the hover text."""
        canvas = self.page.locator("#canvas")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        assert box is not None
        self.page.mouse.move(box["x"] + x, box["y"] + y)
        tip = self.page.locator("#tip")
        return "" if tip.is_hidden() else tip.inner_text()

    def colour(self, x: float, y: float) -> tuple[int, ...]:
        """Colour of a pixel of the canvas."""
        found: list[int] = self.page.evaluate(
            "([x, y]) => { const c = document.getElementById('canvas');"
            " const k = c.width / c.clientWidth;"
            " return [...c.getContext('2d').getImageData(x * k, y * k, 1, 1).data] }",
            [x, y],
        )
        return tuple(found[:3])

    def close(self) -> None:
        self.context.close()
