"""Where the partitions of a group begin: the member looks it up, librdkafka is told.

**Rules.** A partition that the application gives no place begins at the committed offset of the
group, else by ``auto.offset.reset``, as with the original; an open transaction is waited for
(KIP-447). If nobody answers in time, librdkafka looks for itself, and the member goes on asking:
with its answer, a partition of which nothing has come by then begins anew.

**Strategy.** librdkafka is not left alone with the question, because 2.16 may never ask again. If
its assignment has changed by the time that the question fails (a broker dies, or answers too late),
it keeps the partitions of that question on a list of open questions, and asks no other one while
there are any: nothing that is assigned from then on is ever fetched.

References: librdkafka, ``rd_kafka_assignment_handle_OffsetFetch`` and
``rd_kafka_assignment_serve_pending``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaException, TopicPartition

from holdfast.adapters.drop_in.confluent.subscription import GroupSubscription
from holdfast.errors import HoldfastError
from holdfast.model.partitions import Resource

_WAITED_S = 5.0
_Original: Any = confluent_kafka.Consumer


class Starts:
    """Start positions of one consumer.

    Parameters
    ----------
    reset : int or None
        The logical offset of ``auto.offset.reset``; None where librdkafka has to raise an error.
    """

    def __init__(self, reset: int | None):
        self._reset = reset
        self._told: set[Resource] = set()
        self._open: set[Resource] = set()  # librdkafka was left alone with the question
        self._asked: Future[dict[Resource, int]] | None = None

    def committed(
        self, group: GroupSubscription, resources: Collection[Resource]
    ) -> dict[Resource, int] | None:
        """Committed offsets, -1 where there is none; None if nobody answers in time."""
        if not resources or group.parts is None:
            return None
        try:
            return group.parts.link.committed(resources).result(_WAITED_S)
        except (HoldfastError, TimeoutError, CancelledError):
            return None

    def fill_in(self, group: GroupSubscription, partitions: Sequence[Any]) -> list[Any]:
        """The same partitions, those without a place with the one that was found."""
        blank = {
            (p.topic, p.partition)
            for p in partitions
            if p.offset in (OFFSET_INVALID, OFFSET_STORED)
        }
        answer = self.committed(group, blank)
        self._open |= blank if answer is None else set()
        found = self._places(answer or {})
        self._told |= found.keys()
        return [
            TopicPartition(*tp, found[tp]) if (tp := (p.topic, p.partition)) in found else p
            for p in partitions
        ]

    def _places(self, answer: dict[Resource, int]) -> dict[Resource, int]:
        found = {tp: at if at >= 0 else self._reset for tp, at in answer.items()}
        return {tp: at for tp, at in found.items() if at is not None}

    def look_again(self, consumer: Any, group: GroupSubscription) -> None:
        """Go on with what librdkafka was left alone with; never waits."""
        if not self._open or group.parts is None:
            return
        if self._asked is None:
            self._asked = group.parts.link.committed(set(self._open))
        if not self._asked.done():
            return
        asked, self._asked = self._asked, None
        if asked.cancelled() or asked.exception() is not None:
            return
        found = {tp: at for tp, at in self._places(asked.result()).items() if tp in self._open}
        self._open.difference_update(asked.result())
        now = {(p.topic, p.partition) for p in _Original.assignment(consumer)}
        dead = [tp for tp in sorted(found) if tp in now and _has_not_begun(consumer, tp)]
        if dead:
            _Original.incremental_unassign(consumer, [TopicPartition(*tp) for tp in dead])
            _Original.incremental_assign(consumer, [TopicPartition(*tp, found[tp]) for tp in dead])
            self._told.update(dead)

    def forget(self, partitions: Collection[Resource]) -> None:
        """These are unassigned."""
        self._told.difference_update(partitions)
        self._open.difference_update(partitions)

    def hide(self, assignment: list[Any]) -> list[Any]:
        """An assignment as the original tells it: a partition that was given no place is stored."""
        for part in assignment:
            if (part.topic, part.partition) in self._told:
                part.offset = OFFSET_STORED
        return assignment


def _has_not_begun(consumer: Any, resource: Resource) -> bool:
    """Whether nothing of a partition has ever been fetched."""
    part = TopicPartition(*resource)
    try:
        (at,) = _Original.position(consumer, [part])
        _, end = _Original.get_watermark_offsets(consumer, part, cached=True) or (0, -1)
    except KafkaException:
        return False
    return bool(at.offset < 0 and end < 0)
