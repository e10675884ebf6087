"""Where the partitions of a group begin: the member looks it up, librdkafka is told.

**Rules.** A partition that the application gives no place begins at the committed offset of the
group, else by ``auto.offset.reset``, as with the original; an open transaction is waited for
(KIP-447). The call that assigns waits for the answer for a moment only. A partition whose place is
not known by then is assigned, as far as the application can see, and librdkafka gets it with the
answer. If the coordinator refuses the question, librdkafka asks it too, and tells the application.

**Strategy.** librdkafka is not left alone with the question, because 2.16 may never ask again. If
its assignment has changed by the time that the question fails (a broker dies, or answers too late),
it keeps the partitions of that question on a list of open questions, and asks no other one while
there are any: nothing that is assigned from then on is ever fetched.

References: librdkafka, ``rd_kafka_assignment_handle_OffsetFetch`` and
``rd_kafka_assignment_serve_pending``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import CancelledError, Future, wait
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, TopicPartition

from holdfast.adapters.cluster.connections import ends_member
from holdfast.adapters.drop_in.confluent.subscription import GroupSubscription
from holdfast.errors import HoldfastError
from holdfast.model.partitions import Resource

_WAITED_S = 0.25
_NO_PLACE = (OFFSET_INVALID, OFFSET_STORED)
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
        self._waiting: set[Resource] = set()  # for the answer
        self._paused: set[Resource] = set()  # by the application, while they waited
        self._unchecked: set[Resource] = set()  # of these nobody knows what stands committed
        self._asked: Future[dict[Resource, int]] | None = None

    @property
    def waiting(self) -> Collection[Resource]:
        """Assigned partitions that librdkafka does not have yet."""
        return self._waiting

    def committed(
        self, group: GroupSubscription, resources: Collection[Resource]
    ) -> dict[Resource, int]:
        """Committed offsets that stand there; none if nobody answers in a moment."""
        if not resources or group.parts is None:
            return {}
        try:
            answer = group.parts.link.committed(resources).result(_WAITED_S)
        except (HoldfastError, TimeoutError, CancelledError):
            self._unchecked.update(resources)
            return {}
        return {tp: at for tp, at in answer.items() if at >= 0}

    def assign(
        self, consumer: Any, group: GroupSubscription, partitions: Sequence[Any]
    ) -> dict[Resource, int]:
        """Assign these, those without a place once it is known; see :meth:`look_again`."""
        blank = [p for p in partitions if p.offset in _NO_PLACE]
        placed = [p for p in partitions if p.offset not in _NO_PLACE]
        if placed:
            _Original.incremental_assign(consumer, placed)
            self.forget(_named(placed))
        if not blank:
            return {}
        self._waiting |= _named(blank)
        self._asked = None  # an older answer may be older than a commit of another member
        asked = self._ask(group)
        if asked is not None:
            wait([asked], _WAITED_S)
        return self.look_again(consumer, group)

    def _ask(self, group: GroupSubscription) -> Future[dict[Resource, int]] | None:
        if self._asked is None and self._waiting and group.parts is not None:
            self._asked = group.parts.link.committed(set(self._waiting))
        return self._asked

    def look_again(self, consumer: Any, group: GroupSubscription) -> dict[Resource, int]:
        """Assign what waits, if there is an answer; never wait for one.

        Returns
        -------
        dict
            Committed offsets of partitions of which :meth:`committed` has found none in time.
        """
        asked = self._ask(group)
        if asked is None or not asked.done():
            return {}
        self._asked = None
        error = CancelledError() if asked.cancelled() else asked.exception()
        if error is not None and not ends_member(error):
            return {}
        answer = asked.result() if error is None else {}
        places = {tp: at if at >= 0 else self._reset for tp, at in answer.items()}
        begun = sorted(self._waiting.intersection(places) if error is None else self._waiting)
        found = {tp: at for tp in begun if (at := places.get(tp)) is not None}
        late = {tp: answer[tp] for tp in found if tp in self._unchecked and answer[tp] >= 0}
        paused = [TopicPartition(*tp) for tp in begun if tp in self._paused]
        self.forget(begun)
        self._told |= found.keys()
        if begun:
            parts = [TopicPartition(*tp, found.get(tp, OFFSET_INVALID)) for tp in begun]
            _Original.incremental_assign(consumer, parts)
            _Original.pause(consumer, paused)
        return late

    def pause(self, partitions: Sequence[Any], *, is_paused: bool) -> None:
        """Those of these that wait begin paused, or not."""
        if is_paused:
            self._paused |= self._waiting & _named(partitions)
        else:
            self._paused -= _named(partitions)

    def without(self, partitions: Sequence[Any]) -> list[Any]:
        """Forget those of these that wait, and return the others."""
        waiting = self._waiting & _named(partitions)
        self.forget(waiting)
        return [p for p in partitions if (p.topic, p.partition) not in waiting]

    def forget(self, partitions: Collection[Resource]) -> None:
        """Nobody waits for these any more, or they are unassigned."""
        for those in (self._told, self._unchecked, self._waiting, self._paused):
            those.difference_update(partitions)

    def hide(self, assignment: list[Any]) -> list[Any]:
        """An assignment as the original tells it: a partition that was given no place is stored."""
        for part in assignment:
            if (part.topic, part.partition) in self._told:
                part.offset = OFFSET_STORED
        more = [TopicPartition(*tp, OFFSET_STORED) for tp in list(self._waiting)]
        return sorted([*assignment, *more]) if more else assignment


def _named(partitions: Sequence[Any]) -> set[Resource]:
    return {(p.topic, p.partition) for p in partitions}
