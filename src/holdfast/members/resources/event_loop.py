"""Runs a coroutine for each resource, all on one event loop with a thread of its own.

**Rules.** The loop belongs to the worker: a program's own loop is not used. A coroutine past its
deadline is cancelled. The loop ends with the worker; coroutines that still run are cancelled, too.

References: ``asyncio.Runner``, which ends a loop in the same order.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from holdfast.members.resources.attempts import (
    AsyncStopEvent,
    Attempt,
    Ended,
    Resource,
    resource_name,
)

_END_S = 1.0  # time for cancelled coroutines to end when the loop ends


class LoopRunner:
    """Runs a task of asyncio for each attempt."""

    def __init__(self, run: Callable[[Resource, AsyncStopEvent], Awaitable[object]], ended: Ended):
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
        self._loop.call_soon_threadsafe(self._set, tuple(attempts))

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
            event = self._events[attempt] = asyncio.Event()
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
            await self._run(Resource(*attempt.resource), stop)
        except asyncio.CancelledError:
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

    def _set(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            if (event := self._events.get(attempt)) is not None:
                event.set()

    def _cancel(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            if (task := self._tasks.get(attempt)) is not None:
                task.cancel()
