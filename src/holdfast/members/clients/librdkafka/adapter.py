"""The client adapter of librdkafka, which fetches what the group assigns to this member.

**Rules.** librdkafka never joins the group, nor commits while there is a subscription. Its
assignment changes on the thread of the application's calls alone. Positions are librdkafka's, read
on demand; no record is inspected.

A partition without a start offset of the application starts at the committed offset of the group,
else by ``auto.offset.reset``; an open transaction is waited for (KIP-447). Automatic commits
include the start offset, so the next owner continues there, even if no record has come. The call
that assigns waits only briefly for the response. A partition whose start offset is not known by
then appears assigned to the application, and librdkafka gets it with the response.

**Strategy.** The consumer is referred to weakly: the member's threads refer to the adapter, and a
forgotten consumer must end.

librdkafka does not look up start offsets itself, because 2.16 may never retry. If its assignment
has changed by the time that the request fails (a broker dies, or answers too late), it keeps the
partitions of that request on a list of open requests, and sends no other one while there are any:
nothing assigned from then on is ever fetched.

References: KIP-429; librdkafka, "Rebalancing" (``rebalance_cb``),
``rd_kafka_assignment_handle_OffsetFetch`` and ``rd_kafka_assignment_serve_pending``.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaException, Message, TopicPartition

from holdfast.cluster.lookup import EARLIEST, LATEST
from holdfast.cluster.signal_safe import and_then
from holdfast.core.machine.shared_values import ListenerCall, Offsets, OffsetToCommit
from holdfast.core.model.partitions import Resource
from holdfast.errors import HoldfastError
from holdfast.members.clients.librdkafka.recreation import (
    STALLED,
    ClientRecreation,
    serializes_calls,
)
from holdfast.members.runtime.member_status import NAME
from holdfast.members.session.session import GroupSession, Notification, StartOffsetsRequest

_log = logging.getLogger(NAME)
_MOST_INTRODUCED = 16  # more requests would take as long as they save
_REQUEST_S = 0.25  # for one topic's metadata
_WAITED_S = 0.25  # for start offsets
_NO_START = (OFFSET_INVALID, OFFSET_STORED)
SLICE_S = 0.025
"""How long one slice of a poll may wait, and so how long a change may wait, in s."""
_Original: Any = confluent_kafka.Consumer


class StartOffset(NamedTuple):
    """The start offset of a partition."""

    offset: int  # also a logical one, or OFFSET_INVALID: then librdkafka looks it up
    committed: int = -1  # the group's committed offset, -1 for none


StartOffsets = Mapping[Resource, StartOffset]
StartOffsetsOrFuture = dict[Resource, StartOffset] | Future[dict[Resource, StartOffset]]


class PendingStarts:
    """Partitions that appear assigned to the application and wait for their start offset."""

    def __init__(self, adapter: LibrdkafkaAdapter):
        self._adapter = adapter
        self._request: StartOffsetsRequest[StartOffset]
        self._request = StartOffsetsRequest(adapter.request_start_offsets)
        self._with_start: set[Resource] = set()
        self.waiting: set[Resource] = set()  # assigned, and librdkafka does not have them yet

    def assign(self, partitions: Sequence[Any]) -> None:
        """Assign partitions now, or, in :meth:`assign_known`, once their start offset is known."""
        blank = [p for p in partitions if p.offset in _NO_START]
        given = [p for p in partitions if p.offset not in _NO_START]
        if given:
            _Original.incremental_assign(self._adapter.consumer, given)
            self.forget(_resources_of(given))
        if not blank:
            return
        self.waiting |= _resources_of(blank)
        self._request.reset()
        self._assign_known(_WAITED_S)

    def assign_known(self) -> None:
        """Assign waiting partitions, if a response has come; never wait for one."""
        if self.waiting or self._request.is_open:
            self._assign_known(0.0)

    def _assign_known(self, wait_s: float) -> None:
        adapter, consumer = self._adapter, self._adapter.consumer
        requested = set(self.waiting)
        try:
            response = self._request.response(requested, wait_s)
        except HoldfastError as error:
            response = adapter.on_start_refused(error, requested)
        start_offsets = {tp: response[tp] for tp in sorted(requested) if tp in response}
        self.forget(start_offsets)
        self._with_start |= {
            tp for tp, start in start_offsets.items() if start.offset != OFFSET_INVALID
        }
        self._request.take(response, requested)
        if start_offsets:
            given = adapter.use_start_offsets(start_offsets)
            _Original.incremental_assign(
                consumer, [TopicPartition(*tp, start.offset) for tp, start in given.items()]
            )
            begun = start_offsets.keys() & adapter.paused
            _Original.pause(consumer, [TopicPartition(*tp) for tp in sorted(begun)])

    def without(self, partitions: Sequence[Any]) -> list[Any]:
        """Forget waiting partitions among ``partitions``, and return the others."""
        waiting = self.waiting & _resources_of(partitions)
        self.forget(waiting)
        return [p for p in partitions if (p.topic, p.partition) not in waiting]

    def forget(self, partitions: Collection[Resource]) -> None:
        """Forget partitions that are unassigned, or need not wait."""
        for recorded in (self._with_start, self.waiting):
            recorded.difference_update(partitions)

    def as_original(self, assignment: list[Any]) -> list[Any]:
        """Return an assignment as the original does: a partition without an offset is stored."""
        for part in assignment:
            if (part.topic, part.partition) in self._with_start:
                part.offset = OFFSET_STORED
        more = [TopicPartition(*tp, OFFSET_STORED) for tp in list(self.waiting)]
        return sorted([*assignment, *more]) if more else assignment


Listener = Callable[[list[Resource]], object]
"""A callback of the application; takes partitions in order."""


class LibrdkafkaAdapter:
    """librdkafka's :class:`~holdfast.members.session.poll_session.PollClientAdapter`.

    ``reset`` is the logical offset of ``auto.offset.reset``, None if it is an error. If the
    coordinator refuses the request for committed offsets, librdkafka sends it too, and reports the
    error to the application.
    """

    def __init__(self, consumer: Any, client_config: Mapping[str, Any], *, reset: int | None):
        self._ref = weakref.ref(consumer)
        self._reset = OFFSET_INVALID if reset is None else reset
        self.pending_starts = PendingStarts(self)
        self.recreation = ClientRecreation(client_config)
        self._requested_topics: set[str] = set()
        self._pending_revocation: set[Resource] = set()
        self.paused: set[Resource] = set()  # by the application; librdkafka does not report pauses
        self.session: GroupSession

    @property
    def consumer(self) -> Any:
        """The consumer, None once it is forgotten."""
        return self._ref()

    def listener_for(self, call: ListenerCall) -> Listener | None:
        """Return the application's callback for ``call``, None for none."""
        raise NotImplementedError

    # Queries

    def client_assignment(self) -> set[Resource]:
        """Return the partitions that librdkafka fetches."""
        return {(p.topic, p.partition) for p in _Original.assignment(self.consumer)}

    def assigned_now(self) -> set[Resource]:
        """Return the partitions that appear assigned to the application."""
        return self.client_assignment().union(self.pending_starts.waiting)

    def positions(self, partitions: Collection[Resource]) -> Offsets:
        assigned = [
            TopicPartition(*tp) for tp in sorted(self.client_assignment().intersection(partitions))
        ]
        return offsets_of(_Original.position(self.consumer, assigned)) if assigned else {}

    def first_in_flight(self, result: Any) -> Offsets:
        messages: Sequence[Any] = (result,) if isinstance(result, Message) else result
        first: dict[Resource, OffsetToCommit] = {}
        for message in messages:
            if message.error() is None:
                start = message.topic(), message.partition()
                first.setdefault(start, OffsetToCommit(message.offset()))
        return first

    # Changes

    def mark_pending_revocation(self, partitions: Collection[Resource]) -> None:
        assigned = sorted(self.client_assignment().intersection(partitions))
        self._pending_revocation.update(partitions)
        _Original.pause(self.consumer, [TopicPartition(*tp) for tp in assigned])

    def stop_delivery(self, partitions: Collection[Resource]) -> None:
        """Do nothing: a slice of a poll is short, and the task of the loss follows it."""

    def stop_fetching(self, partitions: Collection[Resource]) -> None:
        self.unassign(partitions)

    def unassign(self, partitions: Collection[Resource]) -> None:
        """Unassign the assigned ones among ``partitions``."""
        self.pending_starts.forget(partitions)
        self.recreation.forget(partitions)
        gone = sorted(self.client_assignment().intersection(partitions))
        paused = self.to_resume(gone)
        self._pending_revocation.difference_update(partitions)
        if not gone:
            return
        if paused:  # librdkafka keeps a pause for ever
            _Original.resume(self.consumer, [TopicPartition(*tp) for tp in sorted(paused)])
        _Original.incremental_unassign(self.consumer, [TopicPartition(*tp) for tp in gone])

    def to_resume(self, gone: Collection[Resource]) -> set[Resource]:
        """Return partitions paused by the member, not the application, to resume."""
        return self._pending_revocation.intersection(gone) - self.paused

    def recreate_if_stalled(self) -> None:
        """Recreate librdkafka if it is stalled."""
        membership = self.session.membership
        runtime, member_thread = membership.runtime, membership.member_thread
        heartbeat_answered_at = (
            0.0 if member_thread is None else member_thread.heartbeat_answered_at
        )
        if runtime is None or not self.recreation.check_stalled(
            self.consumer, heartbeat_answered_at
        ):
            return
        if not serializes_calls:
            runtime.log.warning("%s: this process reads nothing until it is restarted", STALLED)
            return
        runtime.log.warning("%s: recreating the client", STALLED)
        self.recreation.recreate(self.consumer, self.paused, self.restart_at_positions())

    def restart_at_positions(self) -> Mapping[Resource, int] | None:
        """Forget undelivered records; return where to start, None for librdkafka's positions."""
        self.session.record_positions()
        self._requested_topics.clear()
        return None

    # Start offsets

    def request_start_offsets(
        self, partitions: Collection[Resource]
    ) -> Future[dict[Resource, StartOffset]] | None:
        """Request start offsets: the committed ones, or by ``auto.offset.reset``."""
        runtime = self.session.membership.runtime
        if runtime is None:
            return None
        return and_then(self.session.request_committed(partitions), self.committed_or_reset)

    def committed_or_reset(self, committed: Mapping[Resource, int]) -> StartOffsetsOrFuture:
        """Return start offsets: the committed ones, or, for -1, by ``auto.offset.reset``.

        librdkafka would look up the first or the last offset as well, but not report it.
        """
        runtime = self.session.membership.runtime
        assert runtime is not None
        start_offsets = {tp: StartOffset(at, at) for tp, at in committed.items() if at >= 0}
        blank = sorted(committed.keys() - start_offsets.keys())
        if not blank or self._reset not in (EARLIEST, LATEST):
            return start_offsets | {tp: StartOffset(self._reset) for tp in blank}

        def at_ends(ends: Mapping[Resource, int]) -> dict[Resource, StartOffset]:
            for tp in set(blank) - ends.keys():
                # A topic that was just created, or moves: its leader answers soon.
                _log.info("%s-%s has no leader that answers yet: it starts later", *tp)
            return start_offsets | {tp: StartOffset(at) for tp, at in ends.items()}

        return and_then(runtime.lookup.list_offsets(blank, self._reset), at_ends)

    def on_start_refused(
        self, error: BaseException, partitions: Collection[Resource]
    ) -> StartOffsets:
        """Return start offsets where no broker will ever answer: librdkafka looks them up."""
        return {tp: StartOffset(OFFSET_INVALID) for tp in partitions}

    def use_start_offsets(self, start_offsets: StartOffsets) -> StartOffsets:
        """Record start offsets, and return those at which librdkafka starts."""
        subscription_state = self.session.subscription_state
        subscription_state.start_at_committed(
            {tp: start.committed for tp, start in start_offsets.items()}
        )
        new = {tp: at for tp, (at, committed) in start_offsets.items() if committed < 0 <= at}
        subscription_state.start_at_reset(new, as_processed=self.commits_start_offsets())
        return start_offsets

    def commits_start_offsets(self) -> bool:
        """Return whether every commit includes start offsets; else only a revocation's commit."""
        return True

    def assign_new(self, partitions: Sequence[Any]) -> None:
        """Assign partitions that are not assigned yet, each at its offset or the group's."""
        now = self.client_assignment()
        new = [p for p in partitions if not self.is_assigned(now, (p.topic, p.partition))]
        self.pending_starts.assign(new)

    def is_assigned(self, now: Collection[Resource], tp: Resource) -> bool:
        """Return whether a partition needs no start offset, where ``now`` is fetched."""
        return tp in now

    def _request_topics(self, topics: set[str]) -> None:
        """Request new topics: librdkafka fetches a known topic at once, others a second later."""
        new = sorted(topics - self._requested_topics)
        self._requested_topics |= topics
        try:
            for topic in new[:_MOST_INTRODUCED]:
                _Original.list_topics(self.consumer, topic, _REQUEST_S)
        except KafkaException:
            return  # it retries by itself

    # Callbacks

    def has_callback(self, call: ListenerCall) -> bool:
        return self.listener_for(call) is not None

    def notify(self, notification: Notification) -> BaseException | None:
        """Run the callback, unless it has no partitions."""
        return self._run(notification) if notification.resources else None

    def apply_assignment(
        self, notification: Notification, *, should_report: bool
    ) -> BaseException | None:
        """Run the callback, then begin to fetch the partitions."""
        if not notification.was_called:
            self._request_topics({topic for topic, _ in notification.resources})
        error = self._run(notification) if should_report else None
        self._assign_rest(notification)
        return error

    def _assign_rest(self, notification: Notification) -> None:
        """Assign what the callback has not assigned itself."""
        self.assign_new([TopicPartition(*tp) for tp in notification.in_order()])

    def _run(self, notification: Notification) -> BaseException | None:
        listener = self.listener_for(notification.call)
        return None if listener is None else notification(listener, notification.in_order())


