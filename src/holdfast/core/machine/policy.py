"""The settings of a design.

**Rules.** A policy is a value. Every member of a group should have the same policy; the leader's
policy counts. A delay of 0 always means no delay (KAFKA-15693). Times travel as int32 ms.

References: Incremental Cooperative Rebalancing, Designs I, II and III.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from holdfast.core.assignors.registry import Named
from holdfast.core.model.designs import Design
from holdfast.core.model.limits import INT32_MAX
from holdfast.errors import ConfigError

_TIMES = (
    "delay_ms",
    "first_member_delay_ms",
    "interval_ms",
    "stabilization_ms",
    "tolerance_ms",
)


class When(StrEnum):
    """Whether something is done now or after the delay."""

    IMMEDIATE = "immediate"
    DEFERRED = "deferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindPolicy:
    """Settings that differ for the resources of one kind of a worker; None: as for the others.

    References: Incremental Cooperative Rebalancing, "Benefits" (connectors and tasks).
    """

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
    # A user's own policy (:mod:`holdfast.core.machine.own_policy`); None: the design decides alone.
    own: Any = None
    # A deadline this near counts as reached. Clocks drift, and a delay of a few ms would start one
    # round after the other.
    tolerance_ms: int = 100
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
    memory_limit_bytes: int = 512 << 10
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
        for name in ("memory_limit_bytes", "record_limit_bytes"):
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
