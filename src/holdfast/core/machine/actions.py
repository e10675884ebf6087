"""The actions of a member, which its caller carries out.

**Rules.** The caller carries out the actions of one event in order, and before those of the next
event. JoinGroup and SyncGroup travel on a connection of their own, the join connection, because a
coordinator answers the requests of one connection in order. It holds a JoinGroup until the round is
complete, so a heartbeat behind it would come too late. After ``timeout_ms`` without an answer the
caller reports ``RequestFailed``.

**Strategy.** Values only; no value depends on a client.

References: KIP-62 (background heartbeats), KIP-429 (callbacks), KIP-345, KIP-800 (reasons).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from holdfast.core.machine.events import JoinedMember
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.model.partitions import Resource


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Find the group's coordinator and connect twice; answer ``CoordinatorFound``."""

    request: int
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendJoin:
    """Send JoinGroup on the join connection; ``protocols`` are in order of preference."""

    request: int
    timeout_ms: int
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSync:
    """Send SyncGroup on the join connection; only a leader sends assignments."""

    request: int
    timeout_ms: int
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocol_name: str
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHeartbeat:
    """Send Heartbeat on the heartbeat connection."""

    request: int
    timeout_ms: int
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendLeave:
    """Send LeaveGroup on the heartbeat connection."""

    request: int
    timeout_ms: int
    member_id: str
    instance_id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedRound:
    """A round that this member led, for the next round that it leads.

    A caller keeps the last one until its member completes a round that it did not lead. It is
    ``settled`` if a round with the same members has left nothing to do since one of them joined or
    left.
    """

    generation: int
    protocol_name: str
    member_ids: frozenset[str]
    settled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeAssignment:
    """The member leads: compute every member's assignment; answer ``AssignmentComputed``.

    ``waited_ms`` is how long ago this member sent its own subscription: delays in it are that much
    shorter by now. ``unbroken``: the member was in the generation just before this one and has not
    seen a later one, so no claim of this or a later generation can be valid. Otherwise the
    coordinator may have lost records and may use this number a second time. ``led``: the round just
    before, where the caller knows that this member led it.
    """

    token: int
    generation: int
    protocol_name: str
    members: tuple[JoinedMember, ...]
    partitions: tuple[tuple[str, int], ...]
    member_id: str
    waited_ms: int
    unbroken: bool = True
    led: LedRound | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopFetching:
    """Deliver no more records of ``resources``, let the application finish; answer ``Drained``."""

    token: int
    resources: tuple[Resource, ...]
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class DropNow:
    """Stop ``resources`` at once and drop their records: the member has lost them.

    The callback ``LOST`` follows for ``lost``. For the other resources ``REVOKED`` was called or
    follows, or ``ASSIGNED`` was never called.
    """

    resources: tuple[Resource, ...]
    lost: tuple[Resource, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallListener:
    """Call a listener; answer ``ListenerReturned``. At most one call is outstanding at a time."""

    token: int
    call: ListenerCall
    resources: tuple[Resource, ...]


@dataclass(frozen=True, slots=True)
class StartFetching:
    """Begin to fetch ``resources``: their ASSIGNED callback has returned.

    ``term`` is the number of their term of ownership; a commit of their records names it.
    """

    resources: tuple[Resource, ...]
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Commit the positions of ``resources`` with exactly this identity; answer CommitAnswered."""

    token: int
    resources: tuple[Resource, ...]
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCompleted:
    """A round is complete, and ``owned`` is what the member owns now; for logs and metrics."""

    generation: int
    member_id: str
    is_leader: bool
    protocol_name: str
    owned: tuple[Resource, ...]
    gained: tuple[Resource, ...]
    revoked: tuple[Resource, ...]
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Warn:
    """Show the text to people: something went wrong, and the member continues."""

    text: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The member has ended with this error; raise it at the application's next call."""

    error: int
    text: str


Action: TypeAlias = (
    FindCoordinator
    | SendJoin
    | SendSync
    | SendHeartbeat
    | SendLeave
    | ComputeAssignment
    | StopFetching
    | DropNow
    | CallListener
    | StartFetching
    | Commit
    | JoinCompleted
    | Warn
    | Fail
)
"""Every action of a member."""

Actions: TypeAlias = tuple[Action, ...]
"""Actions in the order in which they are carried out."""
