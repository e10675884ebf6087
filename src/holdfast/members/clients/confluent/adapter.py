"""The client adapter of ``holdfast.confluent``: what a program may do with librdkafka besides.

**Rules.** The callbacks of a rebalance get the consumer and a list, as confluent-kafka's do, and
may change the assignment. If a callback does not, the assignment is changed after it; revoked or
lost partitions are always unassigned. With automatic commits, what the program stores is committed,
or everything that was delivered. A consumer without a subscription is the original, except that its
automatic commits are sent here.

References: confluent-kafka-python, ``Consumer_rebalance_cb``; KIP-429.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from holdfast.core.machine.shared_values import ListenerCall, Offsets, OffsetToCommit
from holdfast.core.model.partitions import Resource
from holdfast.members.clients.confluent.config import Routed
from holdfast.members.clients.librdkafka.adapter import (
    LibrdkafkaAdapter,
    Listener,
    offset_to_commit,
    offsets_of,
)
from holdfast.members.session.client_adapter import Callback

_Original: Any = confluent_kafka.Consumer


@dataclass(eq=False, slots=True, weakref_slot=True)
class Callbacks:
    """The application's callbacks.

    Only the consumer refers to this object: a callback often refers to its consumer, and the
    member's threads to the adapter. Strongly, a forgotten consumer would never end.
    """

    on_commit: Callable[..., object] | None  # takes an error or None, and a list
    on_assign: Callable[..., object] | None = None
    on_revoke: Callable[..., object] | None = None
    on_lost: Callable[..., object] | None = None


class ConfluentAdapter(LibrdkafkaAdapter):
    """Client adapter of one ``holdfast.confluent.Consumer``."""

    def __init__(self, consumer: Any, callbacks: Callbacks, routed: Routed):
        super().__init__(consumer, routed.client_config, reset=routed.reset)
        self._callbacks = weakref.ref(callbacks)
        self._routed = routed
        self.running: Callback | None = None  # the callback of a rebalance that runs
        self._has_assigned = False  # the running callback has changed the assignment
        self.stored: dict[Resource, OffsetToCommit] = {}  # for the next commit
        self._commit_at = time.monotonic() + routed.interval_s
        self._committed: Offsets = {}  # without a subscription

    @property
    def on_commit(self) -> Callable[..., object] | None:
        """The application's callback for commits, None for none."""
        callbacks = self._callbacks()
        return None if callbacks is None else callbacks.on_commit

    def listener_for(self, call: ListenerCall) -> Listener | None:
        callbacks = self._callbacks()
        if callbacks is None:
            return None
        if call is ListenerCall.ASSIGNED:
            work = callbacks.on_assign
        else:
            work = callbacks.on_revoke
            if call is ListenerCall.LOST:
                work = callbacks.on_lost or work
        if work is None:
            return None
        return lambda resources: work(self.consumer, [TopicPartition(*tp) for tp in resources])

    # See holdfast.members.session.client_adapter.PollClientAdapter

    @property
    def stored_to_commit(self) -> Offsets | None:
        """The offsets that a commit commits; None for the positions, which librdkafka stores."""
        return None if self._routed.stores else dict(self.stored)

    def stop_fetching(self, partitions: Collection[Resource]) -> None:
        super().stop_fetching(partitions)
        for tp in partitions:
            self.stored.pop(tp, None)

    def commits_starts(self) -> bool:
        """Return whether every commit includes start offsets.

        A program that commits, or stores offsets, itself does so with delivered records.
        """
        return self._routed.stores and self.session.is_automatic

    def apply_assignment(self, callback: Callback, *, should_report: bool) -> BaseException | None:
        if not callback.was_called:
            self._has_assigned = False
        return super().apply_assignment(callback, should_report=should_report)

    def _assign_rest(self, callback: Callback) -> None:
        if not self._has_assigned:
            super()._assign_rest(callback)

    def _run(self, callback: Callback) -> BaseException | None:
        outer, self.running = self.running, callback
        try:
            return super()._run(callback)
        finally:
            self.running = outer

    def start_known(self) -> None:
        """Start partitions whose start offset is known now; recreate a stalled client."""
        self.start_positions.start_known()
        self.recreate_if_stalled()

    # The program's changes

    def assign_in_callback(self, partitions: Any) -> bool:
        """Assign ``partitions`` if an ``on_assign`` callback runs; return False outside of one."""
        if self.running is None or self.running.call is not ListenerCall.ASSIGNED:
            return False
        _Original.position(self.consumer, partitions)  # raises for what is no list of partitions
        for part in partitions:
            if part.offset >= 0:
                tp = part.topic, part.partition
                self.session.subscription_state.start_at(tp, part.offset)
        self.assign_new(list(partitions))
        # Last: after an exception the others start at their usual offset.
        self._has_assigned = True
        return True

    def running_revocation(self) -> Callback | None:
        """Return the ``on_revoke`` or ``on_lost`` callback that runs, None for none."""
        running = self.running
        return None if running is None or running.call is ListenerCall.ASSIGNED else running

    def end_some(self, resources: Collection[Resource]) -> None:
        """Unassign what a callback revokes itself; unassigned partitions do not matter."""
        self.session.record_positions()
        self.unassign(resources)

    def forget_all(self) -> None:
        """Prepare to replace the whole assignment outside a callback."""
        self.start_positions.forget(list(self.start_positions.waiting))
        self.recreation.forget()

    def note_pause(self, partitions: Sequence[Any], *, is_paused: bool) -> None:
        """Record what the application pauses or resumes; librdkafka does not report it."""
        named = {(p.topic, p.partition) for p in partitions}
        self.paused = self.paused | named if is_paused else self.paused - named

    def note_seek(self, part: Any, *, is_subscribed: bool) -> None:
        """Record a seek; the application may commit from the new offset on."""
        self.recreation.seek(self.consumer, part)
        offset = 0 if part.offset == OFFSET_BEGINNING else part.offset
        if is_subscribed and offset >= 0:
            self.session.subscription_state.seek((part.topic, part.partition), offset)

    def store(self, part: Any) -> None:
        """Store an offset for the next commit; an invalid one removes the stored one."""
        if part.offset >= 0:
            self.stored[part.topic, part.partition] = offset_to_commit(part)
        else:
            self.stored.pop((part.topic, part.partition), None)

    # Commits without a subscription, which librdkafka sends

    def maybe_auto_commit(self, now: float) -> None:
        """Commit stored offsets if ``auto.commit.interval.ms`` has passed."""
        if now >= self._commit_at:
            self._commit_at = now + self._routed.interval_s
            self.commit_stored()

    def commit_stored(self) -> None:
        """Commit, without waiting, what a manual assignment has stored since the last time."""
        if not self._routed.is_automatic:
            return
        reached: Offsets = self.stored
        if self._routed.stores:
            assigned = _Original.assignment(self.consumer)
            reached = offsets_of(_Original.position(self.consumer, assigned))
        if reached and reached != self._committed:
            self._committed = dict(reached)
            _Original.commit(self.consumer, asynchronous=True)
