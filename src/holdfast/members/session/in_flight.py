"""What the last call handed out: the application has it in its hand.

**Rules.** The next call finds it processed. Until then the deadline of a hand-over may pass, and
the member commits on a thread of its own what the application has asked past: the client's
positions, without what is in the hand. While the application is inside a call no other thread can
say how far it has come, so nothing is read then, and what was read while a call began does not
count. What a member leaves with counts as processed, with two exceptions: records that a call found
and did not hand out, because the end had begun, and records of another thread that is alive.

**Strategy.** One attribute is written when a call begins and when it ends. It holds what was handed
out as it is: no record is looked at on its way.

References: KIP-62 (``max.poll.interval.ms``).
"""

from __future__ import annotations

import threading
from typing import Any

NOTHING: tuple[()] = ()


class InFlight:
    """What the application has in its hand.

    Attributes
    ----------
    last : object or None
        What the last call returned, :data:`NOTHING` for no record; None inside a call.
    caller : int
        The thread of that call, 0 where calls of one task come from any thread.
    is_seen : bool
        Whether the application has got it, and may have processed it.
    """

    __slots__ = ("caller", "is_seen", "last")

    def __init__(self) -> None:
        self.last: Any = NOTHING
        self.caller = threading.get_ident()
        self.is_seen = True

    def may_be_processed(self) -> bool:
        """Whether a member that leaves on this thread may count it as processed."""
        is_mine = self.caller in (0, threading.get_ident())
        return self.is_seen and (is_mine or self.caller not in _alive())


def _alive() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate()}
