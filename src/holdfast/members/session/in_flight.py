"""Records in flight: what the last call returned and the application has not processed.

**Rules.** The next call counts the records as processed. Until then the deadline of a revocation
may pass, and the member commits on a thread of its own what is processed: the client's positions,
lowered to the records in flight. While the application is inside a call, no other thread can know
how far it has come, so nothing is read then, and what was read while a call began is discarded.
When a member leaves, records in flight count as processed, with two exceptions: records that a call
fetched and did not return, because the close had begun, and records that another living thread
polled.

**Strategy.** One attribute is written when a call begins and when it ends. It keeps the returned
object as it is: no record is inspected.

References: KIP-62 (``max.poll.interval.ms``).
"""

from __future__ import annotations

import threading
from typing import Any

NOTHING: tuple[()] = ()


class InFlight:
    """The records in flight.

    Attributes
    ----------
    last : object or None
        The result of the last call, :data:`NOTHING` for no record; None inside a call.
    caller : int
        The thread of that call, 0 where calls of one task come from any thread.
    is_seen : bool
        Whether the application got the result, and may have processed it.
    """

    __slots__ = ("caller", "is_seen", "last")

    def __init__(self) -> None:
        self.last: Any = NOTHING
        self.caller = threading.get_ident()
        self.is_seen = True

    def may_be_processed(self) -> bool:
        """Return whether a member that leaves on this thread may count the records as processed."""
        is_mine = self.caller in (0, threading.get_ident())
        return self.is_seen and (is_mine or self.caller not in _alive())


def _alive() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate()}
