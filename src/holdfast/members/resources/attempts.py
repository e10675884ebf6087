"""Attempts at the work on a resource: their state, the effects on them, their failures.

**Rules.** The stop event of an attempt is set once: when the resource is revoked or lost, or the
worker ends. From then on the work has ``seconds_left`` to end. ``is_lost`` is true as soon as
another worker may have begun: the resource was lost, or the deadline has passed. The work must not
save state from then on.

A failure has these rules:

1. The first attempt after a failure comes after ``backoff_ms``; each further one after twice the
   previous delay, up to ``backoff_max_ms``. Each delay varies by up to a fifth, so that resources
   that failed together are not restarted together.
2. A failure counts as one more in a row, unless the work has run for ``backoff_max_ms`` since the
   failure before it.
3. A resource that has failed :data:`REPORTED_AFTER` times in a row is reported to the group, until
   its work has run for ``backoff_max_ms``. A resource of another worker is forgotten
   :data:`FORGOTTEN_AFTER` times ``backoff_max_ms`` after the last failure here; a later failure
   counts from 1.
4. The worker requests a rebalance when its report has changed and none has carried it: at the
   earliest :data:`COLLECT_MS` later, and :data:`REBALANCE_MS` after its last request.

Example: with 1 s and 300 s, work that cannot start is restarted after about 1, 2, 4 ... 256, 300,
300 s, and is reported after 1 s.

**Strategy.** The machine writes an :class:`Attempt`; the program's stop event reads it. The
variation of a delay is a function of the resource and the attempt's number, so the same failures
have the same times in every run.

References: ``threading.Event`` and ``asyncio.Event``, whose names are kept; Kafka Connect's
``task.shutdown.graceful.timeout.ms``; systemd's ``RestartSec``; Kubernetes, "CrashLoopBackOff";
KIP-144 and KIP-580 (the exponential back-off of clients).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Container
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.wire.layouts.container import MOST_FAILED, FailedPartitions

if TYPE_CHECKING:
    import asyncio

REPORTED_AFTER = 2
FORGOTTEN_AFTER = 2
COLLECT_MS = 1_000
REBALANCE_MS = 10_000
_SPREAD = 0.2  # largest variation of a delay, as a part of it
_TEXT, _NAME = 500, 60  # characters kept of an error, and of its type's name


class Resource(NamedTuple):
    """One resource to own: a ``kind``, and its ``number`` from 0 on.

    References: Incremental Cooperative Rebalancing, whose resources need not be partitions.
    """

    kind: str
    number: int


def resource_name(resource: Resource) -> str:
    """Return a resource as text: ``kind-number``."""
    return f"{resource.kind}-{resource.number}"


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


@dataclass(eq=False, slots=True, kw_only=True)
class Attempt:
    """One attempt at the work on a resource, from its start until it has ended."""

    resource: Resource
    began_ms: int
    is_retry: bool  # an attempt before it has failed
    is_stopping: bool = False
    is_overdue: bool = False
    is_lost: bool = False  # another worker may have begun
    deadline_ms: int | None = None  # of its end, by the monotonic clock
    lost_ms: int = 0  # when the worker lost the resource, or gave it up


class _AttemptReader:
    """Reads an attempt for the work on it."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt

    def is_set(self) -> bool:
        """Return whether the work has to end."""
        return self._attempt.is_stopping

    @property
    def is_lost(self) -> bool:
        """Whether another worker may have begun already: then the work must not save state."""
        return self._attempt.is_lost

    @property
    def seconds_left(self) -> float | None:
        """Seconds in which the work should end, 0 or more; None before the event is set."""
        deadline_ms = self._attempt.deadline_ms
        return None if deadline_ms is None else max(0.0, deadline_ms / 1000 - time.monotonic())


