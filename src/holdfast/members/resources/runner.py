"""The interface that runs the attempts of a worker, whatever form a program's work has.

**Rules.** Only the supervisor's thread calls a runner, which never waits. A runner reports the
start and the end of attempts from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from holdfast.core.model.partitions import Resource as Pair
from holdfast.members.resources.effects import Attempt


class Resource(NamedTuple):
    """One resource to own: a ``kind``, and its ``number`` from 0 on.

    References: Incremental Cooperative Rebalancing, whose resources need not be partitions.
    """

    kind: str
    number: int


def name_of(resource: Pair) -> str:
    """Return a resource as text: ``kind-number``."""
    return f"{resource[0]}-{resource[1]}"


class Reports(NamedTuple):
    """Callbacks by which a runner reports the start and the end of attempts."""

    started: Callable[[Attempt], None]
    ended: Callable[[Attempt, BaseException | None], None]


class Runner(Protocol):
    """One form of a program's work."""

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Begin attempts."""

    def stop(self, attempts: Sequence[Attempt], deadline_s: float, *, lost: bool) -> None:
        """Request the end of attempts by a time of the monotonic clock."""

    def lose(self, attempts: Sequence[Attempt]) -> None:
        """Notify attempts that are ending that another worker may have begun."""

    def abandon(self, attempts: Sequence[Attempt]) -> None:
        """Notify attempts past their deadline, and let them continue."""

    def is_inside(self) -> bool:
        """Return whether the caller is the program's work."""

    def close(self) -> None:
        """Release the runner's own threads."""
