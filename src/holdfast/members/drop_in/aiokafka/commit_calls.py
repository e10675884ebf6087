"""The commits of a consumer of aiokafka that is a member, and its questions for committed offsets.

**Rules.** The seat commits. What it refuses comes out in aiokafka's classes. An automatic commit
that is refused is a line of the log, as with aiokafka.

References: aiokafka, ``GroupCoordinator.commit_offsets``; KIP-447.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Future

import aiokafka.errors as kafka_errors
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.errors import HoldfastError
from holdfast.members.drop_in.aiokafka.errors import commit_failed, no_places
from holdfast.members.drop_in.aiokafka.hands import AiokafkaHands
from holdfast.members.member.offsets import Offsets, OffsetToCommit
from holdfast.members.seat.commits import CommitAsker
from holdfast.members.seat.on_loop import OnLoop

log = logging.getLogger(__name__)
_OUT = "the commit was refused: the member is out of its group, and has lost what it had"


async def commit(
    seat: OnLoop, hands: AiokafkaHands, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None
) -> None:
    """Commit these, or all that was handed out, and wait until it is done.

    Raises
    ------
    CommitFailedError
        If the group refused it, or the member does not own a partition, or did not when the record
        was handed out.
    """
    seat.note()
    if offsets is None:
        if not seat.membership.is_member:
            raise_loss(seat)
            raise kafka_errors.CommitFailedError(_OUT)
        wanted: Offsets = hands.positions(seat.progress.active())
    else:
        wanted = {
            (tp.topic, tp.partition): OffsetToCommit(at.offset, at.metadata or "")
            for tp, at in offsets.items()
        }
    asked = CommitAsker.ALL if offsets is None else CommitAsker.NAMED
    timeout_s = seat.settings["request.timeout.ms"] / 1000
    try:
        await asyncio.wrap_future(seat.commits.begin(wanted, asked, timeout_s=timeout_s))
    except HoldfastError as error:
        raise commit_failed(error) from error


def raise_loss(seat: OnLoop, partitions: Collection[TopicPartition] | None = None) -> None:
    """Raise the error that tells of lost records (of these), if nobody has told of them."""
    if (lost := seat.commits.loss(partitions)) is not None:
        raise commit_failed(lost)


async def committed(
    seat: OnLoop, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Ask where the group has committed; open transactions are waited for.

    Raises
    ------
    KafkaError
        If nobody has answered, or the assignment has changed meanwhile.
    """
    try:
        found = await seat.places([(tp.topic, tp.partition) for tp in partitions])
    except HoldfastError as error:
        raise no_places(error) from error
    if found is None:
        raise kafka_errors.KafkaConnectionError("the assignment has changed: ask again")
    known = {TopicPartition(*tp): at for tp, at in found.items() if at >= 0}
    return {tp: OffsetAndMetadata(at, "") for tp, at in known.items()}


def commit_by_clock(seat: OnLoop) -> None:
    """Commit what is processed, if it is time."""
    try:
        sent = seat.commit_by_clock()
    except HoldfastError:
        return  # the member has failed just now: it is told soon
    if sent is not None:
        sent[1].add_done_callback(_log_refusal)


def _log_refusal(sent: Future[None]) -> None:
    if (error := sent.exception()) is not None:
        log.warning("Auto offset commit failed: %s", error)
