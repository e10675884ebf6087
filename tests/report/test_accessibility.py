"""Pages for keyboards and screen readers: headings, names of tables, fields, pictures, buttons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import write_tables
from tests.report.browser import Opened
from tests.report.fleet import START_MS, rolling_bounce, tables
from tests.report.served import bounced, following, quiet, serving

from holdfast.fleet.report.drawing.writing import write

pytestmark = pytest.mark.browser

FAULTS = """() => {
  const all = (query) => [...document.querySelectorAll(query)].filter((e) => e.checkVisibility());
  const name = (e) => (e.getAttribute('aria-label') ?? '') + e.textContent.trim() + (e.title ?? '');
  const levels = all('h1, h2, h3').map((e) => Number(e.tagName[1]));
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  return [
    ...(levels[0] === 1 && levels.filter((l) => l === 1).length === 1 ? [] : ['one h1, first']),
    ...levels.flatMap((l, i) => i && l > levels[i - 1] + 1 ? [`level ${l} at ${i}`] : []),
    ...all('table').filter((t) => !t.caption?.textContent).map((t) => 'no caption: ' + t.innerText),
    ...all('th').filter((e) => e.scope !== 'col').map((e) => 'no scope: ' + e.innerText),
    ...all('input:not([type=hidden]), select').filter((e) => !e.labels?.length && !e.ariaLabel)
      .map((e) => 'no label: ' + e.outerHTML),
    ...all('button, a, summary').filter((e) => !name(e)).map((e) => 'no name: ' + e.outerHTML),
    ...all('canvas[tabindex], svg[role=img]').filter((e) => !e.getAttribute('aria-label'))
      .map((e) => 'no label: ' + e.outerHTML),
    ...all('[role=region]').filter((e) => e.tabIndex < 0).map((e) => 'no keyboard: ' + e.ariaLabel),
    ...ids.filter((id, i) => ids.indexOf(id) !== i).map((id) => 'twice: ' + id),
    ...(document.documentElement.lang === 'en' && all('main').length === 1 ? [] : ['landmarks']),
  ];
}"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    scripts = (bounced("etl"), quiet("billing"))
    folder = write_tables(tables(*scripts), tmp_path_factory.mktemp("tables"))
    with following(folder) as fleet, serving(fleet) as url:
        yield url


@pytest.mark.parametrize("path", ["/", "/?from=6h", "/?find=zzz", "/group?name=etl"])
def test_a_served_page_names_everything(chromium: Any, address: str, path: str) -> None:
    page = chromium.new_context().new_page()
    page.goto(address + path)
    page.locator("html.js:not(.wait)").wait_for()
    assert page.evaluate(FAULTS) == []
    page.context.close()


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_a_report_names_everything(chromium: Any, tmp_path: Path, names: list[str]) -> None:
    scripts = [rolling_bounce(name) for name in names]
    for script in scripts:
        script.lag(dict.fromkeys(script.owners, 7))
    out = write(tables(*scripts), tmp_path / "r.html", last_ms=START_MS + 600_000)
    page = Opened(chromium, out)
    page.page.click("#intervals-box summary")
    assert page.page.evaluate(FAULTS) == []
    page.close()


def test_the_keyboard_alone_reaches_a_group_and_finds_a_partition(
    chromium: Any, address: str
) -> None:
    page = chromium.new_context().new_page()
    page.goto(address + "/")

    def tab_to(what: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("what => document.activeElement.matches(what)", what):
                return
        raise AssertionError(f"the Tab key does not reach {what}")

    tab_to("#groups tbody a")
    page.keyboard.press("Enter")
    page.wait_for_url("**/group?name=*")
    page.locator("html.js:not(.wait)").wait_for()
    tab_to(".find-partition")
    page.keyboard.type("orders-2")
    table = page.get_by_role("table", name="All partitions")
    table.wait_for()
    assert table.locator("tbody tr").count() == 1
    page.context.close()
