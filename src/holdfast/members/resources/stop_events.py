"""Events by which the work on one resource learns that it has to end.

**Rules.** The event is set once: when the resource is revoked or lost, or the worker ends. From
then on the work has ``seconds_left`` to end. ``is_lost`` is true as soon as another worker may have
begun: the resource was lost, or the deadline has passed. The work must not save state from then on.

**Strategy.** The supervisor writes a :class:`StopState`; the program's event reads it.

References: ``threading.Event`` and ``asyncio.Event``, whose names are kept; Kafka Connect's
``task.shutdown.graceful.timeout.ms``.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


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
