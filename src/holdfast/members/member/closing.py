"""Which call ends a consumer or a worker, and when: in a handler, on another thread, or twice.

**Rules.** The first call of :meth:`Closing.close` ends it, any other waits until it has ended. A
close inside one of the application's own calls, from a signal handler that interrupted it or from a
callback, happens when that call comes out. A close beside a call on another thread waits for it, as
long as its time-out allows. Nothing here takes a lock that the interrupted thread may hold. A close
that an exception has interrupted goes on, and so does the next close of the same thread.

**Strategy.** Appending to a list and taking from it are atomic, so no lock is needed; a waiting
thread looks again every hundredth of a second. A call is noted in a ``try`` of its own: in a
context manager an exception of a signal's handler may come before that ``try`` begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident
from typing import TypeVar

from holdfast.members.member.errands import to_the_end
from holdfast.members.member.process import OwnProcess

_LOOK_S = 0.01
_T = TypeVar("_T")


class Closing:
    """The end of one object that threads and signal handlers may ask for.

    Parameters
    ----------
    end : callable
        Does it; takes the seconds that are left, and whether the process comes back. If it is
        interrupted, it is called again.
    """

    def __init__(self, end: Callable[[float, bool], None]):
        self._end = end
        self._process = OwnProcess()
        self._closers: list[int] = []  # threads, the first one ends it
        self._inside: dict[object, int] = {}  # the thread of each call that is under way
        self._waiting: tuple[float, bool] | None = None  # a close that this call postponed
        self.is_done = False

    def has_begun(self) -> bool:
        """Whether somebody has asked for the end."""
        return bool(self._closers)

    def inside(self, call: Callable[[], _T]) -> _T:
        """Make a call of the application; a close on its thread meanwhile happens after it."""
        self._process.check()
        entry = object()
        try:
            self._inside[entry] = get_ident()
            try:
                return call()
            finally:
                self._come_out(entry)
        finally:
            self._come_out(entry)  # again: an exception may have come into the first

    def _come_out(self, entry: object) -> None:
        self._inside.pop(entry, None)
        if self._waiting is not None and self._closers[0] == get_ident() and not self._is_inside():
            self._finish(*self._waiting)

    def _is_inside(self) -> bool:
        return get_ident() in list(self._inside.values())

    def close(self, timeout_s: float, *, returns: bool) -> None:
        """End it, or wait until it has ended, for at most ``timeout_s``."""
        self._process.check()
        deadline = time.monotonic() + timeout_s
        me = get_ident()
        self._closers.append(me)
        if self._closers[0] != me:
            while not self.is_done and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
        elif self._is_inside():
            self._waiting = self._waiting or (deadline, returns)
        elif not self.is_done:
            while self._inside and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            self._finish(deadline, returns)

    def _finish(self, deadline: float, returns: bool) -> None:
        entry = object()  # a callback of the end may close, too
        try:
            self._inside[entry] = get_ident()
            to_the_end(lambda: self._end(max(0.0, deadline - time.monotonic()), returns))
            self.is_done = True
        except Exception:  # of a callback, say; everything is closed by then
            self.is_done = True
            raise
        finally:
            self._inside.pop(entry, None)
            self._waiting = None
