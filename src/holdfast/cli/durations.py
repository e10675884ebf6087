"""Durations and moments as people write them: ``30s``, ``5m``, ``PT5M``, ``2026-11-22T10:00``.

**Rules.** A duration has its unit. A moment is an ISO 8601 time, UTC if it names no zone, or a
duration before the moment at which a source was read. A bare number is refused, because its unit
is unknown.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError, suggest

if TYPE_CHECKING:
    from holdfast.fleet.analysis.times import Since

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PLAIN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_ISO = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", flags=re.IGNORECASE
)


def parse_duration_ms(text: str, name: str = "duration") -> int:
    """Return the milliseconds of a duration.

    Parameters
    ----------
    text : str
        ``0``, ``1500ms``, ``1.5s``, ``5m``, ``2h``, ``1d`` or ISO 8601 (``PT5M``).
    name : str
        Name of the value in an error.

    Raises
    ------
    ConfigError
        The text is none of the forms above.
    """
    stripped = text.strip()
    plain = _PLAIN.fullmatch(stripped)
    if plain is not None:
        return round(float(plain[1]) * _UNITS_MS[plain[2]])
    iso = _ISO.fullmatch(stripped)
    if iso is not None and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return round(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000)
    if stripped == "0":
        return 0
    raise ConfigError(f"{name}: found {text!r}, expected a number and its unit: 30s, 5m or 1500ms")


def above_zero_s(text: str, name: str) -> float:
    """Return the seconds of a duration; raise ConfigError if it is not one, or 0."""
    ms = parse_duration_ms(text, name)
    if not ms:
        raise ConfigError(f"{name}: found {text!r}, expected more than 0: 30s or 5m")
    return ms / 1000


def parse_retention(text: str) -> float | None:
    """Return the days of ``--keep``; None for ``all``; raise ConfigError for 0 or a wrong text."""
    if text == "all":
        return None
    millis = parse_duration_ms(text, "--keep")
    if millis <= 0:
        raise ConfigError(f"--keep: found {text!r}, expected a duration such as 90d, or all")
    return millis / 86_400_000


def named_durations_ms(entries: Iterable[str], names: Collection[str], flag: str) -> dict[str, int]:
    """Return the ``NAME=DURATION`` entries of a repeatable option, by name, in ms.

    Raise ConfigError for an unknown name or a value that is not a duration.
    """
    found = {}
    for entry in entries:
        name, _, value = entry.partition("=")
        name = name.strip().removesuffix("-ms")
        if name not in names:
            raise ConfigError(f"{flag} {name}: {suggest(name, tuple(names))}")
        found[name] = parse_duration_ms(value, f"{flag} {name}")
    return found


def format_duration(ms: int) -> str:
    """Format a duration in its largest unit that divides it: ``5m``, ``10s``, ``1500ms``."""
    unit, length = next((u, n) for u, n in reversed(_UNITS_MS.items()) if ms % n == 0)
    return f"{ms // length}{unit}" if ms else "0s"


def parse_moment_us(text: str, name: str, now_us: int | None = None) -> int:
    """Return microseconds since 1970 of ``2026-11-22T10:00``, ``2026-11-22`` or ``2h ago``.

    Raise ConfigError for any other text.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        found = None
    if text.strip().removesuffix(" ago").isdigit():
        raise ConfigError(f"{name}: {text!r} has no unit: say 2h, or 2026-11-22T10:00")
    if found is not None:
        zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
        return round(zoned.timestamp() * 1e6)
    try:
        before_ms = parse_duration_ms(text.strip().removesuffix(" ago"), name)
    except ConfigError:
        raise ConfigError(
            f"{name}: found {text!r}, expected a moment such as 2026-11-22T10:00 (UTC), or how "
            "long ago it was, such as 2h"
        ) from None
    return (time.time_ns() // 1000 if now_us is None else now_us) - 1000 * before_ms


def read_window(
    since: str | None, until: str | None, now_us: int | None = None
) -> tuple[int | None, int | None]:
    """Return the two ends of ``--since`` and ``--until``, in microseconds since 1970.

    A duration counts back from ``now_us``, by default from the clock's time. Raise ConfigError if
    one end is not a moment, or the first comes after the last.
    """
    low = None if since is None else parse_moment_us(since, "--since", now_us)
    high = None if until is None else parse_moment_us(until, "--until", now_us)
    if low is not None and high is not None and low > high:
        raise ConfigError(f"--since {since} comes after --until {until}")
    return low, high


def window_begin(since: str | None, default: str | None = None) -> Since | None:
    """Return a function from the end of a window to its beginning, in ms; None for all time.

    Raise ConfigError if ``--since`` is not a moment.
    """
    text = since or default
    if text is None:
        return None
    parse_moment_us(text, "--since")
    return lambda end_ms: parse_moment_us(text, "--since", 1000 * end_ms) // 1000
