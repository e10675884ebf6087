"""The events of a member: from its application, its clock, its coordinator and its caller.

**Rules.** An answer carries the number of the request that it answers (``request``). An answer to a
request that is not awaited is stale and changes nothing. When the caller has completed an action,
the event that reports it carries the action's ``token``. Only :class:`Tick` carries a time.

**Strategy.** Values only. The member's table (:mod:`holdfast.core.machine.states`) names every
event.

References: Kafka's ConsumerCoordinator; CLIENTS of the group protocol: KIP-62, KIP-345, KIP-394.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from holdfast.core.model.constants import NO_GENERATION

if TYPE_CHECKING:
    from holdfast.core.wire.layouts.state_shard import MemberEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member in its leader's JoinGroup response: metadata is the chosen protocol's subscription.

    ``sent_bytes`` is the size of the metadata as received, where the leader has trimmed them.
    """

    member_id: str
    instance_id: str | None = None
    metadata: bytes
    sent_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """A monotonic clock shows ``now_ms``; a time before the last one changes nothing."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Started:
    """The application wants this member in the group."""


@dataclass(frozen=True, slots=True)
class SubscriptionChanged:
    """The application subscribes to exactly these topics, or kinds of resource."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetadataChanged:
    """The partition counts of all topics that exist now."""

    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Polled:
    """The application has polled: ``max.poll.interval.ms`` starts again."""


@dataclass(frozen=True, slots=True)
class RejoinRequested:
    """The application wants a new round (KIP-568)."""

    reason: str = "requested by the application"


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The application ends the membership; ``returns`` says whether the member comes back soon.

    After ``unsubscribe()`` the process continues without its group: a static member then leaves its
    group, whether it comes back or not.
    """

    returns: bool = True
    process_ends: bool = True


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
    """A LeaveGroup response; an error is reported, and the member has left in any case."""

    request: int
    error: int = 0


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request had no answer: connection lost, refused, or timed out."""

    request: int
    reason: str = "no answer"


@dataclass(frozen=True, slots=True)
class AssignmentComputed:
    """The leader's assignments are computed: one message for each member.

    ``failure`` is None, or says why planning failed; then each member only keeps what it claims.
    ``notes`` are for people: each says what is unusual about the plan. ``waiting`` are the departed
    members for which partitions wait, with the partitions and the time left; ``reassigned`` are
    those with temporarily reassigned partitions. ``partitions`` are the counts of the plan, 0 for a
    topic that does not exist; None if they are those of the request.
    """

    token: int
    assignments: tuple[tuple[str, bytes], ...]
    failure: str | None = None
    partitions: tuple[tuple[str, int], ...] | None = None
    notes: tuple[str, ...] = ()
    waiting: tuple[MemberEntry, ...] = ()
    reassigned: tuple[MemberEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class AssignmentFailed:
    """The leader's assignments could not be computed at all: the member starts a new round."""

    token: int
    reason: str


@dataclass(frozen=True, slots=True)
class Drained:
    """The application has finished with the resources of ``StopFetching``."""

    token: int


@dataclass(frozen=True, slots=True)
class ListenerReturned:
    """A callback has returned; ``error`` is the text of what it raised, or None."""

    token: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """A commit is answered; error -1 means that no answer came.

    ``request`` is the token of the action ``Commit``.
    """

    request: int
    error: int = 0


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """A commit that the application sent itself, with ``generation``, was refused."""

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
"""Every event of a member."""
