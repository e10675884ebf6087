"""Runs the work on resources on threads: a function for each, or callbacks with all of them.

**Rules.** :class:`ThreadRunner` has a thread for each attempt. The threads are daemons: a function
that does not end keeps no process alive. A thread that cannot be started is a failure of its
resource.

:class:`ListenerRunner` calls the callbacks of a listener with all resources of a round, one at a
time, on a thread of their own. If a callback is past its deadline, the next ones run on another
thread. If ``on_assigned`` raises, ``on_revoked`` is called for the same resources, so that started
work ends, and each resource is retried by a call of its own. For resources whose ``on_assigned``
was not called, no other callback is called.

**Strategy.** A listener's thread has a queue of calls. A call that has not begun can be dropped, in
whole or in part.

References: Kafka Connect, which runs a task on a thread of its own; KIP-429
(``ConsumerRebalanceListener``).
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence

from holdfast.cluster.signal_safe import Mailbox
from holdfast.members.resources.attempts import (
    Attempt,
    Ended,
    Resource,
    Started,
    StopEvent,
    resource_name,
)
from holdfast.members.runtime.member_status import Log


class ThreadRunner:
    """Calls a function on a thread for each attempt."""

    def __init__(self, run: Callable[[Resource, StopEvent], object], ended: Ended):
        self._run = run
        self._ended = ended
        self._events: dict[Attempt, threading.Event] = {}
        self._own = threading.local()

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
        return getattr(self._own, "is_ours", False)

    def close(self) -> None:
        """Do nothing: threads that still run end with the process."""

    def _call(self, attempt: Attempt, stop: StopEvent) -> None:
        self._own.is_ours = True
        try:
            _check_done(self._run(Resource(*attempt.resource), stop))
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
        self._own = threading.local()
        self._thread = self._new_thread()

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Call ``on_assigned``: once for all first attempts, and once for each retry."""
        new = [attempt for attempt in attempts if not attempt.is_again]
        groups = [new, *([attempt] for attempt in attempts if attempt.is_again)]
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
            hidden = [attempt for attempt in attempts if attempt in self._queued]
            self._queued.difference_update(hidden)
        for attempt in hidden:
            self._ended(attempt, None)
        if begun := [attempt for attempt in attempts if attempt not in hidden]:
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
        return getattr(self._own, "is_ours", False)

    def close(self) -> None:
        """End the thread after its last call."""
        if self._thread.thread.ident is not None:
            self._thread.put(None)

    def _new_thread(self) -> _CallThread:
        return _CallThread(self._make, self._name)

    def _callback(self, name: str) -> _Callback | None:
        found: _Callback | None = getattr(self._listener, name, None)
        return found

    # The thread of the calls

    def _make(self, call: _DueCallback) -> None:
        self._own.is_ours = True
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
            callback([Resource(*attempt.resource) for attempt in attempts])
        except BaseException as error:
            return error
        return None
