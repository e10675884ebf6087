"""Who ends a consumer or a worker, and when: from a handler, from another thread, or twice.

**Rules.** The first call of :meth:`Closing.close` ends it, any other waits until it has ended. A
close inside one of the application's own calls, from a signal handler that interrupted it or from a
callback, happens when that call comes out. A close beside a call on another thread waits for it, as
long as its time-out allows. Nothing here takes a lock that the interrupted thread may hold.

**Strategy.** Appending to a list and writing a dictionary are atomic, so no lock is needed; who
waits looks again every hundredth of a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident

_LOOK_S = 0.01


class Closing:
    """The end of one object that threads and signal handlers may ask for.

    Parameters
    ----------
    end : callable
        Does it; takes the seconds that are left, and whether the process comes back.
    """

    def __init__(self, end: Callable[[float, bool], None]):
        self._end = end
        self._closers: list[tuple[int]] = []  # threads, the first one ends it
        self._inside: dict[int, int] = {}  # thread to how deep it is in calls
        self._waiting: tuple[float, bool] | None = None  # a close that this call postponed
        self.is_done = False

    def has_begun(self) -> bool:
        """Whether somebody has asked for the end."""
        return bool(self._closers)

    @contextmanager
    def call(self) -> Iterator[None]:
        """The application is inside; a close that comes meanwhile on its thread happens after."""
        me = get_ident()
        self._inside[me] = self._inside.get(me, 0) + 1
        try:
            yield
        finally:
            self._inside[me] -= 1
            if not self._inside[me]:
                del self._inside[me]
                if self._waiting is not None and self._closers[0][0] == me:
                    (deadline, returns), self._waiting = self._waiting, None
                    self._finish(deadline, returns)

    def close(self, timeout_s: float, *, returns: bool) -> None:
        """End it, or wait until it has ended, for at most ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        me = get_ident()
        mine = (me,)
        self._closers.append(mine)
        first = self._closers[0]
        if first is not mine:
            while first[0] != me and not self.is_done and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
        elif me in self._inside:
            self._waiting = (deadline, returns)
        else:
            while self._inside and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            self._finish(deadline, returns)

    def _finish(self, deadline: float, returns: bool) -> None:
        try:
            self._end(max(0.0, deadline - time.monotonic()), returns)
        finally:
            self.is_done = True
