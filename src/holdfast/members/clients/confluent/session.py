"""The session of a ``confluent_kafka.Consumer`` and its client adapter.

**Rules.** Everything here runs on the application's thread, inside a call of the consumer. An
exception of a callback does not affect the assignment, and the call raises it once everything is
done. The callbacks of a rebalance get the consumer and a list, as confluent-kafka's do, and may
change the assignment. If a callback does not, the assignment is changed after it; revoked or lost
partitions are always unassigned. Errors of a membership are messages that ``poll`` returns:

- a failure once a second at most, and a fatal one once;
- a topic that does not exist, or that a pattern has matched and that is deleted, once;
- an application that has not polled for ``max.poll.interval.ms``, at its next poll.

With automatic commits, what the program stores is committed, or everything that was delivered. A
later poll calls ``on_commit``, with the offsets and an error or None: for every commit that did not
wait, for automatic ones and for that of a revocation. A consumer without a subscription is the
original, except that its automatic commits are sent here.

References: confluent-kafka-python, ``Consumer.commit``, ``Consumer_rebalance_cb``; librdkafka,
``offset_commit_cb`` and ``rd_kafka_consumer_err``; KIP-429; KIP-62 (``max.poll.interval.ms``).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, KafkaError, Message, TopicPartition

from holdfast.core.machine.codes import ErrorCode
from holdfast.core.machine.shared_values import ListenerCall, Offsets, OffsetToCommit
from holdfast.core.model.partitions import Resource
from holdfast.errors import HoldfastError
from holdfast.members.clients.confluent import errors
from holdfast.members.clients.confluent.config import RoutedConfig
from holdfast.members.clients.librdkafka.adapter import (
    LibrdkafkaAdapter,
    Listener,
    offset_to_commit,
    offsets_of,
    to_client_offsets,
)
from holdfast.members.runtime.application_calls import ApplicationTask, Once
from holdfast.members.session.membership import Membership
from holdfast.members.session.poll_session import InFlight, PollSession
from holdfast.members.session.session import ClientTraits, Notification

_Original: Any = confluent_kafka.Consumer
_TRAITS = ClientTraits(reports_empty_changes=False, error_stops_commit=False, deleted_are_lost=True)
_NO_PARTITION = TopicPartition("any").partition
_REPORT_EVERY_S = 1.0
_NOT_EAGER = (
    "Changes to the current assignment must be made using assign() when rebalance protocol type is "
    "EAGER"
)
_NOT_OF_ITS_KIND = {
    "assign": "Failed to set assignment: Local: Erroneous state",
    "unassign": "Failed to remove assignment: Local: Erroneous state",
    "incremental_assign": _NOT_EAGER,
    "incremental_unassign": _NOT_EAGER,
}


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

    def __init__(self, consumer: Any, callbacks: Callbacks, routed: RoutedConfig):
        super().__init__(consumer, routed.client_config, reset=routed.reset)
        self._callbacks = weakref.ref(callbacks)
        self._routed = routed
        self.running: Notification | None = None  # the callback of a rebalance that runs
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

    # See holdfast.members.session.poll_session.PollClientAdapter

    @property
    def stored_to_commit(self) -> Offsets | None:
        """The offsets that a commit commits; None for the positions, which librdkafka stores."""
        return None if self._routed.stores else dict(self.stored)

    def stop_fetching(self, partitions: Collection[Resource]) -> None:
        super().stop_fetching(partitions)
        for tp in partitions:
            self.stored.pop(tp, None)

    def commits_start_offsets(self) -> bool:
        """Return whether every commit includes start offsets.

        A program that commits, or stores offsets, itself does so with delivered records.
        """
        return self._routed.stores and self.session.is_automatic

    def apply_assignment(
        self, notification: Notification, *, should_report: bool
    ) -> BaseException | None:
        if not notification.was_called:
            self._has_assigned = False
        return super().apply_assignment(notification, should_report=should_report)

    def _assign_rest(self, notification: Notification) -> None:
        if not self._has_assigned:
            super()._assign_rest(notification)

    def _run(self, notification: Notification) -> BaseException | None:
        outer, self.running = self.running, notification
        try:
            return super()._run(notification)
        finally:
            self.running = outer

    def assign_known(self) -> None:
        """Start partitions whose start offset is known now; recreate a stalled client."""
        self.pending_starts.assign_known()
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

    def running_revocation(self) -> Notification | None:
        """Return the ``on_revoke`` or ``on_lost`` callback that runs, None for none."""
        running = self.running
        return None if running is None or running.call is ListenerCall.ASSIGNED else running

    def unassign_revoked(self, resources: Collection[Resource]) -> None:
        """Unassign what a callback revokes itself; unassigned partitions do not matter."""
        self.session.record_positions()
        self.unassign(resources)

    def forget_all(self) -> None:
        """Prepare to replace the whole assignment outside a callback."""
        self.pending_starts.forget(list(self.pending_starts.waiting))
        self.recreation.forget()

    def record_pause(self, partitions: Sequence[Any], *, is_paused: bool) -> None:
        """Record what the application pauses or resumes; librdkafka does not report it."""
        named = {(p.topic, p.partition) for p in partitions}
        self.paused = self.paused | named if is_paused else self.paused - named

    def record_seek(self, part: Any, *, is_subscribed: bool) -> None:
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


class ConfluentSession(PollSession):
    """The session of one membership of a ``confluent_kafka.Consumer``."""

    adapter: ConfluentAdapter

    def __init__(self, membership: Membership, adapter: ConfluentAdapter, in_flight: InFlight):
        super().__init__(membership, adapter, _TRAITS, in_flight)
        self._served_at = time.monotonic()
        self._reported_at = 0.0
        self._has_reported_fatal = False
        self._reported_missing: set[str] = set()
        self._subscribed: tuple[str, ...] = ()
        self._deleted_topics: list[str] = []  # topics of a pattern, still to be reported

    def processed(self, positions: Offsets, in_flight: Offsets) -> Offsets:
        """Return the offsets that the program has stored, or by default all that was delivered."""
        stored = self.adapter.stored_to_commit
        return super().processed(positions, in_flight) if stored is None else stored

    # Between two slices of a poll

    def serve(self, now: float) -> Message | None:
        """Do what is due; return a message that is not librdkafka's."""
        too_late = self._late(now - self._served_at)
        self._served_at = now
        if self.membership.member_thread is not None:
            self.record_poll()
            if too_late is not None:
                return too_late
            if (missing := self._missing_topic()) is not None:
                return missing
            if (raised := self.begin_poll()) is not None:
                raise raised
            self.adapter.assign_known()
            self._served_at = time.monotonic()
            if (sent := self.maybe_auto_commit()) is not None:
                self._report_later(sent[1], to_client_offsets(sent[0]))
        return None

    def _late(self, seconds: float) -> Message | None:
        """Return the message for an application that has polled too late, None if in time."""
        if self.membership.runtime is None:
            return None
        most_ms: int = self.settings["max.poll.interval.ms"]
        over_ms = int(seconds * 1000) - most_ms
        if over_ms < 0:
            return None
        text = f"Application maximum poll interval ({most_ms}ms) exceeded by {over_ms}ms"
        return errors.error_message(KafkaError(errors.MAX_POLL_EXCEEDED, text))

    def _missing_topic(self) -> Message | None:
        """Return the next message about a missing topic; others come with later polls."""
        runtime = self.membership.runtime
        if runtime is None:
            return None
        watch = runtime.watch
        if (subscribed := watch.subscribed) is not self._subscribed:
            gone = {topic for topic in self._subscribed if not watch.exists(topic)}
            self._deleted_topics += sorted(gone - set(subscribed) - self._reported_missing)
            self._subscribed = subscribed
        if self._deleted_topics:
            return _not_available(self._deleted_topics.pop(0))
        if set(missing := watch.missing) == self._reported_missing:
            return None
        reported = self._reported_missing & set(missing)
        topic = min(set(missing) - reported, default=None)
        if topic is None:
            self._reported_missing = reported
            return None
        self._reported_missing = reported | {topic}
        return _not_available(topic)

    def take_failure(self) -> Message | None:
        """Return the message of a member that has failed, if it is due."""
        failure, now = self.membership.failure, time.monotonic()
        if failure is None or self._has_reported_fatal or now - self._reported_at < _REPORT_EVERY_S:
            return None
        self._reported_at, error = now, errors.kafka_error(failure)
        self._has_reported_fatal = error.fatal()
        return errors.error_message(error)

    def check_change(self, name: str, *, is_incremental: bool) -> None:
        """Refuse a change of the assignment that does not fit the group's rebalance protocol.

        An incremental change adds or removes partitions, as a cooperative group does. The error has
        the code ``_STATE``, as the original's.
        """
        if self.membership.is_leaving or not self.membership.is_member:
            return
        if self.is_cooperative != is_incremental:
            raise errors.exception(errors.STATE, _NOT_OF_ITS_KIND[name])

    # Commits

    def commit_as_called(self, offsets: list[Any] | None, *, waits: bool) -> list[Any] | None:
        """Commit ``offsets``, or the stored offsets, as ``Consumer.commit`` does."""
        wanted, origin = self.offsets_to_commit(None if offsets is None else offsets_of(offsets))
        if offsets is None:  # for the others the original reports that there is nothing to commit
            reported = to_client_offsets(wanted)
            reported += [TopicPartition(*tp) for tp in self.adapter.assigned_now() - wanted.keys()]
        else:
            reported = [_copy(part) for part in offsets]
        reported.sort(key=lambda part: (part.topic, part.partition))
        try:
            sent = self.commits.commit_async(wanted, origin, timeout_s=self.settings.call_timeout_s)
            if waits:
                sent.result()
        except HoldfastError as error:
            if waits:
                raise errors.commit_failed(error) from error
            self._report_commit(error, reported)
            return None
        if waits and not wanted:
            raise errors.exception(errors.NO_OFFSET, "Commit failed: Local: No offset stored")
        if waits:
            return reported
        if wanted:
            self._report_later(sent, reported)
        else:
            self._report_commit(
                errors.exception(errors.NO_OFFSET, "Local: No offset stored"), reported
            )
        return None

    def on_last_commit(self, offsets: Offsets, error: BaseException | None) -> None:
        self._report_commit(error, to_client_offsets(offsets))

    def _report_later(self, sent: Future[None], offsets: list[Any]) -> None:
        """Call ``on_commit`` once the commit is answered."""
        if self.adapter.on_commit is not None:
            sent.add_done_callback(lambda done: self._report_commit(done.exception(), offsets))

    def _report_commit(self, error: BaseException | None, offsets: list[Any]) -> None:
        """Queue a call of ``on_commit`` for a later poll, as the original does."""
        if (on_commit := self.adapter.on_commit) is not None:
            kafka_error = None if error is None else errors.kafka_error(error)
            self.tasks.put(ApplicationTask(partial(Once(), on_commit, kafka_error, offsets)))


