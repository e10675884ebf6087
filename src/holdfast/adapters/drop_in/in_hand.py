"""What the last call of a drop-in handed out: the application has it in its hand.

**Rules.** The next call finds it processed. Until then the deadline of a hand-over may pass, and
the member commits on its own thread what the application has asked past: the client's positions,
without what is in the hand. While the application is inside a call nobody else can say how far it
has come, so nothing is read then, and what was read while a call began does not count.

**Strategy.** One attribute is written when a call begins and when it ends. It holds what was handed
out as it is: no record is looked at on its way.

References: KIP-62 (``max.poll.interval.ms``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_P = TypeVar("_P")

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

    def asked_past(
        self,
        positions: Callable[[], dict[_P, Any]],
        firsts: Callable[[Any], Mapping[_P, Any]],
    ) -> dict[_P, Any] | None:
        """How far the application has come with what it has asked past; safe from any thread.

        Parameters
        ----------
        positions : callable
            Reads the client's positions.
        firsts : callable
            Finds the place of the first record of each partition in :attr:`last`.

        Returns
        -------
        dict or None
            By partition; None if the application is inside a call.
        """
        held = self.last
        if held is None:
            return None
        found = positions()
        if self.last is not held:
            return None
        return found | {tp: min(found[tp], at) for tp, at in firsts(held).items() if tp in found}
