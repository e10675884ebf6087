"""A user's own assignor: a plain function over members, topics and claims.

**Rules.** One function is an assignor under both rebalance protocols, eager and cooperative, and
the target of a design. It is called with names or with numbers, depending on its required
parameters:

- ``(members, topics, claims)``: names. ``members`` is ``{member id: OwnMember}``; ``topics`` is
  ``{topic: partition numbers}``, of topics with a subscriber; ``claims`` is
  ``{(topic, partition): member id}``, the one claim of each partition that counts. It returns
  ``{(topic, partition): member id}``, with an owner for every partition of ``topics``.
- ``(members, topics, claims, lags)``: the same, with ``lags``, ``{topic: messages behind}``, one
  number for each of the topic's partition numbers.
- ``(claims)``: numbers. ``claims`` is a :class:`~holdfast.core.assignors.claims.Claims`. It returns
  ``int32[n_tps]``, the member of each topic-partition, -1 without a subscriber.

In no form can a partition have two owners. The function is called only if there are members and
partitions for them. Members, topics and partitions come in sorted order, and changes that the
function makes to its arguments have no effect.

Under Designs II and III ``topics`` lacks the partitions that wait for a departed member.

**Strategy.** :func:`assignor` reads the signature and makes a row like those of the registry.
:mod:`holdfast.core.assignors.own_plan` calls the function and checks its plan. What a cooperative
round withholds is decided as for every assignor
(:meth:`holdfast.core.assignors.claims.Claims.withheld`).

References: KIP-54; KIP-429 (cooperative rounds); KIP-726 ("assignors are user-customisable");
Incremental Cooperative Rebalancing, "General Approach" (an application provides its own policies).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from holdfast.core.assignors.registry import AssignorInfo, known
from holdfast.core.model.constants import DESIGN_NAMES
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.core.assignors.result import Solution

TIMEOUT_MS = 10_000
"""Time that a leader waits for a user's function."""

CLAIMABLE = ("balanced", "sticky", "keeps-all")
"""Laws that a user's own assignor may claim. ``optimal`` needs a certificate."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class Form(StrEnum):
    """The arguments that the function takes."""

    NAMES = "(members, topics, claims)"
    LAGS = "(members, topics, claims, lags)"
    NUMBERS = "(claims)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnAssignor(AssignorInfo):
    """The row of a user's own assignor; :func:`assignor` makes it."""

    plan: Callable[..., object]  # the user's function
    form: Form  # the arguments that it takes
    timeout_ms: int = TIMEOUT_MS  # how long a leader waits for it

    @property
    def function(self) -> Callable[..., Solution]:
        """The assignor: ``(claims) -> Solution``."""
        # NumPy is not needed before the assignor runs.
        from holdfast.core.assignors.own_plan import solve, solve_in_names

        if self.form is Form.NUMBERS:
            return partial(solve, self.name, self.plan)
        return partial(solve_in_names, self.name, self.plan, with_lags=self.form is Form.LAGS)


def assignor(
    name: str,
    function: Callable[..., object],
    *,
    cooperative: bool = False,
    laws: Iterable[str] = (),
    uses_claims: bool = True,
    uses_lags: bool = False,
    timeout_ms: int = TIMEOUT_MS,
) -> OwnAssignor:
    """Make an assignor from a function.

    Parameters
    ----------
    name : str
        Protocol name in the group: letters, digits, ``-`` and ``_``. Members that support the same
        name must have the same function.
    function : callable
        ``(members, topics, claims)``, ``(members, topics, claims, lags)`` or ``(claims)``:
        docs/assignors.md shows each of them with what it returns.
    cooperative : bool
        Whether members keep their partitions while they join (KIP-429). A partition that the
        function moves from one member to another then has no owner for a round.
    laws : iterable of str
        Laws that the function promises, of ``balanced``, ``sticky`` and ``keeps-all``. Only
        :func:`holdfast.check_laws` uses them, and the rule of ``simulate`` that loads end even.
    uses_claims : bool
        Whether the plan depends on claims. Without it members of an eager group do not report
        them, and Designs II and III refuse the assignor.
    uses_lags : bool
        For the form ``(claims)``: whether the leader looks up lags, which are in
        ``claims.group.lags``.
    timeout_ms : int
        Milliseconds that a leader waits for the function. A late plan counts as failed.

    Raises
    ------
    ConfigError
        The name is taken or invalid, the function has another form, or a law is unknown.

    References: KIP-726 ("assignors are user-customisable"); Incremental Cooperative Rebalancing,
    "General Approach" (an application provides its own policies).
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"assignor {name!r}: expected a name of letters, digits, - and _")
    if known(name) is not None or name in DESIGN_NAMES.values():
        raise ConfigError(f"assignor {name!r}: this name is holdfast's own; take another one")
    form = form_of(function, name)
    claimed = frozenset(laws)
    if unknown := sorted(claimed - {*CLAIMABLE}):
        raise ConfigError(
            f"assignor {name}: found law {unknown[0]!r}, expected of {', '.join(CLAIMABLE)}"
        )
    if uses_lags and form is Form.NAMES:
        raise ConfigError(f"assignor {name}: uses_lags needs a function {Form.LAGS}")
    if timeout_ms < 1:
        raise ConfigError(f"assignor {name}: timeout_ms: found {timeout_ms}, expected at least 1")
    home = getattr(function, "__qualname__", type(function).__qualname__)
    return OwnAssignor(
        name=name,
        home=f"{getattr(function, '__module__', '')}:{home}",
        summary="of the user",
        laws=claimed,
        cooperative=cooperative,
        uses_claims=uses_claims,
        uses_lags=uses_lags or form is Form.LAGS,
        plan=function,
        form=form,
        timeout_ms=timeout_ms,
    )


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
