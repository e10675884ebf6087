"""A queue with one reader, and a flag to wait for, both safe against signals.

**Rules.** Any thread puts, also a signal handler or a finaliser in the middle of another put or
get. One thread gets; it never waits longer than its time-out.

**Strategy.** Each of the standard library's two queues has one fault. CPython's
``SimpleQueue.get`` waits for ever if a signal's handler lasts beyond its time-out (seen with 3.11:
a member did not end at SIGTERM). ``Queue.put`` in a signal handler waits for the lock that the
interrupted thread holds. Here a deque takes the items, and ``put`` releases one lock, which wakes
the reader: ``Lock.acquire`` keeps to its time-out. ``threading.Event`` has the fault of ``put``:
``set`` and ``wait`` take a lock that the interrupted thread may hold. :class:`Flag` does not.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Mailbox(Generic[_T]):
    """Items in the order they came.

    Attributes
    ----------
    items : collections.deque
        What waits; only to look at.
    """

    def __init__(self) -> None:
        self.items: deque[_T] = deque()
        self._news = threading.Lock()
        self._news.acquire()

    def put(self, item: _T) -> None:
        """Add an item and wake the reader."""
        self.items.append(item)
        with suppress(RuntimeError):  # news already
            self._news.release()

    def get(self, timeout: float | None = None) -> _T:
        """Take the first item; see :meth:`first`."""
        item = self.first(timeout)
        self.items.popleft()
        return item

    def first(self, timeout: float | None = None) -> _T:
        """Return the first item, and leave it there.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait; None waits for ever, 0 does not wait.

        Raises
        ------
        queue.Empty
            If no item came in time.
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


class Flag:
    """Set once, by any thread or signal handler; any number of threads wait for it."""

    def __init__(self) -> None:
        self._is_set = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        """Set the flag, and wake every waiting thread."""
        self._is_set = True
        self._open()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most ``timeout`` seconds; return whether it is."""
        left = -1 if timeout is None else min(timeout, threading.TIMEOUT_MAX)
        if not self._is_set:
            try:
                self._gate.acquire(timeout=left)
            finally:  # also if a handler raises: it may have been acquired
                if self.is_set():
                    self._open()  # for the next one that waits
        return self._is_set

    def _open(self) -> None:
        """Leave the gate open, also if a second ``set`` or another waiter opened it meanwhile."""
        with suppress(RuntimeError):  # open already
            self._gate.release()
