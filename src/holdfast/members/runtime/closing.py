"""Closing of a consumer or a worker: in a handler, on another thread, or twice.

**Rules.** The first call of :meth:`Closing.close` ends the object, every other call waits until it
has ended. Inside one of the application's own calls, from a signal handler that interrupted it or
from a callback, a close takes effect when that call returns, and so does everything else that would
wait for that call (:meth:`Closing.outside`): leaving the group, joining it again. A close during a
call on another thread waits for it, within its time-out; a call that waits for records returns as
soon as the close has begun. This module takes no lock that the interrupted thread may hold. A close
that an exception has interrupted continues, and so does the next close of the same thread.

**Strategy.** Appending to a list and removing from it are atomic, so no lock is needed; a waiting
thread polls every hundredth of a second. A call is recorded in a ``try`` of its own: in a context
manager an exception of a signal handler may come before that ``try`` begins. A client whose
shortest calls are too quick for that reports its running calls itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from inspect import ismethod
from threading import get_ident
from typing import TypeVar
from weakref import WeakMethod

from holdfast.members.runtime.application_tasks import to_the_end
from holdfast.members.runtime.process import OwnProcess

_LOOK_S = 0.01
_T = TypeVar("_T")


class Closing:
    """The end of one object, which threads and signal handlers may request.

    Parameters
    ----------
    end : callable
        Ends the object; takes the seconds left, and whether the member comes back, None if the
        program has not said. If it is interrupted, it is called again.

    Attributes
    ----------
    is_pending : bool
        Whether the close has begun, or something waits for a call to return.
    """

    def __init__(self, end: Callable[[float, bool | None], None]):
        # Weakly, or a forgotten consumer would wait for Python's garbage collector.
        self._end = WeakMethod(end) if ismethod(end) else lambda: end
        self._process = OwnProcess()
        self._closers: list[int] = []  # callers; the first one ends the object
        self._inside: dict[object, int] = {}  # the caller of each running call
        self._postponed: list[tuple[int, Callable[[], None]]] = []  # by callers
        self._is_arranged = False  # the end is postponed, or running
        self.is_pending = False
        self.is_done = False

    def has_begun(self) -> bool:
        """Return whether a close was requested."""
        return bool(self._closers)

    def check(self) -> None:
        """Raise if this is another process, such as a fork."""
        self._process.check()

    def is_here(self) -> bool:
        """Return whether this is the process of the object, not a fork of it."""
        return self._process.is_this()

    # Calls

    def caller(self) -> int:
        """Return the caller: a thread."""
        return get_ident()

    def is_inside(self) -> bool:
        """Return whether the caller is inside one of its calls: in a callback, or in a handler."""
        return self.caller() in list(self._inside.values())

    def has_calls(self) -> bool:
        """Return whether any call is running."""
        return bool(self._inside)

    def has_other_calls(self) -> bool:
        """Return whether a call of another caller is running."""
        me = self.caller()
        return any(by != me for by in list(self._inside.values()))

    def inside(self, call: Callable[[], _T]) -> _T:
        """Make a call of the application; postponed work is done after it."""
        self.check()
        entry = object()
        try:
            self._inside[entry] = self.caller()
            try:
                return call()
            finally:
                self._come_out(entry)
        finally:
            self._come_out(entry)  # again: an exception may have interrupted the first

    def _come_out(self, entry: object) -> None:
        self._inside.pop(entry, None)
        self.do_postponed()

    def outside(self, work: Callable[[], None]) -> None:
        """Do ``work`` as a call of its own; inside another call, when that call returns."""
        if not self.is_inside():
            self.inside(work)
            return
        self.check()
        self._postpone(work)

    def _postpone(self, work: Callable[[], None]) -> None:
        self._postponed.append((self.caller(), work))
        self.is_pending = True

    def is_coming_out(self) -> bool:
        """Return whether a call of the caller should return: for a close, or for postponed work."""
        me = self.caller()
        return self.has_begun() or any(by == me for by, _ in list(self._postponed))

    def do_postponed(self) -> None:
        """Do what the caller has postponed, in order, unless it is inside a call."""
        if not self._postponed or self.is_inside():
            return
        me = self.caller()
        while one := next((one for one in list(self._postponed) if one[0] == me), None):
            try:
                self._postponed.remove(one)
                self.inside(one[1])  # which does the next ones when it returns
            except Exception:
                raise
            except BaseException:  # interrupted: the next call that returns continues
                if one not in self._postponed:
                    self._postponed.insert(0, one)
                raise
        self.is_pending = self.has_begun() or bool(self._postponed)

    # The end

    def close(self, timeout_s: float, *, returns: bool | None = None) -> None:
        """End the object, or wait until it has ended, for at most ``timeout_s``."""
        self.check()
        deadline = time.monotonic() + timeout_s
        me = self.caller()
        self._closers.append(me)
        self.is_pending = True
        if self.is_inside():
            if self._closers[0] == me and not self._is_arranged:
                self._is_arranged = True
                self._postpone(lambda: self._finish(deadline, returns))
        elif self._closers[0] != me:
            while not self.is_done and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
        elif not self.is_done:
            while self.has_calls() and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            self._is_arranged = True  # a callback of the end may call close, too
            self.inside(lambda: self._finish(deadline, returns))

    def _finish(self, deadline: float, returns: bool | None) -> None:
        try:
            to_the_end(lambda: self._ended(max(0.0, deadline - time.monotonic()), returns))
            self.is_done = True
        except Exception:  # of a callback, say; everything is closed by then
            self.is_done = True
            raise

    def _ended(self, left_s: float, returns: bool | None) -> None:
        end = self._end()
        assert end is not None  # whose close this is
        end(left_s, returns)
