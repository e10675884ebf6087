"""The coordinator of kafka-python's consumer, over a member of holdfast.

**Rules.** A consumer that subscribes with a group is a member of holdfast. For any other one,
kafka-python's coordinator answers. Joining happens in the background: a poll never waits for it,
and partitions that stay are not fetched again. Callbacks run inside ``poll``, ``unsubscribe`` and
``close``, on the application's thread, and may commit.

The session commits. A later call of the application calls the callback of a commit that did not
wait, in the order of the responses. The callback of automatic commits is
``default_offset_commit_callback``. A commit that the group refused, or that names what this member
may not commit, raises ``CommitFailedError``. A missing response is an error of the connection, and
can be retried.

**Strategy.** The consumer calls its coordinator by public names alone, which this class has. It has
one :class:`~holdfast.members.session.poll_session.PollSession` from the first poll after
``subscribe`` to the end of the membership. The session requests start offsets, kafka-python the
offsets of ``committed()``. Callbacks of commits stay here: they often refer to the consumer, and
the member's threads to the session, so a forgotten consumer would never end.

References: KIP-429, KIP-62, KIP-345, KIP-447; Kafka's ``CommitFailedException``.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

import kafka.errors as kafka_errors
from kafka.future import Future as KafkaFuture
from kafka.structs import ConsumerGroupMetadata, MemberState, OffsetAndMetadata, TopicPartition
from kafka.util import WeakMethod

from holdfast.cluster.connections import Connections
from holdfast.core.machine import states as machine_states
from holdfast.core.machine.codes import COMMIT_FAILED
from holdfast.core.machine.shared_values import ListenerCall, Offsets
from holdfast.errors import HoldfastError, LocalProtocolError, RemoteProtocolError
from holdfast.members.clients.drop_in import to_client_error, to_connection_error
from holdfast.members.clients.kafka.adapter import (
    CrossThreadCalls,
    SubscriptionAdapter,
    from_client_offsets,
    to_client_offsets,
)
from holdfast.members.config.settings import Settings
from holdfast.members.runtime.application_calls import ApplicationTask, run_to_end
from holdfast.members.session.membership import Membership
from holdfast.members.session.poll_session import InFlight, PollSession
from holdfast.members.session.session import ClientTraits, Notification

if TYPE_CHECKING:
    from holdfast.core.machine.leader.assignor_protocol import Assignor
    from holdfast.members.runtime.member_status import MemberSnapshot

ClientOffsets = Mapping[TopicPartition, OffsetAndMetadata]
OffsetCommitCallback = Callable[[Any, Any], object]
"""Takes offsets, and None or an error."""

_POLL_INTERVAL_S = 0.1
_CONNECT_S = 0.1  # how long the first poll of a member waits for a broker
# kafka-python's listener is called in every round, and its errors do not affect a revocation.
_TRAITS = ClientTraits(reports_empty_changes=True, error_stops_commit=False)


class MemberConsumerCoordinator:
    """The coordinator that a consumer of kafka-python calls.

    ``original`` is the consumer's own: for a consumer without a subscription, and for committed
    offsets. ``cluster`` notifies when the partitions of a topic have changed, and ``run`` runs a
    coroutine function on kafka-python's loop. ``network`` has keywords of the member's connections.
    """

    def __init__(
        self,
        original: Any,
        subscription: Any,
        cluster: Any,
        run: Callable[..., object],
        *,
        settings: Settings,
        assignors: Sequence[Assignor],
        network: Mapping[str, Any],
        in_flight: InFlight,
        calls: CrossThreadCalls,
    ):
        self._original = original
        self._subscription = subscription
        self._cluster = cluster
        self._run = run
        self._settings = settings
        self.assignors = assignors
        self._connect = partial(Connections, options=network)
        self._in_flight = in_flight
        self._calls = calls
        self.session: PollSession | None = None
        # Whether the member comes back, by the argument of close().
        self.returns: bool | None = None
        self.pending_tasks: Collection[Any] = ()  # tasks for the application's next call
        self.adapter: SubscriptionAdapter | None = None
        self._topics: tuple[str, ...] | None = None  # the member's subscription
        self._counts: dict[str, Any] = {}
        self._due_callbacks: deque[Callable[[], object]] = deque()  # of answered commits
        cluster.add_listener(WeakMethod(self._check_partitions))

    # The member

    @property
    def is_subscribed(self) -> bool:
        """Whether the consumer subscribes, and so is a member."""
        return bool(self._subscription.partitions_auto_assigned())

    @property
    def _connected_session(self) -> PollSession | None:
        """Return the session of a member that is connected."""
        session = self.session
        return None if session is None or session.membership.runtime is None else session

    def _new_session(self) -> PollSession:
        membership = Membership(self._settings, self.assignors, self._connect)
        self.adapter = adapter = SubscriptionAdapter(
            self._subscription, partial(self._calls.call_on_thread, self._run)
        )
        adapter.session = session = PollSession(membership, adapter, _TRAITS, self._in_flight)
        weakref.finalize(self, membership.close)  # a forgotten consumer
        if not session.is_cooperative:  # as kafka-python, which revokes before every join
            nothing = Notification(ListenerCall.REVOKED, ())
            session.tasks.put(ApplicationTask(partial(adapter.notify, nothing)))
        return session

    def _join_group(self, wait_s: float) -> PollSession:
        """Join, or change the subscription; return the session. A new one waits for a broker."""
        session = self.session
        if session is None:
            self._topics, session = None, self._new_session()
            self.session, self.pending_tasks = session, session.tasks.items
        is_new, topics = self._topics is None, tuple(sorted(self._subscription.subscription or ()))
        if topics != self._topics:
            session.membership.subscribe(topics)
            self._topics = topics
        if is_new:
            try:
                session.membership.wait_until_connected(min(wait_s, _CONNECT_S))
            except BaseException as error:
                if error is not session.membership.failure:  # a signal handler has raised it
                    raise
        failure = session.membership.failure
        if failure is not None:
            session.tasks.do_all(0.0)
            if not session.membership.is_fenced:  # else every poll raises it, as the original's
                self._close_session(session)
            raise to_client_error(kafka_errors, failure) from failure
        return session

    def _check_partitions(self, cluster: Any) -> None:
        """Have the member check its topics, if kafka-python has seen their partitions change."""
        topics = self._subscription.subscription or ()
        counts = {topic: cluster.partitions_for_topic(topic) for topic in sorted(topics)}
        before, self._counts = self._counts, counts
        if (
            counts != before
            and self.session is not None
            and self.session.membership.runtime is not None
        ):
            self.session.membership.runtime.watch.refresh_soon()

    def group_metadata(self) -> Any:
        """Return the metadata that fence a transaction's offsets (KIP-447)."""
        metadata = self._original.group_metadata()
        if self._connected_session is None:
            return metadata
        snapshot = self._connected_session.membership.snapshot
        return ConsumerGroupMetadata(
            group_id=metadata.group_id,
            generation_id=snapshot.identity.generation,
            member_id=snapshot.identity.member_id,
            group_instance_id=metadata.group_instance_id,
            state=_state(snapshot),
        )

    # The application's poll

    def poll(self, timeout_ms: float | None = None) -> bool:
        """Do the application's tasks, and raise errors of callbacks; never wait for the group."""
        if not self.is_subscribed:
            return bool(self._original.poll(timeout_ms=timeout_ms))
        self._make_due_calls()
        session = self._join_group(math.inf if timeout_ms is None else timeout_ms / 1000)
        if session.membership.member_thread is not None:  # else no broker has answered yet
            _raise_callback_error(session.begin_poll())
            if (sent := session.maybe_auto_commit()) is not None:
                self._call_back_later(sent[1], to_client_offsets(sent[0]), None)
        return True

    def time_to_next_poll(self) -> float:
        """Return how long a callback may wait, in s."""
        return _POLL_INTERVAL_S if self.is_subscribed else float(self._original.time_to_next_poll())

    # Leaving

    def maybe_auto_commit_offsets_now(self) -> None:
        """Record the last positions before the consumer changes its assignment."""
        if self._connected_session is None:
            self._original.maybe_auto_commit_offsets_now()
        else:
            self._connected_session.record_positions()

    def maybe_leave_group(self, reason: str | None = None, timeout_ms: float | None = None) -> None:
        """Revoke everything and leave; what was polled counts as processed."""
        if self.session is None:  # kafka-python's own refuses a consumer that is closed
            self._original.maybe_leave_group(reason=reason, timeout_ms=timeout_ms)
        else:
            self._leave(self.session, timeout_ms, process_ends=False)

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Revoke and leave, as kafka-python does."""
        session = self.session
        try:
            if session is not None:
                session.is_automatic = session.is_automatic and autocommit
                self._leave(session, timeout_ms, process_ends=True)
        finally:
            self._cluster.remove_listener(WeakMethod(self._check_partitions))
            self._original.close(autocommit=autocommit, timeout_ms=timeout_ms)

    def _leave(self, session: PollSession, timeout_ms: float | None, *, process_ends: bool) -> None:
        deadline = time.monotonic() + self._limit_s(timeout_ms)
        returns = self.returns if process_ends else None

        def revoke_and_leave() -> None:
            raised = session.leave(deadline, returns=returns, process_ends=process_ends)
            _raise_callback_error(raised)

        try:
            run_to_end(revoke_and_leave)
        finally:
            self._close_session(session)

    def _close_session(self, session: PollSession) -> None:
        session.membership.close()
        if self.is_subscribed:
            self._subscription.assign_from_subscribed([])
        self.adapter, self.pending_tasks = None, ()
        self.session = None  # last: a second call continues

    # Offsets

    def refresh_committed_offsets_if_needed(self, timeout_ms: float | None = None) -> bool:
        """Find start offsets of new partitions; a member waits for open transactions (KIP-447)."""
        if self._connected_session is None or self.adapter is None:
            return bool(self._original.refresh_committed_offsets_if_needed(timeout_ms=timeout_ms))
        return self.adapter.init_with_committed_offsets(timeout_ms)

    def fetch_committed_offsets(
        self, partitions: Sequence[TopicPartition], timeout_ms: float | None = None
    ) -> Any:
        """Return committed offsets, as kafka-python does."""
        return self._original.fetch_committed_offsets(partitions, timeout_ms=timeout_ms)

    def record_seek(self, partition: TopicPartition, offset: int) -> None:
        """Record a seek; the application may commit from the new offset on."""
        if self.session is not None:
            self.session.subscription_state.seek((partition.topic, partition.partition), offset)

    # Commits; without offsets, of what is processed

    def commit_offsets_sync(
        self, offsets: ClientOffsets | None, timeout_ms: float | None = None
    ) -> Any:
        """Commit, and wait until it is done; it is retried while a round overtakes it."""
        session = self._connected_session
        if session is None:
            reported = self._subscription.all_consumed_offsets() if offsets is None else offsets
            return self._original.commit_offsets_sync(reported, timeout_ms=timeout_ms)
        to_commit, origin = session.offsets_to_commit(_checked_offsets(offsets))
        self._make_due_calls()
        limit_s = self._limit_s(timeout_ms)
        try:
            session.commits.commit_async(to_commit, origin, timeout_s=limit_s).result(limit_s)
        except HoldfastError as error:
            raise error_of_late_commit(error) from error
        except TimeoutError:
            raise kafka_errors.KafkaTimeoutError from None
        return None

    def commit_offsets_async(
        self, offsets: ClientOffsets | None, callback: OffsetCommitCallback | None = None
    ) -> Any:
        """Commit without waiting, as kafka-python does."""
        reported = self._subscription.all_consumed_offsets() if offsets is None else offsets
        session = self._connected_session
        if session is None:
            return self._original.commit_offsets_async(reported, callback=callback)
        to_commit, origin = session.offsets_to_commit(_checked_offsets(offsets))
        self._make_due_calls()
        try:
            sent = session.commits.commit_async(to_commit, origin, timeout_s=self._limit_s(None))
        except HoldfastError as error:
            raise error_of_commit(error) from error
        return self._call_back_later(sent, reported, callback)

    def _limit_s(self, timeout_ms: float | None) -> float:
        """Return how long a call may take, in s."""
        default_ms = self._original.config["request_timeout_ms"]
        return float(default_ms if timeout_ms is None else timeout_ms) / 1000

    def _make_due_calls(self) -> None:
        """Call the callbacks of commits that were answered."""
        while self._due_callbacks:
            self._due_callbacks.popleft()()

    def _call_back_later(
        self, sent: Future[None], reported: ClientOffsets, callback: OffsetCommitCallback | None
    ) -> Any:
        """Have a later call report a commit to ``callback``; return kafka-python's future."""
        callback = callback or self._original.config["default_offset_commit_callback"]
        future, due_callbacks = KafkaFuture(), self._due_callbacks
        future.add_both(lambda result: due_callbacks.append(partial(callback, reported, result)))

        def complete(done: Future[None]) -> None:
            error = done.exception()
            if error is None:
                future.success(None)
            else:
                future.failure(error_of_commit(error))

        sent.add_done_callback(complete)
        return future


