"""HTML built from values: tags, numbers in words, small pictures, and the whole page around them.

**Rules.** Only this module writes a tag. A plain string is always escaped; only :class:`Markup`
passes unchanged, and only :func:`tag`, :func:`join` and this package's own files make one.
Attribute names are ours, attribute values are escaped. No style or event attribute exists, so the
content security policy needs no exception. A page loads nothing: its policy allows its own scripts
and its own style, each by its hash. A page from a file may not connect anywhere; a served one only
to its own server.

One number represents a downtime: its upper bound, a partition. Both bounds, in partition-seconds,
are in details and in the table of rebalances. A picture is an element of SVG whose numbers are
attributes; its label says the same in words.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files

import numpy as np

from holdfast.core.model.columns import I64
from holdfast.core.names import part, shorten, shown_name
from holdfast.fleet.analysis.times import NONE, seconds, span

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


UP_TO = (
    "up to: Kafka does not record when a rebalance starts, so downtime counts from the owner's "
    "last evidence"
)
"""How an upper bound comes about, in a line."""
WIDE, HIGH = 96, 18
_DURING: Mapping[str, str] = {
    "restart": "while members restarted",
    "join": "as members joined",
    "leave": "as members left",
    "leave_or_timeout": "after members left or timed out",
    "poll_timeout": "after members polled too rarely",
    "join_and_leave": "as members came and went",
    "announced_leave": "as members left in order",
    "cooperative_follow_up": "in rounds that followed",
}


def number(value: float | None, digits: int = 0) -> str:
    """Count or amount for people; a dash where it is not known."""
    if value is None or math.isnan(value):
        return NONE
    return f"{value:,.{digits}f}"


def downtime(lower_s: float, upper_s: float) -> str:
    """Return one number for two bounds of a downtime in seconds: ``up to 1 h 49 min``, ``75 s``."""
    if math.isnan(upper_s):
        return NONE
    most = span(upper_s)
    return most if span(lower_s) == most else f"up to {most}"


def bounds(lower: float, upper: float) -> str:
    """Format a lower and an upper bound in one cell; a lower bound of 0 is omitted."""
    if math.isnan(upper):
        return NONE
    low, high = seconds(lower), seconds(upper)
    if low == high:
        return high
    return f"{low} to {high}" if lower > 0 else f"at most {high}"


def first_words(
    group: str,
    downtime_s: tuple[float, float],
    by_cause: Mapping[str, float],
    covered_s: float,
    *,
    n_rebalances: int,
    found: str = "",
) -> Markup:
    """Return the first sentence of a page: the problem of the presently worst group.

    Parameters
    ----------
    downtime_s : (float, float)
        Seconds a partition, at least and at most.
    by_cause : mapping of str to float
        Cause of a rebalance -> its part of the downtime, in any unit.
    covered_s : float
        Seconds of the window.
    found : str
        Name of the group's first active finding; empty if it has none, or is not examined yet.
    """
    counted = f"{number(n_rebalances) if n_rebalances else 'no'} rebalance"
    counted += f"{'' if n_rebalances == 1 else 's'} in {span(covered_s)}"
    if downtime_s[1] > 0:
        counted += f" and downtime of {downtime(*downtime_s)} a partition{_mostly(by_cause)}"
    shown = f": {found + ', with ' if found else ''}{counted}."
    return tag("p", tag("strong", name_of(group)), shown, class_="first")


def _mostly(by_cause: Mapping[str, float]) -> str:
    """Return when most of a downtime was; empty if no cause has more than half of it."""
    total = sum(by_cause.values())
    cause = max(by_cause, key=lambda name: by_cause[name], default="")
    if not cause or 2 * by_cause[cause] <= total:
        return ""
    return f", mostly {_DURING.get(cause, 'with the cause ' + cause.replace('_', ' '))}"


def spark(values: Sequence[int] | I64, label: str, *, line: bool = False) -> Markup:
    """Draw counts over time: bars, or a line; a value below 0 is unknown."""
    shown = np.asarray(values).tolist()
    most = max(1, *shown)
    step = WIDE / max(len(shown), 1)
    if line:
        points = [
            f"{i * step + step / 2:.0f} {HIGH - 1 - (HIGH - 2) * value / most:.0f}"
            for i, value in enumerate(shown)
            if value >= 0
        ]
        d = f"M{'L'.join(points)}" if len(points) > 1 else ""
    else:
        d = "".join(
            f"M{i * step:.0f} {HIGH}v-{max(2, HIGH * value / most):.0f}h{step - 1:.0f}V{HIGH}z"
            for i, value in enumerate(shown)
            if value > 0
        )
    drawn = tag("path", d=d, class_="line" if line else None)
    more = {"width": WIDE, "height": HIGH, "role": "img", "aria_label": label}
    return tag("svg", tag("title", label), drawn, class_="spark", **more)


def cost_bar(lower: float, upper: float, most: float) -> Markup:
    """Draw both bounds of a downtime as one bar, in the unit and the scale of their column."""
    if math.isnan(upper) or most <= 0:
        return Markup("")
    low, high = (WIDE * min(value / most, 1.0) for value in (lower, upper))
    label = f"{bounds(lower, upper)} of {seconds(most)} partition-seconds"
    return tag(
        "svg",
        tag("title", label),
        tag("rect", width=f"{high:.1f}", height=6, class_="may"),
        tag("rect", width=f"{low:.1f}", height=6),
        class_="spark",
        width=WIDE,
        height=6,
        role="img",
        aria_label=label,
    )
