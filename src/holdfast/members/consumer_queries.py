"""Queries of ``holdfast.Consumer`` about topics and offsets, and commits that do not wait.

**Rules.** A query goes to the brokers and waits for at most ``request.timeout.ms``. A seek is
refused as :meth:`holdfast.Consumer.seek` refuses it. A commit that does not wait is checked before
it is sent, as one that waits: offsets of partitions that this generation does not own are not
sent. Every call checks its arguments before it has any effect, and refuses them with a
:class:`LocalProtocolError` that has the found and the expected value.

**Strategy.** :class:`ConsumerQueries` is a base class of :class:`holdfast.Consumer`; it needs
only the member runtime.

References: Kafka's ``Consumer`` (``offsetsForTimes``, ``beginningOffsets``, ``commitAsync``,
``groupMetadata``); KIP-447.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.cluster.lookup import EARLIEST, LATEST
from holdfast.core.machine.shared_values import Offsets, OffsetToCommit
from holdfast.errors import LocalProtocolError
from holdfast.members.clients.librdkafka.consumer_adapter import ConsumerAdapter
from holdfast.members.config.settings import Settings
from holdfast.members.runtime.application_tasks import ApplicationTask, Once
from holdfast.members.session.commits import CommitOrigin, group_metadata
from holdfast.members.session.poll_session import PollSession

if TYPE_CHECKING:
    from confluent_kafka import Message

    from holdfast.members.runtime.member_runtime import MemberRuntime

LARGEST_OFFSET = 2**63 - 1  # OffsetCommit has eight bytes for it
_CALLBACKS = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")


def checked_pattern(topics: object) -> Callable[[str], bool] | None:
    """Return the predicate of a pattern; None if topics are named."""
    if isinstance(topics, str):
        if not topics.startswith("^"):
            raise LocalProtocolError(f"subscribe() takes a list of topics: [{topics!r}]")
        topics = re.compile(topics)
    if isinstance(topics, re.Pattern):
        matches = topics.match
        return lambda name: matches(name) is not None
    return None


def checked_names(topics: Collection[str] | str | re.Pattern[str]) -> tuple[str, ...]:
    """Return the named topics, sorted."""
    if not isinstance(topics, Collection):
        raise LocalProtocolError(f"subscribe() takes a list of topics, found {topics!r}")
    for name in topics:
        if not isinstance(name, str):
            raise LocalProtocolError(f"a topic's name is a str, found {name!r}")
    names = tuple(sorted(set(topics)))
    if not names or not all(names):
        raise LocalProtocolError(
            "subscribe() takes at least one topic name; unsubscribe() leaves the group"
        )
    return names


def check_listener(listener: object) -> None:
    """Refuse a listener that would never be called, such as a plain function."""
    if listener is not None and not any(hasattr(listener, name) for name in _CALLBACKS):
        raise LocalProtocolError(
            f"a listener is an object with {', '.join(_CALLBACKS[:2])} or {_CALLBACKS[2]}, "
            f"found {listener!r}"
        )


def checked_pairs(partitions: object) -> list[tuple[str, int]]:
    """Return pairs of topic and partition; refuse anything else."""
    if not isinstance(partitions, Collection) or isinstance(partitions, str):
        raise LocalProtocolError(
            f"expected a list of pairs (topic, partition), found {partitions!r}"
        )
    pairs = []
    for given in partitions:
        match given:
            case (str(topic), int(partition)):
                pairs.append((topic, partition))
            case _:
                raise LocalProtocolError(
                    f"expected a list of pairs (topic, partition), found {given!r} in it"
                )
    return pairs


def check_offsets(offsets: object) -> None:
    """Refuse anything but a mapping from partitions to offsets that a record can have."""
    if not isinstance(offsets, Mapping):
        raise LocalProtocolError(
            "expected a mapping from (topic, partition) to the next offset, such as "
            f"{{('orders', 0): 42}}, found {offsets!r}"
        )
    for (topic, partition), offset in zip(checked_pairs(offsets), offsets.values(), strict=True):
        if not _is_offset(offset):
            raise LocalProtocolError(
                f"{topic}-{partition}: an offset is a whole number from 0 to 2^63 - 1, "
                f"found {offset!r}"
            )


def checked_seconds(timeout: object) -> float:
    """Return a timeout in seconds."""
    if not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or isnan(timeout):
        raise LocalProtocolError(f"a timeout is a number of seconds, found {timeout!r}")
    return timeout


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_OFFSET


class TopicPartition(NamedTuple):
    """One partition of one topic, as Kafka's clients name it: ``partition`` counts from 0."""

    topic: str
    partition: int


Answered = Callable[[Mapping[TopicPartition, int], Exception | None], object]


def as_offsets(offsets: Mapping[tuple[str, int], int]) -> Offsets:
    """Convert offsets of the application to those of a commit."""
    return {(tp[0], tp[1]): OffsetToCommit(at) for tp, at in offsets.items()}


def _error_of(done: Future[None]) -> Exception | None:
    error = done.exception()
    return error if error is None or isinstance(error, Exception) else None


