"""Commits of kafka-python's consumer, the calls of their callbacks, and their errors.

**Rules.** The session commits. A later call of the application calls the callback of a commit that
did not wait, in the order of the answers. The callback of automatic commits is
``default_offset_commit_callback``. A commit that the group refused, or that names what this member
may not commit, raises ``CommitFailedError``. A missing answer is an error of the connection, and
can be retried.

References: Kafka's ``CommitFailedException``, ``RetriableCommitFailedException``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import kafka.errors as kafka_errors
from kafka.future import Future as TheirFuture
from kafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.core.machine.codes import COMMIT_FAILED
from holdfast.errors import HoldfastError, LocalProtocolError, RemoteProtocolError
from holdfast.members.clients.errors import of_connection, translated
from holdfast.members.clients.kafka.adapter import as_theirs, ours
from holdfast.members.runtime.offsets import Offsets
from holdfast.members.session.poll_session import PollSession

TheirOffsets = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Any, Any], object]
"""Takes offsets, and None or an error."""


class GroupCommits:
    """Commits of one consumer, and the calls of their callbacks."""

    def __init__(self, config: Mapping[str, Any]):
        self._config = config
        self._answered: deque[Callable[[], object]] = deque()  # callbacks that are due

    def limit_s(self, timeout_ms: float | None) -> float:
        """Return how long a call may take, in s."""
        limit_ms = self._config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        return float(limit_ms) / 1000

    def notify(self) -> None:
        """Call the callbacks of commits that were answered."""
        while self._answered:
            self._answered.popleft()()

    def wait_for(
        self, session: PollSession, offsets: TheirOffsets | None, timeout_ms: float | None
    ) -> None:
        """Commit ``offsets`` (default: processed), and wait until it is done."""
        wanted, origin = session.wanted(_named(offsets))
        self.notify()
        limit_s = self.limit_s(timeout_ms)
        try:
            session.commits.begin(wanted, origin, timeout_s=limit_s).result(limit_s)
        except HoldfastError as error:
            raise error_of_late_commit(error) from error
        except TimeoutError:
            raise kafka_errors.KafkaTimeoutError from None

    def begin(
        self,
        session: PollSession,
        offsets: TheirOffsets | None,
        reported: TheirOffsets,
        callback: OnCommit | None,
    ) -> Any:
        """Commit ``offsets`` (default: processed); the callback gets ``reported`` later."""
        wanted, origin = session.wanted(_named(offsets))
        self.notify()
        try:
            sent = session.commits.begin(wanted, origin, timeout_s=self.limit_s(None))
        except HoldfastError as error:
            raise error_of_commit(error) from error
        return self._answer_later(sent, reported, callback)

    def by_clock(self, session: PollSession) -> None:
        """Commit what is processed, if the interval has passed."""
        if (sent := session.commit_by_clock()) is not None:
            self._answer_later(sent[1], as_theirs(sent[0]), None)

    def _answer_later(
        self, sent: Future[None], reported: TheirOffsets, callback: OnCommit | None
    ) -> Any:
        callback = callback or self._config["default_offset_commit_callback"]
        future, answered = TheirFuture(), self._answered
        future.add_both(lambda found: answered.append(partial(callback, reported, found)))

        def answer(done: Future[None]) -> None:
            error = done.exception()
            if error is None:
                future.success(None)
            else:
                future.failure(error_of_commit(error))

        sent.add_done_callback(answer)
        return future


def _named(offsets: TheirOffsets | None) -> Offsets | None:
    """Return the offsets of a program; raise what kafka-python raises for other types."""
    if offsets is None:
        return None
    if not all(isinstance(tp, TopicPartition) for tp in offsets) or not all(
        isinstance(at, OffsetAndMetadata) for at in offsets.values()
    ):
        raise TypeError("offsets must be dict[TopicPartition, OffsetAndMetadata]")
    return ours(offsets)


def _is_passing(error: Any) -> bool:
    """Return whether a retry may succeed after one of kafka-python's errors.

    An error without a class of its own means that no broker has answered.
    """
    return type(error) is kafka_errors.KafkaError or isinstance(error, kafka_errors.RetriableError)


def error_of_commit(error: BaseException) -> Any:
    """Convert an error of a commit to kafka-python's."""
    if isinstance(error, LocalProtocolError):  # what this generation does not own
        return kafka_errors.CommitFailedError(str(error))
    if isinstance(error, RemoteProtocolError) and error.error_code in COMMIT_FAILED:
        return kafka_errors.CommitFailedError(translated(kafka_errors, error))
    return of_connection(kafka_errors, error)


def error_of_late_commit(error: BaseException) -> Any:
    """Convert the error of a commit that was retried until its time limit."""
    found = error_of_commit(error)
    if not _is_passing(found):
        return found
    late = kafka_errors.KafkaTimeoutError(str(error))
    late.__cause__ = found
    return late
