"""The session of a member whose client works on the thread of the application's calls.

**Rules.** Every change of the assignment, and every callback, is a task of the application's next
call; tasks run in order. When a call begins, the records of the previous call are processed, so
nothing is in flight then. A loss alone does not wait: delivery of lost partitions stops at once. A
revocation does not wait for an application that is away and has no record of the revoked partitions
in flight, nor for a callback that the application does not have: the application's next call does
the task before it returns anything. If the application is still away at the deadline of a
revocation, its records in flight are not committed. Positions are read on a thread of their own,
which may wait for the client.

**Strategy.** A task that is interrupted by an exception of a signal handler is repeated
(:mod:`holdfast.members.runtime.application_calls`): each task may be begun twice.

References: KIP-429 (callbacks), KIP-62.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.core.machine.shared_values import ListenerCall, Offsets
from holdfast.core.model.partitions import Resource
from holdfast.members.runtime.application_calls import ApplicationTask, ApplicationTasks
from holdfast.members.session.membership import Membership
from holdfast.members.session.session import (
    CATCH_UP_S,
    LAST_COMMIT_S,
    NO_OFFSETS,
    ClientAdapter,
    ClientTraits,
    GroupSession,
    Notification,
)

if TYPE_CHECKING:
    from holdfast.core.machine import actions

NOTHING: tuple[()] = ()
_PENDING_COMMITS_S = 1.0
_POLL_S = 0.02


class PollClientAdapter(ClientAdapter, Protocol):
    """Client adapter of a client that works on the thread of the application's calls."""

    def stop_delivery(self, partitions: Collection[Resource]) -> None:
        """Stop delivery of the lost ``partitions``; called on the member thread."""

    def first_in_flight(self, result: Any) -> Offsets:
        """Return the first record of each partition in a call's result; from any thread."""

    def notify(self, notification: Notification) -> BaseException | None:
        """Call the application's callback of a revocation or a loss, if any; return its error."""

    def apply_assignment(
        self, notification: Notification, *, should_report: bool
    ) -> BaseException | None:
        """Begin to fetch what was assigned, and call the callback if it ``should_report``."""


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


