"""The only list of assignors, and the one way to run one.

**Rules.** Every assignor is a pure function ``(claims, **options) -> Plan``; it sees claims that
are already normalised. What it claims to be is declared here, and the laws test holds it to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from holdfast.assign.claims import normalise
from holdfast.assign.result import Plan, Result
from holdfast.assign.sticky import sticky
from holdfast.errors import ConfigError
from holdfast.model.group import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignorInfo:
    """One assignor.

    Parameters
    ----------
    name : str
        Name on the wire and on the command line.
    function : callable
        ``(claims, **options) -> Plan``.
    summary : str
        One line for people.
    laws : frozenset of str
        Laws it claims, of ``balanced``, ``sticky``, ``optimal``, ``keeps-all``; every assignor is
        valid, deterministic and independent of order.
    cooperative : bool
        Whether partitions that another member still claims are withheld for a round.
    options : tuple of str
        Keyword options the function takes.
    """

    name: str
    function: Callable[..., Plan]
    summary: str
    laws: frozenset[str] = frozenset()
    cooperative: bool = False
    options: tuple[str, ...] = ()


_BEST = frozenset({"balanced", "sticky", "optimal"})

_ALL = (
    AssignorInfo(
        name="sticky",
        function=sticky,
        summary="best balance, then racks, then fewest moves; eager (KIP-54)",
        laws=_BEST,
    ),
    AssignorInfo(
        name="cooperative-sticky",
        function=sticky,
        summary="the same target, handed over in two rounds (KIP-429)",
        laws=_BEST,
        cooperative=True,
    ),
)

ASSIGNORS: Mapping[str, AssignorInfo] = MappingProxyType({info.name: info for info in _ALL})
"""Every assignor by name."""


def assign(group: Group, name: str, /, **options: Any) -> Result:
    """Run an assignor.

    Parameters
    ----------
    group : Group
        Members, subscriptions, claims.
    name : str
        A name of :data:`ASSIGNORS`.
    **options
        Those the assignor declares.

    Raises
    ------
    ConfigError
        An unknown assignor or option.
    InfeasibleError
        The assignor refuses this group, as ``constrained-sticky`` does unequal subscriptions.

    References
    ----------
    KIP-54, KIP-429.
    """
    info = find(name)
    unknown = sorted(set(options) - set(info.options))
    if unknown:
        known = ", ".join(info.options) or "none"
        raise ConfigError(f"{name}: unknown option {unknown[0]!r}; it takes: {known}")
    claims = normalise(group)
    plan = info.function(claims, **options)
    return Result.of(name, claims, plan, cooperative=info.cooperative)


def find(name: str) -> AssignorInfo:
    """The assignor called ``name``; ConfigError with near names if there is none."""
    if name in ASSIGNORS:
        return ASSIGNORS[name]
    near = get_close_matches(name, ASSIGNORS, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(ASSIGNORS)}"
    raise ConfigError(f"unknown assignor {name!r}; {hint}")
