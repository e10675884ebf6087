"""Requests to a coordinator, its responses, its settings, and its record of a member.

**Rules.** Values only. A response repeats the number of its request.

References: KIP-62, KIP-345, KIP-394.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from holdfast.core.machine.actions import SendHeartbeat, SendJoin, SendLeave, SendSync
from holdfast.core.machine.coordinator.group_log import Append
from holdfast.core.machine.events import (
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    SyncAnswered,
)
from holdfast.core.model.limits import INT32_MAX
from holdfast.core.model.partitions import Resource
from holdfast.core.wire.layouts.record_size import MESSAGE_MAX_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCommit:
    """OffsetCommit, fenced by member, generation and instance."""

    request: int
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[tuple[Resource, int], ...]


@dataclass(frozen=True, slots=True)
class CommitDone:
    """An OffsetCommit response."""

    request: int
    error: int = 0


Request: TypeAlias = SendJoin | SendSync | SendHeartbeat | SendLeave | SendCommit
Response: TypeAlias = JoinAnswered | SyncAnswered | HeartbeatAnswered | LeaveAnswered | CommitDone


class Received(NamedTuple):
    """A request of a client; ``client`` names its connection."""

    client: str
    request: Request


class Answer(NamedTuple):
    """A response to a client."""

    client: str
    response: Response


Out: TypeAlias = Answer | Append
Outs = tuple[Out, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOptions:
    """Broker settings; times in ms.

    ``wall_ms`` is the wall clock's time at time 0, for the times in records. ``client_id`` returns
    the client id of a connection's name: a process that starts again has another connection and
    keeps its client id. ``message_max_bytes`` is the broker's ``message.max.bytes``: a group's
    record above it is not written. A member id ends in a counter of ``id_digits`` digits; with 36
    it is as long as Kafka's, which ends in a UUID.
    """

    initial_delay_ms: int = 3_000
    wall_ms: int = 0
    client_id: Callable[[str], str] = str
    min_session_timeout_ms: int = 1
    max_session_timeout_ms: int = 1_800_000
    max_size: int = INT32_MAX
    message_max_bytes: int = MESSAGE_MAX_BYTES
    id_digits: int = 4


class GroupMember(NamedTuple):
    """One member; ``joining`` and ``syncing`` are requests that wait for an answer.

    A named tuple, because a member is rewritten six times in a round and a named tuple costs least.
    """

    member_id: str
    instance_id: str | None
    client: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    joining: int | None = None
    syncing: int | None = None
    synced: bool = False
    assignment: bytes = b""

    @property
    def waits(self) -> bool:
        """Whether the member waits for an answer, and so is alive."""
        return self.joining is not None or self.syncing is not None
