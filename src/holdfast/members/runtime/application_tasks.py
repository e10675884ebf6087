"""Tasks that the application's thread does for the member, and the mailbox in which they wait.

**Rules.** Any line on the application's thread may raise: a signal handler may raise there. So a
task is answered in every case. If an exception interrupts it, it goes back to the head of the
queue, and the application's next call, a close at the latest, repeats it. The second time it is
answered, whatever is raised. A callback of the application is called once, however often its task
is begun, and an error of the callback is no interruption: the task returns it.

**Strategy.** A task leaves its mailbox inside the ``try`` that puts it back. Removed before,
it would be lost to an exception between the two. Closing a client is repeated once in the same way:
:func:`run_to_end`.

References: Python, ``signal``, "Note on Signal Handlers and Exceptions".
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Mailbox(Generic[_T]):
    """A queue with one reader, safe against signals as :mod:`holdfast.cluster.signal_safe` is.

    Any thread may put, also a signal handler or a finaliser in the middle of another put or get.
    One thread gets; it never waits longer than its time-out. Others may read ``items``.

    Each of the standard library's two queues has one fault. CPython's ``SimpleQueue.get`` waits for
    ever if a signal handler lasts beyond its time-out (seen with 3.11: a member did not end at
    SIGTERM). ``Queue.put`` in a signal handler waits for the lock that the interrupted thread
    holds. Here a deque takes the items, and ``put`` releases one lock, which wakes the reader:
    ``Lock.acquire`` keeps to its time-out.
    """

    def __init__(self) -> None:
        self.items: deque[_T] = deque()
        self._news = threading.Lock()
        self._news.acquire()

    def put(self, item: _T) -> None:
        """Add an item and wake the reader."""
        self.items.append(item)
        with suppress(RuntimeError):  # already released
            self._news.release()

    def get(self, timeout: float | None = None) -> _T:
        """Remove and return the first item; see :meth:`first`."""
        item = self.first(timeout)
        self.items.popleft()
        return item

    def first(self, timeout: float | None = None) -> _T:
        """Return the first item without removing it, or raise ``queue.Empty``.

        A ``timeout`` is in seconds; None waits for ever, 0 does not wait.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self.items:
                return self.items[0]
            left = -1 if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._news.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
                if self.items:
                    continue
                raise queue.Empty


def _ignore(_: BaseException | None) -> None:
    """Ignore the result: no thread waits for it."""


class ApplicationTask:
    """One task, and the function that takes its result: the error of a callback, or None.

    An interrupted ``work`` is called again.
    """

    def __init__(
        self,
        work: Callable[..., BaseException | None],
        answer: Callable[[BaseException | None], None] = _ignore,
    ):
        self._work = work
        self.answer = answer
        self.was_interrupted = False

    def run(self, *arguments: object) -> BaseException | None:
        """Do the task, answer, and return the error of a callback."""
        error = self._work(*arguments)
        self.answer(error)
        return error


class ApplicationTasks(Mailbox[ApplicationTask]):
    """Tasks in the order of their arrival; one thread does them."""

    def do_next(self, timeout: float, *arguments: object) -> BaseException | None:
        """Do the first task, which may do later ones itself; return the error of a callback."""
        task = self.first(timeout)
        try:
            self.items.popleft()
            return task.run(*arguments)
        except BaseException as error:
            if task.was_interrupted:
                task.answer(error)
            elif task not in self.items:
                task.was_interrupted = True
                self.items.appendleft(task)
            raise

    def do_all(self, timeout: float, *arguments: object) -> tuple[int, BaseException | None]:
        """Do all queued tasks, the first within ``timeout``; return their number and last error."""
        n_done, last = 0, None
        while True:
            try:
                last = self.do_next(0.0 if n_done else timeout, *arguments) or last
            except queue.Empty:
                return n_done, last
            n_done += 1


class Once:
    """Calls a callback of the application, once."""

    def __init__(self) -> None:
        self.was_called = False
        self._error: BaseException | None = None

    def __call__(self, callback: Callable[..., object], *arguments: object) -> BaseException | None:
        """Call it unless it was called; return its error."""
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
