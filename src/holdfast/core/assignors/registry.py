"""The table of assignors: one row with the traits of each, and the functions that run them.

**Rules.** An assignor is a pure function ``(claims, **options) -> Solution``. :func:`assign`
normalises the claims first. The row of an assignor holds its traits; no module infers a trait from
an assignor's name. Tests check every row: ``tests/assignors/test_laws.py`` its laws,
``tests/assignors/test_traits.py`` its traits.

**Strategy.** A new assignor is a file with its function, and one row of the table below. The file
is imported when the assignor runs: a member that only supports an assignor needs no more than its
row, and no NumPy. A user's own assignor is a row as well (:mod:`holdfast.core.assignors.own`). It
is in no table: wherever a name is accepted, the row itself is accepted, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import ConfigError, InfeasibleError, ModelError, nearest, suggest

if TYPE_CHECKING:
    from holdfast.core.assignors.result import Result, Solution
    from holdfast.core.model.group import Group

Check = Callable[[str, object], object]
"""Check of an option's name and value; returns the value to use, or raises ConfigError."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssignorInfo:
    """One assignor."""

    name: str  # name on the wire and on the command line
    home: str  # module and name of its function, ``package.module:name``
    summary: str  # one line for people
    # The laws that it keeps, of ``balanced``, ``sticky``, ``optimal``, ``keeps-all``; every
    # assignor is valid, deterministic and independent of order.
    laws: frozenset[str] = frozenset()
    # Whether members keep processing during a round (KIP-429). A partition that moves from one
    # member to another is then withheld for a round.
    cooperative: bool = False
    # The assignor with the same target under the other rebalance protocol; "" for none.
    twin: str = ""
    # Whether the target depends on owned partitions, on lags, on racks. Members report what they
    # owned only to an assignor that uses claims, and a leader looks up lags only for an assignor
    # that uses lags. It looks up racks when a member names a rack.
    uses_claims: bool = False
    uses_lags: bool = False
    uses_racks: bool = False
    # Whether it raises InfeasibleError for members that subscribe to different topics.
    needs_equal_subscriptions: bool = False
    # The assignor of the same rebalance protocol that plans a round of a running group which this
    # assignor refuses; "" for none.
    fallback: str = ""
    java_class: str = ""  # the class with this assignor for Java's client, "" for none
    in_librdkafka: bool = False  # whether librdkafka has it, under the same name
    # Keyword options that the function takes, each with its check.
    options: Mapping[str, Check] = field(default_factory=dict)

    @property
    def function(self) -> Callable[..., Solution]:
        """The assignor: ``(claims, **options) -> Solution``."""
        module, _, name = self.home.partition(":")
        found = getattr(import_module(module), name)
        return cast("Callable[..., Solution]", found)


_LOWEST_WEIGHT, _HIGHEST_WEIGHT = 1e-6, 1e6

# A check takes the option's name and the given value. It returns the value that the assignor uses,
# or raises ConfigError with the name, the given value and the expected kind.


def _text(name: str, value: object) -> str:
    """Accept any string."""
    if not isinstance(value, str):
        raise ConfigError(f"{name}: {value!r:.40}, expected a string")
    return value


def _whole_number(name: str, value: object) -> int:
    """Accept an integer of 0 or more; a bool is refused."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{name}: {value!r:.40}, expected an integer of 0 or more")
    return value


def _whole_number_or_none(name: str, value: object) -> int | None:
    """Accept an integer of 0 or more, or None for no limit."""
    return None if value is None else _whole_number(name, value)


def _percent(name: str, value: object) -> float:
    """Accept a number from 0 to 100."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name}: {value!r:.40}, expected a number of percent")
    if not 0 <= value <= 100:
        raise ConfigError(f"{name}: {value}, expected 0 to 100 percent")
    return float(value)


