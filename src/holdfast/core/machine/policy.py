"""Rebalance policies, one row each, and the settings of the designs.

**Rules.** A policy is a name for the protocols that a member supports: assignors in Kafka's own
protocols, or a design in holdfast's protocol. ``Consumer``, ``Worker``, the assignors for stock
clients, ``simulate``, ``replay``, the search and random runs all read this table, so one name means
one protocol, and a default has one value, everywhere.

- ``simple`` is Design I as Kafka's own ``cooperative-sticky``. Design I in holdfast's own protocol
  has the name of that protocol, ``holdfast-simple``.
- An assignor's name is a policy too: that of ``eager`` or ``simple``, with this assignor.
- ``failback`` and ``damped`` use the protocol of Design II.
- Every member of a group should have the same settings; the leader's count. A delay of 0 always
  means no delay (KAFKA-15693). Times travel as int32 ms.
- A user's own policy (:func:`policy`) is a row, too. Its function takes an
  :class:`~holdfast.core.machine.leader.imbalance.Imbalance` and decides what waits, until when, and
  which moves are made in a round; a user's own assignor (:mod:`holdfast.core.assignors.own`)
  decides owners, and a group may have both.

**Strategy.** :func:`find_policy` returns the row of a name. The rows name protocols and make no
assignors: :mod:`holdfast.core.machine.supported_protocols` does, and loads the leader's code.

References: Incremental Cooperative Rebalancing, Designs I, II and III, "General Approach" (an
application provides its own policies); KIP-429; KIP-726.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from holdfast.core.assignors.own import TIMEOUT_MS, required_of
from holdfast.core.assignors.registry import ASSIGNORS, Named, canonical, known
from holdfast.core.model.constants import DESIGN_NAMES, INT32_MAX, Design
from holdfast.errors import ConfigError, suggest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

_TIMES = (
    "delay_ms",
    "first_member_delay_ms",
    "interval_ms",
    "stabilization_ms",
)

TOLERANCE_MS = 100
"""A deadline this near counts as reached.

