"""Runs the work on resources: a function or a coroutine for each, or callbacks with all of them.

**Rules.** The supervisor's thread alone calls a runner, which never waits. A runner reports the
start and the end of attempts from any thread.

:class:`ThreadRunner` has a thread for each attempt. The threads are daemons: a function that does
not end keeps no process alive. A thread that cannot be started is a failure of its resource.

:class:`LoopRunner` has one event loop of its own: a program's own loop is not used. A coroutine
past its deadline is cancelled. The loop ends with the worker; coroutines that still run are
cancelled, too.

:class:`ListenerRunner` calls the callbacks of a listener with all resources of a rebalance, one at
a time, on a thread of their own. If a callback is past its deadline, the next ones run on another
thread. If ``on_assigned`` raises, ``on_revoked`` is called for the same resources, so that started
work ends, and each resource is retried by a call of its own. For resources whose ``on_assigned``
was not called, no other callback is called.

**Strategy.** A listener's thread has a queue of calls. A call that has not begun can be dropped, in
whole or in part.

References: ``asyncio.Runner``, which ends a loop in the same order; Kafka Connect, which runs a
task on a thread of its own; KIP-429 (``ConsumerRebalanceListener``).
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from holdfast.cluster.signal_safe import Mailbox
from holdfast.members.resources.attempts import (
    AsyncStopEvent,
    Attempt,
    Resource,
    StopEvent,
    resource_name,
)
from holdfast.members.runtime.member_status import Log

if TYPE_CHECKING:
    import asyncio

_END_S = 1.0  # time for cancelled coroutines to end when the loop ends

Started: TypeAlias = Callable[[Attempt], None]
Ended: TypeAlias = Callable[[Attempt, BaseException | None], None]
"""Callbacks by which a runner reports the start, and the end with its error, of an attempt."""


class Runner(Protocol):
    """One form of a program's work."""

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Begin attempts."""

    def stop(self, attempts: Sequence[Attempt], *, lost: bool) -> None:
        """Request the end of attempts."""

    def abandon(self, attempts: Sequence[Attempt]) -> None:
        """Stop waiting for attempts past their deadline, which may continue."""

    def is_inside(self) -> bool:
        """Return whether the caller is the program's work."""

    def close(self) -> None:
        """Release the runner's own threads."""


class ThreadRunner:
    """Calls a function on a thread for each attempt."""

    def __init__(self, run: Callable[[Resource, StopEvent], object], ended: Ended):
        self._run = run
        self._ended = ended
        self._events: dict[Attempt, threading.Event] = {}
        self._local = threading.local()

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Start a thread for each attempt."""
        for attempt in attempts:
            event = self._events[attempt] = threading.Event()
            name = f"holdfast-{resource_name(attempt.resource)}"
            arguments = (attempt, StopEvent(attempt, event))
            thread = threading.Thread(target=self._call, name=name, args=arguments, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the process may have no more threads
                self._end(attempt, error)

    def stop(self, attempts: Sequence[Attempt], *, lost: bool) -> None:
        """Set the stop events of attempts."""
        for attempt in attempts:
            if (event := self._events.get(attempt)) is not None:
                event.set()

    def abandon(self, attempts: Sequence[Attempt]) -> None:
        """Do nothing: a thread cannot be ended."""

    def is_inside(self) -> bool:
        """Return whether the caller's thread runs the function."""
        return getattr(self._local, "is_ours", False)

    def close(self) -> None:
        """Do nothing: threads that still run end with the process."""

    def _call(self, attempt: Attempt, stop: StopEvent) -> None:
        self._local.is_ours = True
        try:
            _check_done(self._run(attempt.resource, stop))
        except BaseException as error:  # even an exit: the worker waits for this thread
            self._end(attempt, error)
        else:
            self._end(attempt, None)

    def _end(self, attempt: Attempt, error: BaseException | None) -> None:
        self._events.pop(attempt, None)
        self._ended(attempt, error)


