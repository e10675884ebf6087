"""Opens a member's parts on a thread of their own: the application waits for no broker.

**Rules.** A broker that is away is asked again until it answers or the opening is closed. Any other
error is final, and the application's next call raises it. Parts that have been opened are taken
once; parts that are not taken are closed.

**Strategy.** Between two attempts the thread holds no reference to the consumer, so one that is
forgotten can be collected.

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
    """What can be closed."""

    def close(self) -> None:
        """Release it."""


_P = TypeVar("_P", bound=Closeable)


class PendingConnection(Generic[_P]):
    """A member on its way.

    Parameters
    ----------
    make : bound method
        Makes the parts from connections; its object is referred to weakly.
    group : str
        The group's id, for the log.
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
        """Begin; an earlier call may have been interrupted."""
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
                before, said = said, str(error)  # a log may keep the error, and so the consumer
                if said != before and not self._ended.is_set():
                    _log.warning("group %s: %s", self._group, said)
            except BaseException as error:
                self.failure = error
                self._done.set()
                break

    def _open(self) -> bool:
        """Try once; whether there is nothing left to do."""
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
        """The opened parts, None if they are not there within ``wait_s``.

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
        """Open nothing, and close what was opened and not taken."""
        self._ended.set()
        with self._lock:
            runtime, connections = self._runtime, self.connections
        if runtime is not None:
            runtime.close()
        elif connections is not None:
            connections.close()  # ends the thread that waits for a broker
