"""A user's own policy for handling imbalance: a plain function.

**Rules.** The function takes an :class:`~holdfast.core.machine.leader.imbalance.Imbalance` and
returns a :class:`~holdfast.core.machine.leader.imbalance.Resolution`. It decides what waits, until
when, and which moves are made in a round; a user's own assignor decides owners
(:mod:`holdfast.core.assignors.own`), and a group may have both. Its leader calls it in every round.
Members use the protocol of Design II, so one bounce changes a group from or to it.

**Strategy.** :func:`policy` makes a row like those of :mod:`holdfast.core.machine.policies`, which
is accepted wherever the name of a policy is: in settings of members, in ``simulate`` and in
:func:`holdfast.check_policy_laws`.

References: Incremental Cooperative Rebalancing, "General Approach" (an application provides its own
policies).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace

from holdfast.core.assignors.own import TIMEOUT_MS, required_of
from holdfast.core.assignors.registry import known
from holdfast.core.machine.policies import POLICIES, PolicyInfo
from holdfast.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def policy(
    name: str,
    function: Callable[..., object],
    *,
    failback: bool = False,
    timeout_ms: int = TIMEOUT_MS,
) -> PolicyInfo:
    """Make a rebalance policy from a function.

    Parameters
    ----------
    name : str
        Name for people: letters, digits, ``-`` and ``_``.
    function : callable
        ``(imbalance) -> Resolution``; docs/own-policies.md shows an example. Its ``imbalance`` is a
        :class:`holdfast.Imbalance`.
    lends : bool
        Whether what a departed member owned is temporarily reassigned, as under ``failback``;
        nothing waits then, and the function decides about moves alone.
    timeout_ms : int
        Milliseconds that a leader waits for the function. A late answer is a failed plan, and
        members keep what they have.

    Raises
    ------
    ConfigError
        The name is taken or invalid, or ``function`` is not a function of one argument.

    References: Incremental Cooperative Rebalancing, "General Approach".
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"policy {name!r}: expected a name of letters, digits, - and _")
    if name in POLICIES or known(name) is not None:
        raise ConfigError(f"policy {name!r}: this name is holdfast's own; take another one")
    if not is_resolver(function):
        raise ConfigError(f"policy {name}: expected a function of one argument, an Imbalance")
    if timeout_ms < 1:
        raise ConfigError(f"policy {name}: timeout_ms: found {timeout_ms}, expected at least 1")
    return replace(
        POLICIES["failback" if failback else "deferred"],
        name=name,
        title=name,
        summary="of the user",
        worker="",
        resolver=function,
        timeout_ms=timeout_ms,
    )


def is_resolver(candidate: object) -> bool:
    """Return whether ``function`` has one required argument, by position."""
    if not callable(candidate) or inspect.isclass(candidate):
        return False
    try:
        required = required_of(candidate)
    except (TypeError, ValueError):
        return False
    return len(required) == 1 and required[0].kind is not inspect.Parameter.KEYWORD_ONLY