class PollSession(GroupSession):
    """A group session on the thread of the application's calls, which write ``in_flight``."""

    def __init__(
        self,
        membership: Membership,
        adapter: PollClientAdapter,
        traits: ClientTraits,
        in_flight: InFlight,
    ):
        super().__init__(membership, adapter, traits)
        self.adapter: PollClientAdapter = adapter
        membership.rebalance_handler = self
        self.tasks = ApplicationTasks()
        self.in_flight = in_flight
        self._pending_revocation: set[Resource] = set()  # by a task that was done
        # In flight in an application that does not come back.
        self.unprocessed: Offsets = NO_OFFSETS
        self._position_reader = ThreadPoolExecutor(1, thread_name_prefix="holdfast-positions")

    # The application's thread

    def record_positions(self) -> None:
        """Read from the client how far the application has processed."""
        self.record_processed(self.unprocessed)

    def begin_poll(self) -> BaseException | None:
        """Do the waiting tasks at the start of a call; return the error of a callback.

        A revocation is several tasks, one after the other, and the member thread requests each
        when the one before is done. If the application got records first, the revocation and the
        next owners would wait until the new records are processed as well.
        """
        self.record_poll()
        self.subscription_state.record_poll()
        first: BaseException | None = None
        member_thread = self.membership.member_thread
        while True:
            n_done, error = self.tasks.do_all(0.0)
            first = first or error
            is_going = n_done > 0 or self.membership.is_leaving
            if not is_going or member_thread is None or not member_thread.catch_up(CATCH_UP_S):
                break
            if not self.tasks.items:
                break
        if first is not None or n_done:
            self.record_poll()
        return first

    def leave(
        self, deadline: float, *, returns: bool | None = None, process_ends: bool = True
    ) -> BaseException | None:
        """Revoke everything and leave; return the error of a callback.

        ``returns`` and ``process_ends`` as for
        :meth:`~holdfast.members.session.membership.Membership.leave`. If it is interrupted, a
        second call continues.
        """
        self._exclude_unprocessed()
        self.subscription_state.record_poll()
        left_s = min(LAST_COMMIT_S, max(0.0, deadline - time.monotonic()))
        if (sent := self.commit_before_leaving(left_s)) is not None:
            sent.wait(left_s)
        self.membership.leave(returns=returns, process_ends=process_ends)
        return self.finish(deadline)

    def _exclude_unprocessed(self) -> None:
        """Exclude from the commit what the application may not have processed."""
        if not self.in_flight.may_be_processed_here():
            self.unprocessed = self.in_flight_from()

    def in_flight_from(self) -> Offsets:
        """Return the first record in flight of each partition."""
        last_result = self.in_flight.last_result
        return self.adapter.first_in_flight(NOTHING if last_result is None else last_result)

    def finish(self, deadline: float) -> BaseException | None:
        """Do the tasks of a leaving member until it has left."""
        self._exclude_unprocessed()
        first: BaseException | None = None
        while not self.membership.is_finished() and time.monotonic() < deadline:
            self.subscription_state.record_poll()
            _, error = self.tasks.do_all(_POLL_S)
            first = first or error
        self.commits.wait_for_pending(max(0.0, deadline - time.monotonic()))
        _, error = self.tasks.do_all(0.0)
        return first or error

    def _mark_pending_revocation(self, resources: Collection[Resource]) -> None:
        self.record_positions()
        # Wait briefly for the application's pending commits: the member joins
        # without its partitions, and a later commit is refused.
        self.commits.wait_for_pending(_PENDING_COMMITS_S)
        self.adapter.mark_pending_revocation(resources)
        self._pending_revocation.update(resources)

    def _call(self, notification: Notification) -> BaseException | None:
        if notification.call is ListenerCall.ASSIGNED:
            if not notification.was_called:
                self.begin_terms(notification.resources)
            error = self.adapter.apply_assignment(
                notification, should_report=self.should_report(notification.resources)
            )
            self.complete_assignment()
            return error
        self.record_positions()
        error = self.adapter.notify(notification)
        self.complete_revocation(notification)
        self._pending_revocation.difference_update(notification.resources)
        return error

    def _drop(self, resources: Collection[Resource]) -> None:
        self.record_positions()
        self.adapter.stop_fetching(resources)
        self._pending_revocation.difference_update(resources)

    # On the member thread: see holdfast.members.runtime.member_thread.RebalanceHandler

    def mark_pending_revocation(
        self, resources: tuple[Resource, ...], drained: Callable[[], None]
    ) -> None:
        """Queue the end of delivery; the next call counts ``resources`` as processed."""
        last_result = self.in_flight.last_result
        self.tasks.put(
            ApplicationTask(partial(self._mark_pending_revocation, resources), lambda _: drained())
        )
        if last_result is None or self.adapter.first_in_flight(last_result).keys() & set(resources):
            return
        if self.in_flight.last_result is last_result:  # else a call began before the task
            drained()

    def drop(self, resources: tuple[Resource, ...], lost: tuple[Resource, ...]) -> None:
        """Stop delivery at once, and fetching in the next call.

        The callback of a loss, which follows for ``lost``, stops the fetching of those itself.
        """
        self.subscription_state.record_loss(resources, notified=lost)
        self.adapter.stop_delivery(resources)
        without_callback = [tp for tp in resources if tp not in set(lost)]
        self.tasks.put(ApplicationTask(partial(self._drop, without_callback)))

    def call(
        self,
        call: ListenerCall,
        resources: tuple[Resource, ...],
        done: Callable[[str | None], None],
    ) -> None:
        """Queue a callback, with the steps before and after it."""
        if call is ListenerCall.REVOKED and (deleted := self._deleted(resources)):
            self.subscription_state.end(deleted, are_deleted=True)
            self.tasks.put(
                ApplicationTask(partial(self._call, Notification(ListenerCall.LOST, deleted)))
            )
            resources = tuple(tp for tp in resources if tp not in deleted)
        work = partial(self._call, Notification(call, resources))
        if self.adapter.has_callback(call):
            self.tasks.put(ApplicationTask(work, lambda error: done(self.callback_result(error))))
        else:
            if call is ListenerCall.LOST:
                self.subscription_state.record_callback(resources, was_called=False)
            self.tasks.put(ApplicationTask(work))
            done(None)

    def _deleted(self, resources: Collection[Resource]) -> set[Resource]:
        """Return the partitions to report as lost because their topics are deleted."""
        runtime = self.membership.runtime
        if not self._traits.deleted_are_lost or not self.is_cooperative or runtime is None:
            return set()
        return {tp for tp in resources if not runtime.watch.exists(tp[0])}

    def commit(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """Commit the processed offsets of revoked partitions."""
        if not self.is_automatic:  # a close without a commit: the machine orders one nevertheless
            done(0)
            return
        has_not_polled = not self._pending_revocation.issuperset(
            self.subscription_state.active().intersection(action.resources)
        )
        if has_not_polled:
            self._position_reader.submit(self._commit_while_away, action, done)
        else:
            self.commits.commit_revoked(action, done)

    def _commit_while_away(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        try:
            processed = self._processed_offsets(action.resources)
        except Exception as error:  # the client's
            if (runtime := self.membership.runtime) is not None:
                runtime.log.warning("positions could not be read for the last commit: %r", error)
            done(-1)
            return
        if processed is None:  # it is inside a call, which does the task itself
            self.tasks.put(
                ApplicationTask(
                    self.record_positions, lambda _: self.commits.commit_revoked(action, done)
                )
            )
            return
        self.subscription_state.record_at_least(processed)
        self.commits.commit_revoked(action, done)

    def _processed_offsets(self, partitions: Collection[Resource]) -> Offsets | None:
        """Return the processed offsets, None while the application is inside a call."""
        last_result = self.in_flight.last_result
        if last_result is None:
            return None
        positions = self.adapter.positions(partitions)
        processed = self.processed(positions, self.adapter.first_in_flight(last_result))
        if self.in_flight.last_result is not last_result:
            return None
        return {tp: at for tp, at in processed.items() if tp in set(partitions)}

    def end(self) -> None:
        """Stop reading positions."""
        self._position_reader.shutdown(wait=False, cancel_futures=True)