def _weights(name: str, value: object) -> Mapping[str, float] | None:
    """Accept numbers by member id or instance id, or None if all members weigh the same."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name}: {value!r:.60}, expected a mapping of member id to number")
    for member, weight in value.items():
        if isinstance(weight, bool) or not isinstance(weight, (int, float)):
            raise ConfigError(f"{name}[{member!r}]: {weight!r:.40}, expected a number")
        if not (math.isfinite(weight) and _LOWEST_WEIGHT <= weight <= _HIGHEST_WEIGHT):
            raise ConfigError(f"{name}[{member!r}]: {weight}, expected 0.000001 to 1000000")
    return value


Named = str | AssignorInfo
"""A reference to an assignor: a name of the table, a Java class, or the row itself."""

_BEST = frozenset({"balanced", "sticky", "optimal"})

_ROWS: dict[str, AssignorInfo] = {
    info.name: info
    for info in (
        AssignorInfo(
            name="sticky",
            home="holdfast.core.assignors.sticky:sticky",
            summary="best balance, then racks, then fewest moves; eager (KIP-54)",
            laws=_BEST,
            twin="cooperative-sticky",
            uses_claims=True,
            uses_racks=True,
            java_class="org.apache.kafka.clients.consumer.StickyAssignor",
        ),
        AssignorInfo(
            name="cooperative-sticky",
            home="holdfast.core.assignors.sticky:sticky",
            summary="the same target, reached in two rounds (KIP-429)",
            laws=_BEST,
            cooperative=True,
            twin="sticky",
            uses_claims=True,
            uses_racks=True,
            java_class="org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
            in_librdkafka=True,
        ),
        AssignorInfo(
            name="range",
            home="holdfast.core.assignors.by_topic:range_by_topic",
            summary="runs of neighbouring partitions, topic by topic, as Kafka's (KIP-881 racks)",
            uses_racks=True,
            java_class="org.apache.kafka.clients.consumer.RangeAssignor",
            in_librdkafka=True,
        ),
        AssignorInfo(
            name="roundrobin",
            home="holdfast.core.assignors.by_topic:roundrobin",
            summary="partitions to members in a circle, as Kafka's",
            java_class="org.apache.kafka.clients.consumer.RoundRobinAssignor",
            in_librdkafka=True,
        ),
        AssignorInfo(
            name="constrained-sticky",
            home="holdfast.core.assignors.sticky:constrained",
            summary="equal subscriptions only, linear passes; eager (KAFKA-9987)",
            laws=frozenset({"balanced", "sticky"}),
            twin="constrained-cooperative-sticky",
            uses_claims=True,
            needs_equal_subscriptions=True,
            fallback="sticky",
        ),
        AssignorInfo(
            name="constrained-cooperative-sticky",
            home="holdfast.core.assignors.sticky:constrained",
            summary="the same target, reached in two rounds (KAFKA-9987)",
            laws=frozenset({"balanced", "sticky"}),
            cooperative=True,
            twin="constrained-sticky",
            uses_claims=True,
            needs_equal_subscriptions=True,
            fallback="cooperative-sticky",
        ),
        AssignorInfo(
            name="fair",
            home="holdfast.core.assignors.sticky:fair",
            summary="balance alone, starts from nothing (KIP-49 in KIP-54)",
            laws=frozenset({"balanced", "optimal"}),
            uses_racks=True,
        ),
        AssignorInfo(
            name="fairest-sticky",
            home="holdfast.core.assignors.sticky:fairest_sticky",
            summary="every valid claim stays, the rest as even as possible (KIP-54)",
            laws=frozenset({"sticky", "keeps-all"}),
            uses_claims=True,
        ),
        AssignorInfo(
            name="lag",
            home="holdfast.core.assignors.by_topic:lag",
            summary="topic by topic, the largest lag to whom has least (KAFKA-5337)",
            uses_lags=True,
            java_class="com.github.grantneale.kafka.LagBasedPartitionAssignor",
            options={"group_id": _text},
        ),
        AssignorInfo(
            name="lag-sticky",
            home="holdfast.core.assignors.lag_sticky:lag_sticky",
            summary="counts and lag even over all topics, no move without a reason",
            laws=frozenset({"balanced", "sticky"}),
            uses_claims=True,
            uses_lags=True,
            options={
                "max_skew": _whole_number,
                "hysteresis": _percent,
                "max_moves": _whole_number_or_none,
                "weights": _weights,
            },
        ),
    )
}

ASSIGNORS: Mapping[str, AssignorInfo] = MappingProxyType(_ROWS)
"""Every assignor by name."""

JAVA_NAMES: Mapping[str, str] = MappingProxyType(
    {info.java_class: info.name for info in _ROWS.values() if info.java_class}
)
"""Java's classes -> the names of their assignors. librdkafka's names are those of the registry."""

MAX_ROUNDS = 8
"""Bound on rounds: two are enough for any group, unless claims contradict each other."""


def assign(group: Group, name: Named, /, **options: Any) -> Result:
    """Run an assignor.

    Parameters
    ----------
    group : Group
        Members, subscriptions, claims.
    name : str or assignor
        A name of docs/assignors.md, a Java class with this assignor, or what
        :func:`holdfast.assignor` returned.
    **options
        Options that the assignor declares.

    Raises
    ------
    ConfigError
        An unknown assignor or option, or an option's value that is out of range.
    InfeasibleError
        The assignor refuses this group, as ``constrained-sticky`` does unequal subscriptions.
    PlanError
        The function of a user's own assignor raised, or its plan is not valid.

    References: KIP-54, KIP-429.
    """
    from holdfast.core.assignors.claims import normalise
    from holdfast.core.assignors.result import Result

    info = find(name)
    checked = check_options(info, options)
    claims = normalise(group)
    solution = info.function(claims, **checked)
    return Result.of(info.name, claims, solution, cooperative=info.cooperative)


def canonical(name: str) -> str:
    """Return the registry's name of an assignor that may be named by its Java class."""
    return JAVA_NAMES.get(name, name)