class ConsumerQueries:
    """Queries and commits of a consumer whose member runs."""

    _settings: Settings
    _adapter: ConsumerAdapter

    def _running(self, *, polls: bool = False) -> PollSession:
        raise NotImplementedError

    def _member(self) -> MemberRuntime:
        runtime = self._running().membership.runtime
        assert runtime is not None  # a consumer waits for a broker when it subscribes
        return runtime

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Message]:
        """Return records that :class:`holdfast.Consumer` fetches; at most ``max_records``."""
        raise NotImplementedError

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Continue a partition at ``offset``, as :class:`holdfast.Consumer` does."""
        raise NotImplementedError

    def poll_one(self, timeout: float = 1.0) -> Message | None:
        """Return the next record, None after ``timeout`` seconds; the previous one is processed."""
        found = self.poll(timeout, 1)
        return found[0] if found else None

    # Topics

    def subscription(self) -> set[str]:
        """Return the topics of the subscription: for a pattern, those that match now."""
        return set(self._member().subscribed)

    def list_topics(self) -> dict[str, int]:
        """Return the number of partitions of every topic that is not internal."""
        return dict(self._member().lookup.partitions(None).result().counts)

    # Offsets

    def beginning_offsets(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition; one without a leader is missing."""
        return self._ends(partitions, EARLIEST)

    def end_offsets(self, partitions: Collection[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset after the last record that is visible under ``isolation.level``."""
        return self._ends(partitions, LATEST)

    def _ends(self, partitions: Collection[tuple[str, int]], at: int) -> dict[TopicPartition, int]:
        wanted = checked_pairs(partitions)
        if not wanted:
            return {}
        found = self._member().lookup.list_offsets(wanted, at).result()
        return {TopicPartition(*tp): offset for tp, offset in found.items()}

    def offsets_for_times(
        self, times: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, int | None]:
        """Return each partition's offset of the first record at or after a time.

        Parameters
        ----------
        times : mapping of (topic, partition) to int
            Milliseconds since 1970.

        Returns
        -------
        dict of TopicPartition to int or None
            None if every record is older; a partition without a leader is missing.

        Raises
        ------
        LocalProtocolError
            If a time is negative.
        """
        for tp, time_ms in times.items():
            if time_ms < 0:
                raise LocalProtocolError(
                    f"{tp[0]}-{tp[1]}: a time is not negative, found {time_ms}"
                )
        if not times:
            return {}
        found = self._member().lookup.offsets_at(times).result()
        return {TopicPartition(*tp): at if at >= 0 else None for tp, (at, _) in found.items()}

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Continue partitions at their first records; without arguments, all that are owned."""
        self._seek_to(self.beginning_offsets(self._named(partitions)))

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Continue partitions after their last records; without arguments, all that are owned."""
        self._seek_to(self.end_offsets(self._named(partitions)))

    def seek_to_committed(self, *partitions: tuple[str, int]) -> None:
        """Continue partitions at the committed offsets, or by ``auto.offset.reset``."""
        self._running()
        found = self._adapter.start_offsets(self._named(partitions)).result()
        self._seek_to({tp: start.offset for tp, start in found.items()})

    def _named(self, partitions: Collection[tuple[str, int]]) -> Collection[tuple[str, int]]:
        return partitions or self._member().member_thread.snapshot.owned

    def _seek_to(self, offsets: Mapping[Any, int]) -> None:
        for partition, offset in offsets.items():
            self.seek(partition, offset)

    # Commits

    def commit_async(
        self,
        offsets: Mapping[tuple[str, int], int] | None = None,
        on_commit: Answered | None = None,
    ) -> None:
        """Commit without waiting.

        Parameters
        ----------
        offsets : mapping of (topic, partition) to int, optional
            As for :meth:`holdfast.Consumer.commit`.
        on_commit : callable, optional
            Takes the offsets and an error or None. A later :meth:`poll`, or :meth:`close`, calls
            it; its error is raised there.

        Raises
        ------
        RemoteProtocolError, LocalProtocolError
            As :meth:`holdfast.Consumer.commit`, for offsets that may not be committed.
        """
        session = self._running()
        origin = CommitOrigin.ALL if offsets is None else CommitOrigin.NAMED
        session.record_positions()
        wanted = session.to_commit() if offsets is None else as_offsets(offsets)
        committed = {TopicPartition(*tp): at.offset for tp, at in wanted.items()}
        sent = session.commits.begin(wanted, origin, timeout_s=self._settings.call_timeout_s)
        if not wanted or on_commit is None:
            return

        def answer(done: Future[None]) -> None:
            session.tasks.put(ApplicationTask(Once(partial(on_commit, committed, _error_of(done)))))

        sent.add_done_callback(answer)

    def group_metadata(self) -> bytes:
        """Return the metadata that fence ``Producer.send_offsets_to_transaction`` (KIP-447)."""
        return group_metadata(self._settings, self._member().member_thread.snapshot.identity)
