"""``holdfast.Consumer``: a group member over real connections, with records from librdkafka.

**Rules.** The join happens in the background: records keep coming while the group rebalances. A
list that :meth:`Consumer.poll` returned counts as processed when the application calls it again. It
is committed every ``auto.commit.interval.ms`` and before every revocation. If an error ends the
``with`` block, the next owner reads the last list again. Callbacks run inside :meth:`Consumer.poll`
and :meth:`Consumer.close`, on the caller's thread. Records that were delivered and cannot be
committed are an error (:mod:`holdfast.members.session.subscription_state`): ``commit`` and
``close`` raise it, and the commits of the poll loop write it to the log. A query goes to the
brokers and waits for at most ``request.timeout.ms``. A commit that does not wait is checked before
it is sent, as one that waits: offsets of partitions that this generation does not own are not sent.

**Strategy.** The member has a session whose client is librdkafka
(:mod:`~holdfast.members.session.poll_session`,
:mod:`~holdfast.members.clients.librdkafka.consumer_adapter`). This class polls in short slices on
the application's thread, runs callbacks between them, and closes in order.

References: KIP-429, KIP-62, KIP-345, KIP-447; Kafka's ``Consumer`` (``offsetsForTimes``,
``beginningOffsets``, ``commitAsync``, ``groupMetadata``); Incremental Cooperative Rebalancing,
"Member process".
"""

from __future__ import annotations

import queue
import re
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast

from holdfast.cluster import kerberos
from holdfast.cluster.lookup import EARLIEST, LATEST
from holdfast.core.machine.shared_values import ListenerCall
from holdfast.core.model.partitions import Resource
from holdfast.errors import ClientError, HoldfastError, LocalProtocolError
from holdfast.members.clients.librdkafka.adapter import SLICE_S, Listener
from holdfast.members.clients.librdkafka.consumer_adapter import ConsumerAdapter
from holdfast.members.config.arguments import (
    Answered,
    RebalanceListener,
    TopicPartition,
    as_offsets,
    check_listener,
    check_offsets,
    check_times,
    checked_names,
    checked_pairs,
    checked_pattern,
    checked_seconds,
)
from holdfast.members.config.settings import Settings
from holdfast.members.metrics import MemberMetrics
from holdfast.members.runtime.application_calls import ApplicationCalls, EndSignals
from holdfast.members.runtime.application_tasks import ApplicationTask, Once, run_to_end
from holdfast.members.runtime.metadata_watch import TopicPredicate
from holdfast.members.runtime.readiness import clear_ready_file
from holdfast.members.session.client_adapter import NOTHING, ClientTraits, InFlight
from holdfast.members.session.commits import CommitOrigin, group_metadata, loss_of
from holdfast.members.session.membership import Membership
from holdfast.members.session.poll_session import PollSession

if TYPE_CHECKING:
    from confluent_kafka import Message

    from holdfast.members.runtime.member_runtime import MemberRuntime

_TRAITS = ClientTraits(reports_empty_changes=True, error_stops_commit=True)


