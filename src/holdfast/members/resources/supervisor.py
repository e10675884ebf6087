"""The thread between the member of a worker and the work on its resources, in each of its forms.

**Rules.** No call of the member thread waits: work that starts never delays the member. The member
waits for work that ends, until the deadline of the resource machine. One thread, the supervisor's,
drives that machine and performs its effects in order; others read it under a lock. A loss that no
callback of the listener reports, or reports too late, is an error.

**Strategy.** A mailbox of events and a clock, as in the member thread. The supervisor takes the
calls that the member thread makes to a consumer's session; a revocation ends work instead of the
delivery of records.

References: Kafka Connect's ``Herder``, which starts and stops tasks next to the group's thread.
"""

from __future__ import annotations

import inspect
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from holdfast.cluster.signal_safe import Flag, Mailbox
from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.wire.layouts.container import FailedPartitions
from holdfast.errors import ConfigError, RemoteProtocolError
from holdfast.members.config.settings import Settings
from holdfast.members.metrics import MemberMetrics
from holdfast.members.resources.attempts import (
    AsyncStopEvent,
    Attempt,
    Effect,
    EffectKind,
    Failures,
    Resource,
    ResourceState,
    ResourceStatus,
    StopEvent,
    resource_name,
)
from holdfast.members.resources.machine import ResourceMachine
from holdfast.members.resources.runners import ListenerRunner, LoopRunner, Runner, ThreadRunner
from holdfast.members.runtime.member_status import MemberLog

if TYPE_CHECKING:
    from holdfast.core.machine import actions
    from holdfast.core.model import partitions

_Step = Callable[[int], list[Effect]]
_LATE = "before on_revoked had returned"


Run: TypeAlias = (
    Callable[[Resource, StopEvent], object]
    | Callable[[Resource, AsyncStopEvent], Awaitable[object]]
)
"""The work on one resource: a function, or a coroutine function."""


