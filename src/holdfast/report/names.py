"""Names from a cluster are data from strangers: shown in full, obeyed never.

**Rules.** Text that leaves this module holds no control character, no bidirectional override, no
lone surrogate and no invisible joiner: each is shown as its escape. HTML, CSV, terminal and
Prometheus writers all start here and then add their own quoting.
"""

from __future__ import annotations

import re
import shlex

_HIDDEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")


def visible(value: object) -> str:
    """Text with every character that could act on a terminal or a page shown as its escape.

    ``str`` is applied first. The text can be encoded as UTF-8; a tab or newline is an escape too.
    """
    return _HIDDEN.sub(lambda m: f"\\u{ord(m.group()):04x}", str(value))


def visible_json(text: str) -> str:
    """JSON text made with ``ensure_ascii=False``, with an escape for every such character.

    A JSON reader reads the same values from it.
    """
    return _HIDDEN.sub(
        lambda m: m.group() if m.group() == "\n" else f"\\u{ord(m.group()):04x}", text
    )


def shorten(value: object, limit: int = 80) -> str:
    """Visible text of at most ``limit`` characters, the middle replaced by an ellipsis."""
    text = visible(value)
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 3
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def spreadsheet_text(value: str) -> str:
    """Text that no spreadsheet takes for a formula: a leading quote marks it as text."""
    bare = value.lstrip(" \u00a0\u3000\ufeff")
    return "'" + value if bare[:1] in _FORMULA and bare else value


def shell_word(name: str) -> str:
    """A name as one word of a command line that people can paste."""
    return shlex.quote(visible(name))
