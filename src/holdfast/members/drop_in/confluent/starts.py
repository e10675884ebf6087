"""Where the partitions of a group begin: the member looks it up, librdkafka is told.

**Rules.** A partition that the application gives no place begins at the committed offset of the
group, else by ``auto.offset.reset``; an open transaction is waited for (KIP-447). The call that
assigns waits for the answer for a moment only. A partition whose place is not known by then is
assigned, as far as the application can see, and librdkafka gets it with the answer.

**Strategy.** librdkafka is not left alone with the question, because 2.16 may never ask again. If
its assignment has changed by the time that the question fails (a broker dies, or answers too late),
it keeps the partitions of that question on a list of open questions, and asks no other one while
there are any: nothing that is assigned from then on is ever fetched.

References: librdkafka, ``rd_kafka_assignment_handle_OffsetFetch`` and
``rd_kafka_assignment_serve_pending``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, TopicPartition

from holdfast.cluster.connections import ends_member
from holdfast.core.model.partitions import Resource

_WAITED_S = 0.25
_AGAIN_S, _MOST_AGAIN_S = 0.05, 1.0
_NO_PLACE = (OFFSET_INVALID, OFFSET_STORED)
_Original: Any = confluent_kafka.Consumer


class StartPlace(NamedTuple):
    """Where a partition begins.

    Attributes
    ----------
    offset : int
        librdkafka's: also a logical one, or ``OFFSET_INVALID``, by which librdkafka looks itself.
    committed : int
        What the group has committed, -1 for nothing.
    """

    offset: int
    committed: int = -1


Places = Mapping[Resource, StartPlace]


class Starts:
    """Start positions of one consumer.

    Parameters
    ----------
    ask : callable
        Asks for the places of partitions; None before there is a member. An answer may lack some,
        which are asked for again.
    refused : callable
        Takes the error of a question that no broker will ever answer, and the partitions; returns
        the places where they begin all the same.
    began : callable
        Takes the places of partitions that begin; returns those that librdkafka has to be given.
    paused : callable
        What the application has paused: it begins paused.
    """

    def __init__(
        self,
        ask: Callable[[Collection[Resource]], Future[Places] | None],
        refused: Callable[[BaseException, Collection[Resource]], Places],
        began: Callable[[Places], Places],
        paused: Callable[[], Collection[Resource]],
    ):
        self._ask_for = ask
        self._refused = refused
        self._began = began
        self._paused = paused
        self._told: set[Resource] = set()
        self._waiting: set[Resource] = set()  # for the answer
        self._asked: Future[Places] | None = None
        self._ask_at = 0.0
        self._pause_s = _AGAIN_S

    @property
    def waiting(self) -> Collection[Resource]:
        """Assigned partitions that librdkafka does not have yet."""
        return self._waiting

    def assign(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Assign these, those without a place once it is known; see :meth:`look_again`."""
        blank = [p for p in partitions if p.offset in _NO_PLACE]
        placed = [p for p in partitions if p.offset not in _NO_PLACE]
        if placed:
            _Original.incremental_assign(consumer, placed)
            self.forget(_named(placed))
        if not blank:
            return
        self._waiting |= _named(blank)
        self._asked = None  # an older answer may be older than a commit of another member
        self._ask_at, self._pause_s = 0.0, _AGAIN_S
        asked = self._ask()
        if asked is not None:
            wait([asked], _WAITED_S)
        self.look_again(consumer)

    def _ask(self) -> Future[Places] | None:
        if self._asked is None and self._waiting and time.monotonic() >= self._ask_at:
            self._asked = self._ask_for(set(self._waiting))
        return self._asked

    def _ask_later(self) -> None:
        self._ask_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _MOST_AGAIN_S)

    def look_again(self, consumer: Any) -> None:
        """Assign what waits, if there is an answer; never wait for one."""
        asked = self._ask()
        if asked is None or not asked.done():
            return
        self._asked = None
        error = CancelledError() if asked.cancelled() else asked.exception()
        if error is None:
            answer = asked.result()
        elif ends_member(error):
            answer = self._refused(error, self._waiting)
        else:
            answer = {}
        if not answer.keys() >= self._waiting:
            self._ask_later()
        places = {tp: answer[tp] for tp in sorted(self._waiting) if tp in answer}
        paused = [TopicPartition(*tp) for tp in places if tp in self._paused()]
        self.forget(places)
        self._told |= {tp for tp, place in places.items() if place.offset != OFFSET_INVALID}
        if places:
            given = self._began(places)
            _Original.incremental_assign(
                consumer, [TopicPartition(*tp, place.offset) for tp, place in given.items()]
            )
            _Original.pause(consumer, paused)

    def without(self, partitions: Sequence[Any]) -> list[Any]:
        """Forget those of these that wait, and return the others."""
        waiting = self._waiting & _named(partitions)
        self.forget(waiting)
        return [p for p in partitions if (p.topic, p.partition) not in waiting]

    def forget(self, partitions: Collection[Resource]) -> None:
        """Nobody waits for these any more, or they are unassigned."""
        for those in (self._told, self._waiting):
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
