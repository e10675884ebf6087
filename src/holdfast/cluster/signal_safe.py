"""A flag, a mailbox and a future to wait for, all safe against signal handlers that raise.

**The fault.** A signal handler runs on the application's thread, between two steps of the
interpreter, and may raise. ``threading.Event``, ``concurrent.futures.Future`` and kafka-python's
``Future`` take their lock in a step of its own, or in a function written in Python. An exception
that comes between that step and the block that releases the lock leaves it held for ever, and the
thread that answers waits for it (seen with 3.11: Ctrl-C in a callback, and the member's IO thread
and ``close`` never ended). A handler that uses such an object itself waits for its own thread.

**Strategy.** ``with`` on a lock written in C enters and leaves it in one step each. Nothing here
waits while it holds a lock.

References: Python, ``signal``, "Note on Signal Handlers and Exceptions".
"""

from __future__ import annotations

import _thread
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, TypeVar

_T = TypeVar("_T")
_U = TypeVar("_U")


class Flag:
    """A flag that any thread or signal handler sets once; any number of threads wait for it."""

    def __init__(self) -> None:
        self._is_set = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        """Set the flag, and wake every waiting thread."""
        self._is_set = True
        self._open()

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, at most ``timeout`` seconds; return whether it is."""
        left = -1 if timeout is None else min(timeout, threading.TIMEOUT_MAX)
        if not self._is_set:
            try:
                self._gate.acquire(timeout=left)
            finally:  # also if a handler raises: it may have been acquired
                if self.is_set():
                    self._open()  # for the next waiter
        return self._is_set

    def _open(self) -> None:
        """Leave the gate open, also if a second ``set`` or another waiter has opened it."""
        with suppress(RuntimeError):  # already open
            self._gate.release()


class Mailbox(Generic[_T]):
    """A queue with one reader, safe against signals.

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


class _Condition(_thread.RLock):  # type: ignore[misc] # final for mypy, and not for Python
    """The part of a ``threading.Condition`` that a future needs; no thread waits in it."""

    def __init__(self) -> None:
        self.over = Flag()

    def notify_all(self) -> None:
        """Record that the future is done."""
        self.over.set()

    def wait(self, timeout: float | None) -> bool:
        """Return at once: threads wait before, and without the lock."""
        return self.over.is_set()


class SignalSafeFuture(Future[_T]):
    """A future for whose result the application's thread may wait."""

    _condition: _Condition  # type: ignore[assignment] # has all that the base asks of it

    def __init__(self) -> None:
        super().__init__()
        self._condition = _Condition()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the future is done, at most ``timeout`` seconds; return whether it is."""
        return self._condition.over.wait(timeout)

    def result(self, timeout: float | None = None) -> _T:
        """Return the result like ``Future.result``; TimeoutError after ``timeout`` seconds."""
        self.wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error like ``Future.exception``; TimeoutError after ``timeout`` seconds."""
        self.wait(timeout)
        return super().exception(0)


def wait_for_all(answers: Iterable[SignalSafeFuture[_T]], timeout_s: float) -> None:
    """Wait until all futures are done, at most ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    for answer in answers:
        answer.wait(max(0.0, deadline - time.monotonic()))


def and_then(first: Future[_T], go_on: Callable[[_T], _U | Future[_U]]) -> SignalSafeFuture[_U]:
    """Return the future of ``go_on(result of first)``, which may be a future; errors pass on."""
    second: SignalSafeFuture[_U] = SignalSafeFuture()

    def settle(ask: Callable[[], _U | Future[_U]]) -> None:
        try:
            found = ask()
            if isinstance(found, Future):
                found.add_done_callback(lambda done: settle(done.result))
            else:
                second.set_result(found)
        except Exception as error:
            second.set_exception(error)

    first.add_done_callback(lambda done: settle(lambda: go_on(done.result())))
    return second
