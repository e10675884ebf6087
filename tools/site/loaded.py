"""A hook of MkDocs: nothing that a page of the site loads comes from another host.

**Rules.** A reader's browser asks the site's own host and nobody else: no script, style, font,
picture or frame of a built page has an address with a host. A link that a reader may follow has
one at will.

**Strategy.** Every HTML and CSS file of the finished site is read; the build fails with the list.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

LOADING = {"src", "srcset", "data", "poster", "background"}
RELATIONS = {"canonical", "next", "prev", "alternate", "author", "license"}
"""Relations of a ``link`` that no browser loads."""
HOST = re.compile(r"(?:https?:)?//[\w.-]+", re.I)
STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?\s*((?:https?:)?//[^'\")\s;]+)", re.I)


class _Loading(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._styles = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._styles = tag == "style"
        loaded = [value for name, value in given.items() if name in LOADING]
        if tag == "link" and not set(given.get("rel", "").lower().split()) & RELATIONS:
            loaded.append(given.get("href", ""))
        if tag in ("image", "use"):  # of SVG
            loaded += [given.get("href", ""), given.get("xlink:href", "")]
        self.found += [match[0] for value in loaded for match in HOST.finditer(value)]
        self.found += STYLE.findall(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self._styles:
            self.found += STYLE.findall(data)

    def handle_endtag(self, tag: str) -> None:
        self._styles = False


def of_other_hosts(site: Path) -> list[str]:
    """Return ``FILE: ADDRESS`` of everything that the site's pages load from another host."""
    told: list[str] = []
    for path in sorted(site.rglob("*")):
        if path.suffix == ".html":
            page = _Loading()
            page.feed(path.read_text(encoding="utf-8"))
            found = page.found
        elif path.suffix == ".css":
            found = STYLE.findall(path.read_text(encoding="utf-8"))
        else:
            continue
        told += [f"{path.relative_to(site)}: {address}" for address in found]
    return told


def on_post_build(config: Any) -> None:
    """Refuse a site that loads something from another host."""
    if found := of_other_hosts(Path(config["site_dir"])):
        raise PluginError("the site loads from other hosts:\n" + "\n".join(found[:20]))