def _not_available(topic: str) -> Message:
    code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    text = f"Subscribed topic not available: {topic}: {errors.text_of(code)}"
    return errors.error_message(KafkaError(code, text), topic)


def _copy(part: Any) -> Any:
    """Return a copy of a partition with offset, epoch and metadata."""
    epoch = {} if part.leader_epoch is None else {"leader_epoch": part.leader_epoch}
    beside = epoch if part.metadata is None else {**epoch, "metadata": part.metadata}
    return TopicPartition(part.topic, part.partition, part.offset, **beside)


def offset_after(message: Any) -> Any:
    """Return the offset to commit once ``message`` is processed; none without an offset."""
    offset, partition, epoch = message.offset(), message.partition(), message.leader_epoch()
    beside = {} if epoch is None else {"leader_epoch": epoch}
    return TopicPartition(
        message.topic(),
        _NO_PARTITION if partition is None else partition,
        (OFFSET_INVALID if offset is None else offset) + 1,  # the original adds one as well
        **beside,
    )


def check_record(message: Any, what: str) -> None:
    """Refuse a message that is an error, as the original does."""
    if (error := message.error()) is not None:
        text = f"Cannot {what} offsets for message with error: '{error.str()}'"
        raise errors.exception(errors.INVALID_ARG, text)


def commit_arguments(
    message: Any = None, offsets: Any = None, *waits: Any, **named: Any
) -> tuple[Any, Any, bool]:
    """Return message, offsets, and whether to wait, read as the original reads its arguments."""
    for key in named:
        if key not in ("async", "asynchronous"):
            raise TypeError(f"'{key}' is an invalid keyword argument for this function")
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if message is not None:
        if type(message) not in errors.MESSAGES:
            raise TypeError("expected confluent_kafka.cimpl.Message")
        check_record(message, "commit")
    flags = (*waits, *named.values())
    return message, offsets, bool(flags) and not flags[-1]
