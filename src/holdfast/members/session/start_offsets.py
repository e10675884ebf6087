"""Where partitions begin: a question that is asked until somebody answers it.

**Rules.** One question is open at a time. Nobody answers: it is asked again after a pause, each one
longer than the one before. A question from before a change of the assignment counts no more:
another member may have read on since, and committed. Whether a later question could be answered at
all is one decision for every client (:func:`~holdfast.cluster.connections.ends_member`).

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
    """The question where partitions begin.

    Parameters
    ----------
    ask : callable
        Asks for the places of partitions; None before there is a member. An answer may lack some,
        which are asked for again.

    Attributes
    ----------
    asked_at : float
        When the open question was asked, by the monotonic clock.
    """

    def __init__(
        self, ask: Callable[[Collection[Resource]], Future[dict[Resource, _Start]] | None]
    ):
        self._ask = ask
        self.asked_at = 0.0
        self.begin()

    def begin(self) -> None:
        """The assignment has changed: take no answer to what was asked before."""
        self._pending: Future[dict[Resource, _Start]] | None = None
        self._ask_at, self._pause_s = 0.0, _AGAIN_S

    @property
    def is_open(self) -> bool:
        """Whether there is a question whose answer was not taken."""
        return self._pending is not None

    def answer(
        self, partitions: Collection[Resource], wait_s: float | None
    ) -> Mapping[Resource, _Start]:
        """Places of these, as far as somebody tells within ``wait_s``; None waits without an end.

        The answer stays until :meth:`take`, so whoever is interrupted goes on with the same one.

        Raises
        ------
        HoldfastError
            If no broker will ever tell.
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
        """Whether the pause before another question is over, or will be within ``wait_s``."""
        left_s = max(0.0, self._ask_at - time.monotonic())
        waited_s = left_s if wait_s is None else min(left_s, wait_s)
        if waited_s > 0.0:
            time.sleep(waited_s)
        return waited_s >= left_s

    def take(self, answer: Mapping[Resource, _Start], partitions: Collection[Resource]) -> None:
        """The answer was used; what it lacks of these is asked for again."""
        if answer and answer.keys() >= set(partitions):
            self._pending = None
        elif answer:
            self._again()

    def _again(self) -> None:
        self._pending = None
        self._ask_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _MOST_AGAIN_S)
