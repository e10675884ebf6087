"""A queue with one reader, safe against signals as :mod:`holdfast.cluster.signal_safe` is.

**Rules.** Any thread may put, also a signal handler or a finaliser in the middle of another put or
get. One thread gets; it never waits longer than its time-out.

**Strategy.** Each of the standard library's two queues has one fault. CPython's
``SimpleQueue.get`` waits for ever if a signal handler lasts beyond its time-out (seen with 3.11:
a member did not end at SIGTERM). ``Queue.put`` in a signal handler waits for the lock that the
interrupted thread holds. Here a deque takes the items, and ``put`` releases one lock, which wakes
the reader: ``Lock.acquire`` keeps to its time-out.
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
    """Items in the order of their arrival.

    Attributes
    ----------
    items : collections.deque
        The waiting items; read-only for others.
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
        """Return the first item without removing it.

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
