"""The state of the work on each resource of a worker: events in, effects out, no clock.

**Rules.**

- Work begins in an *attempt*. A resource has one attempt at a time in this process: an attempt that
  has not ended delays the next one, even if its worker lost the resource or it is past its
  deadline.
- An error of an attempt fails this resource alone. The resource stays the worker's, and its work is
  restarted (:mod:`~holdfast.members.resources.attempts`). Only an error that is not an
  ``Exception``, such as ``SystemExit``, ends the worker.
- A stopping attempt has ``stop_ms`` to end. After that deadline another worker may begin, and the
  attempt is *overdue* until it ends.
- A revocation is done when all its attempts have ended or are overdue.

**Strategy.** A plain record for each resource. Timers are in one heap, and outdated ones are
skipped. The caller performs the effects of one event in order.

References: Kafka Connect's ``Worker``, whose tasks start and stop in parallel and end in FAILED.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from holdfast.core.wire.layouts.container import FailedPartitions
from holdfast.members.resources.attempts import (
    Attempt,
    Effect,
    EffectKind,
    Failure,
    Failures,
    Resource,
    ResourceState,
    ResourceStatus,
)


@dataclass(eq=False, slots=True, kw_only=True)
class _OwnedResource:
    """A resource that the worker owns."""

    resource: Resource
    status: ResourceStatus = ResourceStatus.STARTING
    attempt: Attempt | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class _Ending:
    """Attempts that should end by a deadline, and the revocation that waits for them."""

    deadline_ms: int
    pending: set[Attempt]
    token: int | None = None


_Timer = tuple[int, int, _OwnedResource, Attempt | None]
"""Time in ms, order of entry, resource, and the attempt whose recovery is due; None: a new attempt
is due.
"""


class ResourceMachine:
    """The work on all resources of one worker.

    ``stop_ms`` is the time for the end of the work on one resource, and ``most`` limits the
    simultaneous attempts. With ``one_call`` the resources of one revocation are ended one after the
    other: then it has ``stop_ms`` for each.
    """

    def __init__(
        self, failures: Failures, *, stop_ms: int, most: int | None = None, one_call: bool = False
    ):
        self.failures = failures
        self.n_failures = 0
        self._stop_ms, self._most, self._one_call = stop_ms, most, one_call
        self._entries: dict[Resource, _OwnedResource] = {}
        self._queue: deque[_OwnedResource] = deque()
        self._n_alive = 0
        self._unowned: dict[Resource, Attempt] = {}  # attempts of revoked or lost resources
        self._endings: list[_Ending] = []
        self._timers: list[_Timer] = []
        self._order = count()
        self._is_ending = False

    # Queries

    def states(self, now_ms: int) -> dict[Resource, ResourceState]:
        """Return the state of each resource that the worker owns."""
        failures = self.failures.by_resource
        return {
            resource: _state_of(entry.status, failures.get(resource), now_ms)
            for resource, entry in self._entries.items()
        }

    def count(self, status: ResourceStatus) -> int:
        """Return the number of resources whose work has a status."""
        return [entry.status for entry in self._entries.values()].count(status)

    @property
    def overdue(self) -> tuple[Resource, ...]:
        """Resources whose work has not ended, past its deadline or after a loss."""
        return tuple(self._unowned)

    def report(self, now_ms: int) -> tuple[FailedPartitions, ...]:
        """Return the failures for a subscription, and record them as reported."""
        return self.failures.report(now_ms, self._entries)

    def attempt_at(self, resource: Resource) -> Attempt | None:
        """Return the unfinished attempt at a resource of the worker, None for none."""
        entry = self._entries.get(resource)
        return None if entry is None else entry.attempt

    @property
    def is_idle(self) -> bool:
        """Whether no revocation waits for the end of an attempt."""
        return not self._endings

    @property
    def deadline_ms(self) -> int | None:
        """Time of the next :meth:`tick`; None: not before the next event."""
        times = [ending.deadline_ms for ending in self._endings]
        times += [self._timers[0][0]] if self._timers else []
        times += [] if self.failures.check_ms is None else [self.failures.check_ms]
        return min(times, default=None)

    # Events

    def assigned(self, now_ms: int, resources: Iterable[Resource]) -> list[Effect]:
        """Begin the work on newly owned ``resources``, after the delay of a recent failure."""
        resources = tuple(resources)
        effects = self.lost(now_ms, resources)  # attempts still ending are of an earlier term
        for resource in resources:
            entry = self._entries[resource] = _OwnedResource(resource=resource)
            failure = self.failures.by_resource.get(resource)
            if failure is not None and failure.retry_ms > now_ms:
                entry.status = ResourceStatus.FAILED
                self._schedule(failure.retry_ms, entry)
            else:
                self._queue.append(entry)
        return effects + self._begin(now_ms)

    def revoked(self, now_ms: int, resources: Iterable[Resource], token: int) -> list[Effect]:
        """End the work on revoked ``resources``; the revocation ``token`` waits for it."""
        return self._stop(now_ms, self._entries_of(resources), token=token)

    def lost(self, now_ms: int, resources: Iterable[Resource]) -> list[Effect]:
        """End the work on lost ``resources``; nothing waits: another worker may have begun."""
        entries = self._entries_of(resources)
        ending = tuple(e.attempt for e in entries if e.attempt and e.attempt.is_stopping)
        effects = [Effect(kind=EffectKind.LOST_LATE, attempts=ending)] if ending else []
        for attempt in ending:
            attempt.is_lost = True
        for entry in entries:
            self._disown(entry, now_ms)
        return effects + self._stop(now_ms, entries, lost=True)

    def stop_all(self, now_ms: int) -> list[Effect]:
        """End all work at once, and begin nothing more: the worker ends."""
        self._is_ending = True
        return self._stop(now_ms, list(self._entries.values()))

    def started(self, attempt: Attempt) -> list[Effect]:
        """Record that ``on_assigned`` has returned."""
        entry = self._entries.get(attempt.resource)
        if entry and entry.attempt is attempt and entry.status is ResourceStatus.STARTING:
            entry.status = ResourceStatus.RUNNING
        return []

    def ended(self, now_ms: int, attempt: Attempt, error: BaseException | None) -> list[Effect]:
        """Record the end of an attempt: by an error, by itself, or on request."""
        self._n_alive -= 1
        effects: list[Effect] = []
        failure: Failure | None = None
        if attempt.is_stopping:
            effects = self._stopped(attempt)
        else:
            entry = self._entries[attempt.resource]
            entry.attempt = None
            if error is not None:
                failure = self._fail(now_ms, entry, attempt, error)
            else:
                entry.status = ResourceStatus.ENDED
                self.failures.clear(entry.resource, now_ms)
        if error is not None or attempt.is_overdue:
            kind = EffectKind.ENDED
            end = Effect(kind=kind, attempts=(attempt,), error=error, failure=failure)
            effects.insert(0, end)  # an error is logged before the member continues
        return effects + self._begin(now_ms)

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due: declare attempts overdue, restart work, request a rebalance."""
        effects: list[Effect] = []
        late = {a for e in self._endings if e.deadline_ms <= now_ms for a in e.pending}
        if late:
            for attempt in late:
                attempt.is_overdue = attempt.is_lost = True
                entry = self._entries.get(attempt.resource)
                if entry is not None and entry.attempt is attempt:
                    self._disown(entry, now_ms)
            attempts = tuple(sorted(late, key=lambda a: a.resource))
            effects.append(Effect(kind=EffectKind.OVERDUE, attempts=attempts))
            effects += self._stop_waiting(late)
        while self._timers and self._timers[0][0] <= now_ms:
            self._fire(now_ms, heapq.heappop(self._timers))
        if self.failures.is_rebalance_due(now_ms) and not self._is_ending:
            effects.append(Effect(kind=EffectKind.REQUEST_REBALANCE))
        return effects + self._begin(now_ms)

    # Steps

    def _begin(self, now_ms: int) -> list[Effect]:
        begun = []
        while self._queue and not self._is_ending:
            if self._most is not None and self._n_alive >= self._most:
                break
            entry = self._queue.popleft()
            if self._entries.get(entry.resource) is not entry or entry.attempt is not None:
                continue
            if entry.resource in self._unowned:
                continue  # queued again when that attempt has ended
            failure = self.failures.by_resource.get(entry.resource)
            entry.attempt = attempt = Attempt(
                resource=entry.resource, began_ms=now_ms, is_retry=failure is not None
            )
            if not self._one_call:
                entry.status = ResourceStatus.RUNNING
            if failure is not None:
                self._schedule(now_ms + self.failures.backoff_max_ms, entry, attempt)
            self._n_alive += 1
            begun.append(attempt)
        return [Effect(kind=EffectKind.BEGIN, attempts=tuple(begun))] if begun else []

    def _stop(
        self,
        now_ms: int,
        entries: list[_OwnedResource],
        *,
        token: int | None = None,
        lost: bool = False,
    ) -> list[Effect]:
        """Request the end of the attempts of ``entries``; those without an attempt end at once."""
        effects: list[Effect] = []
        pending = {entry.attempt for entry in entries if entry.attempt is not None}
        deadline_ms = now_ms + self._stop_ms * (self._n_calls(entries) if self._one_call else 1)
        for entry in entries:
            if entry.attempt is None:
                self._entries.pop(entry.resource, None)
            entry.status = ResourceStatus.STOPPING
        new = [a for a in pending if not a.is_stopping]
        if new:
            for attempt in new:
                attempt.deadline_ms, attempt.is_lost = deadline_ms, lost
                attempt.is_stopping = True
            new.sort(key=lambda a: a.resource)
            kind = EffectKind.STOP_LOST if lost else EffectKind.STOP
            effects.append(Effect(kind=kind, attempts=tuple(new)))
        if pending:
            self._endings.append(_Ending(deadline_ms=deadline_ms, pending=pending, token=token))
        elif token is not None:
            effects.append(Effect(kind=EffectKind.REVOKED, token=token))
        return effects

    def _n_calls(self, entries: list[_OwnedResource]) -> int:
        """Return for how many resources calls one after the other may take their time.

        While the worker ends, all resources whose ``on_assigned`` still runs count as one.
        """
        alive = [e.status for e in entries if e.attempt is not None]
        n_starting = alive.count(ResourceStatus.STARTING) if self._is_ending else 0
        return max(1, len(alive) - n_starting + (n_starting > 0))

    def _entries_of(self, resources: Iterable[Resource]) -> list[_OwnedResource]:
        return [self._entries[r] for r in resources if r in self._entries]

    def _disown(self, entry: _OwnedResource, now_ms: int) -> None:
        """Remove a lost or revoked resource; its attempt may continue."""
        del self._entries[entry.resource]
        if entry.attempt is not None:
            self._unowned[entry.resource] = entry.attempt
            entry.attempt.lost_ms = now_ms

    def _stopped(self, attempt: Attempt) -> list[Effect]:
        """Record the end of an attempt whose end was requested."""
        resource, effects = attempt.resource, self._stop_waiting({attempt})
        entry = self._entries.get(resource)
        if self._unowned.get(resource) is attempt:
            del self._unowned[resource]
            if entry is not None:
                self._queue.append(entry)
        elif entry is not None and entry.attempt is attempt:
            del self._entries[resource]
        return effects

    def _stop_waiting(self, attempts: set[Attempt]) -> list[Effect]:
        """Stop waiting for ``attempts``."""
        effects = []
        endings, self._endings = self._endings, []
        for ending in endings:
            ending.pending -= attempts
            if ending.pending:
                self._endings.append(ending)
            elif ending.token is not None:
                effects.append(Effect(kind=EffectKind.REVOKED, token=ending.token))
        return effects

    def _fail(
        self, now_ms: int, entry: _OwnedResource, attempt: Attempt, error: BaseException
    ) -> Failure:
        failure = self.failures.record(entry.resource, error, now_ms, attempt.began_ms)
        self.n_failures += 1
        entry.status = ResourceStatus.FAILED
        self._schedule(failure.retry_ms, entry)
        return failure

    def _schedule(self, at_ms: int, entry: _OwnedResource, attempt: Attempt | None = None) -> None:
        heapq.heappush(self._timers, (at_ms, next(self._order), entry, attempt))

    def _fire(self, now_ms: int, timer: _Timer) -> None:
        _, _, entry, attempt = timer
        if self._entries.get(entry.resource) is not entry:
            return
        if attempt is None:
            if entry.status is ResourceStatus.FAILED:
                entry.status = ResourceStatus.STARTING
                self._queue.append(entry)
        elif entry.attempt is attempt and entry.status is ResourceStatus.RUNNING:
            self.failures.clear(entry.resource, now_ms)


def _state_of(status: ResourceStatus, failure: Failure | None, now_ms: int) -> ResourceState:
    if failure is None:
        return ResourceState(status=status)
    waits = status is ResourceStatus.FAILED
    return ResourceState(
        status=status,
        failures=failure.count,
        error=failure.text,
        retry_seconds=max(0, failure.retry_ms - now_ms) / 1000 if waits else None,
    )
