"""Attempts at the work on a resource: their state, the effects on them, and who runs them.

**Rules.** The supervisor's thread performs effects in the order in which the machine returned them.
It alone calls a runner, which never waits. A runner reports the start and the end of attempts from
any thread.

The stop event of an attempt is set once: when the resource is revoked or lost, or the worker ends.
From then on the work has ``seconds_left`` to end. ``is_lost`` is true as soon as another worker may
have begun: the resource was lost, or the deadline has passed. The work must not save state from
then on.

**Strategy.** Values and interfaces. The supervisor writes a :class:`StopState`; the program's event
reads it.

References: ``threading.Event`` and ``asyncio.Event``, whose names are kept; Kafka Connect's
``task.shutdown.graceful.timeout.ms``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from holdfast.core.model.partitions import Resource as Pair
from holdfast.members.resources.failures import Failure

if TYPE_CHECKING:
    import asyncio


class Resource(NamedTuple):
    """One resource to own: a ``kind``, and its ``number`` from 0 on.

    References: Incremental Cooperative Rebalancing, whose resources need not be partitions.
    """

    kind: str
    number: int


def name_of(resource: Pair) -> str:
    """Return a resource as text: ``kind-number``."""
    return f"{resource[0]}-{resource[1]}"


class Reports(NamedTuple):
    """Callbacks by which a runner reports the start and the end of attempts."""

    started: Callable[[Attempt], None]
    ended: Callable[[Attempt, BaseException | None], None]


class Runner(Protocol):
    """One form of a program's work."""

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Begin attempts."""

    def stop(self, attempts: Sequence[Attempt], deadline_s: float, *, lost: bool) -> None:
        """Request the end of attempts by a time of the monotonic clock."""

    def lose(self, attempts: Sequence[Attempt]) -> None:
        """Notify attempts that are ending that another worker may have begun."""

    def abandon(self, attempts: Sequence[Attempt]) -> None:
        """Notify attempts past their deadline, and let them continue."""

    def is_inside(self) -> bool:
        """Return whether the caller is the program's work."""

    def close(self) -> None:
        """Release the runner's own threads."""


class ResourceStatus(StrEnum):
    """The status of the work on one resource, in Kafka Connect's words where it has one.

    References: Kafka Connect's ``AbstractStatus.State``.
    """

    STARTING = "STARTING"  # it waits for a thread, or ``on_assigned`` has not returned
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"  # its end was requested
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

    resource: Pair
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
class RevocationEnded:
    """Complete the revocation with this token."""

    token: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Log a failure."""

    resource: Pair
    error: BaseException
    failure: Failure
    now_ms: int


@dataclass(frozen=True, slots=True)
class StopFailed:
    """Log that the end of the work on a resource has raised."""

    resource: Pair
    error: BaseException


@dataclass(frozen=True, slots=True)
class EndedLate:
    """Log that an overdue attempt has ended."""

    resource: Pair
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
    | RevocationEnded
    | Failed
    | StopFailed
    | EndedLate
    | EndWorker
    | RequestRound
)
Effects: TypeAlias = list[Effect]


class StopState:
    """The end of the work on one resource, written by the supervisor's thread."""

    __slots__ = ("deadline_s", "is_lost", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self.is_lost = False
        self.deadline_s: float | None = None  # by the monotonic clock


class _Readable:
    """The attributes of a :class:`StopState` that both events have."""

    def __init__(self, state: StopState):
        self._state = state

    def is_set(self) -> bool:
        """Return whether the work has to end."""
        return self._state.is_set

    @property
    def is_lost(self) -> bool:
        """Whether another worker may have begun already: then the work must not save state."""
        return self._state.is_lost

    @property
    def seconds_left(self) -> float | None:
        """Seconds in which the work should end, 0 or more; None before the event is set."""
        deadline_s = self._state.deadline_s
        return None if deadline_s is None else max(0.0, deadline_s - time.monotonic())


class StopEvent(_Readable):
    """Notifies a function that runs for one resource that it has to end.

    A worker makes it, and gives it to ``run`` as the second argument.

    Parameters
    ----------
    state : StopState
        The state that the worker writes.
    event : threading.Event
        Set with it.

    References: ``threading.Event``, whose names it has; Kafka's Connect, ``Task.stop``.
    """

    def __init__(self, state: StopState, event: threading.Event):
        super().__init__(state)
        self._event = event

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the work has to end, or for ``timeout`` seconds; return :meth:`is_set`."""
        self._event.wait(timeout)
        return self.is_set()


class AsyncStopEvent(_Readable):
    """Notifies a coroutine that runs for one resource that it has to end.

    A worker makes it, and gives it to an ``async def run`` as the second argument.

    Parameters
    ----------
    state : StopState
        The state that the worker writes.
    event : asyncio.Event
        Set with it.

    References: ``asyncio.Event``, whose names it has; Kafka's Connect, ``Task.stop``.
    """

    def __init__(self, state: StopState, event: asyncio.Event):
        super().__init__(state)
        self._event = event

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the work has to end, or for ``timeout`` seconds; return :meth:`is_set`."""
        import asyncio

        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            pass
        return self.is_set()