def _state(snapshot: MemberSnapshot) -> Any:
    """Return kafka-python's name of a member's state."""
    if snapshot.identity.generation < 0:
        return MemberState.UNJOINED
    is_stable = snapshot.state is machine_states.MemberState.STABLE
    return MemberState.STABLE if is_stable else MemberState.REBALANCING


def _raise_callback_error(error: BaseException | None) -> None:
    """Raise the error of a rebalance callback as kafka-python does; Ctrl-C stays what it is."""
    if isinstance(error, Exception):
        raise kafka_errors.KafkaError("User rebalance callback throws an error") from error
    if error is not None:
        raise error


def _checked_offsets(offsets: ClientOffsets | None) -> Offsets | None:
    """Return the offsets of a commit; raise kafka-python's error for other types."""
    if offsets is None:
        return None
    if not all(isinstance(tp, TopicPartition) for tp in offsets) or not all(
        isinstance(at, OffsetAndMetadata) for at in offsets.values()
    ):
        raise TypeError("offsets must be dict[TopicPartition, OffsetAndMetadata]")
    return from_client_offsets(offsets)


def _is_transient(error: Any) -> bool:
    """Return whether a retry may succeed after one of kafka-python's errors.

    An error without a class of its own means that no broker has answered.
    """
    return type(error) is kafka_errors.KafkaError or isinstance(error, kafka_errors.RetriableError)


def error_of_commit(error: BaseException) -> Any:
    """Convert an error of a commit to kafka-python's."""
    if isinstance(error, LocalProtocolError):  # what this generation does not own
        return kafka_errors.CommitFailedError(str(error))
    if isinstance(error, RemoteProtocolError) and error.error_code in COMMIT_FAILED:
        return kafka_errors.CommitFailedError(to_client_error(kafka_errors, error))
    return to_connection_error(kafka_errors, error)


def error_of_late_commit(error: BaseException) -> Any:
    """Convert the error of a commit that was retried until its time limit."""
    refusal = error_of_commit(error)
    if not _is_transient(refusal):
        return refusal
    late = kafka_errors.KafkaTimeoutError(str(error))
    late.__cause__ = refusal
    return late
