"""The interface of a client to its member's session, and what all clients have for it.

**Rules.** The session decides; the adapter executes. An adapter never holds back, starts, drops or
runs a callback by itself. Unless a method says otherwise, it is called where the client works: on
the thread of the application's calls, or on its event loop.

References: KIP-429 (callbacks); KIP-62 (``max.poll.interval.ms``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from holdfast.cluster.connections import ends_member
from holdfast.core.machine.shared_values import ListenerCall, Offsets
from holdfast.core.model.partitions import Resource
from holdfast.members.runtime.application_calls import Once


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
        super().__init__()
        self.call = call
        self.resources = frozenset(resources)

    def in_order(self) -> list[Resource]:
        """Return the partitions of the callback, sorted."""
        return sorted(self.resources)


class ClientAdapter(Protocol):
    """What every client does for its session."""

    def mark_pending_revocation(self, partitions: Collection[Resource]) -> None:
        """Stop delivery of ``partitions``; their positions can still be read."""

    def stop_fetching(self, partitions: Collection[Resource]) -> None:
        """Stop fetching ``partitions``, and forget them."""

    def positions(self, partitions: Collection[Resource]) -> Offsets:
        """Return the positions after delivered records; a partition may have none."""

    def has_callback(self, call: ListenerCall) -> bool:
        """Whether the application has a callback for ``call``.

        An application without a callback for losses gets a loss as a revocation. Safe
        from any thread.
        """


class PollClientAdapter(ClientAdapter, Protocol):
    """Client adapter of a client that works on the thread of the application's calls."""

    def stop_delivery(self, partitions: Collection[Resource]) -> None:
        """Stop delivery of the lost ``partitions``; called on the member thread."""

    def first_in_flight(self, held: Any) -> Offsets:
        """Return the first record of each partition in a call's result; from any thread."""

    def notify(self, callback: Callback) -> BaseException | None:
        """Run the callback of a revocation or a loss, if any; return its error."""

    def apply_assignment(self, callback: Callback, *, should_report: bool) -> BaseException | None:
        """Begin to fetch what was assigned, and run the callback if it ``should_report``."""


NOTHING: tuple[()] = ()


class InFlight:
    """Records in flight: what the last call returned and the application has not processed.

    The next call counts the records as processed. Until then the deadline of a revocation may pass,
    and the member commits on a thread of its own what is processed: the client's positions, lowered
    to the records in flight. While the application is inside a call, no other thread can know how
    far it has come, so nothing is read then, and what was read while a call began is discarded.
    When a member leaves, records in flight count as processed, with two exceptions: records that a
    call fetched and did not return, because the close had begun, and records that another living
    thread polled.

    ``last_result`` is None inside a call, and :data:`NOTHING` after a call without a record. It is
    the returned object itself: no record is inspected.
    """

    __slots__ = ("caller", "last_result", "may_be_processed")

    def __init__(self) -> None:
        self.last_result: Any = NOTHING
        self.caller = threading.get_ident()  # 0 where calls of one task come from any thread
        self.may_be_processed = True  # False: the application does not have the result, or holds it

    def begin_call(self) -> None:
        """Record that this thread begins a call that fetches records."""
        self.last_result, self.caller = None, threading.get_ident()
        self.may_be_processed = True

    def may_be_processed_here(self) -> bool:
        """Return whether a member that leaves on this thread may count the records as processed."""
        is_mine = self.caller in (0, threading.get_ident())
        return self.may_be_processed and (is_mine or self.caller not in _alive())


def _alive() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate()}


_RETRY_S, _MOST_RETRY_S = 0.05, 1.0
_Start = TypeVar("_Start")


class StartOffsetsRequest(Generic[_Start]):
    """The request for start offsets, which is repeated until a broker answers.

    One request is open at a time. Without an answer it is repeated after an interval, each one
    longer than the one before. The answer of a request from before a change of the assignment is
    discarded: another member may have read and committed since. Whether a later request could be
    answered at all is one decision for every client
    (:func:`~holdfast.cluster.connections.ends_member`). An answer may lack partitions, which are
    requested again.

    References: KIP-447; Kafka's ConsumerCoordinator, ``initWithCommittedOffsetsIfNeeded``.
    """

    def __init__(
        self, request: Callable[[Collection[Resource]], Future[dict[Resource, _Start]] | None]
    ):
        self._request = request  # returns None before the member is connected
        self.requested_at = 0.0  # when the open request was sent, by the monotonic clock
        self.reset()

    def reset(self) -> None:
        """Discard open requests: the assignment has changed."""
        self._pending: Future[dict[Resource, _Start]] | None = None
        self._request_at, self._pause_s = 0.0, _RETRY_S

    @property
    def is_open(self) -> bool:
        """Return whether a request is open whose answer was not taken."""
        return self._pending is not None

    def response(
        self, partitions: Collection[Resource], wait_s: float | None
    ) -> Mapping[Resource, _Start]:
        """Return start offsets known within ``wait_s``; None waits for ever.

        The answer stays until :meth:`take`, so an interrupted caller gets the same one again. If no
        broker will ever answer, it is an error.
        """
        if self._pending is None and partitions and self._is_time(wait_s):
            self.requested_at = time.monotonic()
            self._pending = self._request(partitions)
        if self._pending is None:
            return {}
        try:
            found = self._pending.result(wait_s)
        except TimeoutError:
            return {}
        except Exception as error:
            self._retry()
            if ends_member(error):
                raise
            return {}
        if not found:
            self._retry()
        return found

    def _is_time(self, wait_s: float | None) -> bool:
        """Wait for the next request's time, at most ``wait_s``; return whether it has come."""
        left_s = max(0.0, self._request_at - time.monotonic())
        waited_s = left_s if wait_s is None else min(left_s, wait_s)
        if waited_s > 0.0:
            time.sleep(waited_s)
        return waited_s >= left_s

    def take(self, answer: Mapping[Resource, _Start], partitions: Collection[Resource]) -> None:
        """Mark an answer as used; partitions that it lacks are requested again."""
        if answer and answer.keys() >= set(partitions):
            self._pending = None
        elif answer:
            self._retry()

    def _retry(self) -> None:
        self._pending = None
        self._request_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _MOST_RETRY_S)
