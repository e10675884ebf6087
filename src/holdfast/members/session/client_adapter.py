"""What a client does for the seat of its member, and what its programs expect.

**Rules.** The seat decides; the hands do. Hands never hold back, begin, drop or run a callback by
themselves. Unless a method says otherwise, it is called where the client works: on the thread of
the application's calls, or on its event loop.

References: KIP-429 (callbacks).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.core.machine.callbacks import ListenerCall
from holdfast.core.model.partitions import Resource
from holdfast.members.runtime.application_tasks import Once
from holdfast.members.runtime.offsets import Offsets


def before(positions: Offsets, in_flight: Offsets) -> Offsets:
    """Positions, where the application has not processed what it has in its hand."""
    return {tp: min(at, in_flight.get(tp, at)) for tp, at in positions.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTraits:
    """What programs of a client expect of its member; ``docs/clients.md`` has a row for each."""

    # ``on_partitions_assigned`` comes in every round, also in a cooperative one without news.
    reports_empty_changes: bool
    # What a callback of a hand-over raises keeps the hand-over from committing.
    error_stops_commit: bool
    reports_on_close: bool = True  # callbacks come also when the application itself leaves
    # The listener was written for eager rebalances. In a cooperative round that changes anything it
    # is called with a revocation, maybe of nothing, and then with the whole assignment.
    reports_full_assignment: bool = False
    # What a cooperative member gives up of a topic that is deleted is lost: nobody can commit it.
    deleted_are_lost: bool = False


class Callback(Once):
    """One callback of a rebalance, which runs once."""

    def __init__(self, call: ListenerCall, resources: Collection[Resource]):
        super().__init__(self._call)
        self.call = call
        self.resources = frozenset(resources)

    def _call(self, callback: Callable[..., object], *arguments: object) -> None:
        callback(*arguments)

    def in_order(self) -> list[Resource]:
        """The partitions of the callback, sorted."""
        return sorted(self.resources)


class ClientAdapter(Protocol):
    """What every client does for its seat."""

    def hold_back(self, partitions: Collection[Resource]) -> None:
        """Hand out no more records of ``partitions``; their positions can still be read."""

    def drop(self, partitions: Collection[Resource]) -> None:
        """Stop fetching ``partitions``, and forget everything about them."""

    def positions(self, partitions: Collection[Resource]) -> Offsets:
        """The positions after what was handed out; a partition without a position is missing."""

    def processed(self, positions: Offsets, in_flight: Offsets) -> Offsets:
        """What a commit commits, where the application holds records from ``in_flight`` on."""

    def has_callback(self, call: ListenerCall) -> bool:
        """Whether the application has a callback for ``call``.

        An application without a callback of its own for losses hears a loss as a revocation. Safe
        from any thread.
        """


class PollClientAdapter(ClientAdapter, Protocol):
    """One client's, which works on the thread of the application's calls."""

    def hide(self, partitions: Collection[Resource]) -> None:
        """Hand out no more records of ``partitions``, which are lost; on the member's thread."""

    def firsts(self, held: Any) -> Offsets:
        """The first record of each partition in what a call has handed out; from any thread."""

    def notify(self, callback: Callback) -> BaseException | None:
        """Run the callback of a revocation or a loss, if there is one; return what it raised."""

    def assigned(self, callback: Callback, *, is_news: bool) -> BaseException | None:
        """Begin to fetch what was assigned, and run the callback if it ``is_news``."""
