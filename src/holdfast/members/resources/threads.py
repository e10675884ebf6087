"""Runs a function for each resource, on a thread of its own.

**Rules.** The threads are daemons: a function that does not end keeps no process alive. A thread
that cannot be started is a failure of its resource.

References: Kafka Connect, which runs a task on a thread of its own.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence

from holdfast.members.resources.effects import Attempt
from holdfast.members.resources.runner import Reports, Resource, name_of
from holdfast.members.resources.stop_events import StopEvent, StopState


class ThreadRunner:
    """Calls a function on a thread for each attempt.

    Parameters
    ----------
    run : callable
        Takes a :class:`Resource` and a :class:`StopEvent`.
    reports : Reports
        Gets the start and the end of attempts.
    """

    def __init__(self, run: Callable[[Resource, StopEvent], object], reports: Reports):
        self._run = run
        self._reports = reports
        self._stops: dict[Attempt, tuple[StopState, threading.Event]] = {}
        self._own = threading.local()

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Start a thread for each attempt."""
        for attempt in attempts:
            state, event = self._stops[attempt] = StopState(), threading.Event()
            name = f"holdfast-{name_of(attempt.resource)}"
            arguments = (attempt, StopEvent(state, event))
            thread = threading.Thread(target=self._call, name=name, args=arguments, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the process may have no more threads
                self._end(attempt, error)

    def stop(self, attempts: Sequence[Attempt], deadline_s: float, *, lost: bool) -> None:
        """Set the stop events of attempts."""
        for attempt in attempts:
            if (found := self._stops.get(attempt)) is not None:
                state, event = found
                state.deadline_s = deadline_s
                state.is_lost |= lost
                state.is_set = True
                event.set()

    def lose(self, attempts: Sequence[Attempt]) -> None:
        """Mark the stop events of attempts as lost."""
        for attempt in attempts:
            if (found := self._stops.get(attempt)) is not None:
                found[0].is_lost = True

    def abandon(self, attempts: Sequence[Attempt]) -> None:
        """Mark the stop events of attempts as lost; a thread cannot be ended."""
        self.lose(attempts)

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
        self._stops.pop(attempt, None)
        self._reports.ended(attempt, error)


def _check_done(result: object) -> None:
    """Refuse the result of a function that has done nothing yet."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
        raise TypeError(f"run returned a {type(result).__name__}: give an async function")
