"""The client adapter of aiokafka, with an assignment that can be changed while it is in use.

**Rules.** A cooperative member drops revoked partitions once their callback has ended. An eager one
keeps them until the next assignment, as aiokafka does: a round is short, and a commit is then
refused by the group, not by aiokafka. Both drop lost partitions at once. Errors of a listener are
logged, as by aiokafka.

A partition that stays keeps its position, its fetched records, its pause and its pending fetch. A
revoked partition is *pending revocation* first: its records wait, and its position can still be
committed. A dropped partition is never delivered again, however late a fetch of it is answered.

**Strategy.** aiokafka makes a new assignment at every change, and its fetcher then drops every
record and every request. :class:`MutableAssignment` is changed instead, and the fetcher reads it
again. A dropped partition leaves a state without a position for the fetcher, so a late response is
dropped. This module uses private parts of aiokafka, so only the versions of
:mod:`holdfast.cluster.versions` are accepted.

References: KIP-429 (partitions that stay keep flowing); aiokafka,
``GroupCoordinator._on_join_prepare`` and ``_on_join_complete``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import weakref
from collections.abc import Collection, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from aiokafka.consumer.subscription_state import (
    Assignment,
    Subscription,
    SubscriptionType,
    TopicPartitionState,
)
from aiokafka.consumer.subscription_state import (
    SubscriptionState as AiokafkaSubscriptions,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.core.machine.shared_values import ListenerCall, Offsets, OffsetToCommit
from holdfast.core.model.partitions import Resource
from holdfast.members.session.async_session import AsyncSession
from holdfast.members.session.session import Notification
from holdfast.members.session.subscription_state import SubscriptionState

log = logging.getLogger(__name__)

_AUTOMATIC = (SubscriptionType.AUTO_TOPICS, SubscriptionType.AUTO_PATTERN)


@dataclass(eq=False, slots=True)
class RunningCallback:
    """A callback that runs; tasks and threads that it starts know it, too."""

    adapter: AiokafkaAdapter
    task: asyncio.Task[Any] | None
    has_ended: bool = False


_running: ContextVar[RunningCallback | None] = ContextVar("holdfast_callback", default=None)


class AiokafkaAdapter:
    """The client adapter of aiokafka; ``coordinator`` is notified of what it does."""

    def __init__(self, subscription: MutableSubscriptions, coordinator: Any):
        self._subscription = subscription
        self._coordinator = coordinator
        self._assignment: MutableAssignment | None = None  # a revocation commits from it
        self.is_closing = False
        self.session: AsyncSession

    # Queries

    @property
    def is_unassigned(self) -> bool:
        """Return whether there was no assignment yet."""
        return self._assignment is None

    def positions(self, partitions: Collection[Resource]) -> Offsets:
        if self._assignment is None:
            return {}
        positions = {}
        for tp in partitions:
            if self._assignment.has(TopicPartition(*tp)):
                state = self._assignment.state_value(TopicPartition(*tp))
                if state.has_valid_position:
                    positions[tp] = OffsetToCommit(state.position)
        return positions

    # Changes

    def mark_pending_revocation(self, partitions: Collection[Resource]) -> None:
        self._subscription.mark_pending_revocation(_to_client_partitions(partitions))
        self._coordinator.request_rejoin()

    def stop_delivery(self, partitions: Collection[Resource]) -> None:
        """Stop delivery of the lost ``partitions``, and fetch no more of them."""
        self._subscription.drop(_to_client_partitions(partitions))

    def stop_fetching(self, partitions: Collection[Resource]) -> None:
        """Drop partitions; a closed consumer keeps all."""
        if self._subscription.is_cooperative and not self.is_closing:
            self._subscription.drop(_to_client_partitions(partitions))

    def apply_assignment(self, partitions: Collection[Resource]) -> None:
        """Begin to fetch; no record is delivered before the callback, which is next, has ended."""
        awaits_callback = self.has_callback(ListenerCall.ASSIGNED)
        self._subscription.assign_more(
            _to_client_partitions(partitions),
            self.session.subscription_state,
            awaits_callback=awaits_callback,
        )
        assignment = getattr(self._subscription.subscription, "assignment", None)
        is_new = isinstance(assignment, MutableAssignment) and assignment is not self._assignment
        if is_new:
            self._assignment = assignment
        self._coordinator.complete_join(assignment if is_new else None)

    def start_delivery(self, partitions: Collection[Resource]) -> None:
        """Deliver records of ``partitions``: the callback of the assignment has ended."""
        self._subscription.start_delivery(_to_client_partitions(partitions))

    def forget(self) -> None:
        """Drop everything: the member has ended. A closed consumer keeps its assignment."""
        if self._assignment is not None and not self.is_closing:
            if self._subscription.partitions_auto_assigned():
                self._subscription.begin_reassignment()
            self._subscription.drop(list(self._assignment.tps))
        self._assignment = None

    # Callbacks

    def has_callback(self, call: ListenerCall) -> bool:
        return self._subscription.listener is not None

    async def notify(self, notification: Notification) -> None:
        """Run a callback of the application, if it has one; its error is not raised."""
        await self.call_listener(notification)
        if notification.call is ListenerCall.REVOKED:
            await self._coordinator.find_new_topics()

    async def call_listener(self, notification: Notification) -> None:
        """Call one method of the application's listener."""
        listener, name = self._subscription.listener, f"on_partitions_{notification.call.value}"
        if notification.call is ListenerCall.LOST and not hasattr(listener, name):
            name = "on_partitions_revoked"
        if (method := getattr(listener, name, None)) is None:
            return
        running = RunningCallback(self, asyncio.current_task())
        before = _running.set(running)
        try:
            result = method(set(_to_client_partitions(notification.resources)))
            if inspect.isawaitable(result):
                await result
        except Exception:
            log.exception("the listener's %s failed", name)
        finally:
            running.has_ended = True
            _running.reset(before)

    def running(self) -> RunningCallback | None:
        """Return the callback of this consumer that made this call, itself or by another task."""
        callback = _running.get()
        return (
            callback
            if callback is not None and callback.adapter is self and not callback.has_ended
            else None
        )