def offsets_of(partitions: Sequence[Any]) -> dict[Resource, OffsetToCommit]:
    """Return the offsets of confluent-kafka's partitions, with their metadata."""
    return {(p.topic, p.partition): offset_to_commit(p) for p in partitions if p.offset >= 0}


def offset_to_commit(part: Any) -> OffsetToCommit:
    """Return an offset with its metadata as confluent-kafka writes it: a 0 byte ends it.

    confluent-kafka reads until that byte, so metadata of another client without it is followed by
    whatever comes after it in memory.
    """
    note, epoch = part.metadata, part.leader_epoch
    return OffsetToCommit(
        part.offset, "" if note is None else f"{note}\0", -1 if epoch is None else epoch
    )


def to_client_offsets(offsets: Mapping[Resource, OffsetToCommit]) -> list[Any]:
    """Return offsets as confluent-kafka's partitions."""
    return [
        TopicPartition(*tp, at.offset, **_epoch_and_metadata(at))
        for tp, at in sorted(offsets.items())
    ]


def _epoch_and_metadata(at: OffsetToCommit) -> dict[str, Any]:
    epoch = {"leader_epoch": at.epoch} if at.epoch >= 0 else {}
    return epoch | ({"metadata": at.metadata.removesuffix("\0")} if at.metadata else {})


def _resources_of(partitions: Sequence[Any]) -> set[Resource]:
    return {(p.topic, p.partition) for p in partitions}