def assign_in_round(group: Group, name: Named, /, notes: list[str], **options: Any) -> Result:
    """Run an assignor for a running group; its fallback plans a group that it refuses.

    While a deploy adds a topic, members subscribe to different topics until the last one is
    restarted. A round that the assignor refuses for that is planned by its fallback, and ``notes``
    says so.

    References: KAFKA-9987, "Public Interfaces" (use the CooperativeStickyAssignor instead).
    """
    try:
        return assign(group, name, **options)
    except InfeasibleError as error:
        fallback = find(name).fallback
        if not fallback:
            raise
        notes.append(f"{fallback} plans this round instead of {find(name).name}: {error}")
        return assign(group, fallback)


def follow(group: Group, name: Named, /, **options: Any) -> list[Result]:
    """Run an assignor for round after round, until nothing is withheld.

    Parameters
    ----------
    group : Group
        The group before the first round.
    name : str or assignor
        A name of docs/assignors.md, or what :func:`holdfast.assignor` returned.
    **options
        Of the assignor.

    Returns
    -------
    list of Result
        One a round; the last one withholds nothing.

    Raises
    ------
    ConfigError, InfeasibleError, PlanError
        As of :func:`holdfast.assign`.
    ModelError
        Something is withheld after every one of 8 rounds: a user's own assignor gives partitions
        to other members in each round.

    References: KIP-429: a partition that moves is withheld for one round.
    """
    results = [assign(group, name, **options)]
    while len(results[-1].pending_tp):
        if len(results) == MAX_ROUNDS:
            raise ModelError(f"{find(name).name} still withholds after {MAX_ROUNDS} rounds")
        results.append(assign(results[-1].next_round(), name, **options))
    return results


def known(name: Named) -> AssignorInfo | None:
    """Return the row as :func:`find` does; None for an unknown name."""
    return name if isinstance(name, AssignorInfo) else ASSIGNORS.get(canonical(name))


def find(name: Named) -> AssignorInfo:
    """Return the row of ``name``, or of the assignor of a Java class; a row itself is returned."""
    if (info := known(name)) is None:
        raise unknown(str(name))
    return info


def unknown(name: str, more: Iterable[str] = ()) -> ConfigError:
    """Return the error of an unknown assignor: it suggests near Java classes, else near names.

    ``more``: further names that are accepted.
    """
    near = nearest(name, JAVA_NAMES) or f"; {suggest(name, (*ASSIGNORS, *more), 3)}"
    return ConfigError(f"unknown assignor {name!r}{near}")


def check_options(name: Named, options: Mapping[str, object]) -> dict[str, Any]:
    """Return options as the assignor takes them."""
    info = find(name)
    unknown = sorted(set(options) - set(info.options))
    if unknown:
        hint = suggest(unknown[0], info.options) if info.options else "it takes none"
        raise ConfigError(f"{info.name}: unknown option {unknown[0]!r}; {hint}")
    return {option: info.options[option](option, value) for option, value in options.items()}


def for_protocol(name: str, *, cooperative: bool) -> str | None:
    """Return the assignor if it has this rebalance protocol, else its twin, or None."""
    info = find(name)
    return info.name if info.cooperative == cooperative else info.twin or None
