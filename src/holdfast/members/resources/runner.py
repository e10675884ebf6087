"""What carries out the attempts of a worker, whatever form a program's work has.

**Rules.** A runner is called by the supervisor's thread alone, and waits for nothing. What becomes
of an attempt it reports from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from holdfast.core.model.partitions import Resource as Pair
from holdfast.members.resources.effects import Attempt


class Resource(NamedTuple):
    """One thing to own: a ``kind``, and its ``number`` from 0 on.

    References: Incremental Cooperative Rebalancing, whose resources need not be partitions.
    """

    kind: str
    number: int


def name_of(resource: Pair) -> str:
    """A resource for a text: ``kind-number``."""
    return f"{resource[0]}-{resource[1]}"


class Reports(NamedTuple):
    """Where a runner reports what becomes of attempts."""

    started: Callable[[Attempt], None]
    ended: Callable[[Attempt, BaseException | None], None]


class Runner(Protocol):
    """One form of a program's work."""

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Begin attempts."""

    def stop(self, attempts: Sequence[Attempt], deadline_s: float, *, lost: bool) -> None:
        """Tell attempts to end by a time of the monotonic clock."""

    def lose(self, attempts: Sequence[Attempt]) -> None:
        """Tell attempts that are ending that another worker may have begun."""

    def abandon(self, attempts: Sequence[Attempt]) -> None:
        """Let attempts go on whose time is over; tell them so."""

    def is_inside(self) -> bool:
        """Whether the caller is the program's work."""

    def close(self) -> None:
        """End what the runner itself has."""
