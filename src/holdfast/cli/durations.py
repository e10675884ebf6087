"""Durations as people write them, with their unit: ``30s``, ``5m``, ``PT5M``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from holdfast.errors import ConfigError, suggest

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PLAIN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_ISO = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", flags=re.IGNORECASE
)


def parse_duration_ms(text: str, name: str = "duration") -> int:
    """Milliseconds of a duration.

    Parameters
    ----------
    text : str
        ``0``, ``1500ms``, ``1.5s``, ``5m``, ``2h``, ``1d`` or ISO 8601 (``PT5M``).
    name : str
        What to call it in an error.

    Raises
    ------
    ConfigError
        If it is none of these.
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
    """Seconds of a duration that is not 0.

    Raises
    ------
    ConfigError
        If it is no duration, or 0.
    """
    ms = parse_duration_ms(text, name)
    if not ms:
        raise ConfigError(f"{name}: found {text!r}, expected more than 0: 30s or 5m")
    return ms / 1000


def named_durations_ms(entries: Iterable[str], names: Collection[str], flag: str) -> dict[str, int]:
    """``NAME=DURATION`` of an option that may be repeated, by name, in ms.

    Raises
    ------
    ConfigError
        A name is unknown, or a value is no duration.
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
    """A duration in its largest unit that divides it: ``5m``, ``10s``, ``1500ms``."""
    unit, length = next((u, n) for u, n in reversed(_UNITS_MS.items()) if ms % n == 0)
    return f"{ms // length}{unit}" if ms else "0s"
