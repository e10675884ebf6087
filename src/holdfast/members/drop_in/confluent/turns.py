"""Whose turn it is to call a consumer, and how long one slice of a call may wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from confluent_kafka import cimpl

SLICE_S = 0.025
"""How long a change may wait for a poll."""
_identity = getattr(cimpl, "_reentry_identity_var", None)
has_gate = _identity is not None
"""Whether confluent-kafka's own calls wait for each other."""


class Turn:
    """One caller at a time; a callback of the same caller is let in: ``with turn.mine():``.

    A thread's turn is a lock itself, and no context manager of ours, in which an exception of a
    signal's handler could leave the lock for ever. Signals never reach the threads of AIOConsumer.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._caller = 0

    def mine(self) -> AbstractContextManager[object]:
        """The turn of this caller."""
        # AIOConsumer's threads say for whom they call, any other thread calls for itself.
        caller = _identity.get() if _identity is not None else 0
        return self._of(caller) if caller else self._lock

    @contextmanager
    def _of(self, caller: int) -> Iterator[None]:
        if caller == self._caller:  # its callback, on another thread
            yield
            return
        with self._lock:
            self._caller = caller
            try:
                yield
            finally:
                self._caller = 0


class Deadline:
    """When a call with a time-out ends; a negative one never does."""

    def __init__(self, timeout: float):
        self._end = None if timeout < 0 else time.monotonic() + timeout
        self._is_last = False

    def slice_s(self) -> float:
        """How long the next slice may wait."""
        if self._end is None:
            return SLICE_S
        left = self._end - time.monotonic()
        self._is_last = left <= SLICE_S
        return max(0.0, min(left, SLICE_S))

    def is_over(self) -> bool:
        """Whether the last slice was the last one."""
        return self._is_last
