"""A whole page: head, policy, style and scripts, each allowed by its hash.

**Rules.** A page loads nothing: its policy allows its own scripts and its own style, each by its
hash. A page from a file may not connect anywhere; a served one only to its own server.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from holdfast.fleet.report.drawing.markup import Markup, tag


class HtmlPage(str):
    """A whole page as text; ``policy`` is its content security policy."""

    policy: str


@cache
def asset(name: str) -> str:
    """Return the text of a file of the folder ``page``."""
    return files(__package__).joinpath("page", name).read_text(encoding="utf-8")


@cache
def script_of(*names: str) -> str:
    """Join files of ``page`` into one script with a scope of its own."""
    parts = "\n".join(lean(asset(name)) for name in names)
    return f'(() => {{ "use strict";\n{parts}\n}})();'


def shown_script(text: str) -> Markup:
    """Return a script as an element with plain text, which cannot end the element early."""
    assert not any(end in text.lower() for end in ("</script", "<script", "<!--"))
    return tag("script", Markup(text))


@cache
def style_of(*names: str) -> str:
    """Join styles without whitespace for people; their strings contain no mark with a space."""
    style = lean("\n".join(map(asset, names))).replace("\n", "")
    for mark in "{};:,":
        style = style.replace(f"{mark} ", mark).replace(f" {mark}" if mark in "{}" else mark, mark)
    return style.replace(";}", "}")


def lean(text: str) -> str:
    """Remove indentation, empty lines and comment lines; no string of ours spans lines."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def document(title: str, body: Markup, scripts: Sequence[str], *, served: bool) -> HtmlPage:
    """Build a page; its policy allows the scripts.

    Scripts and forms of a served page may send requests to its server.
    """
    style = style_of("style.css", *(["served.css"] if served else []))
    own = "'self'" if served else "'none'"
    allowed = " ".join(f"'{_hash(script)}'" for script in scripts)
    policy = f"default-src 'none'; script-src {allowed}; style-src '{_hash(style)}'; "
    policy += f"connect-src {own}; img-src {own}; " if served else ""
    policy += f"base-uri 'none'; form-action {own}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=Markup(policy)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content="holdfast"),
        tag("title", title),
        tag("link", rel="icon", href="/favicon.svg") if served else None,
        tag("style", Markup(style)),
    )
    page = HtmlPage("<!doctype html>\n" + tag("html", head, tag("body", body), lang="en"))
    page.policy = policy
    return page


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