Clocks drift, and a delay of a few ms would start one round after the other.
"""


class When(StrEnum):
    """Whether something is done now or after the delay."""

    IMMEDIATE = "immediate"
    DEFERRED = "deferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindPolicy:
    """Settings that differ for the resources of one kind of a worker; None: as for the others."""

    # Under SIMPLE nothing of the kind waits, under INCREMENTAL it moves in batches.
    design: Design | None = None
    # How long the kind's resources wait for a departed member; 0: not at all.
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings of a design."""

    design: Design = Design.DEFERRED  # SIMPLE (I), DEFERRED (II) or INCREMENTAL (III)
    failback: bool = False  # whether a departed member's resources are temporarily reassigned
    # Whether members that joined recently gain nothing that others own before they have stayed for
    # ``stabilization_ms``; nothing waits for a departed member.
    damps: bool = False
    # ``scheduled.rebalance.max.delay.ms``: how long a departed member's resources wait for its
    # return, or are temporarily reassigned; 0: not at all.
    delay_ms: int = 300_000
    # Whether a new group assigns at once or waits for more members (KIP-134's case).
    first_member: When = When.IMMEDIATE
    # How long such a group waits; the default of Kafka's ``group.initial.rebalance.delay.ms``.
    first_member_delay_ms: int = 3_000
    # How long the resources of a departed member wait if a new member may have replaced it that
    # joined earlier than :data:`~holdfast.core.machine.leader.successors.START_MS` before; None: a
    # quarter of ``delay_ms``, and no less than 30 s. Never longer than ``delay_ms``.
    successor_delay_ms: int | None = None
    batch: int = 1  # Design III: moves per round for each member that gains, at least 1
    # Design III: moves per round in the whole group; 0: as many as ``batch`` allows.
    group_batch: int = 0
    interval_ms: int = 10_000  # Design III: pause between two batches
    # ``damps``: how long a member has to stay before others give it a part of what they own.
    stabilization_ms: int = 60_000
    # A user's own policy (:mod:`holdfast.core.machine.policy`); None: the design decides alone.
    own: Any = None
    # Name in the registry, or a user's own assignor; computes every target.
    assignor: Named = "cooperative-sticky"
    options: Mapping[str, object] = field(default_factory=dict)  # options of that assignor
    # Whether assignments list only the resources that a member gains, as between workers. False
    # lists all that a member shall hold, so that other tools and clients can read it from the
    # broker's log.
    omit_unchanged: bool = False
    # Whether each kind is balanced by itself. A change in one then moves nothing of another. When
    # members join or leave, totals are evened too, by moving the resources that make one more of a
    # kind. Between two such rounds a change in one kind may leave totals uneven, because the two
    # goals exclude each other: A owns one of each of four kinds, B too, and B's kinds are deleted.
    isolate: bool = False
    # Load of one resource of a kind, 1 where not given. Each isolated kind is even by itself;
    # weights then decide which members own the extra resource of a kind.
    weights: Mapping[str, int] = field(default_factory=dict)
    # Settings that differ for single kinds.
    kinds: Mapping[str, KindPolicy] = field(default_factory=dict)
    # All shards of the leader state together are never larger; what does not fit is left out in the
    # order of :class:`holdfast.core.machine.leader.ring.LeftOut`.
    leader_state_limit_bytes: int = 512 << 10
    # The group's record, with the bytes that its leader cannot see estimated, is never made larger
    # by the leader; what does not fit is left out in the same order. A broker refuses records above
    # ``message.max.bytes``, by default 1,048,588.
    record_limit_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        for name in _TIMES:
            value = getattr(self, name)
            if not 0 <= value <= INT32_MAX:
                raise ConfigError(f"{name}: found {value}, expected 0 to {INT32_MAX} ms")
        if self.successor_delay_ms is not None and not 1 <= self.successor_delay_ms <= INT32_MAX:
            text = f"successor_delay_ms: found {self.successor_delay_ms}, expected 1 to {INT32_MAX}"
            raise ConfigError(text)
        for name in ("leader_state_limit_bytes", "record_limit_bytes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}: found {getattr(self, name)}, expected 0 or more bytes")
        if self.batch < 1:
            raise ConfigError(f"batch: found {self.batch}, expected at least 1")
        if self.group_batch < 0:
            raise ConfigError(f"group_batch: found {self.group_batch}, expected 0 or more")
        for kind, own in self.kinds.items():
            if self.needs_ages and (own.design, own.delay_ms) != (None, None):
                raise ConfigError(f"{kind}: a policy for all resources takes none for a kind")
            if not 0 <= (own.delay_ms or 0) <= INT32_MAX:
                text = f"delay_ms of {kind}: found {own.delay_ms}, expected 0 to {INT32_MAX} ms"
                raise ConfigError(text)
        for kind, weight in self.weights.items():
            if weight < 1:
                raise ConfigError(f"weight of {kind}: found {weight}, expected at least 1")

    @property
    def defers(self) -> bool:
        """Whether resources of a departed member wait for its return, of at least one kind."""
        return self.longest_delay_ms > 0 and not self.failback

    @property
    def longest_delay_ms(self) -> int:
        """Delay of the kind that waits longest in ms, 0 if none waits."""
        others = 0 if self.design is Design.SIMPLE or self.damps else self.delay_ms
        return max([others, *(self.delay_of(kind) for kind in self.kinds)])

    @property
    def needs_ages(self) -> bool:
        """Whether the leader state has the age of every member that joined recently."""
        return self.damps or self.own is not None

    @property
    def recent_ms(self) -> int:
        """Time for which a member counts as one that joined recently, in ms."""
        return self.stabilization_ms if self.damps else self.longest_delay_ms

    @property
    def longest_pause_ms(self) -> int:
        """Longest time that moves that are held back may wait for the next round, in ms."""
        return max(self.interval_ms, self.recent_ms) if self.needs_ages else self.interval_ms

    @property
    def waits_first(self) -> bool:
        """Whether a new group waits for more members."""
        waits = self.first_member is When.DEFERRED and self.first_member_delay_ms > 0
        return waits and self.design is not Design.SIMPLE

    @property
    def carries_state(self) -> bool:
        """Whether members carry the leader state."""
        return self.design is not Design.SIMPLE or any(
            own.design not in (None, Design.SIMPLE) for own in self.kinds.values()
        )

    def design_of(self, kind: str) -> Design:
        """Return the design by which a kind's resources are rebalanced."""
        own = self.kinds.get(kind)
        return self.design if own is None or own.design is None else own.design

    def delay_of(self, kind: str) -> int:
        """Return how long a kind's resources wait for a departed member, in ms."""
        if self.design_of(kind) is Design.SIMPLE or self.damps:
            return 0
        own = self.kinds.get(kind)
        return self.delay_ms if own is None or own.delay_ms is None else own.delay_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """One policy."""

    name: str  # name of the command line and of ``holdfast.policy``
    title: str  # name in tables of measurements
    summary: str  # one line for people
    # The design that members use in holdfast's protocol; None: Kafka's own protocols.
    design: Design | None = None
    # Assignors of the registry that a member supports unless it names others. A design supports
    # itself, and its one assignor computes targets.
    assignors: tuple[str, ...] = ("cooperative-sticky",)
    cooperative: bool = True  # whether members keep processing during a round
    failback: bool = False  # whether a departed member's partitions are temporarily reassigned
    damps: bool = False  # whether members that joined recently wait for partitions
    # Fields of :class:`~holdfast.core.machine.policy.Policy` that change what the policy does.
    options: tuple[str, ...] = ()
    # The policy that ``holdfast.Worker`` runs under this name, "" if it refuses the name. A
    # worker's resources have kinds and weights, which only holdfast's protocol carries.
    worker: str = ""
    # The function of a user's own policy (:mod:`holdfast.core.machine.policy`), from an
    # ``Imbalance`` to a ``Resolution``; and how long a leader waits for it.
    resolver: Callable[..., object] | None = None
    timeout_ms: int = 0

    @property
    def protocols(self) -> tuple[str, ...]:
        """Names of the protocols that a member supports by default, in order of preference."""
        return self.assignors if self.design is None else (DESIGN_NAMES[self.design],)

    @property
    def defers(self) -> bool:
        """Whether partitions of a departed member wait for its return."""
        return "delay_ms" in self.options and not self.failback


