"""When a client that fetches has lost all its brokers for good, although they are there.

**Rules.** A client is *deaf* if nothing comes from it and four questions in a row find no broker,
although the group's coordinator has acknowledged a heartbeat of this member before each of them,
since the one before. While the coordinator is silent too, the brokers are away, and nobody is deaf.

**Strategy.** :class:`Silence` counts; its owner asks, and makes a deaf client anew. If that does
not help, the owner is told so after twice as many questions each time.

Not obvious: librdkafka 2.10 to 2.16 drops every broker that a Metadata answer does not name. A
broker that has just started may name none. Then librdkafka begins again at ``bootstrap.servers``,
but in some orders of its threads it does not, and stays without brokers.

References: librdkafka issue 5301; KIP-899 (re-bootstrap).
"""

from __future__ import annotations

import time
from collections.abc import Callable

ASK_EVERY_S = 5.0
ASK_S = 0.25
NO_BROKER = -195
"""librdkafka's code where it finds nobody to ask (``_TRANSPORT``)."""
_QUESTIONS, _MOST_QUESTIONS = 4, 64
DEAF = (
    "librdkafka finds no broker any more, although the group's coordinator answers "
    "(librdkafka issue 5301)"
)


class Silence:
    """How long nothing has come.

    Parameters
    ----------
    answered_at : callable
        When the coordinator last acknowledged a heartbeat, by the monotonic clock.
    """

    def __init__(self, answered_at: Callable[[], float]):
        self._answered_at = answered_at
        self.end()

    def end(self) -> None:
        """Note that something has come."""
        self._asked_at = time.monotonic()
        self._n_in_vain = 0
        self._n_allowed = _QUESTIONS

    def is_due(self) -> bool:
        """Whether it is time to ask."""
        return time.monotonic() - self._asked_at >= ASK_EVERY_S

    def found_none(self) -> bool:
        """Note a question that found no broker; return whether the client is deaf."""
        is_there = self._answered_at() > self._asked_at
        self._n_in_vain = self._n_in_vain + 1 if is_there else 0
        self._asked_at = time.monotonic()
        if self._n_in_vain < self._n_allowed:
            return False
        self._n_in_vain = 0
        self._n_allowed = min(2 * self._n_allowed, _MOST_QUESTIONS)
        return True