def _error_of(done: Future[None]) -> Exception | None:
    error = done.exception()
    return error if error is None or isinstance(error, Exception) else None


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _inside(
    method: Callable[Concatenate[Consumer, _P], _T],
) -> Callable[Concatenate[Consumer, _P], _T]:
    """Mark a call of the application; a concurrent close waits for the call to end."""

    @wraps(method)
    def call(self: Consumer, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._calls.run(lambda: method(self, *args, **kwargs))

    return cast("Callable[Concatenate[Consumer, _P], _T]", call)


class Consumer:
    """A consumer of topics in a group.

    Parameters
    ----------
    config : mapping of str to object
        Kafka's keys, spelled exactly, and ``holdfast.*`` (docs/configuration.md).
        ``bootstrap.servers`` and ``group.id`` are required.

    Attributes
    ----------
    assignors : tuple of Assignor
        The protocols that the consumer supports, in order of preference.

    Raises
    ------
    ConfigError
        For a key that is unknown, a value that is out of range, or assignors that cannot be
        combined.
    SourceError
        If no broker answers at :meth:`subscribe`.

    Notes
    -----
    Not thread-safe: one thread polls, as with every Kafka consumer.

    A call that needs the member raises ``LocalProtocolError`` before :meth:`subscribe`,
    ``ClientError`` after :meth:`close`, and the error with which the group refused this
    member. A call that queries the brokers raises ``ClientError`` if none answers within
    ``request.timeout.ms``, and ``RemoteProtocolError`` if one refuses.

    Examples
    --------
    ::

        with Consumer({"bootstrap.servers": "...", "group.id": "etl"}) as consumer:
            consumer.subscribe(["orders"])
            for batch in consumer:
                handle(batch)
    """

    def __init__(self, config: Mapping[str, object]):
        # The leader's code is loaded here, not with the client's module.
        from holdfast.members.config.policy import assignors_of

        self._settings = Settings.parse(config)
        if self._settings["sasl.mechanism"] == kerberos.MECHANISM:
            kerberos.check_librdkafka()
        self.assignors = assignors_of(self._settings)
        clear_ready_file(self._settings)
        self._session: PollSession | None = None
        self._adapter: ConsumerAdapter
        self._listener: RebalanceListener | None = None
        self._in_flight = InFlight()
        self._calls = ApplicationCalls(self._end)
        self.signals = EndSignals()
        self._handles_signals: bool = self._settings["holdfast.handle.signals"]
        self._is_stopped = False
        self._in_loop = False  # the application is working on a list of the iteration
        self._ends_with_error = False  # of the application; a close must not hide it
        self._callback_error: Exception | None = None  # the next call raises it
        self._has_raised_failure = False

    # Life

    def subscribe(
        self,
        topics: Collection[str] | str | re.Pattern[str],
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, or to all that match a pattern; replaces the subscription.

        Parameters
        ----------
        topics : collection of str, or re.Pattern, or str that begins with ``^``
            Names, or one pattern that is matched against every topic of the cluster.
        listener : RebalanceListener, optional
            Called inside :meth:`poll` and :meth:`close`.

        Raises
        ------
        LocalProtocolError
            If no topic is named, or the listener has none of the three callbacks.
        """
        self._check_open()
        pattern = checked_pattern(topics)
        names = () if pattern is not None else checked_names(topics)
        check_listener(listener)
        # inside a callback that has unsubscribed, the member leaves first, and joins again then
        makes = self._calls.run_after if self._calls.is_pending else self._calls.run
        makes(lambda: self._subscribe(names, pattern, listener))

    def _subscribe(
        self,
        names: tuple[str, ...],
        pattern: TopicPredicate | None,
        listener: RebalanceListener | None,
    ) -> None:
        if self._session is None:
            self._open_session(names, pattern, listener)
        else:
            self._listener = listener
            self._session.membership.subscribe(names, pattern)

    def _open_session(
        self,
        names: tuple[str, ...],
        pattern: TopicPredicate | None,
        listener: RebalanceListener | None,
    ) -> None:
        membership = Membership(self._settings, self.assignors)
        adapter = ConsumerAdapter(self._settings, weakref.WeakMethod(self.listener_for))
        adapter.session = session = PollSession(membership, adapter, _TRAITS, self._in_flight)
        self._adapter, self._listener, self._in_flight.last = adapter, listener, NOTHING
        weakref.finalize(self, membership.close)
        self._session = (
            session  # a call that is interrupted leaves a member that the next call finds
        )
        try:
            membership.join_now(names, pattern)
        except HoldfastError:
            self._session = None
            adapter.close()
            raise

    def listener_for(self, call: ListenerCall) -> Listener | None:
        """Return the listener's method for a callback; None if it has none.

        A listener without ``on_partitions_lost`` gets a loss by ``on_partitions_revoked``.
        """
        method = getattr(self._listener, f"on_partitions_{call.value}", None)
        if method is None and call is ListenerCall.LOST:
            method = getattr(self._listener, "on_partitions_revoked", None)
        if method is None:
            return None
        return lambda resources: method([TopicPartition(*tp) for tp in resources])

    def unsubscribe(self) -> None:
        """Leave the group; :meth:`subscribe` joins it again. Inside a call, leave when it ends.

        ``holdfast.clean.leave`` says whether the group waits for this member.
        """
        self._calls.run_after(self._unsubscribe)

    def _unsubscribe(self) -> None:
        if self._session is not None:
            timeout_s = self._settings.call_timeout_s
            try:
                self._leave(self._session, timeout_s=timeout_s, process_ends=False)
            finally:
                self._session = None

    def stop(self) -> None:
        """End the iteration, and a poll that waits; from any thread or signal handler.

        The waiting poll returns an empty list, and later polls return one at once. The list that
        the application works on counts as processed when :meth:`close` is called.
        """
        self._is_stopped = True

    def close(self, timeout: float = 30.0, *, returns: bool | None = None) -> None:
        """Revoke all partitions in order and leave.

        It may be called twice, from another thread, and from a signal handler. Inside a call of
        this consumer it takes effect when that call returns. A list of the iteration that the
        application still works on is not committed, nor is a list that another thread polled and
        may work on: the next owners read it again.

        Parameters
        ----------
        timeout : float
            Seconds to wait for the revocation.
        returns : bool, optional
            Whether this member comes back soon, as after a restart; by default
            ``holdfast.clean.leave``. A group with a delayed rebalance (Design II) waits for a
            member that comes back, and a static one stays in the group until its session ends. A
            member that does not come back says so in a last round, and nothing waits for it.

        Raises
        ------
        RemoteProtocolError
            If records were delivered before their partitions were lost, cannot be committed now,
            and ``on_partitions_lost`` has not reported the loss. Everything is closed by then.
        Exception
            An error of a callback that no call has raised yet.
        """
        self._calls.close(timeout, returns=returns)

    def _end(self, timeout_s: float, returns: bool | None) -> None:
        if self._in_loop:
            self._in_flight.is_seen = False
        if self._session is not None:
            self._leave(self._session, returns=returns, timeout_s=timeout_s)

    def _leave(
        self,
        session: PollSession,
        *,
        timeout_s: float,
        returns: bool | None = None,
        process_ends: bool = True,
    ) -> None:
        deadline = time.monotonic() + timeout_s

        def revoke_and_leave() -> None:
            self._note_error(session.leave(deadline, returns=returns, process_ends=process_ends))

        try:
            run_to_end(revoke_and_leave)
        finally:
            session.membership.close()
            self._adapter.close()
        lost = session.commits.loss()
        is_raised = self._ends_with_error or self._has_raised_failure
        if lost is not None and (is_raised or self._callback_error is not None):
            if (runtime := session.membership.runtime) is not None:
                runtime.record_unreported_loss(lost)
        elif lost is not None:
            raise lost
        if not is_raised:
            self._raise_callback_error()

    def __enter__(self) -> Self:
        if self._handles_signals:
            self.signals.watch()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self._calls.is_own_process():
            return  # a fork leaves the block, and the member stays with its parent
        if error is not None:
            # The loop has not come back: its list is not processed, and its error propagates.
            self._in_flight.is_seen = False
            self._ends_with_error = True
        try:
            self.close()
        finally:
            self.signals.end()
        if error is None:
            self.signals.raise_caught()

    # Records

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Message]:
        """Return the next records; what the last call returned counts as processed.

        Parameters
        ----------
        timeout : float
            Seconds to wait for the first record; the time of callbacks is not counted.
        max_records : int, optional
            Limit of the list; ``max.poll.records`` by default.

        Returns
        -------
        list
            Messages, each a ``confluent_kafka.Message``; the list may be empty.

        Raises
        ------
        RemoteProtocolError
            If the group refused this member for good (fenced, not authorised, no protocol in
            common), saying what to do.
        ClientError
            If librdkafka failed.
        LocalProtocolError
            Inside another call of this consumer: a callback may commit and seek, but not poll.
        Exception
            An error of a callback; every other callback that was due has run.
        """
        if self._calls.is_closing():
            self._check_open()
        elif self._calls.is_in_call():
            raise LocalProtocolError(
                "poll() in a callback: a callback may commit and seek, but not poll"
            )
        return self._calls.run(lambda: self._poll(timeout, max_records))

    def poll_one(self, timeout: float = 1.0) -> Message | None:
        """Return the next record, None after ``timeout`` seconds; the previous one is processed."""
        found = self.poll(timeout, 1)
        return found[0] if found else None

    def _poll(self, timeout: float, max_records: int | None) -> list[Message]:
        session = self._running(polls=True)
        limit = self._settings["max.poll.records"] if max_records is None else max_records
        deadline = time.monotonic() + checked_seconds(timeout)
        found: list[Message] = []
        in_flight = self._in_flight
        in_flight.last, in_flight.caller, in_flight.is_seen = None, threading.get_ident(), True
        try:
            found = self._polled(session, limit, deadline)
            return found if in_flight.is_seen else []
        finally:
            in_flight.last = found or NOTHING

    def _polled(self, session: PollSession, limit: int, deadline: float) -> list[Message]:
        """Return the next records; the time of callbacks is not counted."""
        while True:
            began = time.monotonic()
            self._note_error(session.begin_poll())
            deadline += time.monotonic() - began
            session.maybe_auto_commit()
            self.signals.raise_caught()
            self._raise_callback_error()
            if self._is_stopped or self._calls.should_return():
                return []
            self._adapter.start_positions.start_known(self._adapter.client)
            self._adapter.raise_error()
            left_s = max(0.0, deadline - time.monotonic())
            messages = self._fetched(session, limit, min(left_s, SLICE_S))
            if self._calls.should_return():  # the application does not get the records
                self._in_flight.is_seen = False
                return messages
            if messages or left_s == 0.0:
                self._count(session, len(messages))
                return messages
            self._raise_failure(session)

    def _fetched(self, session: PollSession, limit: int, wait_s: float) -> list[Message]:
        if self._adapter.has_begun():
            return self._adapter.fetch(limit, wait_s)
        with suppress(queue.Empty):  # the first assignment, most often
            session.tasks.first(wait_s)
        return []

    def _count(self, session: PollSession, n_records: int) -> None:
        if n_records and (runtime := session.membership.runtime) is not None:
            runtime.counters.add("records", n_records)

    def __iter__(self) -> Iterator[list[Message]]:
        """Yield non-empty lists of records until the consumer is stopped or closed."""
        while not (self._is_stopped or self._calls.is_closing()):
            try:
                batch = self.poll()
            except ClientError:
                if self._calls.is_closing():  # on another thread, just now
                    return
                raise
            if batch:
                self._in_loop = True
                try:
                    yield batch
                finally:
                    self._in_loop = False

    def _note_error(self, error: BaseException | None) -> None:
        """Keep the error of a callback until this call, or the next one, raises it."""
        if isinstance(error, Exception):
            self._callback_error = self._callback_error or error
        elif error is not None:
            raise error

    def _raise_callback_error(self) -> None:
        error, self._callback_error = self._callback_error, None
        if error is not None:
            raise error

    # Topics

    def subscription(self) -> set[str]:
        """Return the topics of the subscription: for a pattern, those that match now."""
        return set(self._member().subscribed)

    def list_topics(self) -> dict[str, int]:
        """Return the number of partitions of every topic that is not internal."""
        return dict(self._member().lookup.partitions(None).result().counts)

    # Commits

    @_inside
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
        session = self._running()
        if offsets is not None:
            check_offsets(offsets)
        elif not self._in_flight.is_seen:  # the application never got the list
            session.unprocessed = session.in_flight_from()
        wanted, origin = session.offsets_to_commit(None if offsets is None else as_offsets(offsets))
        session.commits.commit_async(
            wanted, origin, timeout_s=self._settings.call_timeout_s
        ).result()

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
        sent = session.commits.commit_async(wanted, origin, timeout_s=self._settings.call_timeout_s)
        if not wanted or on_commit is None:
            return

        def answer(done: Future[None]) -> None:
            session.tasks.put(ApplicationTask(Once(partial(on_commit, committed, _error_of(done)))))

        sent.add_done_callback(answer)

    def group_metadata(self) -> bytes:
        """Return the metadata by which a transaction's offsets of an outdated member are refused.

        References: KIP-447 (``Producer.send_offsets_to_transaction``).
        """
        return group_metadata(self._settings, self._member().member_thread.snapshot.identity)

    # Offsets

    @_inside
    def committed(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets, None for a partition without one."""
        wanted = checked_pairs(partitions)
        found = self._running().request_committed(wanted).result()
        return {TopicPartition(*tp): found[tp] if found.get(tp, -1) >= 0 else None for tp in wanted}

    @_inside
    def position(self, partition: tuple[str, int]) -> int | None:
        """Return the offset of the next record of a partition, None if it is not assigned."""
        checked_pairs([partition])
        session = self._running()
        tp = partition[0], partition[1]
        at = self._adapter.position(tp)
        if at is None and tp in self._owned(session):
            return self._adapter.start_offsets([tp]).result()[tp].offset
        return at

    @_inside
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
        session = self._running()
        check_offsets({partition: offset})
        lost = loss_of(
            session.subscription_state.in_flight([partition]), session.subscription_state
        )
        if lost is not None:
            raise lost
        if partition not in self._owned(session):
            raise LocalProtocolError(f"{partition[0]}-{partition[1]} is not this member's")
        self._adapter.seek((partition[0], partition[1]), offset)

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
        check_times(times)
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

    @_inside
    def pause(self, partitions: Collection[tuple[str, int]]) -> None:
        """Pause delivery of partitions; kept across rebalances that leave them here.

        Raises
        ------
        LocalProtocolError
            If an element is not a pair of topic and partition, or is not assigned to this member.
        """
        session = self._running()
        wanted = checked_pairs(partitions)
        for topic, partition in wanted:
            if (topic, partition) not in self._owned(session):
                raise LocalProtocolError(f"{topic}-{partition} is not this member's")
        self._adapter.pause(wanted)

    @_inside
    def resume(self, partitions: Collection[tuple[str, int]]) -> None:
        """Resume delivery of partitions."""
        self._running()
        self._adapter.resume(checked_pairs(partitions))

    @_inside
    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        self._running()
        return {TopicPartition(*tp) for tp in self._adapter.paused}

    # Membership

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this member owns."""
        return {TopicPartition(*tp) for tp in self._owned(self._running())}

    @staticmethod
    def _owned(session: PollSession) -> Collection[Resource]:
        snapshot = session.membership.snapshot
        return () if snapshot is None else snapshot.owned

    @property
    def member_id(self) -> str:
        """Member id given by the coordinator, empty before the first join."""
        snapshot = self._session.membership.snapshot if self._session else None
        return snapshot.identity.member_id if snapshot else ""

    @property
    def generation(self) -> int:
        """Generation of the group as this member knows it, -1 for none."""
        snapshot = self._session.membership.snapshot if self._session else None
        return snapshot.identity.generation if snapshot else -1

    def enforce_rebalance(self, reason: str = "requested by the application") -> None:
        """Request a round (KIP-568)."""
        member_thread = self._running().membership.member_thread
        if member_thread is not None:
            member_thread.rejoin(reason)

    @_inside
    def metrics(self) -> MemberMetrics:
        """Return the counters, in Kafka's names where they exist."""
        return self._member().metrics()

    def __holdfast_metrics__(self) -> MemberMetrics | None:
        return None if self._session is None else self._session.membership.metrics()

    # Plumbing

    @property
    def _runtime(self) -> MemberRuntime | None:
        return None if self._session is None else self._session.membership.runtime

    def _running(self, *, polls: bool = False) -> PollSession:
        """Return the session; raise the member's failure, in a poll after waiting callbacks."""
        if self._calls.is_done:
            raise ClientError("the consumer is closed")
        session = self._session
        if session is None:
            raise LocalProtocolError("subscribe() first")
        if polls:
            self._raise_failure(session)
        elif (failure := session.membership.failure) is not None:
            self._has_raised_failure = True
            raise failure
        return session

    def _member(self) -> MemberRuntime:
        runtime = self._running().membership.runtime
        assert runtime is not None  # a consumer waits for a broker when it subscribes
        return runtime

    def _raise_failure(self, session: PollSession) -> None:
        failure = session.membership.failure
        if failure is not None:
            self._has_raised_failure = True
            self._note_error(session.begin_poll())
            raise failure

    def _check_open(self) -> None:
        """Raise if the close has begun: a callback may then commit, but not start anything."""
        if self._calls.is_closing():
            raise ClientError(
                "the consumer is closed"
                if self._calls.is_done
                else "the consumer is closing: a callback may commit, but not poll or subscribe"
            )
