"""What is known of the work on resources, and what has to be done about it: values alone.

**Rules.** An effect is done by the supervisor's thread, in the order in which the machine returned
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from holdfast.core.model.partitions import Resource
from holdfast.members.resources.failures import Failure


class ResourceStatus(StrEnum):
    """Where the work on one resource stands, in Kafka Connect's words where it has one.

    References: Kafka Connect's ``AbstractStatus.State``.
    """

    STARTING = "STARTING"  # it waits for a thread, or ``on_assigned`` has not returned
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"  # it was told to end
    FAILED = "FAILED"  # it raised, and is tried again later
    ENDED = "ENDED"  # it has ended by itself, without an error


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceState:
    """What a worker knows of the work on one resource.

    Parameters
    ----------
    status : ResourceStatus
        Where it stands.
    failures : int
        How many failures in a row; 0 for work that has run for long since the last one.
    error : str, optional
        The type and the text of the last of them.
    retry_seconds : float, optional
        Seconds until the next attempt, of work that has failed; 0 or more.

    References: Kafka's Connect, ``AbstractStatus``, with ``state`` and ``trace``.
    """

    status: ResourceStatus
    failures: int = 0
    error: str | None = None
    retry_seconds: float | None = None


class ResourceCounts(NamedTuple):
    """Resources of a worker by what their work does, and failures of work so far."""

    running: int
    failed: int
    overdue: int
    n_failures: int


@dataclass(eq=False, slots=True, kw_only=True)
class Attempt:
    """One attempt at the work on a resource, from its begin until it has ended."""

    resource: Resource
    began_ms: int
    is_again: bool  # an attempt before it has failed
    is_stopping: bool = False
    is_overdue: bool = False


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin attempts."""

    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Tell attempts to end by ``deadline_ms``; ``lost``: another worker may have begun."""

    attempts: tuple[Attempt, ...]
    deadline_ms: int
    lost: bool


@dataclass(frozen=True, slots=True)
class Lose:
    """Tell attempts that are ending that another worker may have begun."""

    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Overdue:
    """Say that the time of attempts is over: nobody waits for their end."""

    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The hand-over with this token is done."""

    token: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Tell people of a failure."""

    resource: Resource
    error: BaseException
    failure: Failure
    now_ms: int


@dataclass(frozen=True, slots=True)
class StopFailed:
    """Tell people that the end of the work on a resource has raised."""

    resource: Resource
    error: BaseException


@dataclass(frozen=True, slots=True)
class EndedLate:
    """Tell people that an overdue attempt has ended."""

    resource: Resource
    late_ms: int


@dataclass(frozen=True, slots=True)
class EndWorker:
    """End the worker with an error."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class RequestRound:
    """Ask the group for a round: what is reported as failed has changed."""


Effect: TypeAlias = (
    Begin
    | Stop
    | Lose
    | Overdue
    | HandedOver
    | Failed
    | StopFailed
    | EndedLate
    | EndWorker
    | RequestRound
)
Effects: TypeAlias = list[Effect]
