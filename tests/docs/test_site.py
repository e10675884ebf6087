"""The site of the documentation: every page is in its navigation, and it loads nothing foreign."""

from __future__ import annotations

import functools
import http.server
import os
import re
import subprocess
import threading
from pathlib import Path

import pytest
from tests.docs import test_public as public
from tests.report.browser import browser
from tools.site.loaded import of_other_hosts
from tools.site.pages import PUBLIC, names_of, on_page_markdown, reference

ROOT = Path(__file__).parents[2]
SETTINGS = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

FOREIGN = {
    '<script src="https://host.example/a.js"></script>': "https://host.example",
    '<script src="//host.example/a.js"></script>': "//host.example",
    '<link rel="stylesheet" href="https://fonts.example/css">': "https://fonts.example",
    '<link rel="preconnect" href="https://fonts.example">': "https://fonts.example",
    '<img alt="" srcset="a.png 1x, https://host.example/b.png 2x">': "https://host.example",
    '<iframe src="https://host.example"></iframe>': "https://host.example",
    "<style>@import 'https://host.example/a.css';</style>": "https://host.example/a.css",
    '<p style="background: url(//host.example/a.png)">': "//host.example/a.png",
    '<svg><use href="https://host.example/a.svg#b"/></svg>': "https://host.example",
}
OWN = """<a href="https://host.example">x</a> <link rel="canonical" href="https://host.example/a">
<script src="a.js"></script><link rel="stylesheet" href="../b.css"><p>url(https://host.example)</p>
<style>p { background: url("data:image/svg+xml,%3Csvg xmlns='http://w3.example'/%3E") }</style>
"""


@pytest.mark.parametrize("written", FOREIGN)
def test_what_a_page_loads_from_another_host_is_found(tmp_path, written):
    (tmp_path / "a.html").write_text(written, encoding="utf-8")
    assert of_other_hosts(tmp_path) == [f"a.html: {FOREIGN[written]}"]


def test_what_a_style_sheet_loads_is_found_and_links_are_not(tmp_path):
    (tmp_path / "a.html").write_text(OWN, encoding="utf-8")
    (tmp_path / "b.css").write_text("@font-face { src: url( 'http://host.example/f' ) }")
    assert of_other_hosts(tmp_path) == ["b.css: http://host.example/f"]


def test_every_page_of_docs_is_in_the_navigation():
    """The site's build refuses a page that is not; this says so before CI does."""
    listed = re.findall(r"^ +- .*: ([\w/-]+\.md)$", SETTINGS, re.M)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    decisions = {page for page in pages if page.startswith("adr/")}
    made = {"index.md", "security.md"}
    assert sorted(listed) == sorted((pages - decisions) | made)


def test_every_decision_has_a_number_of_its_own():
    written = sorted((ROOT / "docs" / "adr").glob("*.md"))
    numbers = [int(path.name[:4]) for path in written]
    titles = [path.read_text(encoding="utf-8").partition("\n")[0] for path in written]
    assert [int(re.match(r"# (\d+)\. \S", title)[1]) for title in titles] == numbers
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("module", PUBLIC)
def test_a_page_of_the_reference_has_the_public_names_and_no_others(module):
    opening, *named = re.findall(r"^::: (\S+)", reference(module), re.M)
    headings = re.findall(r"heading: (\S+)}$|^## (\S+)$", reference(module), re.M)
    assert opening == module
    assert [a or b for a, b in headings] == [f"{module}.{name}" for name in names_of(module)]
    assert len(named) <= len(headings)


def test_a_link_to_the_source_is_the_name_of_the_file():
    class Page:
        class file:  # noqa: N801
            src_uri, generated_by = "tutorials/a.md", None

    told = on_page_markdown("see [x.py](../../src/holdfast/x.py), [y](y.md)", Page, None, None)
    assert told == "see x.py, [y](y.md)"


def test_a_page_of_the_reference_has_what_a_class_inherits():
    """The bases of a public class are not public: their methods stand on its page."""
    (entry,) = re.findall(r"^.*heading: holdfast\.StopEvent}$", reference("holdfast"), re.M)
    assert {"is_set", "is_lost", "seconds_left"} <= set(re.findall(r"\w+", entry))
    assert "_state" not in entry
    assert "inherited_members" not in reference("holdfast.errors")


@pytest.mark.slow
def test_every_public_function_is_on_the_site(site):
    """Those of a client's own class are the client's to describe."""
    folder, _ = site
    for module in set(PUBLIC) - set(public.FACES):
        page = (folder / "reference" / f"{module}.html").read_text(encoding="utf-8")
        shown = re.findall(r'id="(holdfast[\w.]+)"', page)
        rows = [(n, n.removeprefix(f"{module}.")) for n in public.FUNCTIONS]
        own = [short for n, short in rows if n != short and short.split(".")[0] in names_of(module)]
        own = [short for short in own if short.rpartition(".")[2] not in public.WHOLE]
        assert own or module == "holdfast.errors"
        assert [n for n in own if not any(one.endswith(f".{n}") for one in shown)] == []


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site behind a server of loopback: its folder and its address."""
    folder = tmp_path_factory.mktemp("site")
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-s", "docs", f"SITE={folder}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=alone, check=False)
    assert done.returncode == 0, done.stderr
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 800)])
def test_a_browser_stays_on_the_site_and_finds_its_way(site, width, height):
    folder, address = site
    asked, said = [], []
    with browser() as started:
        page = started.new_page(viewport={"width": width, "height": height})
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
        for path in sorted(folder.rglob("*.html")):
            page.goto(f"{address}/{path.relative_to(folder)}")
            wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(wider) == 0, path
        page.goto(f"{address}/index.html")
        page.locator("label[for=__search]").first.dispatch_event("click")
        page.locator("input.md-search__input").fill("scheduled.rebalance.max.delay.ms")
        page.locator(".md-search-result__item").first.wait_for()
        page.goto(f"{address}/index.html")
        if width < 1000:
            page.locator("label.md-header__button[for=__drawer]").click()  # not the overlay
        links = page.get_by_text("Reference", exact=True).locator("visible=true")
        links.first.wait_for()
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    assert said == []
