"""Commits of the member behind kafka-python's consumer.

**Rules.** All commits of a member go over its own connection to the coordinator, in the order in
which they were asked for. So no automatic commit arrives after the commit of a hand-over. Who is
refused tells the member which generation the commit had, because the member may have a newer one by
then and has lost nothing.

References: Kafka's ConsumerCoordinator, ``OffsetCommitResponseHandler``.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping
from functools import partial
from typing import Any

import kafka.errors as kafka_errors
from kafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.adapters.drop_in import client_errors
from holdfast.adapters.drop_in.kafka.poll_duties import PollDuties
from holdfast.adapters.member.assembly import MemberParts
from holdfast.adapters.member.link import NotedOffset
from holdfast.machine import events
from holdfast.machine.codes import ErrorCode
from holdfast.machine.member.holdings import Identity

theirs = partial(client_errors.translated, kafka_errors)
_OVERTAKEN = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)


def check_offsets(offsets: Mapping[Any, Any]) -> None:
    """Raise what kafka-python raises for offsets of other types."""
    if not all(isinstance(tp, TopicPartition) for tp in offsets) or not all(
        isinstance(at, OffsetAndMetadata) for at in offsets.values()
    ):
        raise TypeError("offsets must be dict[TopicPartition, OffsetAndMetadata]")


def is_passing(error: Any) -> bool:
    """Whether another try may succeed, of kafka-python's error for one of ours.

    What has no class of its own there is that nobody answered.
    """
    return type(error) is kafka_errors.KafkaError or isinstance(error, kafka_errors.RetriableError)


def send(
    parts: MemberParts[PollDuties],
    offsets: Mapping[TopicPartition, Any],
    identity: Identity,
) -> concurrent.futures.Future[int]:
    """Commit with an identity, without waiting.

    Parameters
    ----------
    offsets : mapping of TopicPartition to OffsetAndMetadata
        What to commit.

    Returns
    -------
    Future of int
        Kafka's error code. By then the member knows of a refusal.
    """
    answer: concurrent.futures.Future[int] = concurrent.futures.Future()

    def note(done: concurrent.futures.Future[int]) -> None:
        error = concurrent.futures.CancelledError() if done.cancelled() else done.exception()
        code = done.result() if error is None else -1
        now = parts.host.standing.identity.member_id
        if code == ErrorCode.FENCED_INSTANCE_ID and identity.member_id != now:
            code = ErrorCode.UNKNOWN_MEMBER_ID  # this process has joined again, with another id
        parts.counters.add("commit" if code == 0 else "commit_failed")
        if code > 0:
            parts.host.post(events.CommitRefused(identity.generation, code))
        if error is None:
            answer.set_result(code)
        else:
            answer.set_exception(error)

    noted = {
        tuple(tp): NotedOffset.of(at.offset, at.metadata, at.leader_epoch)
        for tp, at in offsets.items()
    }
    asked = parts.link.commit(
        noted,
        generation=identity.generation,
        member_id=identity.member_id,
        instance_id=identity.instance_id,
    )
    asked.add_done_callback(note)
    return answer


def error_of(answer: concurrent.futures.Future[int], group: str) -> Any:
    """kafka-python's error for an answered commit, None for one that succeeded."""
    error = answer.exception()
    if error is not None:
        raised = theirs(error)
        is_named = type(raised) is not kafka_errors.KafkaError
        return raised if is_named else kafka_errors.KafkaConnectionError(str(error))
    code = answer.result()
    if code == 0:
        return None
    kind = kafka_errors.for_code(code)
    if code in _OVERTAKEN:
        return kafka_errors.CommitFailedError(kind())
    return kind(group)
