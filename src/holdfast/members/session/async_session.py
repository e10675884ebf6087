"""The session of a member whose client works on an event loop.

**Rules.** The member thread never waits for the loop, and the loop never for the member: every
call of the rebalance handler is a job of the loop, in the order in which the member requested it. A
revocation with automatic commits waits until the application has requested records beyond those of
the revoked partitions. A loss takes effect before its callback, which may take any time:
delivery of lost partitions stops at once. A callback is a task, answered however it ends: the
application may cancel any task. A closed loop counts its jobs as done: none of their records was
delivered.

**Strategy.** An exception of a signal handler may interrupt a job and end the loop's run. The job
is repeated when the loop runs again (:mod:`holdfast.members.runtime.application_calls`), so each
may be begun twice. :meth:`AsyncSession.run_due_jobs` does whatever is due; every job calls it, and
the client does now and then, in case an exception came after a job was queued and before it ran.

References: KIP-429 (callbacks).
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.core.machine.shared_values import ListenerCall, OffsetToCommit
from holdfast.core.model.partitions import Resource
from holdfast.members.runtime.application_calls import ApplicationTask, ApplicationTasks
from holdfast.members.session.membership import Membership
from holdfast.members.session.session import LAST_COMMIT_S, ClientTraits, GroupSession, Notification

if TYPE_CHECKING:
    from holdfast.core.machine import actions

_POLL_S = 0.01


@dataclass(eq=False, slots=True, kw_only=True)
class _RunningNotification:
    """A callback that runs, or has run."""

    notification: Notification
    done: Callable[[str | None], None]
    task: asyncio.Task[None] | None = None
    first_task: asyncio.Task[None] | None = None  # of two, if an interrupted job ran again


class AsyncSession(GroupSession):
    """A :class:`~holdfast.members.session.session.GroupSession` on an event loop.

    ``in_flight`` has the offset of the first record in flight of each partition; the client's calls
    write it. Besides the methods of :class:`~holdfast.members.session.session.ClientAdapter`,
    ``adapter`` has ``stop_delivery``, ``apply_assignment``, ``start_delivery`` and the coroutine
    function ``notify``.
    """

    def __init__(
        self,
        membership: Membership,
        adapter: Any,
        traits: ClientTraits,
        loop: asyncio.AbstractEventLoop,
        in_flight: dict[Resource, int],
    ):
        super().__init__(membership, adapter, traits)
        self.adapter: Any = adapter
        membership.rebalance_handler = self
        self.in_flight = in_flight
        self._loop = loop
        self._jobs = ApplicationTasks()
        # Revocations that wait for the application: whom to notify, and the partitions.
        self._drains: dict[Callable[[], None], frozenset[Resource]] = {}
        self._running: list[_RunningNotification] = []
        self._revocation_reported = False  # a revocation was reported, and no assignment since
        self._is_over = False

    # The application, on the loop

    def record_positions(self) -> None:
        """Read from the client how far the application has processed."""
        self.record_processed({tp: OffsetToCommit(at) for tp, at in self.in_flight.items()})

    def begin_poll(self, partitions: Collection[Resource] = ()) -> None:
        """Count what the application has of ``partitions`` (by default of all) as processed.

        The application asks for more records. If it asks for single partitions, it may still work
        on the others.
        """
        self.membership.process.check()
        if partitions:
            self.count_as_processed(partitions)
        else:
            self.in_flight.clear()
        self.subscription_state.record_poll()
        if self._drains:
            self._check_drains()

    def count_as_processed(self, partitions: Collection[Resource]) -> None:
        """Count the records of ``partitions`` as processed, without a request for more of them."""
        for tp in partitions:
            self.in_flight.pop(tp, None)

    def forget_unsubscribed(self, topics: Collection[str]) -> None:
        """Count as processed what was delivered of topics that are not in ``topics``.

        An application that asks for single partitions never asks again for the partitions of a
        topic that is not subscribed to.
        """
        self.count_as_processed([tp for tp in self.in_flight if tp[0] not in topics])
        self._check_drains()

    async def leave(self, deadline: float, *, returns: bool | None = None) -> None:
        """Revoke everything and leave, as a process that ends; a second call continues.

        ``returns`` as for :meth:`~holdfast.members.session.membership.Membership.leave`.
        """
        self.begin_poll()
        left_s = min(LAST_COMMIT_S, max(0.0, deadline - time.monotonic()))
        if (sent := self.commit_before_leaving(left_s)) is not None:
            give_up = time.monotonic() + left_s
            while not sent.done() and time.monotonic() < give_up:
                await asyncio.sleep(_POLL_S)
        await self.finish(deadline, returns=returns, process_ends=True)

    async def finish(
        self, deadline: float, *, returns: bool | None = None, process_ends: bool = False
    ) -> None:
        """Leave, and do the member's jobs until it has left; everything delivered is processed."""
        self.membership.leave(returns=returns, process_ends=process_ends)
        while not self.membership.is_finished() and time.monotonic() < deadline:
            self.begin_poll()
            self.run_due_jobs()
            await asyncio.sleep(_POLL_S)

    def stop_callbacks(self) -> None:
        """Cancel the running callbacks; their member is closed and does not wait."""
        for running in self._running:
            if running.task is not None:
                running.task.cancel()

    async def committed_offsets(
        self, partitions: Collection[Resource]
    ) -> dict[Resource, int] | None:
        """Return the committed offsets, -1 for none.

        None if a partition was revoked or assigned during the request: another member may have
        committed since the response, and the caller must request again.
        """
        terms = _terms(self.membership, partitions)
        committed = await asyncio.wrap_future(self.request_committed(partitions))
        if _terms(self.membership, partitions) != terms:
            return None
        self.subscription_state.start_at_committed(committed)
        return committed

    # What is due

    def run_due_jobs(self) -> None:
        """Run the queued jobs, and finish the callbacks that have ended."""
        try:
            while not self._is_over and self._jobs.items:
                self._jobs.do_next(0.0)
            for running in [
                one for one in self._running if one.task is not None and one.task.done()
            ]:
                self._end(running)
        except queue.Empty:
            return
        except BaseException:
            self._loop.call_soon(self.run_due_jobs)  # the job is queued again
            raise

    def _queue_job(
        self,
        work: Callable[[], None],
        on_done: Callable[[BaseException | None], None] = lambda _: None,
    ) -> bool:
        """Queue a job for the loop; return False if the loop is closed."""
        self._jobs.put(ApplicationTask(work, on_done))
        try:
            self._loop.call_soon_threadsafe(self.run_due_jobs)
        except RuntimeError:
            return False
        return True

    def _check_drains(self) -> None:
        waiting = self.in_flight.keys()
        for drained in [one for one, tps in self._drains.items() if waiting.isdisjoint(tps)]:
            drained()
            del self._drains[drained]

    def _mark_pending_revocation(
        self, resources: frozenset[Resource], drained: Callable[[], None]
    ) -> None:
        self.record_positions()
        self.adapter.mark_pending_revocation(resources)
        if not self.is_automatic:
            drained()
            return
        self._drains[drained] = resources
        self._check_drains()

    def _stop_delivery(self, resources: Collection[Resource]) -> None:
        self.record_positions()
        self.count_as_processed(resources)
        self._check_drains()
        self.adapter.stop_delivery(resources)

    def _call(self, running: _RunningNotification) -> None:
        """Begin a callback, before calls that wait for the assignment are released."""
        notification = running.notification
        is_assigned = notification.call is ListenerCall.ASSIGNED
        if running.task is None:
            if is_assigned:
                self.begin_terms(notification.resources)
            should_report = not is_assigned or self.should_report(notification.resources)
            running.task = self._loop.create_task(self._run(running, should_report=should_report))
        if running not in self._running:
            self._running.append(running)
        running.task.add_done_callback(lambda _: self.run_due_jobs())
        if is_assigned:
            self.adapter.apply_assignment(notification.resources)

    def _end(self, running: _RunningNotification) -> None:
        """Finish a callback; safe to repeat after an interruption."""
        if running.notification.call is ListenerCall.ASSIGNED:
            self.complete_assignment()
            self.adapter.start_delivery(running.notification.resources)
        else:
            self.complete_revocation(running.notification)
        running.done(None)
        self._running.remove(running)

    # Callbacks

    def should_report(self, resources: Collection[Resource]) -> bool:
        """Return whether to report an assignment, which may be empty, to the application."""
        return super().should_report(resources) or self._revocation_reported

    async def _run(self, running: _RunningNotification, *, should_report: bool) -> None:
        """Run a callback once; the second task of an interrupted job waits for its end."""
        if running.first_task is not None:
            await asyncio.wait([running.first_task])
            return
        running.first_task = asyncio.current_task()
        await self._notify(running.notification, should_report=should_report)

    async def _notify(self, notification: Notification, *, should_report: bool) -> None:
        has_callback = self._traits.reports_on_close or not self.membership.is_leaving
        if not should_report or not has_callback:
            return
        if not (self._traits.reports_full_assignment and self.is_cooperative):
            await self.adapter.notify(notification)
            return
        was_reported, self._revocation_reported = (
            self._revocation_reported,
            notification.call is not ListenerCall.ASSIGNED,
        )
        if self._revocation_reported:
            await self.adapter.notify(notification)
            return
        if not was_reported:
            await self.adapter.notify(Notification(ListenerCall.REVOKED, ()))
        await self.adapter.notify(
            Notification(ListenerCall.ASSIGNED, self.subscription_state.active())
        )

    # On the member thread: see holdfast.members.runtime.member_thread.RebalanceHandler

    def mark_pending_revocation(
        self, resources: tuple[Resource, ...], drained: Callable[[], None]
    ) -> None:
        """Stop delivery of ``resources``; call ``drained`` once they are processed."""
        if not self._queue_job(
            partial(self._mark_pending_revocation, frozenset(resources), drained)
        ):
            drained()

    def drop(self, resources: tuple[Resource, ...], lost: tuple[Resource, ...]) -> None:
        """Hide ``resources``; nothing delivered of them is committed afterwards."""
        self.subscription_state.record_loss(resources, notified=lost)
        self._queue_job(partial(self._stop_delivery, resources))

    def call(
        self,
        call: ListenerCall,
        resources: tuple[Resource, ...],
        done: Callable[[str | None], None],
    ) -> None:
        """Run a callback, with the steps before and after it."""
        running = _RunningNotification(notification=Notification(call, resources), done=done)
        if not self._queue_job(partial(self._call, running)):
            done(None)

    def commit(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """Commit the processed offsets of revoked partitions."""
        if not self._queue_job(
            self.record_positions, lambda _: self.commits.commit_revoked(action, done)
        ):
            done(-1)

    def is_orphaned(self) -> bool:
        """Return whether the loop is closed, so that nothing runs on it."""
        return self._loop.is_closed()

    def end(self) -> None:
        """Stop doing jobs."""
        self._is_over = True


def _terms(membership: Membership, partitions: Collection[Resource]) -> list[int | None]:
    terms = membership.snapshot.terms
    return [terms.get(tp) for tp in partitions]
