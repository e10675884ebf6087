"""The thread of one member machine: takes events from a queue and performs actions.

**Rules.** Only this thread touches the machine. The actions of one event are performed in order,
all of them before the next event; lost resources are dropped first. This module makes no decision
about the group: it passes events in and actions out, as the simulation does.

**Strategy.** Requests go to
:class:`~holdfast.members.runtime.coordinator_client.CoordinatorClient`; records, callbacks and
offsets to :class:`RebalanceHandler`, which a consumer of topics and a worker implement; the
leader's plan is computed on a thread of its own, so a slow lag source never delays a heartbeat.

References: KIP-62 (background heartbeats); the Incremental Cooperative Rebalancing document, "join
group in the background thread".
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from holdfast.cluster.signal_safe import Flag, Mailbox
from holdfast.core.machine import actions, events
from holdfast.core.machine.leader.designs import led_round
from holdfast.core.machine.member.member import Member
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.machine.states import ENDED, MemberState
from holdfast.core.model.partitions import Resource
from holdfast.errors import ClientError, HoldfastError, RemoteProtocolError
from holdfast.members.metrics import RebalanceTimes
from holdfast.members.runtime.coordinator_client import CoordinatorClient
from holdfast.members.runtime.member_status import NAME, Log, MemberLog, MemberSnapshot, ReadyFile

_LEAVING_OR_ENDED = ENDED | {MemberState.LEAVING}
_DROPPED_AT_END = (events.MetadataChanged, events.SubscriptionChanged, events.RejoinRequested)


class RebalanceHandler(Protocol):
    """The application's side of a member; called on the member thread unless it says otherwise."""

    def mark_pending_revocation(
        self, resources: tuple[Resource, ...], drained: Callable[[], None]
    ) -> None:
        """Stop delivery of ``resources``; call ``drained`` when none of them is in flight."""

    def drop(self, resources: tuple[Resource, ...], lost: tuple[Resource, ...]) -> None:
        """Stop the lost ``resources`` at once; ``LOST`` is called for those in ``lost``."""

    def call(
        self,
        call: ListenerCall,
        resources: tuple[Resource, ...],
        done: Callable[[str | None], None],
    ) -> None:
        """Call the listener; ``done`` takes the text of its error, or None."""

    def commit(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """Commit processed offsets of revoked resources; ``done`` takes a code, -1: no answer."""

    def is_orphaned(self) -> bool:
        """Return whether no call of the application can ever come again; from any thread."""

    def end(self) -> None:
        """Stop starting tasks; called by the thread that closes the member."""


_Work = Callable[[], object]
"""A function that the member thread calls once the events before it are done."""


class MemberThread:
    """One running member.

    Parameters
    ----------
    member : Member
        The machine; only this thread uses it from :meth:`start` on.
    compute : callable
        Plans a rebalance for a member that leads.
    is_orphaned : callable, optional
        Returns whether no call of the application can ever come again: then the member ends, and
        sends no more heartbeats.
    """

    def __init__(
        self,
        member: Member,
        rebalance_handler: RebalanceHandler,
        compute: Callable[[actions.ComputeAssignment], events.AssignmentComputed],
        *,
        name: str,
        log: MemberLog | None = None,
        ready: ReadyFile | None = None,
        is_orphaned: Callable[[], bool] = lambda: False,
    ):
        self._member = member
        self._is_orphaned = is_orphaned
        self._rebalance_handler = rebalance_handler
        self._compute = compute
        self._planned: actions.LedRound | None = None  # in the current rebalance
        self._led: actions.LedRound | None = None  # the last rebalance that was completed
        self._coordinator: CoordinatorClient | None = None
        self._events: Mailbox[events.Event | _Work | None] = Mailbox()
        self._planner = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-leader")
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.finished = Flag()  # set once the machine has left, or has failed
        self._is_stopped = False
        self._has_ended = False
        self._log: Log = log or logging.getLogger(NAME)
        self._ready = ready or ReadyFile(None, self._log)
        if log is not None:
            log.identify = lambda: self.snapshot.identity
        self.failure: HoldfastError | None = None
        self.snapshot = _snapshot(member)
        self.times = RebalanceTimes()
        self.heartbeat_sent_at = 0.0  # when the last heartbeat was sent, by the monotonic clock
        self.heartbeat_answered_at = 0.0  # when the coordinator last acknowledged a heartbeat

    def start(self, coordinator: CoordinatorClient) -> None:
        """Start; requests go through ``coordinator``, whose answers come to :meth:`post`.

        The machine joins after the event :class:`~holdfast.core.machine.events.Started`.
        """
        self._coordinator = coordinator
        if self._thread.ident is None:  # else an earlier call was interrupted after this
            self._thread.start()

    def leave(self, *, returns: bool, process_ends: bool = True) -> None:
        """Request that the machine revokes everything and leaves; see :attr:`finished`."""
        self.post(events.LeaveRequested(returns, process_ends))
        if self._thread.ident is None:  # it never began
            self.finished.set()

    def record_poll(self) -> None:
        """Record that the application has polled (``max.poll.interval.ms``)."""
        self.post(events.Polled())

    def record_refused(self, generation: int, code: int) -> None:
        """Record that a commit of ``generation`` was refused with ``code``."""
        self.post(events.CommitRefused(generation, code))

    def rejoin(self, reason: str) -> None:
        """Request a rebalance (KIP-568)."""
        self.post(events.RejoinRequested(reason))

    def post(self, event: events.Event) -> None:
        """Queue an event for the machine; safe from any thread."""
        self._events.put(event)

    def catch_up(self, timeout_s: float) -> bool:
        """Wait until all posted events and their actions are done; return False at the time-out."""
        if self._has_ended:
            return False
        reached = Flag()
        self.call_soon(reached.set)
        return reached.wait(timeout_s)

    def call_soon(self, work: Callable[[], object]) -> None:
        """Call ``work`` on the member thread once all posted events are done.

        After the end of the thread ``work`` is called at once.
        """
        self._events.put(work)
        if self._has_ended:
            self._finish_work()

    def _finish_work(self) -> None:
        """Do the work of :meth:`call_soon` that is left when the thread ends."""
        while self._events.items:
            with suppress(IndexError):  # another thread does the same
                left = self._events.items.popleft()
                if callable(left):
                    left()

    def fail(self, error: BaseException) -> None:
        """End the member with an error that the application's next call raises."""
        if self.failure is None:
            ours = isinstance(error, HoldfastError)
            self.failure = error if ours else ClientError(str(error))  # type: ignore[assignment]
            self.finished.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread, whatever the machine's state; safe to call twice."""
        self._is_stopped = True
        self._events.put(None)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        self._planner.shutdown(wait=False, cancel_futures=True)

    # The thread

    def _run(self) -> None:
        try:
            while (event := self._next()) is not None and not self._is_orphaned():
                if callable(event):
                    event()
                    continue
                if self._member.state in _LEAVING_OR_ENDED and isinstance(event, _DROPPED_AT_END):
                    continue  # it was queued when the application closed
                if isinstance(event, events.HeartbeatAnswered) and event.error == 0:
                    self.heartbeat_answered_at = time.monotonic()
                self.times.record_event(event)
                new_actions = self._member.step(_now_ms(), event)
                # A commit on another thread reads the snapshot first, then the offsets. If
                # the snapshot were changed first, that commit could find nothing owned and nothing
                # lost, and would return as if there were nothing to commit.
                drops = [action for action in new_actions if isinstance(action, actions.DropNow)]
                for drop in drops:
                    self.times.record_loss(drop)
                    self._rebalance_handler.drop(drop.resources, drop.lost)
                self.snapshot = _snapshot(self._member)  # before a callback can read it
                self._ready.remove_unless_stable(self.snapshot.state)
                for action in new_actions:
                    self._perform(action)
                self._update_ready_file(event)
                if self._member.state in ENDED:
                    self.finished.set()
        except Exception as error:  # our bug: the application gets the error, nothing hangs
            self._log.exception("the member thread failed")
            self.fail(ClientError(f"the member thread failed: {type(error).__name__}: {error}"))
        finally:
            self._ready.remove()
            self.finished.set()
            self._has_ended = True
            self._finish_work()

    def _update_ready_file(self, event: events.Event) -> None:
        if self.failure is not None:
            self._ready.remove()
            return
        if isinstance(event, events.HeartbeatAnswered) and event.error == 0:
            self._ready.touch()
        self._ready.create_if_stable(self.snapshot.state, self.snapshot.identity.generation)

    def _next(self) -> events.Event | _Work | None:
        deadline = self._member.deadline_ms
        timeout_s = None if deadline is None else max(0.0, (deadline - _now_ms()) / 1000)
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            return events.Tick(_now_ms())

    def _perform(self, action: actions.Action) -> None:
        rebalance_handler = self._rebalance_handler
        match action:
            case actions.StopFetching(token=token):
                rebalance_handler.mark_pending_revocation(
                    action.resources, lambda: self.post(events.Drained(token))
                )
            case actions.DropNow():
                pass  # performed before the others
            case actions.StartFetching():
                pass  # the callback of the assignment has started the resources
            case actions.CallListener(token=token):
                rebalance_handler.call(
                    action.call,
                    action.resources,
                    lambda error: self.post(events.ListenerReturned(token, error)),
                )
            case actions.Commit(token=token):
                rebalance_handler.commit(
                    action, lambda code: self.post(events.CommitAnswered(token, code))
                )
            case actions.ComputeAssignment():
                self._planner.submit(self._plan, action)
            case actions.JoinCompleted():
                self._record_rebalance(action)
            case actions.Warn():
                self._log.warning(action.text)
            case actions.Fail():
                self.fail(RemoteProtocolError(action.text, error_code=action.error))
            case _:
                assert self._coordinator is not None
                if isinstance(action, actions.SendHeartbeat):
                    self.heartbeat_sent_at = time.monotonic()
                self.times.record_request(action)
                self._coordinator.perform(action)

    def _plan(self, action: actions.ComputeAssignment) -> None:
        try:
            done = self._compute(replace(action, led=self._led))
            self._planned = led_round(action, done)
            self.post(done)
        except Exception as error:
            if self._is_stopped:
                return
            self._log.exception("the leader's plan failed")
            reason = f"{type(error).__name__}: {error}"
            self.post(events.AssignmentFailed(action.token, reason))

    def _record_rebalance(self, action: actions.JoinCompleted) -> None:
        self.times.record_completed(action)
        planned, self._planned = self._planned, None
        is_mine = planned is not None and planned.generation == action.generation
        self._led = planned if is_mine and action.is_leader else None
        self._log.info(
            "generation %d: owns %d, gained %d, revoked %d%s",
            action.generation,
            len(action.owned),
            len(action.gained),
            len(action.revoked),
            f", next round in {action.delay_ms} ms" if action.delay_ms else "",
            extra={"generation": action.generation, "member_id": action.member_id},
        )


def _snapshot(member: Member) -> MemberSnapshot:
    return MemberSnapshot(
        state=member.state,
        identity=member.identity,
        owned=member.holdings.owned,
        terms=member.holdings.terms,
        is_leader=member.is_leader,
    )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
