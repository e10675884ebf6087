"""The signature of a user's own function, and the members that it is given.

**Rules.** The required parameters say which form a function has. The forms are described in
:mod:`holdfast.core.assignors.own`.

**Strategy.** No NumPy: a member that only supports an assignor reads its signature and no more. The
row of an assignor (:mod:`holdfast.core.assignors.own`) imports the code that calls the function
(:mod:`holdfast.core.assignors.own_plan`) when it runs, so what both need has a file of its own.

References: KIP-726 ("assignors are user-customisable").
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from holdfast.errors import ConfigError


class Form(StrEnum):
    """The arguments that the function takes."""

    NAMES = "(members, topics, claims)"
    LAGS = "(members, topics, claims, lags)"
    NUMBERS = "(claims)"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMember:
    """A member as a function that takes names sees it."""

    member_id: str
    topics: tuple[str, ...]  # topics that exist and that it subscribes to, sorted
    # The member's ``group.instance.id`` and rack, if it has them.
    instance_id: str | None = None
    rack: str | None = None


def form_of(function: object, name: str) -> Form:
    """Return the form of a function, by its required parameters.

    Raises
    ------
    ConfigError
        ``function`` is not a function, or has other parameters.
    """
    expected = ", ".join(Form)
    if not callable(function):
        found = type(function).__name__
        raise ConfigError(f"assignor {name}: found {found}, expected a function of {expected}")
    try:
        required = required_of(function)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"assignor {name}: {error}; expected a function of {expected}") from error
    forms = {1: Form.NUMBERS, 3: Form.NAMES, 4: Form.LAGS}
    if len(required) not in forms or any(p.kind is p.KEYWORD_ONLY for p in required):
        found = ", ".join(p.name for p in required)
        raise ConfigError(f"assignor {name}: found a function of ({found}), expected {expected}")
    return forms[len(required)]


def required_of(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Return the required parameters; TypeError or ValueError where they cannot be read."""
    parameters = inspect.signature(function).parameters.values()
    return [p for p in parameters if p.default is p.empty and p.kind not in _VARIABLE]


_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
