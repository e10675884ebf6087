"""JSON of a folder of tables, whose writer may be anybody: values of the kinds that we write.

**Rules.** What is not of its kind is a ValueError, before anything is made of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

_MOST: Final = 2**63 - 1


def parsed(text: bytes) -> Any:
    """A document; ValueError where it is none, and for the numbers that JSON has not (NaN)."""
    return json.loads(text, parse_constant=_refused)


def whole(value: object, least: int = 0) -> int:
    """A whole number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise ValueError(f"{_shown(value)}, expected a whole number from {least} to 2**63 - 1")
    return value


def seconds(value: object) -> float:
    """Seconds, whole or not, and not without end."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise ValueError(f"{_shown(value)}, expected seconds from 0 to 2**63 - 1")
    return float(value)


def text_of(value: object) -> str:
    """A text that can be written again."""
    if not isinstance(value, str) or (not value.isascii() and _has_surrogates(value)):
        raise ValueError(f"{_shown(value)}, expected a text")
    return value


def fields_of(value: object) -> Mapping[str, Any]:
    """An object of JSON."""
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)}, expected an object")
    return value


def _has_surrogates(value: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in value)


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _shown(value: object) -> str:
    return repr(value)[:60]
