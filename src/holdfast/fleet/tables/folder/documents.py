"""Checked JSON of a folder of tables, which another program may have written.

**Rules.** A value of another kind is a ValueError, before anything is made of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

_MOST: Final = 2**63 - 1


def parsed(text: bytes) -> Any:
    """Parse a document; raise ValueError for wrong JSON, and for numbers that JSON lacks (NaN)."""
    return json.loads(text, parse_constant=_refused)


def whole(value: object, least: int = 0) -> int:
    """Check a whole number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise ValueError(f"{_shown(value)}, expected a whole number from {least} to 2**63 - 1")
    return value


def seconds(value: object) -> float:
    """Check seconds, whole or not, and finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise ValueError(f"{_shown(value)}, expected seconds from 0 to 2**63 - 1")
    return float(value)


def text_of(value: object) -> str:
    """Check a text that can be written again."""
    if not isinstance(value, str) or (not value.isascii() and _has_surrogates(value)):
        raise ValueError(f"{_shown(value)}, expected a text")
    return value


def fields_of(value: object) -> Mapping[str, Any]:
    """Check an object of JSON."""
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)}, expected an object")
    return value


def _has_surrogates(value: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in value)


def _refused(word: str) -> None:
    raise ValueError(f"{word} is not a number")


def _shown(value: object) -> str:
    return repr(value)[:60]
