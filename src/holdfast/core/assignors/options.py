"""Checks for the options of assignors: one function for each kind of value.

**Rules.** A check takes the option's name and the given value. It returns the value that the
assignor uses, or raises ConfigError with the name, the given value and the expected kind.

A row of :mod:`holdfast.core.assignors.registry` names the check of each option.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from holdfast.errors import ConfigError

LOWEST_WEIGHT, HIGHEST_WEIGHT = 1e-6, 1e6


def text(name: str, value: object) -> str:
    """Accept any string."""
    if not isinstance(value, str):
        raise ConfigError(f"{name}: {value!r:.40}, expected a string")
    return value


def whole_number(name: str, value: object) -> int:
    """Accept an integer of 0 or more; a bool is refused."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{name}: {value!r:.40}, expected an integer of 0 or more")
    return value


def whole_number_or_none(name: str, value: object) -> int | None:
    """Accept an integer of 0 or more, or None for no limit."""
    return None if value is None else whole_number(name, value)


def percent(name: str, value: object) -> float:
    """Accept a number from 0 to 100."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name}: {value!r:.40}, expected a number of percent")
    if not 0 <= value <= 100:
        raise ConfigError(f"{name}: {value}, expected 0 to 100 percent")
    return float(value)


def weights(name: str, value: object) -> Mapping[str, float] | None:
    """Accept numbers by member id or instance id, or None if all members weigh the same."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name}: {value!r:.60}, expected a mapping of member id to number")
    for member, weight in value.items():
        if isinstance(weight, bool) or not isinstance(weight, (int, float)):
            raise ConfigError(f"{name}[{member!r}]: {weight!r:.40}, expected a number")
        if not (math.isfinite(weight) and LOWEST_WEIGHT <= weight <= HIGHEST_WEIGHT):
            raise ConfigError(f"{name}[{member!r}]: {weight}, expected 0.000001 to 1000000")
    return value
