"""The only list of assignors, and the one way to run one.

**Rules.** Every assignor is a pure function ``(claims, **options) -> Solution``; it sees claims
that are already normalised. What it claims to be is declared here, and the laws test holds it to
that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from holdfast.assignors.claims import normalise
from holdfast.assignors.constrained import constrained
from holdfast.assignors.fair import fair, fairest_sticky
from holdfast.assignors.lag import lag
from holdfast.assignors.lag_sticky import lag_sticky
from holdfast.assignors.range import range_by_topic
from holdfast.assignors.result import Result, Solution
from holdfast.assignors.roundrobin import roundrobin
from holdfast.assignors.sticky import sticky
from holdfast.errors import ConfigError, suggest
from holdfast.model.group import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignorInfo:
    """One assignor.

    Parameters
    ----------
    name : str
        Name on the wire and on the command line.
    function : callable
        ``(claims, **options) -> Solution``.
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
    function: Callable[..., Solution]
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
    AssignorInfo(
        name="range",
        function=range_by_topic,
        summary="runs of neighbouring partitions, topic by topic, as Kafka's (KIP-881 racks)",
    ),
    AssignorInfo(
        name="roundrobin",
        function=roundrobin,
        summary="partitions dealt in turn, as Kafka's",
    ),
    AssignorInfo(
        name="constrained-sticky",
        function=constrained,
        summary="equal subscriptions only, linear passes; eager (KAFKA-9987)",
        laws=frozenset({"balanced", "sticky"}),
    ),
    AssignorInfo(
        name="constrained-cooperative-sticky",
        function=constrained,
        summary="the same target, handed over in two rounds (KAFKA-9987)",
        laws=frozenset({"balanced", "sticky"}),
        cooperative=True,
    ),
    AssignorInfo(
        name="fair",
        function=fair,
        summary="balance alone, starts from nothing (KIP-49 in KIP-54)",
        laws=frozenset({"balanced", "optimal"}),
    ),
    AssignorInfo(
        name="fairest-sticky",
        function=fairest_sticky,
        summary="every valid claim stays, the rest placed as evenly as it can be (KIP-54)",
        laws=frozenset({"sticky", "keeps-all"}),
    ),
    AssignorInfo(
        name="lag",
        function=lag,
        summary="topic by topic, the largest lag to whom has least (KAFKA-5337)",
        options=("group_id",),
    ),
    AssignorInfo(
        name="lag-sticky",
        function=lag_sticky,
        summary="counts and lag even over all topics, no move without a reason",
        laws=frozenset({"balanced", "sticky"}),
        options=("max_skew", "hysteresis", "max_moves", "weights"),
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
    info = check_options(name, options)
    claims = normalise(group)
    plan = info.function(claims, **options)
    return Result.of(name, claims, plan, cooperative=info.cooperative)


def check_options(name: str, options: Iterable[str]) -> AssignorInfo:
    """The assignor called ``name``, if it has all these options.

    Raises
    ------
    ConfigError
        There is no such assignor, or it has no such option.
    """
    info = find(name)
    unknown = sorted(set(options) - set(info.options))
    if unknown:
        hint = suggest(unknown[0], info.options)
        raise ConfigError(f"{name}: unknown option {unknown[0]!r}; {hint}")
    return info


def find(name: str) -> AssignorInfo:
    """The assignor called ``name``; ConfigError with near names if there is none."""
    if name in ASSIGNORS:
        return ASSIGNORS[name]
    raise ConfigError(f"unknown assignor {name!r}; {suggest(name, ASSIGNORS, 3)}")
