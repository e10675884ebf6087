"""librdkafka in the hands of ``holdfast.Consumer``.

**Rules.** Every partition begins at an explicit offset, so what a commit commits is known before
the first record. A poll that fails may have lost records that librdkafka had taken, so every
partition goes back to where the application is. What the application pauses stays paused in a
rebalance that leaves the partition here.

An eager member gives everything up in every round and gets most of it back. What it gives up is
*parked*: librdkafka fetches it on, its records are set aside, and a partition that comes back at
the same place hands them out. At another place they are dropped.

References: KIP-54, "Motivation" (what is fetched already is not fetched again); KIP-429; KIP-447.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka import Message, TopicPartition

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
Begins = dict[Resource, StartPlace] | Future[dict[Resource, StartPlace]]
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
        super().__init__(self.client, owner, config, reset=None, stores=True)
        self._reset_to: str = settings["auto.offset.reset"]
        self._reached: dict[Resource, int] = {}  # after what was handed out; where it began
        self._sought: dict[Resource, int] = {}  # before it began
        self._parked = Parked()
        self._hidden: set[Resource] = set()  # lost, and not dropped yet
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

    def _consume(self, limit: int, wait_s: float) -> list[Any]:
        messages: list[Any] = _Original.consume(self.client, limit, wait_s)
        if any(map(Message.error, messages)):
            messages = [message for message in messages if not _failed(message)]
        if not messages:
            self.renewal.listen(self)
            return messages
        self.renewal.silence.end()
        if self._hidden or self._parked.partitions or self._parked.records:
            messages = self._parked.sort_out(messages, self._hidden)
        elsewhere = self._hidden | self._parked.partitions | self._parked.records.keys()
        here = [TopicPartition(*tp) for tp in self._reached.keys() - elsewhere]
        for found in _Original.position(self.client, here):
            if found.offset >= 0:
                self._reached[found.topic, found.partition] = found.offset
        return messages

    def _go_back(self) -> None:
        """Fetch again from where the application is."""
        self._parked.records.clear()
        places = [TopicPartition(*tp, at) for tp, at in sorted(self._reached.items())]
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
        return self._reached

    # See holdfast.members.seat.hands.Hands

    def positions(self, partitions: Collection[Resource]) -> Offsets:
        reached = dict(self._reached)  # the member's threads read it as well
        return {tp: OffsetToCommit(reached[tp]) for tp in partitions if tp in reached}

    def hold_back(self, partitions: Collection[Resource]) -> None:
        """An eager member parks them."""
        parked: set[Resource] = set()
        if not self.seat.is_cooperative:
            parked = self._reached.keys() & set(partitions) - self.paused
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
        for tp in partitions:
            for noted in (self._reached, self._sought):
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
        if self.seat.membership.parts is None:
            return None
        places = self.places(partitions)
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
        parts = self.seat.membership.parts
        assert parts is not None
        lookup, wanted = parts.lookup, frozenset(partitions)

        def by_reset(found: Mapping[Resource, int]) -> Begins:
            places = {tp: StartPlace(at, at) for tp, at in found.items() if at >= 0}
            unknown = sorted(wanted - places.keys())
            if not unknown:
                return places
            if self._reset_to == "none":
                name = f"{unknown[0][0]}-{unknown[0][1]}"
                raise RemoteProtocolError(
                    f"no committed offset for {name}, and auto.offset.reset is none: "
                    "commit one, or choose earliest or latest"
                )
            at = EARLIEST if self._reset_to == "earliest" else LATEST

            def at_ends(ends: Mapping[Resource, int]) -> dict[Resource, StartPlace]:
                for tp in set(unknown) - ends.keys():
                    # A topic that was created just now, or moves: its leader is there in a moment.
                    _log.info("%s-%s has no leader that answers yet: it starts later", *tp)
                return places | {tp: StartPlace(at) for tp, at in ends.items()}

            return and_then(lookup.list_offsets(unknown, at), at_ends)

        return and_then(self.seat.ask_places(wanted), by_reset)

    def refused(self, error: BaseException, partitions: Collection[Resource]) -> Places:
        """No broker will ever say where these begin: the member ends."""
        parts = self.seat.membership.parts
        assert parts is not None
        parts.fail(error)
        return {}

    def began(self, places: Places) -> Places:
        super().began(places)
        progress = self.seat.progress
        progress.resets({tp: at for tp, (at, committed) in places.items() if committed < 0})
        begun = {tp: StartPlace(self._sought.get(tp, at), c) for tp, (at, c) in places.items()}
        for tp in self._sought.keys() & places.keys():
            progress.seek(tp, self._sought.pop(tp))
        back = {tp for tp in begun if tp in self._parked}
        same = {tp for tp in back if self._reached[tp] == begun[tp].offset}
        self._parked.partitions -= same
        self.take_away(back - same)
        self._reached |= {tp: place.offset for tp, place in begun.items()}
        return {tp: place for tp, place in begun.items() if tp not in same}

    # The application's wishes

    def position(self, tp: Resource) -> int | None:
        """Offset of the next record to hand out, None for a partition that has not begun."""
        return self._reached.get(tp)

    def seek(self, tp: Resource, offset: int) -> None:
        """Continue a partition at ``offset``, now or when it begins."""
        if tp not in self._reached or tp in self._parked:
            self._sought[tp] = offset
            return
        self._parked.records.pop(tp, None)
        self._reached[tp] = offset
        part = TopicPartition(*tp, offset)
        self.renewal.seek(self.client, part)
        _Original.seek(self.client, part)
        self.seat.progress.seek(tp, offset)

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


def _failed(message: Any) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        text = f"topic {message.topic()!r}: {describe(error.code())}"
        raise RemoteProtocolError(text, error_code=error.code())
    if error.fatal() or not error.retriable():
        name = f"{message.topic()}-{message.partition()}"
        raise AdapterError(f"fetching {name} failed: {error.str()} ({error.name()})")
    return True
