"""The calls of a consumer or a worker: tasks that they do for the member; close, signals and forks.

**Rules.** The first call of :meth:`ApplicationCalls.close` ends the object, every other call waits
until it has ended. Inside one of the application's own calls, from a signal handler that
interrupted it or from a callback, a close takes effect when that call returns. So does everything
else that would wait for that call, such as leaving the group or joining it again
(:meth:`ApplicationCalls.run_after`). A close during a call on another thread waits for that call,
within its time-out; a call that waits for records returns as soon as the close has begun. This
module takes no lock that the interrupted thread may hold. A close that an exception has interrupted
is repeated once, and the next close of the same thread continues where it ended.

Any line on the application's thread may raise: a signal handler may raise there. So a task is
answered in every case. If an exception interrupts it, it goes back to the head of the queue, and
the application's next call, a close at the latest, repeats it. The second time it is answered,
whatever is raised. A callback of the application is called once, however often its task is begun,
and an error of the callback is no interruption: the task returns it.

**Strategy.** Appending to a list and removing from it are atomic, so no lock is needed; a waiting
thread polls every hundredth of a second. A call is recorded in a ``try`` of its own: in a context
manager an exception of a signal handler may come before that ``try`` begins. A client whose
shortest calls are too quick for that reports its running calls itself. A task leaves its mailbox
inside the ``try`` that puts it back; an end is repeated once in the same way: :func:`run_to_end`.

References: Python, ``signal``, "Note on Signal Handlers and Exceptions"; POSIX, ``fork`` (only the
calling thread is copied), and 128 + the signal's number as exit code; Java's shutdown hooks end
with the same codes.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from inspect import ismethod
from threading import get_ident
from types import FrameType
from typing import Any, TypeVar
from weakref import WeakMethod

from holdfast.cluster.signal_safe import Mailbox
from holdfast.errors import LocalProtocolError

_POLL_S = 0.01
_T = TypeVar("_T")


class ApplicationCalls:
    """The application's calls of one object, and the end that threads and signals may request.

    Parameters
    ----------
    end : callable
        Ends the object; takes the seconds left, and whether the member comes back, None if the
        program has not said. If it is interrupted, it is called again.
    """

    def __init__(self, end: Callable[[float, bool | None], None]):
        # Weakly, or a forgotten consumer would wait for Python's garbage collector.
        self._end = WeakMethod(end) if ismethod(end) else lambda: end
        self.process = MemberProcess()
        self._close_callers: list[int] = []  # callers; the first one ends the object
        self._inside: dict[object, int] = {}  # the caller of each running call
        self._postponed: list[tuple[int, Callable[[], None]]] = []  # by callers
        self._is_end_scheduled = False  # the end is postponed, or running
        self.is_pending = False  # the close has begun, or something waits for a call to return
        self.is_stopped = False  # the program has requested the end of its loop
        self.is_done = False

    def is_closing(self) -> bool:
        """Return whether a close was requested."""
        return bool(self._close_callers)

    # Calls

    def caller(self) -> int:
        """Return the caller: a thread."""
        return get_ident()

    def is_in_call(self) -> bool:
        """Return whether the caller is inside one of its calls: in a callback, or in a handler."""
        return self.caller() in list(self._inside.values())

    def has_calls(self) -> bool:
        """Return whether any call is running."""
        return bool(self._inside)

    def has_other_calls(self) -> bool:
        """Return whether a call of another caller is running."""
        me = self.caller()
        return any(by != me for by in list(self._inside.values()))

    def run(self, call: Callable[[], _T]) -> _T:
        """Make a call of the application; postponed work is done after it."""
        self.process.check()
        entry = object()
        try:
            self._inside[entry] = self.caller()
            try:
                return call()
            finally:
                self._end_call(entry)
        finally:
            self._end_call(entry)  # again: an exception may have interrupted the first

    def _end_call(self, entry: object) -> None:
        self._inside.pop(entry, None)
        self.do_postponed()

    def run_after(self, work: Callable[[], None]) -> None:
        """Do ``work`` as a call of its own; inside another call, when that call returns."""
        if not self.is_in_call():
            self.run(work)
            return
        self.process.check()
        self._postpone(work)

    def _postpone(self, work: Callable[[], None]) -> None:
        self._postponed.append((self.caller(), work))
        self.is_pending = True

    def should_return(self) -> bool:
        """Return whether a call of the caller should return: for a close, or for postponed work."""
        me = self.caller()
        return self.is_closing() or any(by == me for by, _ in list(self._postponed))

    def do_postponed(self) -> None:
        """Do what the caller has postponed, in order, unless it is inside a call."""
        if not self._postponed or self.is_in_call():
            return
        me = self.caller()
        while one := next((one for one in list(self._postponed) if one[0] == me), None):
            try:
                self._postponed.remove(one)
                self.run(one[1])  # which does the next ones when it returns
            except Exception:
                raise
            except BaseException:  # interrupted: the next call that returns continues
                if one not in self._postponed:
                    self._postponed.insert(0, one)
                raise
        self.is_pending = self.is_closing() or bool(self._postponed)

    # The end

    def close(self, timeout_s: float, *, returns: bool | None = None) -> None:
        """End the object, or wait until it has ended, for at most ``timeout_s``."""
        self.process.check()
        deadline = time.monotonic() + timeout_s
        me = self.caller()
        self._close_callers.append(me)
        self.is_pending = True
        if self.is_in_call():
            if self._close_callers[0] == me and not self._is_end_scheduled:
                self._is_end_scheduled = True
                self._postpone(lambda: self._finish(deadline, returns))
        elif self._close_callers[0] != me:
            while not self.is_done and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        elif not self.is_done:
            while self.has_calls() and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            self._is_end_scheduled = True  # a callback of the end may call close, too
            self.run(lambda: self._finish(deadline, returns))

    def _finish(self, deadline: float, returns: bool | None) -> None:
        try:
            run_to_end(lambda: self._call_end(max(0.0, deadline - time.monotonic()), returns))
            self.is_done = True
        except Exception:  # of a callback, say; everything is closed by then
            self.is_done = True
            raise

    def _call_end(self, left_s: float, returns: bool | None) -> None:
        end = self._end()
        assert end is not None  # whose close this is
        end(left_s, returns)


def _ignore(_: BaseException | None) -> None:
    """Ignore the result: no thread waits for it."""


@dataclass(eq=False, slots=True)
class ApplicationTask:
    """One task, and the function that takes its result: the error of a callback, or None.

    An interrupted ``work`` is called again.
    """

    work: Callable[[], BaseException | None]
    on_done: Callable[[BaseException | None], None] = _ignore
    was_interrupted: bool = False


class ApplicationTasks(Mailbox[ApplicationTask]):
    """Tasks in the order of their arrival; one thread does them."""

    def do_next(self, timeout: float) -> BaseException | None:
        """Do the first task, which may do later ones itself; return the error of a callback."""
        task = self.first(timeout)
        try:
            self.items.popleft()
            result = task.work()
            task.on_done(result)
        except BaseException as error:
            if task.was_interrupted:
                task.on_done(error)
            elif task not in self.items:
                task.was_interrupted = True
                self.items.appendleft(task)
            raise
        return result

    def do_all(self, timeout: float) -> tuple[int, BaseException | None]:
        """Do all queued tasks, the first within ``timeout``; return their number and last error."""
        n_done, last = 0, None
        while True:
            try:
                last = self.do_next(0.0 if n_done else timeout) or last
            except queue.Empty:
                return n_done, last
            n_done += 1


class Once:
    """Calls a callback of the application, once."""

    def __init__(self) -> None:
        self.was_called = False
        self._error: BaseException | None = None

    def __call__(self, callback: Callable[..., object], *arguments: object) -> BaseException | None:
        """Call ``callback`` unless one was called; return its error."""
        if not self.was_called:
            try:
                self.was_called = True
                callback(*arguments)
            except BaseException as error:  # even Ctrl-C in a callback ends it
                self._error = error
        return self._error


def run_to_end(end: Callable[[], None]) -> None:
    """End something; if interrupted, call ``end`` once more, then raise the interruption.

    ``end`` continues where it was interrupted, and does nothing if everything is done.
    """
    try:
        end()
    except BaseException:
        with suppress(Exception):  # the first error is the one to raise
            end()
        raise


class MemberProcess:
    """The process that made a member, by its process id.

    ``os.fork`` copies a member's objects and none of its threads: in the copy no thread sends
    heartbeats, answers, or ever releases a lock. So each call of a copy raises at once, and the
    member continues in the process that made it. The finaliser of a forgotten member does nothing
    in a copy: a wait would never end there, and sockets and epoll sets are shared with the parent.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()

    def is_current(self) -> bool:
        """Return whether this is that process, not a fork of it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise LocalProtocolError if this is a child of ``os.fork``."""
        if not self.is_current():
            raise LocalProtocolError(
                f"this member runs in process {self._pid}, and this is a fork of it, process "
                f"{os.getpid()}: make a new one here, or start processes with spawn"
            )


