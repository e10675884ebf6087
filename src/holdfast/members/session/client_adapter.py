"""The interface of a client to its member's session, and the traits of its programs.

**Rules.** The session decides; the adapter executes. An adapter never holds back, starts, drops or
runs a callback by itself. Unless a method says otherwise, it is called where the client works: on
the thread of the application's calls, or on its event loop.

References: KIP-429 (callbacks).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.core.machine.events import ListenerCall
from holdfast.core.model.partitions import Resource
from holdfast.members.runtime.application_tasks import Once
from holdfast.members.runtime.offsets import Offsets


def before(positions: Offsets, in_flight: Offsets) -> Offsets:
    """Return positions, lowered to the first record in flight of each partition."""
    return {tp: min(at, in_flight.get(tp, at)) for tp, at in positions.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTraits:
    """What programs of a client expect of its member; ``docs/clients.md`` has a row for each."""

    # ``on_partitions_assigned`` comes in every round, also if a cooperative one changes nothing.
    reports_empty_changes: bool
    # An error of a revocation's callback prevents the revocation's commit.
    error_stops_commit: bool
    reports_on_close: bool = True  # callbacks come also when the application itself leaves
    # The listener was written for eager rebalances. In a cooperative round that changes anything it
    # is called with a revocation, maybe of nothing, and then with the whole assignment.
    reports_full_assignment: bool = False
    # Revoked partitions of a deleted topic are lost: no member can commit them.
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
        """Return the partitions of the callback, sorted."""
        return sorted(self.resources)


class ClientAdapter(Protocol):
    """What every client does for its session."""

    def hold_back(self, partitions: Collection[Resource]) -> None:
        """Stop delivery of ``partitions``; their positions can still be read."""

    def drop(self, partitions: Collection[Resource]) -> None:
        """Stop fetching ``partitions``, and forget them."""

    def positions(self, partitions: Collection[Resource]) -> Offsets:
        """Return the positions after delivered records; a partition may have none."""

    def processed(self, positions: Offsets, in_flight: Offsets) -> Offsets:
        """Return the offsets to commit while records from ``in_flight`` on are in flight."""

    def has_callback(self, call: ListenerCall) -> bool:
        """Whether the application has a callback for ``call``.

        An application without a callback for losses gets a loss as a revocation. Safe
        from any thread.
        """


class PollClientAdapter(ClientAdapter, Protocol):
    """Client adapter of a client that works on the thread of the application's calls."""

    def hide(self, partitions: Collection[Resource]) -> None:
        """Stop delivery of the lost ``partitions``; called on the member thread."""

    def firsts(self, held: Any) -> Offsets:
        """Return the first record of each partition in a call's result; from any thread."""

    def notify(self, callback: Callback) -> BaseException | None:
        """Run the callback of a revocation or a loss, if any; return its error."""

    def assigned(self, callback: Callback, *, is_news: bool) -> BaseException | None:
        """Begin to fetch what was assigned, and run the callback if it ``is_news``."""
