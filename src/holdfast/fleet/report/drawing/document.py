"""A whole page: head, policy, style and scripts, each allowed by its hash.

**Rules.** A page loads nothing: its policy allows its own scripts and its own style, each by its
hash. A page from a file may not connect anywhere; a served one may ask its own server alone.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from holdfast.fleet.report.drawing.markup import Markup, tag

DRAWING = "holdfast.fleet.report.drawing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFrame:
    """What a served page has beside its content.

    Parameters
    ----------
    style : str
        Of the bar, behind the style of the report.
    """

    bar: Markup
    script: str
    style: str


@cache
def asset(name: str, package: str = DRAWING) -> str:
    """Text of a file of the folder ``page`` of a package."""
    return files(package).joinpath("page", name).read_text(encoding="utf-8")


@cache
def script_of(names: Sequence[str], package: str = DRAWING) -> str:
    """Files of ``page`` as one script, which sees no other one."""
    parts = "\n".join(lean(asset(name, package)) for name in names)
    return f'(() => {{ "use strict";\n{parts}\n}})();'


def shown_script(text: str) -> Markup:
    """A script as an element that stands in the page as text; nothing in it ends it early."""
    assert not any(end in text.lower() for end in ("</script", "<script", "<!--"))
    return tag("script", Markup(text))


@cache
def style_of(*texts: str) -> str:
    """Styles without the space that only people need; their strings hold no mark with a space."""
    style = lean("\n".join(texts)).replace("\n", "")
    for mark in "{};:,":
        style = style.replace(f"{mark} ", mark).replace(f" {mark}" if mark in "{}" else mark, mark)
    return style.replace(";}", "}")


def lean(text: str) -> str:
    """Without indentation, empty lines and comment lines; no string of ours spans lines."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def policy_of(scripts: Sequence[str], style: str, *, served: bool = False) -> str:
    """The content security policy of a page.

    Parameters
    ----------
    served : bool
        Its scripts may ask the server that it came from, and its forms may.
    """
    allowed = " ".join(f"'{_hash(script)}'" for script in scripts)
    policy = f"default-src 'none'; script-src {allowed}; style-src '{_hash(style)}'; "
    if served:
        return policy + "connect-src 'self'; base-uri 'none'; form-action 'self'"
    return policy + "base-uri 'none'; form-action 'none'"


def document(title: str, body: Markup, *, style: str, policy: str) -> str:
    """A page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=Markup(policy)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content="holdfast"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    return "<!doctype html>\n" + tag("html", head, tag("body", body), lang="en")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
