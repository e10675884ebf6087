"""The client adapter of ``holdfast.Consumer``, for librdkafka.

**Rules.** Every partition starts at an explicit offset, so the offset to commit is known before the
first record. An error belongs to its partition: one poll raises it, once for each time that the
partition fails, and the other partitions continue. The partition waits for a seek, or for its next
assignment, unless librdkafka retries by itself. A poll that fails as a whole may have lost records
that librdkafka had taken, so every partition goes back to the application's position. What the
application pauses stays paused in a rebalance that leaves the partition here.

An eager member revokes all its partitions in every round and gets most of them back. A revoked
partition is *retained*: librdkafka keeps fetching it, and its records are set aside. The records
are delivered if the partition is assigned again at the same offset, and dropped if it starts at
another one. None of them is delivered before.

References: KIP-54, "Motivation" (what is fetched already is not fetched again); KIP-429; KIP-447.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, Message, TopicPartition

from holdfast.cluster.connections import ends_member
from holdfast.cluster.lookup import EARLIEST, LATEST
from holdfast.cluster.signal_safe import and_then
from holdfast.core.machine.codes import ErrorCode, describe
from holdfast.core.machine.shared_values import ListenerCall, Offsets, OffsetToCommit
from holdfast.core.model.partitions import Resource
from holdfast.errors import ClientError, HoldfastError, RemoteProtocolError
from holdfast.members.clients.librdkafka.adapter import (
    LibrdkafkaAdapter,
    Listener,
    StartOffset,
    StartOffsets,
)
from holdfast.members.clients.librdkafka.recreation import keep_in_forks
from holdfast.members.config.settings import Settings, librdkafka_fetch
from holdfast.members.runtime.member_status import NAME
from holdfast.members.session.session import Notification

_log = logging.getLogger(NAME)
_library_log = logging.getLogger("holdfast.librdkafka")
_RESETS = {"earliest": EARLIEST, "latest": LATEST}
_FAILURES = 3  # polls in a row that fail inside librdkafka until the application gets the error


def _original_class(kind: Any) -> Any:
    """Return the client's own class, even if ``install()`` has replaced it."""
    line = getattr(kind, "__mro__", (kind,))
    return next(one for one in line if not one.__module__.startswith("holdfast."))


_Original: Any = _original_class(confluent_kafka.Consumer)


class _FetchingConsumer(_Original):  # type: ignore[misc]  # the original cannot be referred to weakly
    """A librdkafka consumer that only fetches."""


class RetainedFetches:
    """Retained partitions, and the records set aside of them and of partitions that are back."""

    def __init__(self) -> None:
        self.partitions: set[Resource] = set()
        self.records: dict[Resource, list[Any]] = {}

    def __contains__(self, tp: object) -> bool:
        return tp in self.partitions

    def set_aside(self, messages: list[Any], lost: Collection[Resource]) -> list[Any]:
        """Set aside the records of retained partitions, drop those of ``lost``, return the rest."""
        kept = []
        for message in messages:
            tp = message.topic(), message.partition()
            if tp in self.partitions or tp in self.records:
                self.records.setdefault(tp, []).append(message)
            elif tp not in lost:
                kept.append(message)
        return kept

    def take(self, limit: int, but_not: Collection[Resource]) -> list[Any]:
        """Return at most ``limit`` records of partitions that are back and not in ``but_not``."""
        messages: list[Any] = []
        for tp in sorted(self.records.keys() - self.partitions - set(but_not)):
            waiting = self.records.pop(tp)
            taken = waiting[: limit - len(messages)]
            messages += taken
            if rest := waiting[len(taken) :]:
                self.records[tp] = rest
        return messages

    def forget(self, partitions: Collection[Resource]) -> None:
        """Stop retaining ``partitions``, and drop their records."""
        self.partitions.difference_update(partitions)
        for tp in partitions:
            self.records.pop(tp, None)


