"""librdkafka in the hands of ``holdfast.Consumer``.

**Rules.** Every partition begins at an explicit offset, so what a commit commits is known before
the first record. An error belongs to its partition: one poll raises it, once for each time that the
partition fails, and the others go on. The partition waits for a seek, or for its next assignment,
unless librdkafka tries again by itself. A poll that fails as a whole may have lost records that
librdkafka had taken, so every partition goes back to where the application is. What the application
pauses stays paused in a rebalance that leaves the partition here.

An eager member gives everything up in every round and gets most of it back. What it gives up is
*parked*: librdkafka fetches it on, its records are set aside, and a partition that comes back at
the same place hands them out. At another place they are dropped.

References: KIP-54, "Motivation" (what is fetched already is not fetched again); KIP-429; KIP-447.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, Message, TopicPartition

from holdfast.cluster import render
from holdfast.cluster.answers import and_then
from holdfast.cluster.connections import ends_member
from holdfast.cluster.lookup import EARLIEST, LATEST
from holdfast.cluster.settings import Settings
from holdfast.core.machine.codes import ErrorCode, describe
from holdfast.core.model.partitions import Resource
from holdfast.errors import AdapterError, HoldfastError, RemoteProtocolError
from holdfast.members.drop_in.confluent.forks import leave_alone_in_forks
from holdfast.members.drop_in.confluent.hands import (
    HasListener,
    LibrdkafkaHands,
    Places,
    StartPlace,
)
from holdfast.members.member.member_log import NAME
from holdfast.members.member.offsets import Offsets, OffsetToCommit
from holdfast.members.parked import Parked
from holdfast.members.seat.hands import Callback

_log = logging.getLogger(NAME)
_library_log = logging.getLogger("holdfast.librdkafka")
_RESETS = {"earliest": EARLIEST, "latest": LATEST}
_FAILURES = 3  # polls in a row that fail inside librdkafka until the application hears of it


def _clients_own(kind: Any) -> Any:
    """The client's own class, also where ``install()`` has put one of ours in its place."""
    line = getattr(kind, "__mro__", (kind,))
    return next(one for one in line if not one.__module__.startswith("holdfast."))


_Original: Any = _clients_own(confluent_kafka.Consumer)


class _FetchingConsumer(_Original):  # type: ignore[misc]  # the original cannot be referred to weakly
    """Fetches, and does nothing else."""