class Supervisor:
    """Supervises the work on a worker's resources, in the form of ``run`` or of a ``listener``.

    It is the member's :class:`~holdfast.members.runtime.member_thread.RebalanceHandler`. The
    ``name`` of the worker is for threads and delays.

    Raises
    ------
    ConfigError
        For both forms together, or a ``run`` that cannot be called for a resource.
    """

    def __init__(
        self, settings: Settings, run: Run | None, listener: object, log: MemberLog, name: str
    ):
        if run is not None and listener is not None:
            raise ConfigError("run and listener: expected one of them, found both")
        given: object = run
        if given is not None and (not callable(given) or inspect.isgeneratorfunction(given)):
            raise ConfigError(f"run: expected a function or an async function, found {run!r}")
        backoff_ms = settings["holdfast.restart.backoff.ms"]
        self._machine = ResourceMachine(
            Failures(backoff_ms, settings["holdfast.restart.backoff.max.ms"], name),
            stop_ms=settings["task.shutdown.graceful.timeout.ms"],
            most=None if run is None or _is_async(run) else settings["holdfast.run.threads"],
            one_call=run is None,
        )
        self._log = log
        self._listener = listener
        self._runner = self._make_runner(run, name)
        self._lock = threading.Lock()  # around the machine
        self._steps: Mailbox[_Step | None] = Mailbox()
        self._thread = threading.Thread(target=self._serve, name="holdfast-resources", daemon=True)
        self._done: dict[int, Callable[[str | None], None]] = {}  # of revocations, by token
        self._next_token = 0
        self._idle = Flag()
        self._wants_idle = False
        self.close_by: float | None = None  # deadline of a close, by the monotonic clock
        self.failure: RemoteProtocolError | None = None  # state that may be lost; for close()
        self.error: BaseException | None = None  # the worker's, for the application's next call
        self.leave_group: Callable[[], None] = lambda: None
        self.request_rebalance: Callable[[str], None] = lambda _: None

    def _make_runner(self, run: Any, name: str) -> Runner:
        def started(attempt: Attempt) -> None:
            self._post(lambda _: self._machine.started(attempt))

        if run is None:
            callbacks = f"{name}-callbacks"
            return ListenerRunner(self._listener, started, self._ended, self._log, callbacks)
        if not _is_async(run):
            return ThreadRunner(run, self._ended)
        return LoopRunner(run, self._ended)

    # The calls of the member thread

    def mark_pending_revocation(
        self, resources: tuple[partitions.Resource, ...], drained: Callable[[], None]
    ) -> None:
        """Report ``resources`` as drained: nothing is in flight besides the work itself."""
        drained()

    def drop(
        self, resources: tuple[partitions.Resource, ...], lost: tuple[partitions.Resource, ...]
    ) -> None:
        """Notify the work that another worker may have begun; for ``lost``, a call follows."""
        dropped = _of_worker(resources)
        self._post(lambda now_ms: self._dropped(now_ms, dropped))

    def call(
        self,
        call: ListenerCall,
        resources: tuple[partitions.Resource, ...],
        done: Callable[[str | None], None],
    ) -> None:
        """Begin or end work; ``done`` waits only for the work that a revocation ends."""
        own = _of_worker(resources)
        if own and call is ListenerCall.REVOKED:
            token, self._next_token = self._next_token, self._next_token + 1
            self._done[token] = done
            self._post(lambda now_ms: self._machine.revoked(now_ms, own, token))
            return
        if own and call is ListenerCall.ASSIGNED:
            self._post(lambda now_ms: self._machine.assigned(now_ms, own))
        elif own:
            self._post(lambda now_ms: self._lost(now_ms, own))
        done(None)

    def commit(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """Do nothing: a worker has no offsets."""
        done(0)

    def is_orphaned(self) -> bool:
        """Return False: a worker's threads are its own."""
        return False

    def end(self) -> None:
        """Wait for work that has to end, until the deadline of a close; end the thread."""
        # Without a close, a start has failed, and the next one may succeed.
        if self.close_by is None or self._thread.ident is None:
            return
        self.stop_all()
        self._wants_idle = True
        self._post(_nothing)
        self._idle.wait(max(0.0, self.close_by - time.monotonic()))
        self._steps.put(None)

    # Queries and the end, on any thread

    def states(self) -> Mapping[Resource, ResourceState]:
        """Return the state of each resource that the worker owns."""
        with self._lock:
            return dict(sorted(self._machine.states(_now_ms()).items()))

    def overdue(self) -> frozenset[Resource]:
        """Return the resources whose work continues although the worker does not own them."""
        with self._lock:
            return frozenset(self._machine.overdue)

    def add_counts(self, metrics: MemberMetrics) -> MemberMetrics:
        """Return metrics with the counts of resources by the status of their work."""
        with self._lock:
            return replace(
                metrics,
                running_resources=self._machine.count(ResourceStatus.RUNNING),
                failed_resources=self._machine.count(ResourceStatus.FAILED),
                overdue_resources=len(self._machine.overdue),
                resource_failures_total=self._machine.n_failures,
            )

    def report(self) -> tuple[FailedPartitions, ...]:
        """Return the failures for the worker's subscription."""
        with self._lock:
            return self._machine.report(_now_ms())

    def is_inside(self) -> bool:
        """Return whether the caller is the program's work."""
        return self._runner.is_inside()

    def stop_all(self) -> None:
        """Request the end of all work, because the worker ends."""
        if self._thread.ident is not None:
            self._post(self._machine.stop_all)

    # The supervisor's thread

    def _post(self, step: _Step) -> None:
        self._steps.put(step)
        if self._thread.ident is None:
            self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                deadline_ms = self._machine.deadline_ms
                left_s = None if deadline_ms is None else (deadline_ms - _now_ms()) / 1000
                step = self._steps.get(None if left_s is None else max(0.0, left_s))
            except queue.Empty:
                step = _nothing
            if step is None:
                self._runner.close()
                return
            try:
                self._do(step)
            except Exception as error:  # our bug: the application gets the error
                self._log.exception("the supervisor of the resources failed")
                self._end_worker(error)

    def _do(self, step: _Step) -> None:
        with self._lock:
            now_ms = _now_ms()
            effects = step(now_ms) + self._machine.tick(now_ms)
        for effect in effects:
            self._perform(effect)
        if self._wants_idle and self._machine.is_idle:
            self._idle.set()

    def _perform(self, effect: Effect) -> None:
        attempts = effect.attempts
        match effect.kind:
            case EffectKind.BEGIN:
                self._runner.begin(attempts)
            case EffectKind.STOP | EffectKind.STOP_LOST:
                self._runner.stop(attempts, lost=effect.kind is EffectKind.STOP_LOST)
            case EffectKind.LOST_LATE:
                if self._listener is not None:
                    self._report_loss([a.resource for a in attempts], _LATE)
            case EffectKind.OVERDUE:
                self._report_overdue(attempts)
                self._runner.abandon(attempts)
            case EffectKind.ENDED:
                self._report_end(attempts[0], effect)
            case EffectKind.REVOKED:
                self._done.pop(effect.token)(None)
            case EffectKind.REQUEST_REBALANCE:
                self.request_rebalance("what has failed at this worker has changed")
            case _:
                assert_never(effect.kind)

    def _report_end(self, attempt: Attempt, effect: Effect) -> None:
        """Log the failure or the late end of an attempt; an exit ends the worker."""
        error, failure, name = effect.error, effect.failure, resource_name(attempt.resource)
        if error is not None and not isinstance(error, Exception):
            self._end_worker(error)
        if failure is not None:
            text = "%s has failed, %d in a row: the next attempt is in %.1f s"
            retry_s = (failure.retry_ms - failure.at_ms) / 1000
            self._log.error(text, name, failure.count, retry_s, exc_info=error)
        elif error is not None:
            self._log.error("the end of the work on %s raised", name, exc_info=error)
        if attempt.is_overdue:
            late_s = (_now_ms() - attempt.lost_ms) / 1000
            self._log.warning("the work on %s has ended, %.1f s too late", name, late_s)

    def _report_overdue(self, attempts: Collection[Attempt]) -> None:
        """Log the resources that another worker may begin although work continues here."""
        resources = [attempt.resource for attempt in attempts]
        if self._listener is not None:
            self._report_loss(resources, _LATE)
        else:
            self._log.error(
                "the work on %s has not ended in time (task.shutdown.graceful.timeout.ms): another "
                "worker may begin with it now",
                _names_of(resources),
            )

    def _report_loss(self, lost: Collection[Resource], why: str) -> None:
        self.failure = RemoteProtocolError(
            f"{_names_of(lost)} were lost {why}: another worker may have begun without their state",
            error_code=ErrorCode.UNKNOWN_MEMBER_ID,
        )
        self._log.error("%s", self.failure)

    def _end_worker(self, error: BaseException) -> None:
        self.error = self.error or error
        self.leave_group()

    def _dropped(self, now_ms: int, resources: Collection[Resource]) -> list[Effect]:
        """End the work on lost ``resources``; a listener is notified by its next callback."""
        if self._listener is None:
            return self._machine.lost(now_ms, resources)
        attempts = {r: self._machine.attempt_at(r) for r in resources}
        ending = [r for r, attempt in attempts.items() if attempt and attempt.is_stopping]
        return self._machine.lost(now_ms, ending)

    def _lost(self, now_ms: int, resources: Collection[Resource]) -> list[Effect]:
        if self._listener is not None and getattr(self._listener, "on_lost", None) is None:
            alive = [r for r in resources if self._machine.attempt_at(r) is not None]
            if alive:
                self._report_loss(alive, "and the listener has no on_lost")
        return self._machine.lost(now_ms, resources)

    def _ended(self, attempt: Attempt, error: BaseException | None) -> None:
        """Take the report of a runner, on any thread."""
        self._post(lambda now_ms: self._machine.ended(now_ms, attempt, error))


def _of_worker(resources: Iterable[partitions.Resource]) -> tuple[Resource, ...]:
    return tuple(Resource(*resource) for resource in resources)


def _nothing(now_ms: int) -> list[Effect]:
    """Do nothing, so that only the clock moves the machine."""
    return []


def _names_of(resources: Collection[Resource]) -> str:
    """Return the first five of ``resources`` by name, and the number of the others."""
    more = f" and {len(resources) - 5} more" if len(resources) > 5 else ""
    return ", ".join(resource_name(r) for r in sorted(resources)[:5]) + more


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _is_async(run: object) -> bool:
    """Return whether a call of ``run`` returns a coroutine."""
    called = getattr(type(run), "__call__", None)  # noqa: B004 - of an object with a method
    return inspect.iscoroutinefunction(run) or inspect.iscoroutinefunction(called)
