"""Which call ends a consumer or a worker, and when: in a handler, on another thread, or twice.

**Rules.** The first call of :meth:`Closing.close` ends it, any other waits until it has ended. A
close inside one of the application's own calls, from a signal handler that interrupted it or from a
callback, happens when that call comes out, and so does everything else that would wait for that
call (:meth:`Closing.outside`): leaving the group, joining it again. A close beside a call on
another thread waits for it, as long as its time-out allows; a call that waits for records comes out
as soon as the end has begun. Nothing here takes a lock that the interrupted thread may hold. A
close that an exception has interrupted goes on, and so does the next close of the same thread.

**Strategy.** Appending to a list and taking from it are atomic, so no lock is needed; a waiting
thread looks again every hundredth of a second. A call is noted in a ``try`` of its own: in a
context manager an exception of a signal's handler may come before that ``try`` begins. A client
whose shortest calls are too quick for that says by itself whether one is under way.
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
    """The end of one object that threads and signal handlers may ask for.

    Parameters
    ----------
    end : callable
        Does it; takes the seconds that are left, and whether the member comes back, None if the
        program has not said. If it is interrupted, it is called again.

    Attributes
    ----------
    is_pending : bool
        Whether the end has begun, or something waits for a call to come out.
    """

    def __init__(self, end: Callable[[float, bool | None], None]):
        # Weakly, or a consumer that is forgotten would wait for Python's collector.
        self._end = WeakMethod(end) if ismethod(end) else lambda: end
        self._process = OwnProcess()
        self._closers: list[int] = []  # callers, the first one ends it
        self._inside: dict[object, int] = {}  # the caller of each call that is under way
        self._postponed: list[tuple[int, Callable[[], None]]] = []  # by callers
        self._is_arranged = False  # the end is postponed, or under way
        self.is_pending = False
        self.is_done = False

    def has_begun(self) -> bool:
        """Whether somebody has asked for the end."""
        return bool(self._closers)

    def check(self) -> None:
        """Raise if this is another process, such as a fork."""
        self._process.check()

    def is_here(self) -> bool:
        """Whether this is the process of the object, and no fork of it."""
        return self._process.is_this()

    # Calls

    def caller(self) -> int:
        """Return who calls: a thread."""
        return get_ident()

    def is_inside(self) -> bool:
        """Whether the caller is inside one of its calls: in a callback, or in a handler."""
        return self.caller() in list(self._inside.values())

    def has_calls(self) -> bool:
        """Whether any call is under way."""
        return bool(self._inside)

    def has_other_calls(self) -> bool:
        """Whether a call of somebody else is under way."""
        me = self.caller()
        return any(by != me for by in list(self._inside.values()))

    def inside(self, call: Callable[[], _T]) -> _T:
        """Make a call of the application; what is asked for inside it happens after it."""
        self.check()
        entry = object()
        try:
            self._inside[entry] = self.caller()
            try:
                return call()
            finally:
                self._come_out(entry)
        finally:
            self._come_out(entry)  # again: an exception may have come into the first

    def _come_out(self, entry: object) -> None:
        self._inside.pop(entry, None)
        self.do_postponed()

    def outside(self, work: Callable[[], None]) -> None:
        """Do ``work`` as a call of its own; inside another call, when that one comes out."""
        if not self.is_inside():
            self.inside(work)
            return
        self.check()
        self._postpone(work)

    def _postpone(self, work: Callable[[], None]) -> None:
        self._postponed.append((self.caller(), work))
        self.is_pending = True

    def is_coming_out(self) -> bool:
        """Whether a call of the caller is to come out: the end has begun, or something waits."""
        me = self.caller()
        return self.has_begun() or any(by == me for by, _ in list(self._postponed))

    def do_postponed(self) -> None:
        """Do what the caller has postponed, in order, if it is inside no call."""
        if not self._postponed or self.is_inside():
            return
        me = self.caller()
        while one := next((one for one in list(self._postponed) if one[0] == me), None):
            try:
                self._postponed.remove(one)
                self.inside(one[1])  # which does the next ones when it comes out
            except Exception:
                raise
            except BaseException:  # interrupted: whoever comes out next goes on
                if one not in self._postponed:
                    self._postponed.insert(0, one)
                raise
        self.is_pending = self.has_begun() or bool(self._postponed)

    # The end

    def close(self, timeout_s: float, *, returns: bool | None = None) -> None:
        """End it, or wait until it has ended, for at most ``timeout_s``."""
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
            self._is_arranged = True  # a callback of the end may close, too
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