_OURS: Mapping[signal.Signals, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}
_watches: list[EndSignals] = []


class EndSignals:
    """The signals that end one ``with`` block: SIGTERM and SIGINT.

    Only a signal without another handler is handled, and only in the main thread: a program or a
    framework with a handler of its own keeps it. The first signal ends a consumer's loop at its
    next poll, so the batch in flight is finished and committed; ``at_once`` it ends a worker's
    block, because the work is done in callbacks. A second signal raises at once, at any line of the
    program. SIGTERM raises ``SystemExit(143)``, SIGINT ``KeyboardInterrupt`` (130): the block then
    revokes everything and leaves. A fork inside the block has the old handlers: otherwise no signal
    would end it. One handler serves all members of the process; the last one that ends restores the
    old handlers.
    """

    def __init__(self, *, at_once: bool = False):
        self.at_once = at_once
        self.caught: signal.Signals | None = None

    def watch(self) -> None:
        """Start watching; does nothing outside of the main thread."""
        if not _is_main():
            return
        _watches.append(self)
        for number in _OURS:
            if _is_free(number):
                signal.signal(number, _catch)

    def end(self) -> None:
        """Stop watching."""
        if self not in _watches:
            return
        _watches.remove(self)
        if not _watches:
            _restore_handlers()

    def raise_caught(self) -> None:
        """Raise the exception of the caught signal, if any."""
        if self.caught is not None:
            raise _exit_of(self.caught)


def _restore_handlers() -> None:
    for number, default in _OURS.items():
        if signal.getsignal(number) is _catch:
            signal.signal(number, default)


def _forget_all() -> None:
    _watches.clear()
    _restore_handlers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _is_free(number: signal.Signals) -> bool:
    """Return whether a signal has no other handler and can be handled here, in the main thread."""
    return _is_main() and signal.getsignal(number) is _OURS[number]


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _exit_of(number: signal.Signals) -> BaseException:
    """Return the exception that ends a program as the signal does."""
    return KeyboardInterrupt() if number is signal.SIGINT else SystemExit(128 + number)


def _catch(number: int, frame: FrameType | Any) -> None:
    caught = signal.Signals(number)
    is_second = any(watch.caught for watch in _watches)
    for watch in _watches:
        watch.caught = caught
    if is_second or any(watch.at_once for watch in _watches):
        raise _exit_of(caught)
