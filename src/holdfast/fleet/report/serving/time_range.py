"""The time range in an address: ``from`` and ``to``, or one of the ranges that pages offer.

**Rules.** A moment is ISO 8601 (UTC without a zone), milliseconds since 1970 as Grafana writes
them, or a duration such as ``6h``, which counts back from the end of the tables. ``to`` is that
end by default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from holdfast.errors import ConfigError
from holdfast.fleet.tables.columns.holdable import FIRST_US, LAST_US

RANGES: Final[Mapping[str, str]] = {
    "15m": "15 min",
    "1h": "1 h",
    "6h": "6 h",
    "24h": "24 h",
    "7d": "7 d",
    "all": "all",
}
"""Ranges that pages offer, and their names."""
DURATION: Final = r"[0-9]{1,4}[smhd]"
MILLIS: Final = r"[0-9]{5,14}"
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """A part of the covered time."""

    # ``from_ms``, ``to_ms``: first and last moment in UTC milliseconds; None for no limit.
    from_ms: int | None = None
    to_ms: int | None = None


ALL: Final = TimeRange()


def read_range(words: Mapping[str, str], end_ms: int) -> TimeRange:
    """Return the range of a query, by the end of the tables in UTC milliseconds; all without one.

    Raises
    ------
    ConfigError
        A value is no moment.
    """
    begin, end = words.get("from", ""), words.get("to", "")
    return TimeRange(
        from_ms=None if begin in ("", "all") else moment_ms(begin, "from", end_ms),
        to_ms=None if not end else moment_ms(end, "to", end_ms),
    )


def moment_ms(text: str, name: str, end_ms: int) -> int:
    """Return a moment in UTC milliseconds; raise ConfigError with the parameter's name."""
    if re.fullmatch(DURATION, text):
        return end_ms - int(text[:-1]) * _UNITS_MS[text[-1]]
    if re.fullmatch(MILLIS, text):
        return _held(int(text))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{name}: expected a moment such as 2026-11-22T10:00:00Z, milliseconds since 1970, or "
            "how long ago it was, such as 6h"
        ) from None
    return _held(round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000))


def _held(ms: int) -> int:
    """Return a moment within the times that tables can hold."""
    return min(max(ms, FIRST_US // 1000), LAST_US // 1000)
