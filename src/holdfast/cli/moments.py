"""Moments on the command line: ``--since`` and ``--until``.

**Rules.** A moment is a time of ISO 8601, UTC where it names no zone, or a duration before now. A
bare number is neither: it is refused, for nobody knows its unit.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from holdfast.cli.durations import parse_duration_ms
from holdfast.cli.options import Window
from holdfast.errors import ConfigError


def parse_moment_us(text: str, name: str, now_us: int | None = None) -> int:
    """Microseconds since 1970 of ``2026-11-22T10:00``, ``2026-11-22``, ``2h`` or ``2h ago``.

    Raises
    ------
    ConfigError
        It is none of these.
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


def read_window(window: Window) -> tuple[int | None, int | None]:
    """The two ends of ``--since`` and ``--until``, in microseconds since 1970.

    Raises
    ------
    ConfigError
        One is no moment, or the first comes after the last.
    """
    since, until = window.since, window.until
    low = None if since is None else parse_moment_us(since, "--since")
    high = None if until is None else parse_moment_us(until, "--until")
    if low is not None and high is not None and low > high:
        raise ConfigError(f"--since {since} comes after --until {until}")
    return low, high