class ConsumerHands(LibrdkafkaHands):
    """The :class:`~holdfast.members.seat.hands.Hands` of ``holdfast.Consumer``.

    Parameters
    ----------
    owner : weak reference to HasListener
        Knows the application's callbacks.
    """

    def __init__(self, settings: Settings, owner: weakref.ref[HasListener]):
        config = {**render.librdkafka_fetch(settings), "logger": _library_log}
        self.client: Any = _FetchingConsumer(config)
        leave_alone_in_forks(self.client)
        reset = _RESETS.get(settings["auto.offset.reset"])
        super().__init__(self.client, owner, config, reset=reset, stores=True)
        self._reached: dict[Resource, int] = {}  # after what was handed out; where it began
        self._sought: dict[Resource, int] = {}  # before it began
        self._parked = Parked()
        self._hidden: set[Resource] = set()  # lost, and not dropped yet
        self._failed: set[Resource] = set()  # librdkafka has them no more, until a seek
        self._errors: dict[Resource, HoldfastError] = {}  # that a poll has still to raise
        self._n_failures = 0

    # Records

    def fetch(self, limit: int, wait_s: float) -> list[Any]:
        """The next records, at most ``limit``, an empty list after ``wait_s`` seconds."""
        if self._parked.records and (found := self._parked.take(limit, self.paused)):
            for message in found:  # in order: the last one of each partition counts
                self._reached[message.topic(), message.partition()] = message.offset() + 1
            return found
        try:
            messages = self._consume(limit, wait_s)
        except BaseException as error:  # librdkafka's client may raise anything; so may Ctrl-C
            self._go_back()
            if isinstance(error, HoldfastError) or not isinstance(error, Exception):
                raise
            self._n_failures += 1
            if self._n_failures >= _FAILURES:
                self._n_failures = 0
                kind = type(error).__name__
                raise AdapterError(f"fetching failed: {kind}: {error}; nothing is lost") from error
            _log.warning("fetching failed, and is tried again: %r", error)
            return []
        self._n_failures = 0
        return messages

    def raise_error(self) -> None:
        """Raise the error of a partition that has failed; each once."""
        while self._errors:
            raise self._errors.pop(min(self._errors))

    def _consume(self, limit: int, wait_s: float) -> list[Any]:
        messages: list[Any] = _Original.consume(self.client, limit, wait_s)
        if any(map(Message.error, messages)):
            failed = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
            found = self._handed_out(messages)
            self._note_failed(failed)
            return found
        return self._handed_out(messages)

    def _handed_out(self, messages: list[Any]) -> list[Any]:
        if not messages:
            self.renewal.listen(self)
            return messages
        self.renewal.silence.end()
        if self._hidden or self._parked.partitions or self._parked.records:
            messages = self._parked.sort_out(messages, self._hidden)
        parked = self._parked.partitions | self._parked.records.keys()
        elsewhere = self._hidden | self._failed | parked
        here = [TopicPartition(*tp) for tp in self._reached.keys() - elsewhere]
        for found in _Original.position(self.client, here):
            if found.offset >= 0:
                self._reached[found.topic, found.partition] = found.offset
        return messages

    def _note_failed(self, messages: Collection[Any]) -> None:
        """Keep the errors of partitions until polls raise them."""
        for message in messages:
            error, tp = message.error(), (message.topic() or "", message.partition())
            if tp in self._hidden or tp in self._parked:
                continue  # it is not this member's, or begins anew
            if error.code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED:  # librdkafka tries again
                text = f"topic {tp[0]!r}: {describe(error.code())}"
                self._errors[tp] = RemoteProtocolError(text, error_code=error.code())
            elif error.fatal() or not error.retriable():
                text = f"fetching {tp[0]}-{tp[1]} failed: {error.str()} ({error.name()})"
                self._errors[tp] = AdapterError(text)
                if tp in self.fetched():
                    self._failed.add(tp)
                    _Original.incremental_unassign(self.client, [TopicPartition(*tp)])

    def _places(self) -> dict[Resource, int]:
        """Where the application is with what librdkafka has."""
        return {tp: at for tp, at in self._reached.items() if tp not in self._failed}

    def _go_back(self) -> None:
        """Fetch again from where the application is."""
        self._parked.records.clear()
        places = [TopicPartition(*tp, at) for tp, at in sorted(self._places().items())]
        _Original.incremental_unassign(self.client, places)
        _Original.incremental_assign(self.client, places)
        self._pause_in_client(self._reached)

    def _pause_in_client(self, partitions: Collection[Resource]) -> None:
        paused = sorted(self.paused.intersection(partitions))
        _Original.pause(self.client, [TopicPartition(*tp) for tp in paused])

    def forget_fetched(self) -> dict[Resource, int]:
        """Everything begins where the application is."""
        super().forget_fetched()
        self._parked.records.clear()
        return self._places()

    # See holdfast.members.seat.hands.Hands

    def positions(self, partitions: Collection[Resource]) -> Offsets:
        reached = dict(self._reached)  # the member's threads read it as well
        return {tp: OffsetToCommit(reached[tp]) for tp in partitions if tp in reached}

    def hold_back(self, partitions: Collection[Resource]) -> None:
        """An eager member parks them."""
        parked: set[Resource] = set()
        if not self.seat.is_cooperative:
            parked = self._places().keys() & set(partitions) - self.paused
            self._parked.partitions |= parked
        super().hold_back([tp for tp in partitions if tp not in parked])

    def hide(self, partitions: Collection[Resource]) -> None:
        self._hidden.update(partitions)

    def drop(self, partitions: Collection[Resource]) -> None:
        """What is parked may come back."""
        super().drop([tp for tp in partitions if tp not in self._parked])
        self._hidden.difference_update(partitions)

    def take_away(self, partitions: Collection[Resource]) -> None:
        """Unassign those of these that are assigned."""
        super().take_away(partitions)
        self._parked.forget(partitions)
        self._failed.difference_update(partitions)
        for tp in partitions:
            for noted in (self._reached, self._sought, self._errors):
                noted.pop(tp, None)

    def to_resume(self, gone: Collection[Resource]) -> set[Resource]:
        """A pause of the application begins again with the partition, if it comes back."""
        return (self._held_back | self.paused).intersection(gone)

    def assigned(self, callback: Callback, *, is_news: bool) -> BaseException | None:
        standing = self.seat.membership.standing
        if standing is not None:
            self.paused &= standing.owned
        error = super().assigned(callback, is_news=is_news)
        self.take_away(self._parked.partitions - callback.resources)
        return error

    def is_assigned(self, now: Collection[Resource], tp: Resource) -> bool:
        """What is parked begins anew, or goes on."""
        return tp in now and tp not in self._parked

    # Where partitions begin

    def ask(self, partitions: Collection[Resource]) -> Future[dict[Resource, StartPlace]] | None:
        places = super().ask(partitions)
        if places is not None:
            places.add_done_callback(_log_failure)
        return places

    def places(self, partitions: Collection[Resource]) -> Future[dict[Resource, StartPlace]]:
        """Ask where these begin: at the committed offset, or by ``auto.offset.reset``.

        Returns
        -------
        Future of dict of partition to StartPlace
            Its error is a RemoteProtocolError if there is no committed offset and
            ``auto.offset.reset`` is ``none``, and an AdapterError if no broker answered in time.
        """

        def known(places: Places) -> dict[Resource, StartPlace]:
            for tp in _nowhere(places):
                raise _no_place(tp)
            return dict(places)

        return and_then(and_then(self.seat.ask_places(partitions), self.by_reset), known)

    def refused(self, error: BaseException, partitions: Collection[Resource]) -> Places:
        """No broker will ever say where these begin: the member ends."""
        parts = self.seat.membership.parts
        assert parts is not None
        parts.fail(error)
        return {}

    def commits_starts(self) -> bool:
        return True

    def began(self, places: Places) -> Places:
        super().began(places)
        lost = _nowhere(places).keys() - self._sought.keys()
        begun = {
            tp: StartPlace(self._sought.get(tp, at), committed)
            for tp, (at, committed) in places.items()
            if tp not in lost
        }
        for tp in self._sought.keys() & places.keys():
            self.seat.progress.seek(tp, self._sought.pop(tp))
        back = {tp for tp in places if tp in self._parked}
        same = {tp for tp in back & begun.keys() if self._reached[tp] == begun[tp].offset}
        self._parked.partitions -= same
        self.take_away(back - same)
        self._failed |= lost
        self._errors |= {tp: _no_place(tp) for tp in lost}
        self._reached |= {tp: place.offset for tp, place in begun.items()}
        return {tp: place for tp, place in begun.items() if tp not in same}

    # The application's wishes

    def position(self, tp: Resource) -> int | None:
        """Offset of the next record to hand out, None for a partition that has not begun."""
        return self._reached.get(tp)

    def seek(self, tp: Resource, offset: int) -> None:
        """Continue a partition at ``offset``, now or when it begins; one that has failed, too."""
        is_failed = tp in self._failed
        if not is_failed and (tp not in self._reached or tp in self._parked):
            self._sought[tp] = offset
            return
        self._parked.records.pop(tp, None)
        self._reached[tp] = offset
        self.seat.progress.seek(tp, offset)
        part = TopicPartition(*tp, offset)
        if not is_failed:
            self.renewal.seek(self.client, part)
            _Original.seek(self.client, part)
        elif tp not in self._held_back | self._hidden:  # else it is about to go
            self._errors.pop(tp, None)
            self._failed.discard(tp)
            _Original.incremental_assign(self.client, [part])
            self._pause_in_client([tp])

    def pause(self, partitions: Collection[Resource]) -> None:
        """Hand out nothing of these."""
        self.paused |= set(partitions)
        self._pause_in_client(self._reached.keys() & set(partitions))

    def resume(self, partitions: Collection[Resource]) -> None:
        """Hand out these again."""
        self.paused -= set(partitions)
        here = sorted(self._reached.keys() & set(partitions))
        _Original.resume(self.client, [TopicPartition(*tp) for tp in here])

    def has_begun(self) -> bool:
        """Whether anything is fetched."""
        return bool(self._reached)

    def close(self) -> None:
        """Close librdkafka; a second call goes on where the first was interrupted."""
        if self.client is not None:
            _Original.close(self.client)
            self.client = None  # librdkafka's threads end with the last reference


def _log_failure(places: Future[dict[Resource, StartPlace]]) -> None:
    error = None if places.cancelled() else places.exception()
    if error is not None and not ends_member(error):
        _log.warning("start positions are not known yet: %s", error)


def _nowhere(places: Places) -> dict[Resource, StartPlace]:
    """Those without a place."""
    return {tp: place for tp, place in sorted(places.items()) if place.offset == OFFSET_INVALID}


def _no_place(tp: Resource) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"no committed offset for {tp[0]}-{tp[1]}, and auto.offset.reset is none: seek it, commit "
        "an offset, or choose earliest or latest"
    )
