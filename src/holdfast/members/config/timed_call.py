"""A call of a user's function with a deadline: a lag source, or an assignor of the user.

**Rules.** The caller waits no longer than the deadline. While a late call still runs, no other call
is made.

**Strategy.** Each call has a thread of its own. The interpreter would wait for a pool at exit, and
a user's function may hang for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from holdfast.cluster.signal_safe import SignalSafeFuture

T = TypeVar("T")


class LateError(TimeoutError):
    """A call took longer than its deadline, and still runs."""


class TimedCall(Generic[T]):
    """Calls with a deadline, one at a time.

    Parameters
    ----------
    thread_name : str Name of the threads.
    timeout_ms : int
        Deadline of one call.
    """

    def __init__(self, thread_name: str, timeout_ms: int):
        self.timeout_ms = timeout_ms
        self._thread_name = thread_name
        self._asked: SignalSafeFuture[T] | None = None

    @property
    def is_busy(self) -> bool:
        """Return whether an earlier call still runs."""
        return self._asked is not None and not self._asked.done()

    def __call__(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, or raise what it raises.

        Raises
        ------
        LateError
            If the call takes longer than the deadline.
        """
        self._asked = future = SignalSafeFuture[T]()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name=self._thread_name, daemon=True).start()
        if not future.wait(self.timeout_ms / 1000):
            raise LateError(f"no answer within {self.timeout_ms} ms")
        return future.result()
