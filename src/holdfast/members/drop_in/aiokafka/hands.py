"""aiokafka in the hands of a seat: its record of what a consumer has, and the listener.

**Rules.** A cooperative member loses what a callback has revoked once that callback is over. An
eager one keeps it until the next assignment, as aiokafka does: a round is short, and a commit of it
is then refused by the group, not by aiokafka. What is lost is gone at once in both. What a listener
raises is logged, as by aiokafka.

References: KIP-429; aiokafka, ``GroupCoordinator._on_join_prepare`` and ``_on_join_complete``.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection
from typing import Protocol

from aiokafka.structs import TopicPartition

from holdfast.core.machine.callbacks import ListenerCall
from holdfast.core.model.partitions import Resource
from holdfast.members.drop_in.aiokafka.state import KeepingAssignment, KeepingSubscriptions
from holdfast.members.member.offsets import Offsets, OffsetToCommit
from holdfast.members.seat.hands import Callback, before
from holdfast.members.seat.on_loop import OnLoop

log = logging.getLogger(__name__)


class WithCoordinator(Protocol):
    """What hears of an assignment."""

    def request_rejoin(self) -> None:
        """Partitions are given up."""

    def has_joined(self, assignment: KeepingAssignment | None) -> None:
        """A round is over; an assignment is given if it is a new one."""

    async def look_for_topics(self) -> None:
        """Partitions were given up: the reason may be a new topic."""


class AiokafkaHands:
    """See :class:`~holdfast.members.seat.on_loop.LoopHands`.

    Parameters
    ----------
    subscription : KeepingSubscriptions
        What the consumer subscribes to and has.
    coordinator : WithCoordinator
        Its coordinator.
    """

    def __init__(self, subscription: KeepingSubscriptions, coordinator: WithCoordinator):
        self._subscription = subscription
        self._coordinator = coordinator
        self._assignment: KeepingAssignment | None = None  # a hand-over commits from it
        self.is_closing = False
        self.seat: OnLoop

    # Questions

    @property
    def is_new(self) -> bool:
        """Whether there was no assignment yet."""
        return self._assignment is None

    def positions(self, partitions: Collection[Resource]) -> Offsets:
        if self._assignment is None:
            return {}
        found = {}
        for tp in partitions:
            if self._assignment.keeps(TopicPartition(*tp)):
                state = self._assignment.state_value(TopicPartition(*tp))
                if state.has_valid_position:
                    found[tp] = OffsetToCommit(state.position)
        return found

    def processed(self, positions: Offsets, in_hand: Offsets) -> Offsets:
        return before(positions, in_hand)

    # Changes

    def hold_back(self, partitions: Collection[Resource]) -> None:
        self._subscription.hold_back(_listed(partitions))
        self._coordinator.request_rejoin()

    def hide(self, partitions: Collection[Resource]) -> None:
        self._subscription.drop(_listed(partitions))

    def drop(self, partitions: Collection[Resource]) -> None:
        """See :class:`~holdfast.members.seat.on_loop.LoopHands`; a closed consumer keeps all."""
        if self._subscription.is_cooperative and not self.is_closing:
            self._subscription.drop(_listed(partitions))

    def assigned(self, partitions: Collection[Resource]) -> None:
        self._subscription.take(_listed(partitions), self.seat.progress)
        assignment = getattr(self._subscription.subscription, "assignment", None)
        is_new = isinstance(assignment, KeepingAssignment) and assignment is not self._assignment
        if is_new:
            self._assignment = assignment
        self._coordinator.has_joined(assignment if is_new else None)

    def forget(self) -> None:
        """The member is gone, and owns nothing; a closed consumer keeps what it had."""
        if self._assignment is not None and not self.is_closing:
            if self._subscription.partitions_auto_assigned():
                self._subscription.begin_reassignment()
            self._subscription.drop(list(self._assignment.tps))
        self._assignment = None

    # Callbacks

    def hears(self, call: ListenerCall) -> bool:
        return self._subscription.listener is not None

    async def tell(self, callback: Callback) -> None:
        await self.call_listener(callback)
        if callback.call is ListenerCall.REVOKED:
            await self._coordinator.look_for_topics()

    async def call_listener(self, callback: Callback) -> None:
        """Call one method of the application's listener."""
        listener, name = self._subscription.listener, f"on_partitions_{callback.call.value}"
        if callback.call is ListenerCall.LOST and not hasattr(listener, name):
            name = "on_partitions_revoked"
        if (method := getattr(listener, name, None)) is None:
            return
        try:
            answer = method(set(_listed(callback.resources)))
            if inspect.isawaitable(answer):
                await answer
        except Exception:
            log.exception("the listener's %s failed", name)


def _listed(partitions: Collection[Resource]) -> list[TopicPartition]:
    return [TopicPartition(*tp) for tp in sorted(partitions)]
