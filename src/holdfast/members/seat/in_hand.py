"""What the last call handed out: the application has it in its hand.

**Rules.** The next call finds it processed. Until then the deadline of a hand-over may pass, and
the member commits on a thread of its own what the application has asked past: the client's
positions, without what is in the hand. While the application is inside a call no other thread can
say how far it has come, so nothing is read then, and what was read while a call began does not
count.

**Strategy.** One attribute is written when a call begins and when it ends. It holds what was handed
out as it is: no record is looked at on its way.

References: KIP-62 (``max.poll.interval.ms``).
"""

from __future__ import annotations

from typing import Any

NOTHING: tuple[()] = ()


class InHand:
    """What the application has in its hand.

    Attributes
    ----------
    last : object or None
        What the last call returned, :data:`NOTHING` for no record; None inside a call.
    """

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: Any = NOTHING
