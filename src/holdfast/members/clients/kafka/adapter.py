"""The client adapter of kafka-python, which changes the client's subscription state; a fetcher.

**Rules.** The assignment changes on the thread of the application's calls alone. Partitions that a
revocation or a loss takes are marked as pending revocation: kafka-python delivers none of their
records, and keeps their positions.

An eager member revokes all its partitions in every round and gets most of them back. As with
kafka-python's own coordinator, a partition that comes back continues at its position: it is
*retained* between the two callbacks. It continues only in the very next generation, because no
other member can have owned it then. In any other one it starts at the committed offset.

The start of a partition waits for open transactions (KIP-447). The application waits for the
response only if it requests a position, or has nothing else to read. A partition without a
committed offset is left to kafka-python's ``auto_offset_reset``.

References: KIP-429; kafka-python's ConsumerCoordinator, ``_on_join_complete_async``.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Any

import kafka
import kafka.errors as kafka_errors
from kafka.consumer.fetcher import Fetcher
from kafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.cluster.versions import TESTED
from holdfast.core.machine.shared_values import ListenerCall, Offsets, OffsetToCommit
from holdfast.core.model.partitions import Resource
from holdfast.errors import HoldfastError
from holdfast.members.clients.drop_in import to_client_error
from holdfast.members.runtime.application_calls import ApplicationCalls
from holdfast.members.session.session import GroupSession, Notification, StartOffsetsRequest

_SHORT_WAIT_S = 0.05
_SLICE_S = 0.1


class CrossThreadCalls(ApplicationCalls):
    """The calls of one consumer, whose callbacks may be coroutines on kafka-python's thread.

    Calls of such a callback belong to the call of the thread that waits for the callback.
    """

    _waiting_thread: int = 0
    _running_thread: int = 0

    def call_on_thread(
        self, run: Callable[..., object], work: Callable[..., Any], *arguments: object
    ) -> Any:
        """Run a coroutine function by ``run`` on its thread, and wait."""
        waiting_thread = self.caller()

        async def borrowed() -> Any:
            self._waiting_thread, self._running_thread = waiting_thread, get_ident()
            try:
                return await work(*arguments)
            finally:
                self._running_thread = 0

        return run(borrowed)

    def caller(self) -> int:
        me = get_ident()
        return self._waiting_thread if me == self._running_thread else me


class SubscriptionAdapter:
    """Adapter of kafka-python's subscription state for a session.

    ``run`` runs a coroutine function with its arguments on kafka-python's loop, and waits.
    """

    def __init__(self, subscription: Any, run: Callable[..., object]):
        self._subscription = subscription
        self._run_coroutine = run
        self._start_request: StartOffsetsRequest[int] = StartOffsetsRequest(self._request_committed)
        self._is_awaited = False
        self._pending_revocation: set[Resource] = set()
        self._lost: set[Resource] = set()  # lost; the member thread adds to it
        self._retained: set[Resource] = set()
        self._retained_in_generation = -1  # generation
        self.session: GroupSession

    # Queries

    def positions(self, partitions: Collection[Resource]) -> Offsets:
        consumed = from_client_offsets(self._subscription.all_consumed_offsets())
        return {tp: at for tp, at in consumed.items() if tp in partitions}

    def first_in_flight(self, result: Any) -> Offsets:
        """Return the first records of lists, or the record of an iterator."""
        records = result.values() if isinstance(result, dict) else [(result,)] if result else ()
        return {(r[0].topic, r[0].partition): OffsetToCommit(r[0].offset) for r in records}

    # Changes

    def mark_pending_revocation(self, partitions: Collection[Resource]) -> None:
        self._pending_revocation.update(partitions)
        self._subscription.mark_pending_revocation(to_client_partitions(partitions))

    def stop_delivery(self, partitions: Collection[Resource]) -> None:
        self._lost.update(partitions)
        self._subscription.mark_pending_revocation(to_client_partitions(partitions))

    def stop_fetching(self, partitions: Collection[Resource]) -> None:
        """Drop partitions, except retained ones, which may come back."""
        gone = set(partitions) - (self._retained - self._lost)
        self._assign_exactly(self._assigned() - gone)
        for partitions_of in (self._pending_revocation, self._lost, self._retained):
            partitions_of.difference_update(gone)

    def _assigned(self) -> set[Resource]:
        return set(map(tuple, self._subscription.assigned_partitions()))

    def _assign_exactly(self, kept: Collection[Resource]) -> None:
        """Assign exactly ``kept``, and deliver those that are not being revoked."""
        if not self._subscription.partitions_auto_assigned():
            return
        topics = self._subscription.subscription or ()
        self._subscription.assign_from_subscribed(
            to_client_partitions(tp for tp in kept if tp[0] in topics)
        )
        self._subscription.mark_pending_revocation(
            to_client_partitions([*self._pending_revocation, *self._lost])
        )

    # Start offsets

    def _missing(self) -> set[Resource]:
        """Return assigned partitions that have no position and no pending reset."""
        return set(map(tuple, self._subscription.missing_fetch_positions()))

    def _request_committed(self, partitions: Collection[Resource]) -> Future[dict[Resource, int]]:
        return self.session.request_committed(partitions)

    @contextmanager
    def awaiting_position(self) -> Iterator[None]:
        """Mark that the application requests a position, and waits for it."""
        self._is_awaited = True
        try:
            yield
        finally:
            self._is_awaited = False

    def init_with_committed_offsets(self, timeout_ms: float | None) -> bool:
        """Start partitions at committed offsets; return whether all offsets are known.

        References: Kafka's ConsumerCoordinator, ``initWithCommittedOffsetsIfNeeded``.
        """
        missing = self._missing()
        if not missing:
            return True
        try:
            start_offsets = self._start_request.response(missing, self._wait_s(missing, timeout_ms))
        except HoldfastError as error:
            raise to_client_error(kafka_errors, error) from error
        self.session.subscription_state.start_at_committed(start_offsets)
        for tp in sorted(self._missing() & start_offsets.keys()):
            if start_offsets[tp] >= 0:
                self._subscription.seek(TopicPartition(*tp), start_offsets[tp])
        self._start_request.take(start_offsets, missing)
        return missing <= start_offsets.keys()

    def _wait_s(self, missing: set[Resource], timeout_ms: float | None) -> float | None:
        """Return how long to wait for the response; None without a limit."""
        wait_s = None if timeout_ms is None else min(timeout_ms / 1000, threading.TIMEOUT_MAX)
        if self._is_awaited:
            return wait_s
        has_others = len(self._subscription.assigned_partitions()) > len(missing)
        if not has_others:  # in slices: the poll may have to return
            return _SLICE_S if wait_s is None else min(wait_s, _SLICE_S)
        elapsed_s = (
            time.monotonic() - self._start_request.requested_at
            if self._start_request.is_open
            else 0.0
        )
        left_s = max(0.0, _SHORT_WAIT_S - elapsed_s)  # other partitions keep flowing
        return left_s if wait_s is None else min(wait_s, left_s)

    # Callbacks

    def has_callback(self, call: ListenerCall) -> bool:
        """Return whether there is a listener: kafka-python's has all callbacks."""
        return self._subscription.rebalance_listener is not None

    def notify(self, notification: Notification) -> BaseException | None:
        error = self._run(notification)
        if notification.call is ListenerCall.REVOKED and not self.session.is_cooperative:
            self._retained = (self._assigned() & notification.resources) - self._lost
            self._retained_in_generation = self._generation()
        return error

    def apply_assignment(
        self, notification: Notification, *, should_report: bool
    ) -> BaseException | None:
        if not notification.was_called:
            self._assign(notification.resources)
        return self._run(notification) if should_report else None

    def _assign(self, resources: frozenset[Resource]) -> None:
        self._start_request.reset()
        if self._retained and self._generation() != self._retained_in_generation + 1:
            self._assign_exactly(self._assigned() - self._retained)
        stays = self._assigned()
        continuing = stays & resources & self._retained - self._missing()
        self._pending_revocation -= resources
        self._assign_exactly(resources | (stays if self.session.is_cooperative else set()))
        for tp in continuing:
            self.session.subscription_state.start_at(
                tp, 0
            )  # no other member has committed in between
        self._retained = set()

    def _generation(self) -> int:
        return self.session.membership.snapshot.identity.generation

    def _run(self, notification: Notification) -> BaseException | None:
        listener = self._subscription.rebalance_listener
        if listener is None:
            return None
        method = getattr(listener, f"on_partitions_{notification.call.value}")
        if inspect.iscoroutinefunction(method):
            method = partial(self._run_coroutine, method)
        return notification(method, set(to_client_partitions(notification.resources)))


