"""The protocol by which a member uses an assignor: it writes subscriptions and reads assignments.

The proposal calls it the embedded protocol, because Kafka's coordinator carries both messages
without reading them.

**Rules.** A member machine handles no bytes: an :class:`AssignorProtocol` writes its subscription
from a :class:`MemberView` and turns its assignment into a :class:`ReceivedAssignment`. An assignor
reads an assignment in one of two ways:

- KIP-429: ``assigned`` is all that the member shall own; what is absent is revoked
  (``absence_revokes``).
- The Designs: next = (owned - revoked) + assigned; absence never revokes. Example: a member owns 0
  and 1; revoked is 1, assigned is 2; next it owns 0 and 2.

**Strategy.** Values and one Protocol; :mod:`holdfast.core.machine.leader.designs` has the
assignors.

References: Incremental Cooperative Rebalancing, "Embedded Protocol"; KIP-429; KIP-792.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.core.machine.rebalance_protocol import HasRebalanceProtocols
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.frames import Leaving


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


class AssignorProtocol(HasRebalanceProtocols, Protocol):
    """An assignor, as its members use it."""

    def subscribe(self, view: MemberView) -> bytes:
        """Return the subscription metadata for JoinGroup."""

    def read(self, assignment: bytes) -> ReceivedAssignment:
        """Read the assignment of a SyncGroup answer; raise ``WireError`` on malformed bytes."""
