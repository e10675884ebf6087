"""librdkafka in the hands of a seat: what it fetches is what the group gives this member.

**Rules.** librdkafka never joins the group, nor commits while there is a subscription. Its
assignment changes on the thread of the application's calls alone. Positions are librdkafka's, read
when somebody needs them; no record is looked at on its way.

A partition that the application gives no place begins at the committed offset of the group, else by
``auto.offset.reset``; an open transaction is waited for (KIP-447). Automatic commits take where it
begins, so the next owner goes on there, although no record has come. The call that assigns waits
for the answer for a moment only. A partition whose place is not known by then is assigned, as far
as the application can see, and librdkafka gets it with the answer.

**Strategy.** The consumer is referred to weakly: the member's threads refer to these hands, and a
consumer that is forgotten shall end.

librdkafka is not left alone with the question where partitions begin, because 2.16 may never ask
again. If its assignment has changed by the time that the question fails (a broker dies, or answers
too late), it keeps the partitions of that question on a list of open questions, and asks no other
one while there are any: nothing that is assigned from then on is ever fetched.

References: KIP-429; librdkafka, "Rebalancing" (``rebalance_cb``),
``rd_kafka_assignment_handle_OffsetFetch`` and ``rd_kafka_assignment_serve_pending``.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaException, Message, TopicPartition

from holdfast.cluster.lookup import EARLIEST, LATEST
from holdfast.cluster.signal_safe import and_then
from holdfast.core.machine.callbacks import ListenerCall
from holdfast.core.model.partitions import Resource
from holdfast.errors import HoldfastError
from holdfast.members.clients.confluent.recreation import ClientRecreation
from holdfast.members.runtime.member_log import NAME
from holdfast.members.runtime.offsets import Offsets, OffsetToCommit
from holdfast.members.session.client_adapter import Callback, before
from holdfast.members.session.session import GroupSession
from holdfast.members.session.start_offsets import StartOffsetsRequest

_log = logging.getLogger(NAME)
_MOST_INTRODUCED = 16  # more questions would take as long as they save
_ASKED_S = 0.25
_WAITED_S = 0.25
_NO_START = (OFFSET_INVALID, OFFSET_STORED)
SLICE_S = 0.025
"""How long one slice of a poll may wait, and so a change for the poll."""
_Original: Any = confluent_kafka.Consumer


class StartOffset(NamedTuple):
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


StartOffsets = Mapping[Resource, StartOffset]
OnStart = dict[Resource, StartOffset] | Future[dict[Resource, StartOffset]]


class StartPositions:
    """Start positions of one consumer.

    Parameters
    ----------
    ask : callable
        As :class:`~holdfast.members.session.start_offsets.StartOffsetsRequest` asks.
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
        ask: Callable[[Collection[Resource]], Future[dict[Resource, StartOffset]] | None],
        refused: Callable[[BaseException, Collection[Resource]], StartOffsets],
        began: Callable[[StartOffsets], StartOffsets],
        paused: Callable[[], Collection[Resource]],
    ):
        self._request: StartOffsetsRequest[StartOffset] = StartOffsetsRequest(ask)
        self._refused = refused
        self._began = began
        self._paused = paused
        self._with_start: set[Resource] = set()
        self._waiting: set[Resource] = set()  # for the answer

    @property
    def waiting(self) -> Collection[Resource]:
        """Assigned partitions that librdkafka does not have yet."""
        return self._waiting

    def assign(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Assign these, those without a place once it is known; see :meth:`look_again`."""
        blank = [p for p in partitions if p.offset in _NO_START]
        placed = [p for p in partitions if p.offset not in _NO_START]
        if placed:
            _Original.incremental_assign(consumer, placed)
            self.forget(_named(placed))
        if not blank:
            return
        self._waiting |= _named(blank)
        self._request.begin()
        self._begin_known(consumer, _WAITED_S)

    def look_again(self, consumer: Any) -> None:
        """Assign what waits, if there is an answer; never wait for one."""
        if self._waiting or self._request.is_open:
            self._begin_known(consumer, 0.0)

    def _begin_known(self, consumer: Any, wait_s: float) -> None:
        asked = set(self._waiting)
        try:
            answer = self._request.answer(asked, wait_s)
        except HoldfastError as error:
            answer = self._refused(error, asked)
        start_offsets = {tp: answer[tp] for tp in sorted(asked) if tp in answer}
        self.forget(start_offsets)
        self._with_start |= {
            tp for tp, start in start_offsets.items() if start.offset != OFFSET_INVALID
        }
        self._request.take(answer, asked)
        if start_offsets:
            given = self._began(start_offsets)
            _Original.incremental_assign(
                consumer, [TopicPartition(*tp, start.offset) for tp, start in given.items()]
            )
            begun = start_offsets.keys() & self._paused()
            _Original.pause(consumer, [TopicPartition(*tp) for tp in sorted(begun)])

    def without(self, partitions: Sequence[Any]) -> list[Any]:
        """Forget those of these that wait, and return the others."""
        waiting = self._waiting & _named(partitions)
        self.forget(waiting)
        return [p for p in partitions if (p.topic, p.partition) not in waiting]

    def forget(self, partitions: Collection[Resource]) -> None:
        """Nobody waits for these any more, or they are unassigned."""
        for those in (self._with_start, self._waiting):
            those.difference_update(partitions)

    def hide(self, assignment: list[Any]) -> list[Any]:
        """An assignment as the original tells it: a partition that was given no place is stored."""
        for part in assignment:
            if (part.topic, part.partition) in self._with_start:
                part.offset = OFFSET_STORED
        more = [TopicPartition(*tp, OFFSET_STORED) for tp in list(self._waiting)]
        return sorted([*assignment, *more]) if more else assignment


class HasListener(Protocol):
    """What knows the application's callbacks."""

    def listener_for(self, call: ListenerCall) -> Callable[[list[Resource]], object] | None:
        """The callback of this, None where there is none; takes partitions in order."""


class LibrdkafkaAdapter:
    """librdkafka as a seat's :class:`~holdfast.members.session.client_adapter.PollClientAdapter`.

    Parameters
    ----------
    owner : weak reference to HasListener
        Knows the application's callbacks.
    reset : int or None
        The logical offset of ``auto.offset.reset``; None where it has to be an error.
        If the coordinator refuses the question for committed offsets, librdkafka asks it too, and
        tells the application.
    stores : bool
        Whether everything that is handed out is to be committed; else what :meth:`store` notes.
    """

    def __init__(
        self,
        consumer: Any,
        owner: weakref.ref[HasListener],
        plane: Mapping[str, Any],
        *,
        reset: int | None,
        stores: bool,
    ):
        self._ref = weakref.ref(consumer)
        self._owner = owner
        self._reset = OFFSET_INVALID if reset is None else reset
        self.start_positions = StartPositions(
            self.ask, self.refused, self.began, lambda: self.paused
        )
        self.stores = stores
        self.stored: dict[Resource, OffsetToCommit] = {}
        self.running: Callback | None = None  # a callback of the application
        self.has_changed = False  # the one that runs has changed the assignment
        self.recreation = ClientRecreation(plane)
        self._known: set[str] = set()
        self._held_back: set[Resource] = set()
        self.paused: set[Resource] = set()  # by the application; librdkafka does not tell
        self.session: GroupSession

    @property
    def consumer(self) -> Any:
        """The consumer, None once it is forgotten."""
        return self._ref()

    # Questions

    def fetched(self) -> set[Resource]:
        """What librdkafka fetches."""
        return {(p.topic, p.partition) for p in _Original.assignment(self.consumer)}

    def assigned_now(self) -> set[Resource]:
        """What is assigned as far as the application can see."""
        return self.fetched().union(self.start_positions.waiting)

    def positions(self, partitions: Collection[Resource]) -> Offsets:
        held = [TopicPartition(*tp) for tp in sorted(self.fetched().intersection(partitions))]
        return offsets_of(_Original.position(self.consumer, held)) if held else {}

    def processed(self, positions: Offsets, in_flight: Offsets) -> Offsets:
        return before(positions, in_flight) if self.stores else dict(self.stored)

    def firsts(self, held: Any) -> Offsets:
        messages: Sequence[Any] = (held,) if isinstance(held, Message) else held
        found: dict[Resource, OffsetToCommit] = {}
        for message in messages:
            if message.error() is None:
                start = message.topic(), message.partition()
                found.setdefault(start, OffsetToCommit(message.offset()))
        return found

    # Changes

    def hold_back(self, partitions: Collection[Resource]) -> None:
        held = sorted(self.fetched().intersection(partitions))
        self._held_back.update(partitions)
        _Original.pause(self.consumer, [TopicPartition(*tp) for tp in held])

    def hide(self, partitions: Collection[Resource]) -> None:
        """Nothing: a slice of a poll is short, and the errand of the loss comes after it."""

    def drop(self, partitions: Collection[Resource]) -> None:
        self.take_away(partitions)
        for tp in partitions:
            self.stored.pop(tp, None)

    def take_away(self, partitions: Collection[Resource]) -> None:
        """Unassign those of these that are assigned."""
        self.start_positions.forget(partitions)
        self.recreation.forget(partitions)
        gone = sorted(self.fetched().intersection(partitions))
        held = self.to_resume(gone)
        self._held_back.difference_update(partitions)
        if not gone:
            return
        if held:  # librdkafka keeps a pause for ever
            _Original.resume(self.consumer, [TopicPartition(*tp) for tp in sorted(held)])
        _Original.incremental_unassign(self.consumer, [TopicPartition(*tp) for tp in gone])

    def ask(self, partitions: Collection[Resource]) -> Future[dict[Resource, StartOffset]] | None:
        runtime = self.session.membership.runtime
        if runtime is None:
            return None
        return and_then(self.session.request_committed(partitions), self.by_reset)

    def by_reset(self, committed: Mapping[Resource, int]) -> OnStart:
        """Where partitions begin: at these offsets, or, for -1, by ``auto.offset.reset``.

        librdkafka would look up the first or the last offset as well, and not tell.
        """
        runtime = self.session.membership.runtime
        assert runtime is not None
        start_offsets = {tp: StartOffset(at, at) for tp, at in committed.items() if at >= 0}
        blank = sorted(committed.keys() - start_offsets.keys())
        if not blank or self._reset not in (EARLIEST, LATEST):
            return start_offsets | {tp: StartOffset(self._reset) for tp in blank}

        def at_ends(ends: Mapping[Resource, int]) -> dict[Resource, StartOffset]:
            for tp in set(blank) - ends.keys():
                # A topic that was created just now, or moves: its leader is there in a moment.
                _log.info("%s-%s has no leader that answers yet: it starts later", *tp)
            return start_offsets | {tp: StartOffset(at) for tp, at in ends.items()}

        return and_then(runtime.lookup.list_offsets(blank, self._reset), at_ends)

    def refused(self, error: BaseException, partitions: Collection[Resource]) -> StartOffsets:
        return {tp: StartOffset(OFFSET_INVALID) for tp in partitions}

    def began(self, start_offsets: StartOffsets) -> StartOffsets:
        subscription_state = self.session.subscription_state
        subscription_state.stands({tp: start.committed for tp, start in start_offsets.items()})
        new = {tp: at for tp, (at, committed) in start_offsets.items() if committed < 0 <= at}
        subscription_state.resets(new, as_processed=self.commits_starts())
        return start_offsets

    def commits_starts(self) -> bool:
        """Whether every commit takes where a partition begins; else that of a hand-over alone.

        A program that commits, or stores offsets, itself does so with what it was handed out.
        """
        return self.stores and self.session.is_automatic

    def to_resume(self, gone: Collection[Resource]) -> set[Resource]:
        """Pauses that end where these are unassigned: ours; the application's are its own."""
        return self._held_back.intersection(gone) - self.paused

    def assign_new(self, partitions: Sequence[Any]) -> None:
        """Assign those that are not assigned yet, each at its place or at the group's."""
        now = self.fetched()
        new = [p for p in partitions if not self.is_assigned(now, (p.topic, p.partition))]
        self.start_positions.assign(self.consumer, new)

    def is_assigned(self, now: Collection[Resource], tp: Resource) -> bool:
        """Whether a partition needs no place, where ``now`` is fetched."""
        return tp in now

    def introduce(self, topics: set[str]) -> None:
        """Ask for new topics: librdkafka fetches a known topic at once, others a second later."""
        new = sorted(topics - self._known)
        self._known |= topics
        try:
            for topic in new[:_MOST_INTRODUCED]:
                _Original.list_topics(self.consumer, topic, _ASKED_S)
        except KafkaException:
            return  # it asks again by itself

    def forget_fetched(self) -> Mapping[Resource, int] | None:
        """Forget what is not handed out; return where to begin, None for where librdkafka is."""
        self.session.note()
        self._known.clear()
        return None

    def store(self, part: Any) -> None:
        """Note what the next commit commits; an offset that is none takes back an earlier one."""
        if part.offset >= 0:
            self.stored[part.topic, part.partition] = offset_to_commit(part)
        else:
            self.stored.pop((part.topic, part.partition), None)

    # Callbacks

    def has_callback(self, call: ListenerCall) -> bool:
        return self._listener(call) is not None

    def _listener(self, call: ListenerCall) -> Callable[[list[Resource]], object] | None:
        owner = self._owner()
        return None if owner is None else owner.listener_for(call)

    def notify(self, callback: Callback) -> BaseException | None:
        """A callback about nothing is not run."""
        return self._run(callback) if callback.resources else None

    def assigned(self, callback: Callback, *, is_news: bool) -> BaseException | None:
        """The application may assign in its callback; what it leaves out is assigned after it."""
        if not callback.has_begun:
            self.has_changed = False
            self.introduce({topic for topic, _ in callback.resources})
        error = self._run(callback) if is_news else None
        if not self.has_changed:
            self.assign_new([TopicPartition(*tp) for tp in callback.in_order()])
        return error

    def _run(self, callback: Callback) -> BaseException | None:
        work = self._listener(callback.call)
        if work is None:
            return None
        outer, self.running = self.running, callback
        try:
            return callback(work, callback.in_order())
        finally:
            self.running = outer


def offsets_of(partitions: Sequence[Any]) -> dict[Resource, OffsetToCommit]:
    """Offsets of confluent-kafka's partitions, with what is committed beside them."""
    return {(p.topic, p.partition): offset_to_commit(p) for p in partitions if p.offset >= 0}


def offset_to_commit(part: Any) -> OffsetToCommit:
    """An offset, with its metadata as confluent-kafka writes them: a byte of 0 ends them.

    confluent-kafka reads until that byte, so what another client writes without one is followed by
    whatever lies behind it in memory.
    """
    said, epoch = part.metadata, part.leader_epoch
    return OffsetToCommit(
        part.offset, "" if said is None else f"{said}\0", -1 if epoch is None else epoch
    )


def listed(offsets: Mapping[Resource, OffsetToCommit]) -> list[Any]:
    """Offsets as confluent-kafka lists them."""
    return [TopicPartition(*tp, at.offset, **_beside(at)) for tp, at in sorted(offsets.items())]


def _beside(at: OffsetToCommit) -> dict[str, Any]:
    epoch = {"leader_epoch": at.epoch} if at.epoch >= 0 else {}
    return epoch | ({"metadata": at.note.removesuffix("\0")} if at.note else {})


def _named(partitions: Sequence[Any]) -> set[Resource]:
    return {(p.topic, p.partition) for p in partitions}
