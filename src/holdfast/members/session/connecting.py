"""Connects a member on a thread of its own: the application waits for no broker.

**Rules.** A broker that is unavailable is tried again until it answers or the connecting is closed.
Any other error is final, and the application's next call raises it. A member runtime that was made
is taken once; one that is not taken is closed.

**Strategy.** Between two attempts the thread holds no reference to the consumer, so a forgotten
consumer can be collected.

References: Kafka's ConsumerCoordinator, ``ensureCoordinatorReady``; librdkafka,
``rd_kafka_subscribe``.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from holdfast.cluster.connections import Connections, load_client
from holdfast.cluster.signal_safe import Flag
from holdfast.errors import SourceError
from holdfast.members.runtime.member_log import NAME

_log = logging.getLogger(NAME)
_AGAIN_S = (0.1, 0.2, 0.5, 1.0)  # between attempts to reach a broker; the last one stays


class Closeable(Protocol):
    """An object that can be closed."""

    def close(self) -> None:
        """Release its resources."""


_P = TypeVar("_P", bound=Closeable)


class PendingConnection(Generic[_P]):
    """A member that is being connected.

    Parameters
    ----------
    make : bound method
        Makes the member runtime from connections; its object is referred to weakly.
    group : str
        The group id, for the log.
    """

    def __init__(
        self,
        connect: Callable[[], Connections],
        make: Callable[[Connections], _P],
        *,
        group: str,
    ):
        self._connect = connect
        self._make = weakref.WeakMethod(make)
        self._group = group
        self._lock = threading.Lock()
        self._ended, self._done = Flag(), Flag()
        self.connections: Connections | None = None
        self._runtime: _P | None = None
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-connect", daemon=True)

    def start(self) -> None:
        """Start the thread; an earlier call may have been interrupted."""
        if self._thread.ident is None:
            self._thread.start()

    def _run(self) -> None:
        said, attempt = "", 0
        while not self._ended.wait(_AGAIN_S[min(attempt, len(_AGAIN_S)) - 1] if attempt else 0.0):
            attempt += 1
            try:
                load_client()  # not under the lock, for which the application may wait
                if self._open():
                    break
            except SourceError as error:
                before, said = (
                    said,
                    str(error),
                )  # a log may keep the error alive, and with it the consumer
                if said != before and not self._ended.is_set():
                    _log.warning("group %s: %s", self._group, said)
            except BaseException as error:
                self.failure = error
                self._done.set()
                break

    def _open(self) -> bool:
        """Try once; return whether nothing is left to do."""
        make = self._make()
        if make is None:
            return True
        with self._lock:
            if self._ended.is_set():
                return True
            connections = self.connections = self._connect()
        runtime = make(connections)
        with self._lock:
            if not self._ended.is_set():
                self._runtime = runtime
                self._done.set()
                return True
        runtime.close()
        return True

    def take(self, wait_s: float) -> _P | None:
        """Return the member runtime, None if it is not ready within ``wait_s``.

        Raises
        ------
        HoldfastError
            If no later attempt can succeed.
        """
        if not self._done.wait(wait_s):
            return None
        if self.failure is not None:
            raise self.failure
        return self._runtime

    def close(self) -> None:
        """Stop connecting, and close a member runtime that was not taken."""
        self._ended.set()
        with self._lock:
            runtime, connections = self._runtime, self.connections
        if runtime is not None:
            runtime.close()
        elif connections is not None:
            connections.close()  # ends the thread that waits for a broker
