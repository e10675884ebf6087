r"""Names from a cluster are data from strangers: shown in full, obeyed never, and never mixed up.

**Rules.** Text that leaves this module holds no control character, no bidirectional override, no
lone surrogate, no unassigned or private character, no odd space and no other character without a
shape: each is shown as its escape. :func:`visible` gives two different names two different texts,
because it doubles the backslash, and texts that look different: a character that has a composed
form is shown as its escape, and so is a space at an end of a name. Writers of HTML, CSV, Prometheus
text and terminals all start here and then add their own quoting. A group is chosen by its name,
even if that looks like a pattern (``etl*``), or by a pattern (:func:`means`).

**Strategy.** Python's ``str.isprintable`` is the rule: it is false for the Unicode categories Cc,
Cf, Cs, Co, Cn, Zl, Zp and for every space but U+0020. :data:`BLANK` adds what Unicode counts as a
letter, a mark or a symbol and draws as nothing. A name is escaped once: the result is a
:class:`Visible`, which passes both functions as it is.

References: Unicode Standard, "General Category" and "Default_Ignorable_Code_Point".
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import chain

BLANK = frozenset(
    map(
        chr,
        chain(
            (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0),  # joiners and fillers
            range(0x180B, 0x1810),  # Mongolian variation selectors, vowel separator
            range(0xFE00, 0xFE10),  # variation selectors
            range(0xE0100, 0xE01F0),
            (0x2800, 0x16FE4, 0x1D159),  # blank Braille, Khitan filler, null note head
        ),
    )
)
"""Characters that are printable to Unicode and invisible to people."""

SEPARATORS = ";,|"
"""Characters at which a spreadsheet may split a line, depending on its locale."""

SPARK_GROUPS = ("spark-kafka-relation-", "spark-kafka-source-")
"""Groups of Spark's own connector, one a subscription: omitted unless requested."""

_UNUSUAL = re.compile(r"[^ -~]")
_UNUSUAL_OR_BACKSLASH = re.compile(r"[^ -\[\]-~]")
_END_SPACES = re.compile(r"^ +| +$")
_PLAIN = re.compile(r"[!-\[\]-~](?:[ -\[\]-~]*[!-\[\]-~])?")
"""A name that is visible as it is, as nearly every one."""
_FORMULA = frozenset("=+-@|%\t\r\n\uff1d\uff0b\uff0d\uff20")
_PIECES = re.compile(f"(?<=[{SEPARATORS}])")


class Visible(str):
    """Text that is visible already: every function of the module returns it unchanged."""

    __slots__ = ()


EMPTY = Visible("\\empty")
"""Text that represents the empty name; no other name is shown so, for a backslash is doubled."""


def is_hidden(character: str) -> bool:
    """Return whether a character acts, or is invisible."""
    return not character.isprintable() or character in BLANK


def visible(name: object) -> Visible:
    r"""Return a name with every hidden character as its escape, and the backslash doubled.

    ``str`` is applied first. The text can be encoded as UTF-8. Different names give different
    texts: a backslash is followed by another one, by ``u`` and four digits, or by ``U`` and eight.
    A space at an end is hidden, too, and so is what looks like its composed form (``e\u0301``).
    """
    if isinstance(name, Visible):
        return name
    if isinstance(name, str) and _PLAIN.fullmatch(name):
        return Visible(name)
    return Visible(_END_SPACES.sub(lambda match: "\\u0020" * len(match.group()), part(name)))


def part(text: object) -> Visible:
    """Return a text that is part of a sentence: as :func:`visible`, and its end spaces stay."""
    if isinstance(text, Visible):
        return text
    whole = str(text)
    if whole.isascii():
        return Visible(_UNUSUAL_OR_BACKSLASH.sub(_escaped, whole))
    return Visible("".join(map(_shown, whole, _decomposed(whole))))


def shown_name(name: object) -> Visible:
    """Return a name as :func:`visible` does, and the empty, invisible one as EMPTY."""
    return visible(name) or EMPTY


def harmless(text: object) -> Visible:
    """Return a holdfast text, which may quote names, with hidden characters escaped.

    Backslashes stay, so two names alone could become one text: use :func:`visible` for a name.
    """
    if isinstance(text, Visible):
        return text
    return Visible(_UNUSUAL.sub(_escaped, str(text)))


def _decomposed(text: str) -> list[bool]:
    """Return the characters of the text that a composed form has another one for."""
    if unicodedata.is_normalized("NFC", text):
        return [False] * len(text)
    return [
        unicodedata.category(one).startswith("M") or not unicodedata.is_normalized("NFC", one)
        for one in text
    ]


def _shown(character: str, is_decomposed: bool) -> str:
    return _code(character) if is_decomposed else _escape(character)


def _escaped(match: re.Match[str]) -> str:
    return _escape(match.group())


def _escape(character: str) -> str:
    if character == "\\":
        return "\\\\"
    return _code(character) if is_hidden(character) else character


def _code(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def visible_json(text: str) -> str:
    """Escape every hidden character of JSON text made with ``ensure_ascii=False``.

    A JSON reader reads the same values from it.
    """
    if not _UNUSUAL.search(text.replace("\n", "")):  # a search takes a tenth of the time
        return text
    return _UNUSUAL.sub(_json_escaped, text)


def _json_escaped(match: re.Match[str]) -> str:
    character = match.group()
    if character == "\n" or not is_hidden(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def shorten(name: object, limit: int = 80) -> Visible:
    """Return visible text of at most ``limit`` characters, the middle replaced by an ellipsis."""
    text = visible(name)
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 3
    return Visible(f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}")


def spreadsheet_text(value: str) -> str:
    """Return text that no spreadsheet takes for a formula, wherever its locale splits a line.

    The value is visible text already, so it holds no tab. A quote marks as text each piece that
    begins as a formula does, and each piece that begins with a quote; so different values stay
    different.
    """
    return "".join(_marked(value))


def _marked(value: str) -> Iterator[str]:
    for piece in _PIECES.split(value):
        bare = piece.lstrip(" \u00a0\u3000\ufeff")
        acts = bare[:1] in _FORMULA if bare else False
        yield "'" + piece if acts or piece.startswith("'") else piece


def shell_word(name: str) -> str:
    r"""Return a name as one word of a command line that people can paste.

    A name with hidden characters is written as ``$'...'``, whose escapes bash, zsh and ksh read.
    """
    if name.isprintable() and (name.isascii() or BLANK.isdisjoint(name)):
        return shlex.quote(name)
    return "$'" + visible(name).replace("'", "\\u0027") + "'"


def is_pattern(wanted: str) -> bool:
    """Return whether a ``--group`` is a pattern rather than a name."""
    return any(char in wanted for char in "*?[")


def means(wanted: str, group: str) -> bool:
    """Return whether a name or a pattern matches a group."""
    return group == wanted or fnmatchcase(group, wanted)
