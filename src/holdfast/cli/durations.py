"""Durations as people write them: ``30s``, ``5m``, ``PT5M``, or plain milliseconds."""

from __future__ import annotations

import re
from collections.abc import Callable

from holdfast.errors import ConfigError

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PLAIN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_BARE = re.compile(r"\d+(?:\.\d+)?")
_ISO = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", flags=re.IGNORECASE
)


def parse_duration_ms(text: str, name: str = "duration", bare: str = "ms") -> int:
    """Milliseconds of a duration.

    Parameters
    ----------
    text : str
        ``1500``, ``1500ms``, ``1.5s``, ``5m``, ``2h``, ``1d`` or ISO 8601 (``PT5M``).
    name : str
        What to call it in an error.
    bare : str
        Unit of a number without one, which the option's help names.

    Raises
    ------
    ConfigError
        If it is none of these.
    """
    stripped = text.strip()
    plain = _PLAIN.fullmatch(stripped)
    if plain is not None:
        return round(float(plain[1]) * _UNITS_MS[plain[2] or bare])
    iso = _ISO.fullmatch(stripped)
    if iso is not None and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return round(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000)
    raise ConfigError(f"{name}: found {text!r}, expected such as 30s, 5m, PT5M or 1500 ({bare})")


def seconds(text: str, name: str) -> float:
    """Seconds of a duration, for an option whose plain numbers are seconds.

    Raises
    ------
    ConfigError
        If it is no duration.
    """
    return parse_duration_ms(text, name, bare="s") / 1000


def asked_duration_ms(text: str, name: str, note: Callable[[str], None]) -> int:
    """As :func:`parse_duration_ms`, for an option; a number without a unit is told to be in ms."""
    ms = parse_duration_ms(text, name)
    if ms and _BARE.fullmatch(text.strip()):
        note(f"{name} {text.strip()} has no unit and is taken as {ms} ms; seconds are {ms}s")
    return ms


def format_duration(ms: int) -> str:
    """A duration in its largest unit that divides it: ``5m``, ``10s``, ``1500ms``."""
    unit, length = next((u, n) for u, n in reversed(_UNITS_MS.items()) if ms % n == 0)
    return f"{ms // length}{unit}" if ms else "0s"
