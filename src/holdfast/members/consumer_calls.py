"""The calls of a ``holdfast.Consumer`` that need its member: commits, offsets, the assignment.

**Rules.** A query goes to the brokers and waits for at most ``request.timeout.ms``. A commit that
does not wait is checked before it is sent, as one that waits: offsets of partitions that this
generation does not own are not sent.

References: KIP-429, KIP-447; Kafka's ``Consumer`` (``offsetsForTimes``, ``beginningOffsets``,
``commitAsync``, ``groupMetadata``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from holdfast.cluster.lookup import EARLIEST, LATEST
from holdfast.errors import ClientError, LocalProtocolError
from holdfast.members.clients.librdkafka.consumer_session import ConsumerSession
from holdfast.members.config.arguments import (
    OffsetCommitCallback,
    TopicPartition,
    check_offsets,
    check_times,
    checked_pairs,
)
from holdfast.members.config.settings import Settings
from holdfast.members.metrics import MemberMetrics
from holdfast.members.runtime.application_calls import ApplicationCalls, ApplicationTask, Once
from holdfast.members.session.commits import group_metadata, loss_error

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _application_call(
    method: Callable[Concatenate[MemberCalls, _P], _T],
) -> Callable[Concatenate[MemberCalls, _P], _T]:
    """Mark a call of the application; a concurrent close waits for the call to end."""

    @wraps(method)
    def call(self: MemberCalls, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._calls.run(lambda: method(self, *args, **kwargs))

    return cast("Callable[Concatenate[MemberCalls, _P], _T]", call)


class MemberCalls:
    """The calls of a :class:`holdfast.Consumer` that need its member.

    Parameters
    ----------
    end : callable
        Ends the consumer, as for :class:`ApplicationCalls`.
    """

    def __init__(self, settings: Settings, end: Callable[[float, bool | None], None]):
        self._settings = settings
        self._calls = ApplicationCalls(end)
        self._session: ConsumerSession | None = None

    def _subscribed_session(self) -> ConsumerSession:
        if self._calls.is_done:
            raise ClientError("the consumer is closed")
        if self._session is None:
            raise LocalProtocolError("subscribe() first")
        return self._session

    def _running_session(self) -> ConsumerSession:
        """Return the session; raise the failure of the member."""
        session = self._subscribed_session()
        session.raise_failure()
        return session

    # Topics

    def subscription(self) -> set[str]:
        """Return the topics of the subscription: for a pattern, those that match now."""
        return set(self._running_session().runtime.watch.subscribed)

    def list_topics(self) -> dict[str, int]:
        """Return the number of partitions of every topic that is not internal."""
        return dict(self._running_session().runtime.lookup.partitions(None).result().counts)

    # Commits

    @_application_call
    def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Commit, and wait until it is done.

        Parameters
        ----------
        offsets : mapping of (topic, partition) to int, optional
            The next offset to read of each; by default everything delivered so far.

        Raises
        ------
        RemoteProtocolError
            If the group refused the commit, or the records were delivered before their partitions
            were lost: another member owns or has owned the partitions since. Without ``offsets``
            the error is raised until ``on_partitions_lost`` has run, or, if there is no such
            callback, until the application polls after the error. Nothing is committed.
        ClientError
            If no broker answered within ``request.timeout.ms``.
        LocalProtocolError
            If the member does not own a partition, or no record can have the offset: the broker
            would not notice.
        """
        _, sent = self._running_session().send_commit(offsets)
        sent.result()

    def commit_async(
        self,
        offsets: Mapping[tuple[str, int], int] | None = None,
        on_commit: OffsetCommitCallback | None = None,
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
        session = self._running_session()
        wanted, sent = session.send_commit(offsets)
        if not wanted or on_commit is None:
            return
        committed = {TopicPartition(*tp): at.offset for tp, at in wanted.items()}

        def report(done: Future[None]) -> None:
            error = done.exception()
            reported = error if isinstance(error, Exception) else None
            session.tasks.put(ApplicationTask(partial(Once(), on_commit, committed, reported)))

        sent.add_done_callback(report)

    def group_metadata(self) -> bytes:
        """Return the metadata by which a transaction's offsets of an outdated member are refused.

        References: KIP-447 (``Producer.send_offsets_to_transaction``).
        """
        return group_metadata(self._settings, self._running_session().membership.snapshot.identity)

    # Offsets

    @_application_call
    def committed(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets, None for a partition without one."""
        wanted = checked_pairs(partitions)
        offsets = self._running_session().request_committed(wanted).result()
        return {
            TopicPartition(*tp): offsets[tp] if offsets.get(tp, -1) >= 0 else None for tp in wanted
        }

    @_application_call
    def position(self, partition: tuple[str, int]) -> int | None:
        """Return the offset of the next record of a partition, None if it is not assigned."""
        checked_pairs([partition])
        session = self._running_session()
        tp = partition[0], partition[1]
        at = session.adapter.position(tp)
        if at is None and tp in session.owned:
            return session.adapter.start_offsets([tp]).result()[tp].offset
        return at

    @_application_call
    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Continue a partition at ``offset``; also from inside ``on_partitions_assigned``.

        Raises
        ------
        RemoteProtocolError
            If the partition was lost since the application polled: the application holds records
            from before the loss, and another member may have committed more. After a poll it may
            seek.
        LocalProtocolError
            If the member does not own the partition, or no record can have the offset.
        """
        session = self._running_session()
        check_offsets({partition: offset})
        lost = loss_error(
            session.subscription_state.in_flight([partition]), session.subscription_state
        )
        if lost is not None:
            raise lost
        if partition not in session.owned:
            raise LocalProtocolError(f"{partition[0]}-{partition[1]} is not this member's")
        session.adapter.seek((partition[0], partition[1]), offset)

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
        offsets = self._running_session().runtime.lookup.list_offsets(wanted, at).result()
        return {TopicPartition(*tp): offset for tp, offset in offsets.items()}

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
        check_times(times)
        if not times:
            return {}
        offsets = self._running_session().runtime.lookup.offsets_at(times).result()
        return {TopicPartition(*tp): at if at >= 0 else None for tp, (at, _) in offsets.items()}

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Continue partitions at their first records; without arguments, all that are owned."""
        self._seek_to(self.beginning_offsets(partitions or self._running_session().owned))

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Continue partitions after their last records; without arguments, all that are owned."""
        self._seek_to(self.end_offsets(partitions or self._running_session().owned))

    def seek_to_committed(self, *partitions: tuple[str, int]) -> None:
        """Continue partitions at the committed offsets, or by ``auto.offset.reset``."""
        session = self._running_session()
        start_offsets = session.adapter.start_offsets(partitions or session.owned).result()
        self._seek_to({tp: start.offset for tp, start in start_offsets.items()})

    def _seek_to(self, offsets: Mapping[Any, int]) -> None:
        for partition, offset in offsets.items():
            self.seek(partition, offset)

    @_application_call
    def pause(self, partitions: Collection[tuple[str, int]]) -> None:
        """Pause delivery of partitions; kept across rebalances that leave them here.

        Raises
        ------
        LocalProtocolError
            If an element is not a pair of topic and partition, or is not assigned to this member.
        """
        session = self._running_session()
        wanted = checked_pairs(partitions)
        for topic, partition in wanted:
            if (topic, partition) not in session.owned:
                raise LocalProtocolError(f"{topic}-{partition} is not this member's")
        session.adapter.pause(wanted)

    @_application_call
    def resume(self, partitions: Collection[tuple[str, int]]) -> None:
        """Resume delivery of partitions."""
        self._running_session().adapter.resume(checked_pairs(partitions))

    @_application_call
    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return {TopicPartition(*tp) for tp in self._running_session().adapter.paused}

    # Membership

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this member owns."""
        return {TopicPartition(*tp) for tp in self._running_session().owned}

    @_application_call
    def metrics(self) -> MemberMetrics:
        """Return the counters, in Kafka's names where they exist."""
        return self._running_session().runtime.metrics()

    def __holdfast_metrics__(self) -> MemberMetrics | None:
        return None if self._session is None else self._session.membership.metrics()