class StopEvent(_AttemptReader):
    """Notifies a function that runs for one resource that it has to end.

    A worker makes it, and gives it to ``run`` as the second argument.

    Parameters
    ----------
    attempt : Attempt
        The attempt whose end it reports.
    event : threading.Event
        Set with it.

    References: ``threading.Event``, whose names it has; Kafka's Connect, ``Task.stop``.
    """

    def __init__(self, attempt: Attempt, event: threading.Event):
        super().__init__(attempt)
        self._event = event

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the work has to end, or for ``timeout`` seconds; return :meth:`is_set`."""
        self._event.wait(timeout)
        return self.is_set()


class AsyncStopEvent(_AttemptReader):
    """Notifies a coroutine that runs for one resource that it has to end.

    A worker makes it, and gives it to an ``async def run`` as the second argument.

    Parameters
    ----------
    attempt : Attempt
        The attempt whose end it reports.
    event : asyncio.Event
        Set with it.

    References: ``asyncio.Event``, whose names it has; Kafka's Connect, ``Task.stop``.
    """

    def __init__(self, attempt: Attempt, event: asyncio.Event):
        super().__init__(attempt)
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


@dataclass(slots=True, kw_only=True)
class Failure:
    """The failures in a row of one resource."""

    count: int
    text: str  # of the last error
    name: str  # of the last error's type
    at_ms: int  # of the last failure
    retry_ms: int  # time of the next attempt


class EffectKind(StrEnum):
    """The step that the supervisor takes after an event of the machine."""

    BEGIN = "begin attempts"
    STOP = "request the end of attempts"
    STOP_LOST = "request the end of attempts: another worker may have begun"
    LOST_LATE = "report the loss of attempts that are ending: another worker may have begun"
    OVERDUE = "report attempts past their deadline: the revocation stops waiting for them"
    ENDED = "report the end of an attempt by itself or by an error"
    REVOKED = "complete a revocation"
    REQUEST_REBALANCE = "request a rebalance: the reported failures have changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One step that the supervisor takes, with what its kind needs."""

    kind: EffectKind
    attempts: tuple[Attempt, ...] = ()
    token: int = -1  # of a revocation
    error: BaseException | None = None  # of the attempt that has ended
    failure: Failure | None = None  # which that error has caused


class Failures:
    """Failures of one worker by resource; the delays of two workers vary by their ``name``."""

    def __init__(self, backoff_ms: int, backoff_max_ms: int, name: str = ""):
        self._backoff_ms = backoff_ms
        self.backoff_max_ms = backoff_max_ms
        self._name = name
        self.by_resource: dict[Resource, Failure] = {}
        self.check_ms: int | None = None  # when to check whether to request a rebalance
        self._requested_ms = -REBALANCE_MS
        self._last_reported: tuple[FailedPartitions, ...] = ()  # in the last subscription

    def record(
        self, resource: Resource, error: BaseException, now_ms: int, began_ms: int
    ) -> Failure:
        """Count a failure of an attempt that began at ``began_ms``."""
        before = self.by_resource.get(resource)
        lasted = now_ms - began_ms >= self.backoff_max_ms
        count = 1 if before is None or lasted else before.count + 1
        name = type(error).__name__
        self.by_resource[resource] = failure = Failure(
            count=count,
            text=f"{name}: {error}"[:_TEXT],
            name=name[:_NAME],
            at_ms=now_ms,
            retry_ms=now_ms + self._delay_ms(resource, count),
        )
        if count >= REPORTED_AFTER:
            self._change(now_ms)
        return failure

    def _delay_ms(self, resource: Resource, count: int) -> int:
        whole_ms = min(self._backoff_ms << min(count - 1, 30), self.backoff_max_ms)
        kind, number = resource
        digest = blake2b(f"{self._name} {kind} {number} {count}".encode(), digest_size=4).digest()
        part = int.from_bytes(digest) / (2**32 - 1)
        return round(whole_ms * (1 - _SPREAD + 2 * _SPREAD * part))

    def clear(self, resource: Resource, now_ms: int) -> None:
        """Forget the failures of a resource whose work runs."""
        failure = self.by_resource.pop(resource, None)
        if failure is not None and failure.count >= REPORTED_AFTER:
            self._change(now_ms)

    def report(self, now_ms: int, owned: Container[Resource]) -> tuple[FailedPartitions, ...]:
        """Return the failures for a subscription, and record them as reported.

        Old failures of resources that are not ``owned`` are forgotten (rule 3).
        """
        limit_ms = now_ms - FORGOTTEN_AFTER * self.backoff_max_ms
        for resource, failure in list(self.by_resource.items()):
            if failure.at_ms < limit_ms and resource not in owned:
                del self.by_resource[resource]
        self._last_reported = self._reported()
        return self._last_reported

    def is_rebalance_due(self, now_ms: int) -> bool:
        """Return whether to request a rebalance now, because none has carried a change."""
        if self.check_ms is None or now_ms < self.check_ms:
            return False
        self.check_ms = None
        changed = self._reported() != self._last_reported
        if changed:
            self._requested_ms = now_ms
        return changed

    def _change(self, now_ms: int) -> None:
        if self.check_ms is None:
            self.check_ms = max(now_ms + COLLECT_MS, self._requested_ms + REBALANCE_MS)

    def _reported(self) -> tuple[FailedPartitions, ...]:
        """Return repeated failures, sorted by kind and error; the first hundred."""
        repeated = sorted(r for r, f in self.by_resource.items() if f.count >= REPORTED_AFTER)
        by_error: dict[tuple[str, str], list[int]] = {}
        for resource in repeated[:MOST_FAILED]:
            key = resource.kind, self.by_resource[resource].name
            by_error.setdefault(key, []).append(resource.number)
        return tuple(FailedPartitions(*key, tuple(own)) for key, own in sorted(by_error.items()))
