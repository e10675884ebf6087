"""The protocol of an assignor: members write and read messages with it, and a leader plans.

The proposal calls it the embedded protocol, because Kafka's coordinator carries both messages
without reading them.

**Rules.** A member machine handles no bytes: an :class:`Assignor` writes its subscription from a
:class:`MemberView` and turns its assignment into a :class:`ReceivedAssignment`. An assignor reads
an assignment in one of two ways:

- KIP-429: ``assigned`` is all that the member shall own; what is absent is revoked
  (``absence_revokes``).
- The Designs: next = (owned - revoked) + assigned; absence never revokes. Example: a member owns 0
  and 1; revoked is 1, assigned is 2; next it owns 0 and 2.

**Strategy.** Values and one Protocol; :mod:`holdfast.core.machine.leader.designs` has the
assignors.

References: Incremental Cooperative Rebalancing, "Embedded Protocol"; KIP-429; KIP-726; KIP-792.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from holdfast.core.machine.actions import LedRound
from holdfast.core.machine.events import JoinedMember
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.container import Leaving
from holdfast.core.wire.layouts.state_shard import MemberEntry
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.core.machine.leader.subscriptions import SubscribedMember, VersionedCounts
    from holdfast.core.wire.many.member_messages import ReadMembers


class RebalanceProtocol(IntEnum):
    """Whether a member revokes everything before it joins (KIP-429's RebalanceProtocol)."""

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """The part of a member's state that goes into a subscription."""

    topics: tuple[str, ...]
    owned: tuple[Resource, ...]  # empty for an eager member: it revoked all before
    previous: tuple[Resource, ...]  # owned in ``generation``, revoked since or not
    generation: int  # of the assignment that ``owned`` comes from, -1 for none
    rack: str | None = None
    nonce: int = 0  # differs from one join to the next, so that a follower's join starts a round
    leaving: Leaving = Leaving.STAYS
    already_revoked: tuple[Resource, ...] = ()  # on request, since ``generation``
    leader_state: bytes | None = None  # the member's shard, as received
    state_age_ms: int = 0  # time since it was received
    location: bytes = b""  # the member's location, as a digest; empty for none


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedAssignment:
    """An assignment as its member acts on it.

    ``delay_ms`` > 0: the member rejoins after that time. ``again``: it rejoins at once.
    ``leader_state``: the member's shard of the leader state, for its next subscription.
    ``planned``: for a static leader, the partition counts of the plan, as bytes.
    """

    assigned: frozenset[Resource]
    revoked: frozenset[Resource] = frozenset()
    absence_revokes: bool = True
    delay_ms: int = 0
    again: bool = False
    leader_state: bytes | None = None
    planned: bytes | None = None


Lags = Mapping[str, Sequence[int]]
Racks = Mapping[str, Sequence[Iterable[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRound:
    """The input of a leader's plan."""

    members: tuple[JoinedMember, ...]  # with the subscriptions of the chosen protocol
    partitions: Mapping[str, int]  # partition count of each topic that exists
    generation: int
    leader_id: str = ""  # the leader, whose own subscription was written ``waited_ms`` ago
    waited_ms: int = 0
    lags: Lags | None = None
    racks: Racks | None = None
    read: ReadMembers | None = None
    # The members' subscriptions, from ``read_round`` of designs.py: as columns for Kafka's
    # assignors, or one by one for a design. An assignor reads ``members`` itself where both are
    # None.
    said: tuple[SubscribedMember, ...] | None = None
    # As in :class:`~holdfast.core.machine.actions.ComputeAssignment`; ``led`` only where it is the
    # round just before.
    unbroken: bool = True
    led: LedRound | None = None
    # Counts that a member reports and that this leader does not have yet.
    newer: VersionedCounts | None = None
    notes: list[str] = field(default_factory=list)  # receives remarks on the plan for people
    # Receive the departed members whose partitions wait, or are temporarily reassigned.
    waiting: list[MemberEntry] = field(default_factory=list)
    reassigned: list[MemberEntry] = field(default_factory=list)

    def subscribed_members(self) -> tuple[SubscribedMember, ...]:
        """Return the members with their subscriptions, one by one."""
        from holdfast.core.machine.leader.subscriptions import subscribed_members

        if self.said is not None:
            return self.said
        return subscribed_members(self.members, self.leader_id, self.waited_ms)

    @property
    def has_racks(self) -> bool:
        """Whether some member names a rack."""
        if self.read is not None:
            return self.read.has_racks
        return any(m.subscription.rack for m in self.subscribed_members())

    @property
    def first_impossible(self) -> int | None:
        """The first generation of which no claim can be valid; None if that is not known."""
        return self.generation if self.unbroken else None


class Assignor(Protocol):
    """An assignor with both halves: the members' messages, and the leader's round.

    References: KIP-429 (``ConsumerPartitionAssignor``); Incremental Cooperative Rebalancing, whose
    designs are assignors here.
    """

    @property
    def name(self) -> str:
        """Kafka's protocol name."""

    @property
    def rebalance_protocols(self) -> frozenset[RebalanceProtocol]:
        """The rebalance protocols that the assignor supports."""

    def subscribe(self, view: MemberView) -> bytes:
        """Return the subscription metadata for JoinGroup."""

    def read(self, assignment: bytes) -> ReceivedAssignment:
        """Read the assignment of a SyncGroup answer; raise ``WireError`` on malformed bytes."""

    def lead(self, leader_round: LeaderRound) -> dict[str, bytes]:
        """Return one assignment per member."""

    def stay(self, leader_round: LeaderRound) -> dict[str, bytes]:
        """Return the assignment that changes nothing, for a leader that cannot plan."""


def choose_rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the highest rebalance protocol that every assignor of a list supports.

    References: KIP-429, "Consumer": ``[cooperative-sticky, range]`` therefore runs EAGER.
    """
    if not assignors:
        raise ConfigError("partition.assignment.strategy: found none, expected an assignor")
    rebalance_protocols = set(RebalanceProtocol).intersection(
        *(a.rebalance_protocols for a in assignors)
    )
    if not rebalance_protocols:
        names = ", ".join(a.name for a in assignors)
        raise ConfigError(f"partition.assignment.strategy: {names} share no rebalance protocol")
    return max(rebalance_protocols)
