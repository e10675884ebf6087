"""What a member machine is told: by its caller, its clock and its coordinator.

**Rules.** An answer names the request it answers (``request``); an answer to any other request than
the one that is pending is stale and changes nothing. What the caller was asked to do comes back
with the ``token`` of the action. No event carries a time but :class:`Tick`.

**Strategy.** Values only. The member's table (:mod:`holdfast.machine.states`) names every event.

References: Kafka's ConsumerCoordinator; CLIENTS of the group protocol: KIP-62, KIP-345, KIP-394.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from holdfast.model.limits import NO_GENERATION


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """One member as its leader sees it: metadata is the chosen protocol's subscription."""

    member_id: str
    instance_id: str | None = None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has moved to ``now_ms`` of a monotonic clock; earlier than before changes nothing."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Started:
    """The application wants this member in the group."""


@dataclass(frozen=True, slots=True)
class SubscriptionChanged:
    """The application subscribes to exactly these topics (or kinds of resource)."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetadataChanged:
    """Partition counts of the topics known now; a topic that is missing does not exist."""

    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Polled:
    """The application came back for more (``max.poll.interval.ms`` starts again)."""


@dataclass(frozen=True, slots=True)
class RejoinRequested:
    """The application wants a new round (KIP-568)."""

    reason: str = "requested by the application"


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The application closes the member; ``returns`` says whether the process comes back soon."""

    returns: bool = True


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """FindCoordinator is answered and both connections are up."""

    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswered:
    """A JoinGroup response."""

    request: int
    error: int = 0
    generation: int = NO_GENERATION
    protocol_name: str = ""
    leader_id: str = ""
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswered:
    """A SyncGroup response."""

    request: int
    error: int = 0
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """A Heartbeat response."""

    request: int
    error: int = 0


@dataclass(frozen=True, slots=True)
class LeaveAnswered:
    """A LeaveGroup response (its error does not matter: the member is gone either way)."""

    request: int
    error: int = 0


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request had no answer: connection lost, refused, or timed out."""

    request: int
    reason: str = "no answer"


@dataclass(frozen=True, slots=True)
class AssignmentComputed:
    """The leader's plan is ready: one assignment message per member.

    ``failure`` says why planning failed when the assignments only keep what everybody claims.
    """

    token: int
    assignments: tuple[tuple[str, bytes], ...]
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentFailed:
    """The leader's plan could not be computed."""

    token: int
    reason: str


@dataclass(frozen=True, slots=True)
class Drained:
    """Nothing of the resources of ``StopFetching`` is in flight any more."""

    token: int


@dataclass(frozen=True, slots=True)
class ListenerReturned:
    """A callback has returned; ``error`` is the text of what it raised, or None."""

    token: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """A commit that the machine asked for is answered (``error`` -1: no answer)."""

    token: int
    error: int = 0


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """A commit of the application's own was refused, sent with ``generation``."""

    generation: int
    error: int


Event: TypeAlias = (
    Tick
    | Started
    | SubscriptionChanged
    | MetadataChanged
    | Polled
    | RejoinRequested
    | LeaveRequested
    | CoordinatorFound
    | JoinAnswered
    | SyncAnswered
    | HeartbeatAnswered
    | LeaveAnswered
    | RequestFailed
    | AssignmentComputed
    | AssignmentFailed
    | Drained
    | ListenerReturned
    | CommitAnswered
    | CommitRefused
)
"""Everything a member can be told."""
