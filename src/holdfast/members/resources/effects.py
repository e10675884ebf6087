"""The state of the work on resources, and the effects to perform: values alone.

**Rules.** The supervisor's thread performs effects in the order in which the machine returned them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from holdfast.core.model.partitions import Resource
from holdfast.members.resources.failures import Failure


class ResourceStatus(StrEnum):
    """The status of the work on one resource, in Kafka Connect's words where it has one.

    References: Kafka Connect's ``AbstractStatus.State``.
    """

    STARTING = "STARTING"  # it waits for a thread, or ``on_assigned`` has not returned
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"  # it was asked to end
    FAILED = "FAILED"  # it raised, and is restarted later
    ENDED = "ENDED"  # it has ended by itself, without an error


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceState:
    """What a worker knows of the work on one resource.

    Parameters
    ----------
    status : ResourceStatus
        Status of the work.
    failures : int
        How many failures in a row; 0 if the work has run for long since the last one.
    error : str, optional
        The type and the text of the last failure.
    retry_seconds : float, optional
        Seconds until the next attempt of failed work; 0 or more.

    References: Kafka's Connect, ``AbstractStatus``, with ``state`` and ``trace``.
    """

    status: ResourceStatus
    failures: int = 0
    error: str | None = None
    retry_seconds: float | None = None


class ResourceCounts(NamedTuple):
    """Resources of a worker by the status of their work, and the number of failures so far."""

    running: int
    failed: int
    overdue: int
    n_failures: int


@dataclass(eq=False, slots=True, kw_only=True)
class Attempt:
    """One attempt at the work on a resource, from its start until it has ended."""

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
    """Request the end of attempts by ``deadline_ms``; ``lost``: another worker may have begun."""

    attempts: tuple[Attempt, ...]
    deadline_ms: int
    lost: bool


@dataclass(frozen=True, slots=True)
class Lose:
    """Notify attempts that are ending that another worker may have begun."""

    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Overdue:
    """Report attempts past their deadline: the revocation stops waiting for them."""

    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Complete the revocation with this token."""

    token: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Log a failure."""

    resource: Resource
    error: BaseException
    failure: Failure
    now_ms: int


@dataclass(frozen=True, slots=True)
class StopFailed:
    """Log that the end of the work on a resource has raised."""

    resource: Resource
    error: BaseException


@dataclass(frozen=True, slots=True)
class EndedLate:
    """Log that an overdue attempt has ended."""

    resource: Resource
    late_ms: int


@dataclass(frozen=True, slots=True)
class EndWorker:
    """End the worker with an error."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class RequestRound:
    """Request a round: the reported failures have changed."""


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
