"""An extension of griffe: what docstrings say in reStructuredText, as Markdown.

**Rules.** ``:class:`X``` and its like become the name as code, with a link where the reference has
that name; a name that it has not is code alone. A table of reStructuredText stays as it is typed.
A last line ``References:`` below a section is a section of its own, as ``Notes`` is.

**Strategy.** Names are looked up in the module of the docstring first, as a reader would.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:class|meth|func|data|mod|attr|exc):`(~?)([\w.]+)`")
TABLE = re.compile(r"^ *=+(?: +=+)+\n(?:.*\S.*\n)* *=+(?: +=+)+$", re.M)
REFERENCES = re.compile(r"^References: ", re.M)
SECTION = re.compile(r"^-{4,}$", re.M)


class Roles(Extension):
    """Rewrites docstrings."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            text = ROLE.sub(lambda match: _link(obj, match[1], match[2]), obj.docstring.value)
            text = re.sub(r"^ *::$", "", text, flags=re.M)
            text = re.sub(r"::$", ":", text, flags=re.M)
            text = TABLE.sub(_plain, text)
            if SECTION.search(text):
                text = REFERENCES.sub("References\n----------\n", text)
            obj.docstring.value = text


def _plain(table: re.Match[str]) -> str:
    return "```text\n" + re.sub(r"``(.+?)``", r"\1    ", table[0]) + "\n```"


def _link(obj: Object, short: str, name: str) -> str:
    shown = name.rpartition(".")[2] if short else name
    first, dot, rest = name.partition(".")
    target = name
    if first != "holdfast":
        try:
            target = obj.resolve(first) + dot + rest
        except Exception:  # a name of a base class, or of another library
            target = name
    return f'<autoref identifier="{target}" optional><code>{shown}</code></autoref>'
