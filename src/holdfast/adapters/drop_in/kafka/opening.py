"""A member whose connections open on a thread of their own: a poll waits for no broker.

**Rules.** A broker that is away is asked again until it answers or nobody wants it any more, as
kafka-python asks for its coordinator. Any other error is raised to the application. What has been
opened is taken once, by the application's thread; what nobody takes is closed.

**Strategy.** Between two attempts the thread holds no reference to the consumer, so one that is
forgotten can be collected.

References: Kafka's ConsumerCoordinator, ``ensureCoordinatorReady``.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.adapters.cluster.connections import Connections
from holdfast.adapters.drop_in.kafka.poll_duties import PollDuties
from holdfast.adapters.member.assembly import MemberParts
from holdfast.adapters.settings import Settings
from holdfast.errors import SourceError

log = logging.getLogger(__name__)
_AGAIN_S = (0.1, 0.2, 0.5, 1.0)  # between attempts to reach a broker; the last one stays
Parts = MemberParts[PollDuties]


class Opening:
    """A member on its way.

    Parameters
    ----------
    settings : Settings
        The member's.
    network : mapping of str to object
        Keywords of its connections.
    make : bound method
        Makes the parts from connections; its object is referred to weakly.
    """

    def __init__(
        self, settings: Settings, network: Mapping[str, Any], make: Callable[[Connections], Parts]
    ):
        self._settings = settings
        self._network = network
        self._make = weakref.WeakMethod(make)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._done = threading.Event()
        self._connections: Connections | None = None
        self._parts: Parts | None = None
        self._failure: BaseException | None = None
        threading.Thread(target=self._run, name="holdfast-connect", daemon=True).start()

    def _run(self) -> None:
        said = ""
        attempt = 0
        while not self._ended.wait(_AGAIN_S[min(attempt, len(_AGAIN_S)) - 1] if attempt else 0.0):
            attempt += 1
            try:
                if self._open():
                    return
            except SourceError as error:
                before, said = said, str(error)  # a log may keep the error, and so the consumer
                if said != before and not self._ended.is_set():
                    log.warning("group %s: %s", self._settings["group.id"], said)
            except BaseException as error:
                self._failure = error
                self._done.set()
                return

    def _open(self) -> bool:
        """Try once; whether there is nothing left to do."""
        make = self._make()
        if make is None:
            return True
        with self._lock:
            if self._ended.is_set():
                return True
            connections = self._connections = Connections(self._settings, self._network)
        parts = make(connections)
        with self._lock:
            if not self._ended.is_set():
                self._parts = parts
                self._done.set()
                return True
        parts.close()
        return True

    def take(self, wait_s: float) -> Parts | None:
        """The opened parts, None if they are not there within ``wait_s``.

        Raises
        ------
        HoldfastError
            If no later attempt can succeed.
        """
        if not self._done.wait(wait_s):
            return None
        if self._failure is not None:
            raise self._failure
        return self._parts

    def close(self) -> None:
        """Nobody wants it any more."""
        self._ended.set()
        with self._lock:
            parts, connections = self._parts, self._connections
        if parts is not None:
            parts.close()
        elif connections is not None:
            connections.close()  # ends the thread that waits for a broker
