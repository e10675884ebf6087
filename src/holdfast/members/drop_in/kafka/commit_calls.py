"""The commits of a consumer of kafka-python, and what its callbacks hear of them.

**Rules.** The seat commits. A callback of a commit that did not wait is called by a later call of
the application, in the order of the answers. The callback of automatic commits is
``default_offset_commit_callback``.

References: kafka-python's ConsumerCoordinator, ``commit_offsets_sync``, ``commit_offsets_async``.
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

from holdfast.errors import HoldfastError
from holdfast.members.drop_in.kafka import errors
from holdfast.members.drop_in.kafka.hands import as_theirs, ours
from holdfast.members.member.offsets import Offsets
from holdfast.members.seat.commits import CommitAsker
from holdfast.members.seat.in_poll import InPoll

TheirOffsets = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Any, Any], object]
"""Takes offsets, and None or an error."""


class GroupCommits:
    """Commits of one consumer.

    Parameters
    ----------
    config : mapping of str to object
        kafka-python's configuration of a coordinator.
    """

    def __init__(self, config: Mapping[str, Any]):
        self._config = config
        self._answered: deque[Callable[[], object]] = deque()  # callbacks that are due

    def limit_s(self, timeout_ms: float | None) -> float:
        """How long a call may take, in s."""
        limit_ms = self._config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        return float(limit_ms) / 1000

    def tell(self) -> None:
        """Call the callbacks of commits that were answered."""
        while self._answered:
            self._answered.popleft()()

    def wait_for(
        self, seat: InPoll, offsets: TheirOffsets | None, timeout_ms: float | None
    ) -> None:
        """Commit these, or what is processed, and wait until it is done.

        Raises
        ------
        KafkaError
            As kafka-python: ``CommitFailedError`` if the group refused it.
        """
        wanted, asked = _wanted(seat, offsets)
        self.tell()
        limit_s = self.limit_s(timeout_ms)
        try:
            seat.commits.begin(wanted, asked, timeout_s=limit_s).result(limit_s)
        except HoldfastError as error:
            raise errors.of_commit_in_time(error) from error
        except TimeoutError:
            raise kafka_errors.KafkaTimeoutError from None

    def begin(
        self,
        seat: InPoll,
        offsets: TheirOffsets | None,
        said: TheirOffsets,
        callback: OnCommit | None,
    ) -> Any:
        """Commit these, or what is processed, without waiting; the callback is told of ``said``.

        Returns
        -------
        kafka.future.Future

        Raises
        ------
        KafkaError
            As :meth:`wait_for`, if that is known at once.
        """
        wanted, asked = _wanted(seat, offsets)
        self.tell()
        try:
            sent = seat.commits.begin(wanted, asked, timeout_s=self.limit_s(None))
        except HoldfastError as error:
            raise errors.of_commit(error) from error
        return self._answer_later(sent, said, callback)

    def by_clock(self, seat: InPoll) -> None:
        """Commit what is processed, if it is time."""
        try:
            sent = seat.commit_by_clock()
        except HoldfastError:  # the member has failed just now, which the next poll raises
            return
        if sent is not None:
            self._answer_later(sent[1], as_theirs(sent[0]), None)

    def _answer_later(
        self, sent: Future[None], said: TheirOffsets, callback: OnCommit | None
    ) -> Any:
        callback = callback or self._config["default_offset_commit_callback"]
        told, answered = TheirFuture(), self._answered
        told.add_both(lambda found: answered.append(partial(callback, said, found)))

        def answer(done: Future[None]) -> None:
            error = done.exception()
            if error is None:
                told.success(None)
            else:
                told.failure(errors.of_commit(error))

        sent.add_done_callback(answer)
        return told


def _wanted(seat: InPoll, offsets: TheirOffsets | None) -> tuple[Offsets, CommitAsker]:
    """What to commit, and who wants it; raises what kafka-python raises for other types."""
    if offsets is None:
        return seat.to_commit(), CommitAsker.ALL
    if not all(isinstance(tp, TopicPartition) for tp in offsets) or not all(
        isinstance(at, OffsetAndMetadata) for at in offsets.values()
    ):
        raise TypeError("offsets must be dict[TopicPartition, OffsetAndMetadata]")
    seat.note()
    return ours(offsets), CommitAsker.NAMED