DESIGNS: Mapping[str, Design] = MappingProxyType(
    {name: design for design, name in DESIGN_NAMES.items()}
)
"""Protocol names of the designs, which a list of assignors may contain beside assignors."""

DEFAULTS = Policy()
"""The default of every option of every design."""

_WAITS = ("delay_ms", "first_member", "first_member_delay_ms")

_ROWS: dict[str, PolicyInfo] = {
    info.name: info
    for info in (
        PolicyInfo(
            name="eager",
            title="eager, range",
            summary="every member revokes everything in every rebalance",
            assignors=("range",),
            cooperative=False,
        ),
        PolicyInfo(
            name="eager-sticky",
            title="eager, sticky",
            summary="eager, but most partitions return to the member that revoked them",
            assignors=("sticky",),
            cooperative=False,
        ),
        PolicyInfo(
            name="simple",
            title="Design I, as cooperative-sticky (KIP-429)",
            summary="Design I: moving partitions are revoked first, all others continue",
            worker="holdfast-simple",
        ),
        PolicyInfo(
            name="holdfast-simple",
            title="Design I, as holdfast-simple",
            summary="Design I in holdfast's own protocol: any assignor, kinds and weights",
            design=Design.SIMPLE,
            worker="holdfast-simple",
        ),
        PolicyInfo(
            name="deferred",
            title="Design II",
            summary="Design II: partitions of a departed member wait a delay for its return",
            design=Design.DEFERRED,
            options=(*_WAITS, "successor_delay_ms"),
            worker="deferred",
        ),
        PolicyInfo(
            name="incremental",
            title="Design III",
            summary="Design III: Design II, and moves in small batches with pauses between them",
            design=Design.INCREMENTAL,
            options=(*_WAITS, "successor_delay_ms", "batch", "group_batch", "interval_ms"),
            worker="incremental",
        ),
        PolicyInfo(
            name="failback",
            title="Failback",
            summary="as simple, and a member that is back in time gets its partitions back",
            design=Design.DEFERRED,
            failback=True,
            options=_WAITS,
            worker="failback",
        ),
        PolicyInfo(
            name="damped",
            title="Damped",
            summary="as simple, and a new member gets partitions of others after it has stayed",
            design=Design.DEFERRED,
            damps=True,
            options=("first_member", "first_member_delay_ms", "stabilization_ms"),
            worker="damped",
        ),
    )
}

POLICIES: Mapping[str, PolicyInfo] = MappingProxyType(_ROWS)
"""Every policy by name.

Random runs (``tests/proof``) draw from it by position: a new row goes to the end, or every seed
means another run.
"""


def find_policy(name: str | PolicyInfo) -> PolicyInfo:
    """Return the row of a policy; for an assignor that of its protocol, with the assignor."""
    if isinstance(name, PolicyInfo):
        return name
    if name in POLICIES:
        return POLICIES[name]
    if (own := canonical(name)) not in ASSIGNORS:
        known = (*POLICIES, *ASSIGNORS)
        raise ConfigError(f"unknown policy {name!r}; {suggest(name, known, 2)}")
    info = ASSIGNORS[own]
    row = POLICIES["simple" if info.cooperative else "eager"]
    return replace(row, name=own, title=own, summary=info.summary, assignors=(own,))


def worker_policy(policy: str | PolicyInfo) -> PolicyInfo | None:
    """Return the policy that ``holdfast.Worker`` runs under a name; None if it refuses the name."""
    row = find_policy(policy)
    return row if row.resolver is not None else POLICIES.get(row.worker)


def check_known(name: str, option: str) -> None:
    """Refuse a name that is neither a policy nor an assignor that a policy supports by default."""
    by_default = {info.protocols for info in POLICIES.values()}
    own = canonical(name)
    if name not in POLICIES and (own not in ASSIGNORS or (own,) not in by_default):
        known = ", ".join(POLICIES)
        raise ConfigError(f"{option}: found {name!r}, which is not one of the expected {known}")


def policy_of_protocol(protocol: str) -> PolicyInfo | None:
    """Return the policy whose members support a protocol; None for other software's protocol."""
    for info in POLICIES.values():
        if info.design is not None and protocol in info.protocols:
            return info
    if protocol not in ASSIGNORS:
        return None
    return POLICIES["simple" if ASSIGNORS[protocol].cooperative else "eager"]


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
    failback : bool
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
