"""The request for start offsets, which is repeated until a broker answers.

**Rules.** One request is open at a time. Without an answer it is repeated after an interval, each
one longer than the one before. The answer of a request from before a change of the assignment is
discarded: another member may have read and committed since. Whether a later request could be
answered at all is one decision for every client
(:func:`~holdfast.cluster.connections.ends_member`).

References: KIP-447; Kafka's ConsumerCoordinator, ``initWithCommittedOffsetsIfNeeded``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Generic, TypeVar

from holdfast.cluster.connections import ends_member
from holdfast.core.model.partitions import Resource

_AGAIN_S, _MOST_AGAIN_S = 0.05, 1.0
_Start = TypeVar("_Start")


class StartOffsetsRequest(Generic[_Start]):
    """The request for start offsets.

    Parameters
    ----------
    ask : callable
        Requests the start offsets of partitions; None before the member is connected. An answer may
        lack partitions, which are requested again.

    Attributes
    ----------
    asked_at : float
        When the open request was sent, by the monotonic clock.
    """

    def __init__(
        self, ask: Callable[[Collection[Resource]], Future[dict[Resource, _Start]] | None]
    ):
        self._ask = ask
        self.asked_at = 0.0
        self.begin()

    def begin(self) -> None:
        """Discard open requests: the assignment has changed."""
        self._pending: Future[dict[Resource, _Start]] | None = None
        self._ask_at, self._pause_s = 0.0, _AGAIN_S

    @property
    def is_open(self) -> bool:
        """Return whether a request is open whose answer was not taken."""
        return self._pending is not None

    def answer(
        self, partitions: Collection[Resource], wait_s: float | None
    ) -> Mapping[Resource, _Start]:
        """Return start offsets known within ``wait_s``; None waits for ever.

        The answer stays until :meth:`take`, so an interrupted caller gets the same one again.

        Raises
        ------
        HoldfastError
            If no broker will ever answer.
        """
        if self._pending is None and partitions and self._is_time(wait_s):
            self.asked_at = time.monotonic()
            self._pending = self._ask(partitions)
        if self._pending is None:
            return {}
        try:
            found = self._pending.result(wait_s)
        except TimeoutError:
            return {}
        except Exception as error:
            self._again()
            if ends_member(error):
                raise
            return {}
        if not found:
            self._again()
        return found

    def _is_time(self, wait_s: float | None) -> bool:
        """Wait for the next request's time, at most ``wait_s``; return whether it has come."""
        left_s = max(0.0, self._ask_at - time.monotonic())
        waited_s = left_s if wait_s is None else min(left_s, wait_s)
        if waited_s > 0.0:
            time.sleep(waited_s)
        return waited_s >= left_s

    def take(self, answer: Mapping[Resource, _Start], partitions: Collection[Resource]) -> None:
        """Mark an answer as used; partitions that it lacks are requested again."""
        if answer and answer.keys() >= set(partitions):
            self._pending = None
        elif answer:
            self._again()

    def _again(self) -> None:
        self._pending = None
        self._ask_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _MOST_AGAIN_S)