def _check_done(result: object) -> None:
    """Refuse the result of a function that has done nothing yet."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
        raise TypeError(f"run returned a {type(result).__name__}: give an async function")


class LoopRunner:
    """Runs a task of asyncio for each attempt."""

    def __init__(self, run: Callable[[Resource, AsyncStopEvent], Awaitable[object]], ended: Ended):
        import asyncio  # only a worker with coroutines loads it

        self._asyncio = asyncio
        self._run = run
        self._ended = ended
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="holdfast-loop", daemon=True)
        # The two below belong to the loop's thread.
        self._events: dict[Attempt, asyncio.Event] = {}
        self._tasks: dict[Attempt, asyncio.Task[BaseException | None]] = {}

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Make a task for each attempt."""
        if self._thread.ident is None:
            self._thread.start()
        self._loop.call_soon_threadsafe(self._make, tuple(attempts))

    def stop(self, attempts: Sequence[Attempt], *, lost: bool) -> None:
        """Set the stop events of attempts."""
        self._loop.call_soon_threadsafe(self._set_events, tuple(attempts))

    def abandon(self, attempts: Sequence[Attempt]) -> None:
        """Cancel the coroutines of attempts."""
        self._loop.call_soon_threadsafe(self._cancel, tuple(attempts))

    def is_inside(self) -> bool:
        """Return whether the caller is a coroutine of the loop."""
        return threading.get_ident() == self._thread.ident

    def close(self) -> None:
        """Request the end of the loop."""
        if self._thread.ident is None:
            self._loop.close()
        else:
            self._loop.call_soon_threadsafe(self._loop.stop)

    # The loop's thread

    def _serve(self) -> None:
        asyncio = self._asyncio
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.wait(left, timeout=_END_S))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _make(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            event = self._events[attempt] = self._asyncio.Event()
            if attempt.is_stopping:
                event.set()
            stop = AsyncStopEvent(attempt, event)
            name = f"holdfast-{resource_name(attempt.resource)}"
            task = self._loop.create_task(self._call(attempt, stop), name=name)
            task.add_done_callback(partial(self._done, attempt))
            self._tasks[attempt] = task

    async def _call(self, attempt: Attempt, stop: AsyncStopEvent) -> BaseException | None:
        """Run the coroutine; return its error, also an exit, which would end the loop."""
        try:
            await self._run(attempt.resource, stop)
        except self._asyncio.CancelledError:
            raise
        except BaseException as error:
            return error
        return None

    def _done(self, attempt: Attempt, task: asyncio.Task[BaseException | None]) -> None:
        del self._events[attempt], self._tasks[attempt]
        if not task.cancelled():
            self._ended(attempt, task.result())
        else:
            self._ended(attempt, None if attempt.is_stopping else RuntimeError("cancelled"))

    def _set_events(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            if (event := self._events.get(attempt)) is not None:
                event.set()

    def _cancel(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            if (task := self._tasks.get(attempt)) is not None:
                task.cancel()


_Callback = Callable[[list[Resource]], None]


class _DueCallback:
    """A callback for some attempts, which may change until it has begun."""

    def __init__(self, name: str, attempts: Sequence[Attempt]):
        self.name = name
        self.attempts = list(attempts)


class _CallThread:
    """Makes calls one after the other."""

    def __init__(self, make: Callable[[_DueCallback], None], name: str):
        self.calls: Mailbox[_DueCallback | None] = Mailbox()
        self.current: _DueCallback | None = None
        self._make = make
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def put(self, call: _DueCallback | None) -> None:
        """Queue a call; None ends the thread."""
        self.calls.put(call)
        if self.thread.ident is None:
            self.thread.start()

    def _serve(self) -> None:
        while (call := self.calls.first()) is not None:
            self.current = call
            self.calls.items.popleft()
            self._make(call)
            self.current = None


class ListenerRunner:
    """Calls a listener for attempts; any of its three callbacks may be missing."""

    def __init__(self, listener: object, started: Started, ended: Ended, log: Log, name: str):
        self._listener = listener
        self._started, self._ended = started, ended
        self._log = log
        self._name = name
        self._lock = threading.Lock()
        self._queued: set[Attempt] = set()  # attempts whose on_assigned was not called
        self._begun: set[Attempt] = set()  # attempts whose on_assigned alone was called
        self._local = threading.local()
        self._thread = self._new_thread()

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Call ``on_assigned``: once for all first attempts, and once for each retry."""
        new = [attempt for attempt in attempts if not attempt.is_retry]
        groups = [new, *([attempt] for attempt in attempts if attempt.is_retry)]
        for group in filter(None, groups):
            if self._callback("on_assigned") is not None:
                with self._lock:
                    self._queued.update(group)
                self._thread.put(_DueCallback("on_assigned", group))
                continue
            with self._lock:
                self._begun.update(group)
            for attempt in group:
                self._started(attempt)

    def stop(self, attempts: Sequence[Attempt], *, lost: bool) -> None:
        """Call ``on_revoked`` or ``on_lost`` for attempts that have begun."""
        with self._lock:
            not_begun = [attempt for attempt in attempts if attempt in self._queued]
            self._queued.difference_update(not_begun)
        for attempt in not_begun:
            self._ended(attempt, None)
        if begun := [attempt for attempt in attempts if attempt not in not_begun]:
            self._thread.put(_DueCallback("on_lost" if lost else "on_revoked", begun))

    def abandon(self, attempts: Sequence[Attempt]) -> None:
        """Make the next calls on another thread, if a call for one of ``attempts`` runs.

        Calls for the same attempts stay on its thread: a late ``on_assigned`` is followed by its
        ``on_revoked``.
        """
        old, abandoned = self._thread, set(attempts)
        out = old.current
        if out is None or abandoned.isdisjoint(out.attempts):
            return
        self._thread = self._new_thread()
        waiting = list(old.calls.items)
        for call in waiting:
            if call is not None and set(out.attempts).isdisjoint(call.attempts):
                old.calls.items.remove(call)
                self._thread.put(call)
        old.put(None)

    def is_inside(self) -> bool:
        """Return whether the caller is a callback."""
        return getattr(self._local, "is_ours", False)

    def close(self) -> None:
        """End the thread after its last call."""
        if self._thread.thread.ident is not None:
            self._thread.put(None)

    def _new_thread(self) -> _CallThread:
        return _CallThread(self._make, self._name)

    def _callback(self, name: str) -> _Callback | None:
        callback: _Callback | None = getattr(self._listener, name, None)
        return callback

    # The thread of the calls

    def _make(self, call: _DueCallback) -> None:
        self._local.is_ours = True
        is_first = call.name == "on_assigned"
        with self._lock:
            before = self._queued if is_first else self._begun
            call.attempts = [attempt for attempt in call.attempts if attempt in before]
            before.difference_update(call.attempts)
            if is_first:
                self._begun.update(call.attempts)
        error = self._call_callback(call.name, call.attempts)
        if is_first and error is None:
            for attempt in call.attempts:
                self._started(attempt)
            return
        if is_first:
            with self._lock:
                self._begun.difference_update(call.attempts)
            if (second := self._call_callback("on_revoked", call.attempts)) is not None:
                self._log.error("on_revoked raised after on_assigned had raised", exc_info=second)
        for attempt in call.attempts:
            self._ended(attempt, error)

    def _call_callback(self, name: str, attempts: Sequence[Attempt]) -> BaseException | None:
        """Return the error of a callback, also an exit: the worker waits for it."""
        callback = self._callback(name)
        if callback is None or not attempts:
            return None
        try:
            callback([attempt.resource for attempt in attempts])
        except BaseException as error:
            return error
        return None
