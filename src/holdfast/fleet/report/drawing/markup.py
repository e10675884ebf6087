"""HTML built from values: the only module that writes a tag, and the whole page around it.

**Rules.** A plain string is always escaped; only :class:`Markup` passes unchanged, and only
:func:`tag`, :func:`join` and this package's own files make one. Attribute names are ours,
attribute values are escaped. No style or event attribute exists, so the content security policy
needs no exception. A page loads nothing: its policy allows its own scripts and its own style, each
by its hash. A page from a file may not connect anywhere; a served one only to its own server.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from holdfast.core.names import part, shorten, shown_name

_PLAIN = re.compile(r"[\w ,.:/#-]*\Z", re.ASCII)
"""Text that is shown and written as it is: most cells of a page are such text."""
_NAME = re.compile(r"[a-z][a-zA-Z0-9-]*\Z")
_VOID = frozenset({"meta", "br", "input", "col", "hr", "link"})

# HTML ends such an element by what follows it, and a table has thousands.
_END_IMPLIED = frozenset({"td", "th", "tr"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(value: object) -> Markup:
    """Return the HTML of a value: markup unchanged, everything else escaped."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    if _PLAIN.match(text):
        return Markup(text)
    return Markup(html.escape(part(value), quote=True))


def join(parts: Iterable[object]) -> Markup:
    """Join parts."""
    return Markup("".join(escape(part) for part in parts))


def prose(text: str) -> Markup:
    """Return a text of ours, in which words between backticks are code."""
    return join(tag("code", part) if i % 2 else part for i, part in enumerate(text.split("`")))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """Build one element.

    Parameters
    ----------
    name : str
        Element name.
    children : object
        Markup passes, anything else is escaped; None is omitted.
    attributes : object
        ``class_`` is ``class``, other underscores are hyphens; True is a bare attribute, None and
        False are left out.
    """
    shown = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{shown}>")
    inner = "".join([escape(child) for child in children if child is not None])
    end = "" if name in _END_IMPLIED else f"</{name}>"
    return Markup(f"<{name}{shown}>{inner}{end}")


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = _attribute_name(key)
    return f" {name}" if value is True else f' {name}="{escape(value)}"'


@cache
def _attribute_name(key: str) -> str:
    name = key.rstrip("_").replace("_", "-")
    assert _NAME.match(name), name
    assert name != "style", "style attributes are refused by the content security policy"
    assert not name.startswith("on"), "event attributes are refused by the policy"
    return name


def name_of(value: object, limit: int = 80) -> Markup:
    """Return an element with a cluster's name: isolated, shortened, the whole in its title."""
    whole = shown_name(value)
    short = shorten(whole, limit)
    return tag("bdi", short, class_="name", title=whole if short != whole else None)


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
