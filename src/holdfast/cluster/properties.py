"""Reads files of client properties as Java's clients do (``--command-config``).

**Rules.** A line is ``key=value`` or ``key: value``; ``#`` and ``!`` begin a comment; a line that
ends with an odd number of backslashes continues in the next one, and other backslashes escape.

References: ``java.util.Properties.load``.
"""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.errors import ConfigError

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.S)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE = re.compile(r"((?:[^\\\s=:]|\\.)*)\s*([=:]?)\s*(.*)", re.S)


def read_properties(path: Path) -> dict[str, str]:
    """Read a file of client properties.

    Parameters
    ----------
    path : Path A file in UTF-8.

    Returns
    -------
    dict of str to str
        The last value of each key, as in Java.

    Raises
    ------
    ConfigError
        If the file cannot be read, or a line has no value.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"--command-config {path} cannot be read: {error}") from error
    found: dict[str, str] = {}
    begins, text = 0, ""
    for number, raw in enumerate(lines, start=1):
        line = raw.lstrip()
        if not text:
            begins = number
            if not line or line[0] in "#!":
                continue
        text += line
        if (len(text) - len(text.rstrip("\\"))) % 2:
            text = text[:-1]
            continue
        _take(found, text, f"{path} line {begins}")
        text = ""
    if text:
        _take(found, text, f"{path} line {begins}")
    return found


def _take(found: dict[str, str], text: str, where: str) -> None:
    matched = _LINE.fullmatch(text.rstrip())
    if matched is None or not matched[2]:
        raise ConfigError(f"{where} is not key=value")
    found[_plain(matched[1])] = _plain(matched[3])


def _plain(text: str) -> str:
    def meant(escape: re.Match[str]) -> str:
        what = escape[1]
        return chr(int(what[1:], 16)) if len(what) == 5 else _ESCAPES.get(what, what)

    return _ESCAPE.sub(meant, text)