class ConsumerAdapter(LibrdkafkaAdapter):
    """Client adapter of ``holdfast.Consumer``.

    ``listeners`` returns the application's callback. It is weak, because the member's threads refer
    to the adapter, and a callback often to its consumer.
    """

    def __init__(
        self,
        settings: Settings,
        listeners: weakref.WeakMethod[Callable[[ListenerCall], Listener | None]],
    ):
        config = {**librdkafka_fetch(settings), "logger": _library_log}
        self.client: Any = _FetchingConsumer(config)
        keep_in_forks(self.client)
        reset = _RESETS.get(settings["auto.offset.reset"])
        super().__init__(self.client, config, reset=reset)
        self._listeners = listeners
        # The offset after what was delivered; before that, the start offset.
        self._positions: dict[Resource, int] = {}
        self._pending_seeks: dict[Resource, int] = {}  # before the partition has started
        self._retained = RetainedFetches()
        self._lost: set[Resource] = set()  # lost, but not dropped yet
        self._failed: set[Resource] = set()  # not fetched by librdkafka until a seek
        self._errors: dict[Resource, HoldfastError] = {}  # for later polls to raise
        self._n_failures = 0

    def listener_for(self, call: ListenerCall) -> Listener | None:
        listeners = self._listeners()
        return None if listeners is None else listeners(call)

    # Records

    def fetch(self, limit: int, wait_s: float) -> list[Any]:
        """Return the next records, at most ``limit``; an empty list after ``wait_s`` seconds."""
        if self._retained.records and (retained := self._retained.take(limit, self.paused)):
            for message in retained:  # in order: the last one of each partition counts
                self._positions[message.topic(), message.partition()] = message.offset() + 1
            return retained
        try:
            messages = self._consume(limit, wait_s)
        except BaseException as error:  # librdkafka's client may raise anything; so may Ctrl-C
            self._rewind()
            if isinstance(error, HoldfastError) or not isinstance(error, Exception):
                raise
            self._n_failures += 1
            if self._n_failures >= _FAILURES:
                self._n_failures = 0
                kind = type(error).__name__
                raise ClientError(f"fetching failed: {kind}: {error}; nothing is lost") from error
            _log.warning("fetching failed, retrying: %r", error)
            return []
        self._n_failures = 0
        return messages

    def raise_error(self) -> None:
        """Raise the error of a partition that has failed; each error once."""
        while self._errors:
            raise self._errors.pop(min(self._errors))

    def _consume(self, limit: int, wait_s: float) -> list[Any]:
        messages: list[Any] = _Original.consume(self.client, limit, wait_s)
        if any(map(Message.error, messages)):
            failed = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
            delivered = self._delivered(messages)
            self._record_failed(failed)
            return delivered
        return self._delivered(messages)

    def _delivered(self, messages: list[Any]) -> list[Any]:
        if not messages:
            self.recreate_if_stalled()
            return messages
        self.recreation.record_progress()
        if self._lost or self._retained.partitions or self._retained.records:
            messages = self._retained.set_aside(messages, self._lost)
        retained = self._retained.partitions | self._retained.records.keys()
        elsewhere = self._lost | self._failed | retained
        here = [TopicPartition(*tp) for tp in self._positions.keys() - elsewhere]
        for position in _Original.position(self.client, here):
            if position.offset >= 0:
                self._positions[position.topic, position.partition] = position.offset
        return messages

    def _record_failed(self, messages: Collection[Any]) -> None:
        """Keep the errors of partitions until polls raise them."""
        for message in messages:
            error, tp = message.error(), (message.topic() or "", message.partition())
            if tp in self._lost or tp in self._retained:
                continue  # it is not this member's, or it starts again
            if error.code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED:  # librdkafka tries again
                text = f"topic {tp[0]!r}: {describe(error.code())}"
                self._errors[tp] = RemoteProtocolError(text, error_code=error.code())
            elif error.fatal() or not error.retriable():
                text = f"fetching {tp[0]}-{tp[1]} failed: {error.str()} ({error.name()})"
                self._errors[tp] = ClientError(text)
                if tp in self.client_assignment():
                    self._failed.add(tp)
                    _Original.incremental_unassign(self.client, [TopicPartition(*tp)])

    def _application_positions(self) -> dict[Resource, int]:
        """Return the application's position in each partition that librdkafka fetches."""
        return {tp: at for tp, at in self._positions.items() if tp not in self._failed}

    def _rewind(self) -> None:
        """Fetch again from the application's positions."""
        self._retained.records.clear()
        start_offsets = [
            TopicPartition(*tp, at) for tp, at in sorted(self._application_positions().items())
        ]
        _Original.incremental_unassign(self.client, start_offsets)
        _Original.incremental_assign(self.client, start_offsets)
        self._pause_in_client(self._positions)

    def _pause_in_client(self, partitions: Collection[Resource]) -> None:
        paused = sorted(self.paused.intersection(partitions))
        _Original.pause(self.client, [TopicPartition(*tp) for tp in paused])

    def restart_at_positions(self) -> dict[Resource, int]:
        """Restart every partition at the application's position."""
        super().restart_at_positions()
        self._retained.records.clear()
        return self._application_positions()

    # See holdfast.members.session.poll_session.PollClientAdapter

    def positions(self, partitions: Collection[Resource]) -> Offsets:
        reached = dict(self._positions)  # the member's threads read it as well
        return {tp: OffsetToCommit(reached[tp]) for tp in partitions if tp in reached}

    def mark_pending_revocation(self, partitions: Collection[Resource]) -> None:
        """Stop delivery of partitions; an eager member retains them."""
        retained: set[Resource] = set()
        if not self.session.is_cooperative:
            retained = self._application_positions().keys() & set(partitions) - self.paused
            self._retained.partitions |= retained
        super().mark_pending_revocation([tp for tp in partitions if tp not in retained])

    def stop_delivery(self, partitions: Collection[Resource]) -> None:
        self._lost.update(partitions)

    def stop_fetching(self, partitions: Collection[Resource]) -> None:
        """Stop fetching partitions, except retained ones, which may come back."""
        super().stop_fetching([tp for tp in partitions if tp not in self._retained])
        self._lost.difference_update(partitions)

    def unassign(self, partitions: Collection[Resource]) -> None:
        """Unassign the assigned ones among ``partitions``."""
        super().unassign(partitions)
        self._retained.forget(partitions)
        self._failed.difference_update(partitions)
        for tp in partitions:
            for of_partitions in (self._positions, self._pending_seeks, self._errors):
                of_partitions.pop(tp, None)

    def to_resume(self, gone: Collection[Resource]) -> set[Resource]:
        """Return the partitions to resume; the next assignment pauses them again."""
        return (self._pending_revocation | self.paused).intersection(gone)

    def apply_assignment(
        self, notification: Notification, *, should_report: bool
    ) -> BaseException | None:
        self.paused &= self.session.membership.snapshot.owned
        error = super().apply_assignment(notification, should_report=should_report)
        self.unassign(self._retained.partitions - notification.resources)
        return error

    def is_assigned(self, now: Collection[Resource], tp: Resource) -> bool:
        """Return whether a partition is assigned and not retained; a retained one starts again."""
        return tp in now and tp not in self._retained

    # Start offsets

    def request_start_offsets(
        self, partitions: Collection[Resource]
    ) -> Future[dict[Resource, StartOffset]] | None:
        start_offsets = super().request_start_offsets(partitions)
        if start_offsets is not None:
            start_offsets.add_done_callback(_log_failure)
        return start_offsets

    def start_offsets(
        self, partitions: Collection[Resource]
    ) -> Future[dict[Resource, StartOffset]]:
        """Request the start offsets of partitions: committed ones, or by ``auto.offset.reset``.

        Without either, the error of the future is a RemoteProtocolError.
        """

        def known(start_offsets: StartOffsets) -> dict[Resource, StartOffset]:
            for tp in _without_start(start_offsets):
                raise _no_start(tp)
            return dict(start_offsets)

        return and_then(
            and_then(self.session.request_committed(partitions), self.committed_or_reset), known
        )

    def on_start_refused(
        self, error: BaseException, partitions: Collection[Resource]
    ) -> StartOffsets:
        """End the member: no broker will ever answer with start offsets for ``partitions``."""
        runtime = self.session.membership.runtime
        assert runtime is not None
        runtime.fail(error)
        return {}

    def use_start_offsets(self, start_offsets: StartOffsets) -> StartOffsets:
        super().use_start_offsets(start_offsets)
        lost = _without_start(start_offsets).keys() - self._pending_seeks.keys()
        begun = {
            tp: StartOffset(self._pending_seeks.get(tp, at), committed)
            for tp, (at, committed) in start_offsets.items()
            if tp not in lost
        }
        for tp in self._pending_seeks.keys() & start_offsets.keys():
            self.session.subscription_state.seek(tp, self._pending_seeks.pop(tp))
        back = {tp for tp in start_offsets if tp in self._retained}
        same = {tp for tp in back & begun.keys() if self._positions[tp] == begun[tp].offset}
        self._retained.partitions -= same
        self.unassign(back - same)
        self._failed |= lost
        self._errors |= {tp: _no_start(tp) for tp in lost}
        self._positions |= {tp: start.offset for tp, start in begun.items()}
        return {tp: start for tp, start in begun.items() if tp not in same}

    # Calls of the application

    def position(self, tp: Resource) -> int | None:
        """Return the offset of the next record to deliver, None before a partition has started."""
        return self._positions.get(tp)

    def seek(self, tp: Resource, offset: int) -> None:
        """Continue a partition at ``offset``, now or when it starts; also one that has failed."""
        is_failed = tp in self._failed
        if not is_failed and (tp not in self._positions or tp in self._retained):
            self._pending_seeks[tp] = offset
            return
        self._retained.records.pop(tp, None)
        self._positions[tp] = offset
        self.session.subscription_state.seek(tp, offset)
        part = TopicPartition(*tp, offset)
        if not is_failed:
            self.recreation.seek(self.client, part)
            _Original.seek(self.client, part)
        elif tp not in self._pending_revocation | self._lost:  # else it is about to go
            self._errors.pop(tp, None)
            self._failed.discard(tp)
            _Original.incremental_assign(self.client, [part])
            self._pause_in_client([tp])

    def pause(self, partitions: Collection[Resource]) -> None:
        """Pause delivery of ``partitions``."""
        self.paused |= set(partitions)
        self._pause_in_client(self._positions.keys() & set(partitions))

    def resume(self, partitions: Collection[Resource]) -> None:
        """Resume delivery of ``partitions``."""
        self.paused -= set(partitions)
        here = sorted(self._positions.keys() & set(partitions))
        _Original.resume(self.client, [TopicPartition(*tp) for tp in here])

    def is_fetching(self) -> bool:
        """Return whether any partition is fetched."""
        return bool(self._positions)

    def close(self) -> None:
        """Close librdkafka; a second call continues where the first was interrupted."""
        if self.client is not None:
            _Original.close(self.client)
            self.client = None  # librdkafka's threads end with the last reference


def _log_failure(start_offsets: Future[dict[Resource, StartOffset]]) -> None:
    error = None if start_offsets.cancelled() else start_offsets.exception()
    if error is not None and not ends_member(error):
        _log.warning("start positions are not known yet: %s", error)


def _without_start(start_offsets: StartOffsets) -> dict[Resource, StartOffset]:
    """Return the partitions without a start offset."""
    return {
        tp: start for tp, start in sorted(start_offsets.items()) if start.offset == OFFSET_INVALID
    }


def _no_start(tp: Resource) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"no committed offset for {tp[0]}-{tp[1]}, and auto.offset.reset is none: seek it, commit "
        "an offset, or choose earliest or latest"
    )
