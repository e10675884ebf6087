"""Values of options as people write them: durations and moments, assignors and policies.

**Rules.** A duration has its unit: ``30s``, ``5m``, ``PT5M``. A moment is an ISO 8601 time
(``2026-11-22T10:00``), UTC if it names no zone, or a duration before the moment at which a source
was read. A bare number is refused, because its unit is unknown.

``module:function`` is imported as ``python -m`` would, from the current folder first. It names a
result of :func:`holdfast.assignor`, or a function of members, topics and claims.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli.declared import Option
from holdfast.core.assignors.registry import Named, find
from holdfast.core.machine.policy import DEFAULTS, PolicyInfo
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


DELAY, INTERVAL = format_duration(DEFAULTS.delay_ms), format_duration(DEFAULTS.interval_ms)
STABILIZATION = format_duration(DEFAULTS.stabilization_ms)

Batch = Annotated[
    int, Option("--batch", help="Design III: moves per round for each gaining member.")
]
Interval = Annotated[
    str, Option("--interval", metavar="DURATION", help="Design III: time between batches.")
]


AssignorOptions = Annotated[
    list[str] | None,
    Option(
        "--option", metavar="NAME=VALUE", help="Option of the assignor, value as JSON; repeatable."
    ),
]


def split_names(text: str, option: str) -> list[str]:
    """Return the names of an option that takes several, each once; ConfigError without one."""
    if not (names := [name for part in text.split(",") if (name := part.strip())]):
        raise ConfigError(
            f"{option} {text!r}: expected names of assignors, policies or delays, such as a,b"
        )
    return list(dict.fromkeys(names))


def parse_assignor(text: str) -> Named:
    """Return an assignor of the registry, or the user's own ``module:function``.

    Raise ConfigError if the name is unknown, or names no assignor.
    """
    if ":" not in text:
        return find(text).name
    import_from_here()
    # A command with a name of the registry does not load what members need.
    from holdfast.members.config.own_assignors import resolve_for_command

    return resolve_for_command(text)


def parse_policy(text: str) -> PolicyInfo:
    """Return the user's own policy, ``module:function``; raise ConfigError if it is none."""
    import_from_here()
    from holdfast.members.config.own_assignors import policy_named_by

    return policy_named_by(text)


def import_from_here() -> None:
    """Import modules from the current folder first, as ``python -m`` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def parse_option(text: str) -> tuple[str, Any]:
    """Split ``NAME=VALUE`` of ``--option``; raise ConfigError for any other text."""
    name, sign, value = text.partition("=")
    if not sign:
        raise ConfigError(f"--option {text!r}: expected NAME=VALUE, such as max_skew=1")
    try:
        return name.strip().replace("-", "_"), json.loads(value)
    except (ValueError, RecursionError):  # a text, or no value that any option takes
        return name.strip().replace("-", "_"), value
