"""The commits of a ``confluent_kafka.Consumer``, and the calls of its ``on_commit``.

**Rules.** A later poll calls ``on_commit``, with the offsets and an error or None: for every commit
that did not wait, for automatic ones and for that of a revocation. Without a subscription
librdkafka commits, and this module only sends the automatic commits.

References: confluent-kafka-python, ``Consumer.commit``; librdkafka, ``offset_commit_cb``.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, TopicPartition

from holdfast.errors import HoldfastError
from holdfast.members.clients.confluent import errors
from holdfast.members.clients.confluent.adapter import LibrdkafkaAdapter, listed, offsets_of
from holdfast.members.clients.confluent.config import Routed
from holdfast.members.runtime.application_tasks import ApplicationTask, Once
from holdfast.members.runtime.coordinator_client import Offsets
from holdfast.members.session.poll_session import PollSession

_Original: Any = confluent_kafka.Consumer
_NO_PARTITION = TopicPartition("any").partition


class CommitCalls:
    """Commits of one consumer.

    Parameters
    ----------
    adapter : LibrdkafkaAdapter Knows the stored offsets.
    on_commit : callable, optional
        The application's callback; takes an error or None, and a list.
    """

    def __init__(
        self,
        consumer: Any,
        adapter: LibrdkafkaAdapter,
        routed: Routed,
        on_commit: Callable[..., object] | None,
    ):
        self._ref = weakref.ref(consumer)
        self._adapter = adapter
        self._routed = routed
        self._on_commit = on_commit
        self._commit_at = time.monotonic() + routed.interval_s
        self._alone_committed: Offsets = {}

    def commit(
        self, session: PollSession, offsets: list[Any] | None, *, waits: bool
    ) -> list[Any] | None:
        """Commit ``offsets``, or the stored offsets, as ``Consumer.commit`` does."""
        wanted, asked = session.wanted(None if offsets is None else offsets_of(offsets))
        if offsets is None:  # for the others the original reports that there is nothing to commit
            answer = listed(wanted)
            answer += [TopicPartition(*tp) for tp in self._adapter.assigned_now() - wanted.keys()]
        else:
            answer = [_again(part) for part in offsets]
        answer.sort(key=lambda part: (part.topic, part.partition))
        try:
            sent = session.commits.begin(wanted, asked, timeout_s=session.settings.call_timeout_s)
        except HoldfastError as error:
            if waits:
                raise errors.commit_failed(error) from error
            self._put_answer(session, error, answer)
            return None
        if not waits:
            self.answer_later(session, sent, answer, is_empty=not wanted)
            return None
        try:
            sent.result()
        except HoldfastError as error:
            raise errors.commit_failed(error) from error
        if not wanted:
            raise errors.exception(errors.NO_OFFSET, "Commit failed: Local: No offset stored")
        return answer

    def answer_later(
        self, session: PollSession, sent: Future[None], answer: list[Any], *, is_empty: bool = False
    ) -> None:
        """Call ``on_commit`` once the commit is answered."""
        if is_empty:
            nothing = errors.exception(errors.NO_OFFSET, "Local: No offset stored")
            self._put_answer(session, nothing, answer)
        elif self._on_commit is not None:
            sent.add_done_callback(lambda done: self._put_answer(session, done.exception(), answer))

    def _put_answer(
        self, session: PollSession, error: BaseException | None, answer: list[Any]
    ) -> None:
        """Queue a call of ``on_commit`` for a later poll, as the original does."""
        if self._on_commit is not None:
            told = None if error is None else errors.kafka_error(error)
            session.tasks.put(ApplicationTask(Once(partial(self._on_commit, told, answer))))

    def on_last_commit(
        self, session: PollSession, offsets: Offsets, error: BaseException | None
    ) -> None:
        """Call ``on_commit`` for a commit of the member itself."""
        self._put_answer(session, error, listed(offsets))

    def alone_by_clock(self, now: float) -> None:
        """Commit stored offsets of a consumer without a subscription, if it is time."""
        if now >= self._commit_at:
            self._commit_at = now + self._routed.interval_s
            self.stored_alone()

    def stored_alone(self) -> None:
        """Commit, without waiting, what a manual assignment has stored since the last time."""
        if not self._routed.is_automatic:
            return
        consumer = self._ref()
        reached: Offsets = self._adapter.stored
        if self._routed.stores:
            reached = offsets_of(_Original.position(consumer, _Original.assignment(consumer)))
        if reached and reached != self._alone_committed:
            self._alone_committed = dict(reached)
            _Original.commit(consumer, asynchronous=True)


def _again(part: Any) -> Any:
    """Return a copy of a partition with offset, epoch and metadata."""
    epoch = {} if part.leader_epoch is None else {"leader_epoch": part.leader_epoch}
    beside = epoch if part.metadata is None else {**epoch, "metadata": part.metadata}
    return TopicPartition(part.topic, part.partition, part.offset, **beside)


def after(message: Any) -> Any:
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