class AvailableFirstFetcher(Fetcher):  # type: ignore[misc]  # kafka-python has no types
    """A fetcher that does not wait for partitions at their end while others have records.

    **The fault.** kafka-python has one pending fetch to each broker. While it delivers what has
    arrived it already fetches more, but not from the partitions whose records wait for delivery. If
    all partitions of the fetch are at their end, the broker holds that fetch for
    ``fetch_max_wait_ms`` (500 ms), and until then the others cannot be fetched. So a consumer with
    one partition behind and others at their end reads one response every half second. The same
    happens when a response arrives between the last check for responses and the next fetch. The
    original's own coordinator lets the network thread run before each check, which makes that rare;
    holdfast's never waits for that thread in ``poll``.

    **Rule.** While records of a broker wait for delivery, it gets no fetch that names only
    partitions at their end. Once they are delivered, one fetch names all. (Java's consumer sends no
    fetch at all to such a broker.) Untested versions are not changed.
    """

    def _fetchable_partitions(self) -> list[TopicPartition]:
        fetchable: list[TopicPartition] = super()._fetchable_partitions()
        waiting = {fetched.topic_partition for fetched in self._completed_fetches.copy()}
        current = self._next_partition_records
        if current:
            waiting.add(current.topic_partition)
        busy = {self._select_read_replica(tp) for tp in waiting if self._is_assigned(tp)}
        if not busy:
            return fetchable
        by_node = defaultdict(list)
        for tp in fetchable:
            by_node[self._select_read_replica(tp)].append(tp)
        return [
            tp
            for node, partitions in by_node.items()
            if node not in busy or not all(map(self._is_at_end, partitions))
            for tp in partitions
        ]

    def _is_assigned(self, tp: TopicPartition) -> bool:
        return bool(self._subscriptions.is_assigned(tp))

    def _is_at_end(self, tp: TopicPartition) -> bool:
        """Return whether the last response about this partition reached its end."""
        state = self._subscriptions.assignment[tp]
        return state.highwater is not None and state.position.offset >= state.highwater


def fetch_available_first(consumer: Any) -> None:
    """Make a consumer fetch available records before it waits for new ones."""
    if kafka.__version__ in TESTED["kafka-python"]:
        # the fetcher exists and its metrics are registered by name, so no second one can be made
        consumer._fetcher.__class__ = AvailableFirstFetcher


def to_client_partitions(resources: Iterable[Resource]) -> list[TopicPartition]:
    """Return partitions as kafka-python's, in order."""
    return [TopicPartition(*tp) for tp in sorted(resources)]


def from_client_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[Resource, OffsetToCommit]:
    """Convert kafka-python's offsets, with epoch and metadata."""
    return {
        tuple(tp): OffsetToCommit(
            at.offset, at.metadata or "", -1 if at.leader_epoch is None else at.leader_epoch
        )
        for tp, at in offsets.items()
    }


def to_client_offsets(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Convert offsets to kafka-python's."""
    return {
        TopicPartition(*tp): OffsetAndMetadata(at.offset, at.metadata, at.epoch)
        for tp, at in sorted(offsets.items())
    }
