"""HTML built from values: the only module that writes a tag.

**Rules.** A plain string is always escaped; only :class:`Markup` passes unchanged, and only
:func:`tag`, :func:`join` and this package's own files make one. Attribute names are ours,
attribute values are escaped. No style or event attribute exists, so the content security policy
needs no exception.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from functools import cache

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