class TermState(TopicPartitionState):  # type: ignore[misc]  # aiokafka has no types
    """A partition in one term of ownership, which records its start and seeks."""

    def __init__(self, assignment: Any, tp: TopicPartition, subscription_state: SubscriptionState):
        super().__init__(assignment)
        self._tp = tp
        self._subscription_state = subscription_state

    def reset_to(self, position: int) -> None:
        super().reset_to(position)
        self._subscription_state.start_at_reset({self._tp: position})
        self._subscription_state.seek(self._tp, position)  # it may lie before what is committed

    def seek(self, position: int) -> None:
        super().seek(position)
        self._subscription_state.seek(self._tp, position)


class DroppedState(TopicPartitionState):  # type: ignore[misc]
    """The state of a dropped partition: it never has a position."""

    def __init__(self, assignment: Any):
        super().__init__(assignment)
        self._position_fut.set_result(None)

    def reset_to(self, position: int) -> None:
        """Stay without a position."""

    def seek(self, position: int) -> None:
        """Stay without a position."""

    def await_reset(self, strategy: int) -> None:
        """Stay without a position."""


class MutableAssignment(Assignment):  # type: ignore[misc]
    """An assignment that loses and gains partitions while it is in use."""

    def __init__(self, partitions: Iterable[TopicPartition], subscription_state: SubscriptionState):
        super().__init__([])
        self._dropped: dict[TopicPartition, Any] = {}
        self.add(list(partitions), subscription_state)

    def state_value(self, tp: TopicPartition) -> Any:
        """Return the state of a partition, or of a dropped one, for a late response."""
        return self._tp_state.get(tp) or self._dropped.get(tp)

    def has(self, tp: TopicPartition) -> bool:
        """Return whether the partition is still assigned."""
        return tp in self._tp_state

    def add(
        self, partitions: Collection[TopicPartition], subscription_state: SubscriptionState
    ) -> None:
        """Add partitions; they begin without a position."""
        for tp in partitions:
            self._tp_state[tp] = TermState(self, tp, subscription_state)
            self._dropped.pop(tp, None)
        self._topic_partitions = frozenset(self._tp_state)

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Drop partitions, and wake up whatever waits for them.

        It may be interrupted and repeated: every partition of the assignment has a state.
        """
        for tp in partitions:
            state = self._tp_state.get(tp)
            if state is None:
                continue
            self._dropped.setdefault(tp, DroppedState(self))
            state.resume()  # wakes up the waiters
            if not state._position_fut.done():
                state._position_fut.set_result(None)
            state.update_committed(OffsetAndMetadata(0, ""))  # else a fetch would wait for ever
            del self._tp_state[tp]
        self._topic_partitions = frozenset(self._tp_state)


class MutableSubscriptions(AiokafkaSubscriptions):  # type: ignore[misc]
    """The subscription and the assignment of a consumer.

    If the member is not cooperative, every assignment starts empty.
    """

    _subscription: Any
    _kept_listener: weakref.ref[Any] | None = None

    def __init__(self, loop: Any, *, cooperative: bool):
        super().__init__(loop=loop)
        self.is_cooperative = cooperative
        self.fetcher: Any = None  # set before the group is joined
        self.is_subscribed_again = False  # to the same topics
        self._pending_revocation: set[TopicPartition] = set()
        # Partitions whose callback of the assignment has not ended.
        self._pending_on_assigned: set[TopicPartition] = set()
        self._paused_by_user: set[TopicPartition] = set()

    # The consumer keeps the listener alive. Tasks of the loop refer to this object, and a listener
    # often to its consumer, which could then not be collected.

    @property
    def _listener(self) -> Any:
        return None if self._kept_listener is None else self._kept_listener()

    @_listener.setter
    def _listener(self, listener: Any) -> None:
        self._kept_listener = None if listener is None else weakref.ref(listener)

    def _change_subscription(self, subscription: Any) -> None:
        """Keep partitions that are still subscribed to, if both subscriptions are of a group."""
        old = self._subscription
        keeps = (
            self.is_cooperative
            and old is not None
            and old.active
            and isinstance(old.assignment, MutableAssignment)
            and type(subscription) is Subscription
            and self._subscription_type in _AUTOMATIC
        )
        if not keeps:
            for held in (self._pending_revocation, self._pending_on_assigned, self._paused_by_user):
                held.clear()
            super()._change_subscription(subscription)
            return
        if old.topics == subscription.topics:
            self.is_subscribed_again = True
            return
        old.unsubscribe_future.set_result(None)
        subscription._assignment = old.assignment
        subscription._reassignment_in_progress = False
        self._subscription = subscription
        self.mark_pending_revocation(
            [tp for tp in old.assignment.tps if tp.topic not in subscription.topics]
        )
        self._notify_subscription_waiters()

    def mark_pending_revocation(self, partitions: Collection[TopicPartition]) -> None:
        """Stop delivery of partitions; their positions stay."""
        if not self.is_cooperative:
            if self.partitions_auto_assigned():
                self.begin_reassignment()
            return
        held = [tp for tp in partitions if self.is_assigned(tp)]
        self._hold(held)
        self._pending_revocation.update(held)

    def _hold(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            if not self._is_held(tp):
                if self._assigned_state(tp).paused:
                    self._paused_by_user.add(tp)
                super().pause(tp)

    def _is_held(self, tp: TopicPartition) -> bool:
        return tp in self._pending_revocation or tp in self._pending_on_assigned

    def assign_more(
        self,
        partitions: Collection[TopicPartition],
        subscription_state: SubscriptionState,
        *,
        awaits_callback: bool = False,
    ) -> None:
        """Add partitions, except those of topics that are no subscription.

        With ``awaits_callback`` none of their records is delivered before :meth:`start_delivery`.
        """
        subscription = self._subscription
        if subscription is None or not self.partitions_auto_assigned():
            return
        wanted = [tp for tp in partitions if tp.topic in subscription.topics]
        assignment = subscription.assignment
        if self.is_cooperative and isinstance(assignment, MutableAssignment) and assignment.active:
            self.drop([tp for tp in wanted if tp in self._pending_revocation])
            new = [tp for tp in wanted if not assignment.has(tp)]
            assignment.add(new, subscription_state)
            self._wake_fetcher()
        else:
            if assignment is not None and assignment.active:
                assignment._unassign()
            new = wanted
            subscription._assignment = MutableAssignment(wanted, subscription_state)
            for held in (self._pending_revocation, self._pending_on_assigned, self._paused_by_user):
                held.clear()
        if awaits_callback:
            self._hold(new)
            self._pending_on_assigned.update(new)
        subscription._reassignment_in_progress = False
        self._notify_assignment_waiters()

    def start_delivery(self, partitions: Collection[TopicPartition]) -> None:
        """Deliver records that the application has not paused: the callback has ended."""
        announced = self._pending_on_assigned.intersection(partitions)
        self._pending_on_assigned -= announced
        for tp in announced:
            if self._is_held(tp) or not self.is_assigned(tp):
                continue
            if tp not in self._paused_by_user:
                super().resume(tp)
            self._paused_by_user.discard(tp)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Drop partitions at once."""
        for held in (self._pending_revocation, self._pending_on_assigned, self._paused_by_user):
            held.difference_update(partitions)
        subscription = self._subscription
        if subscription is None or not isinstance(subscription.assignment, MutableAssignment):
            return  # the application has assigned partitions itself, and fetches those
        subscription.assignment.remove(partitions)
        if self.fetcher is not None:
            for tp in partitions:
                self.fetcher._records.pop(tp, None)

    async def wait_for_assignment(self) -> None:
        """Wait for the next assignment that still exists when the waiter wakes up.

        A new topic of a pattern may remove it in between, and aiokafka's fetcher, which asserts
        that it has one, would end for good.
        """
        while True:
            await super().wait_for_assignment()
            assignment = getattr(self.subscription, "assignment", None)
            if assignment is not None and assignment.active:
                return

    def _wake_fetcher(self) -> None:
        """Wake the fetcher, which goes through the assignment in every iteration."""
        if self.fetcher is not None:
            self.fetcher._notify(self.fetcher._wait_consume_future)

    # Pauses of the application are separate from pending revocations.

    def pause(self, tp: TopicPartition) -> None:
        if self._is_held(tp):
            self._paused_by_user.add(tp)
        super().pause(tp)

    def resume(self, tp: TopicPartition) -> None:
        """Resume unless the partition is being revoked or waits for its callback."""
        if self._is_held(tp):
            self._paused_by_user.discard(tp)
        else:
            super().resume(tp)

    def paused_partitions(self) -> set[TopicPartition]:
        """Return the partitions that the application has paused."""
        paused: set[TopicPartition] = super().paused_partitions()
        held = self._pending_revocation | self._pending_on_assigned
        return (paused - held) | (paused & self._paused_by_user)


def _to_client_partitions(partitions: Collection[Resource]) -> list[TopicPartition]:
    return [TopicPartition(*tp) for tp in sorted(partitions)]
