"""The coordinator of a consumer of aiokafka, over a member of holdfast.

**Rules.** A consumer that subscribes is a member of holdfast; one that assigns partitions itself
has aiokafka's own coordinator. The session answers the consumer's calls about its group.

**Strategy.** The class is a subclass of aiokafka's coordinator: the refresh of committed offsets
and errors for the application are aiokafka's, start offsets are requested by the session. One task
serves the member every :data:`SERVED_EVERY_S` and whenever the subscription changes. It has one
:class:`~holdfast.members.session.async_session.AsyncSession` from ``subscribe`` to the end of the
membership.

References: KIP-429, KIP-62, KIP-447; Kafka's ``CommitFailedException``.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiokafka.errors as kafka_errors
from aiokafka.client import CoordinationType
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from aiokafka.util import create_future

from holdfast.core.machine.codes import COMMIT_FAILED, MEMBER_OVER
from holdfast.core.machine.shared_values import ListenerCall, Offsets, OffsetToCommit
from holdfast.core.model.partitions import Resource
from holdfast.errors import HoldfastError, LocalProtocolError, RemoteProtocolError
from holdfast.members.clients.aiokafka.adapter import (
    AiokafkaAdapter,
    MutableAssignment,
    MutableSubscriptions,
)
from holdfast.members.clients.aiokafka.fetcher import is_cut_off, was_interrupted
from holdfast.members.clients.drop_in import to_client_error, to_connection_error
from holdfast.members.config.settings import Settings
from holdfast.members.session.async_session import AsyncSession
from holdfast.members.session.commits import CommitOrigin
from holdfast.members.session.membership import Membership
from holdfast.members.session.session import ClientTraits, Notification

if TYPE_CHECKING:
    from holdfast.core.machine.leader.assignor_protocol import Assignor

log = logging.getLogger(__name__)
SERVED_EVERY_S = 0.1
_LEAVE_S = 30.0
_TOPICS_S = 1.0
_NOT_A_MEMBER = (
    "the commit was refused: the member is out of its group, and has lost its partitions"
)


class MemberCoordinator(GroupCoordinator):  # type: ignore[misc]  # aiokafka has no types
    """The coordinator that a consumer of aiokafka calls; ``options`` are aiokafka's."""

    # aiokafka has no types
    _commit_refresh_task: Any
    coordinator_id: Any
    _rejoin_needed_fut: Any

    def __init__(
        self,
        client: Any,
        subscription: MutableSubscriptions,
        *,
        settings: Settings,
        member_assignors: Iterable[Assignor],
        reports_full_assignment: bool = False,
        **options: Any,
    ):
        self._settings = settings
        self._member_assignors = tuple(member_assignors)
        # aiokafka's listener is not called once the consumer unsubscribes or stops.
        self._traits = ClientTraits(
            reports_empty_changes=False,
            error_stops_commit=False,
            reports_on_close=False,
            reports_full_assignment=reports_full_assignment,
        )
        self._loop: asyncio.AbstractEventLoop = client._loop
        self.session: AsyncSession | None = None
        self.adapter = AiokafkaAdapter(subscription, self)
        self.in_flight: dict[Resource, int] = {}  # the first offset that is not processed
        self._known_subscription: Any = None  # the subscription that was sent to the member
        self._topics: frozenset[str] = frozenset()
        self._wants_leave = False
        self.returns: bool | None = None  # whether the member comes back, by the argument of stop()
        self._fenced: Any = None  # the error, until the application unsubscribes
        self._idle_checked_at = 0.0
        self._ending: asyncio.Task[None] | None = None
        self._begun = create_future()
        super().__init__(client, subscription, **options)

    # The application

    def begin(self) -> None:
        """Let the group's task join, now that the consumer has what can stop it."""
        self._begun.set_result(None)

    def record_poll(self, partitions: Collection[TopicPartition]) -> None:
        """Count as processed what was delivered of ``partitions`` before, by default of all."""
        if self.session is not None:
            self.session.begin_poll(partitions)

    def record_seek(self, partitions: Iterable[TopicPartition]) -> None:
        """Record a seek: a commit commits the new position."""
        for tp in partitions:
            self.in_flight.pop(tp, None)

    # The task

    async def _coordination_routine(self) -> None:
        try:
            await self._wait([self._begun], None)
            while not self._closing.done():
                await self._serve()
            await self._leave(closes=True)
        except Exception as error:
            log.exception("the group's task failed")
            failed = kafka_errors.KafkaError(f"Unexpected error during coordination {error!r}")
            self._subscription.abort_waiters(failed)
            raise failed from error

    async def _serve(self) -> None:
        subscription = self._subscription.subscription
        if self._wants_leave:
            self._wants_leave = False
            await self._leave()
        elif subscription is None or not subscription.active:
            if subscription is None:
                await self._wait([self._subscription.wait_for_subscription()], SERVED_EVERY_S)
        elif self._fenced is not None:
            await self._push_error_to_user(self._fenced)
        elif self._subscription.partitions_auto_assigned():
            await self._serve_member(subscription)
        else:
            await self._serve_assignment(subscription)

    async def _wait(self, events_: list[Any], timeout_s: float | None) -> None:
        tasks = [self._commit_refresh_task] if self._commit_refresh_task else []
        await asyncio.wait(
            [*events_, *tasks, self._closing],
            timeout=timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                self._commit_refresh_task = None
                await self._push_error_to_user(task.exception())
                assignment = getattr(self._subscription.subscription, "assignment", None)
                if assignment is not None:
                    self.start_commit_offsets_refresh_task(assignment)

    async def _serve_assignment(self, subscription: Any) -> None:
        """Commit for a consumer that chose its partitions, as aiokafka does."""
        await self._leave()
        try:
            await self.ensure_coordinator_known()
            wait_s = await self._maybe_do_autocommit(subscription.assignment)
        except kafka_errors.KafkaError as error:
            await self._push_error_to_user(error)
            return
        await self._wait([self._coordinator_dead_fut, subscription.unsubscribe_future], wait_s)

    async def _serve_member(self, subscription: Any) -> None:
        session = await self._update_member(subscription)
        session.run_due_jobs()
        if (sent := session.maybe_auto_commit()) is not None:
            sent[1].add_done_callback(_log_refusal)
        now = time.monotonic()
        # As with aiokafka, no consumer is idle before the first assignment: start() waits for it.
        if (
            self.adapter.is_unassigned
            or self._subscription.fetcher_idle_time < now - self._idle_checked_at
        ):
            session.record_poll()
        self._idle_checked_at = now
        await self._wait([subscription.unsubscribe_future], SERVED_EVERY_S)
        if session is self.session and (failure := session.membership.failure) is not None:
            self._fenced = (
                to_client_error(kafka_errors, failure) if session.membership.is_fenced else None
            )
            await self._close_session()
            await self._push_error_to_user(to_client_error(kafka_errors, failure))

    async def _update_member(self, subscription: Any) -> AsyncSession:
        """Start a member, or update its subscription."""
        session = self.session
        is_known = (
            self._known_subscription is subscription and not self._subscription.is_subscribed_again
        )
        if session is not None and is_known:
            return session
        is_again = session is not None and (
            self._subscription.is_subscribed_again or subscription.topics == self._topics
        )
        if session is None:
            self.request_rejoin()
            session = self.session = self._new_session()
            if not self._subscription.is_cooperative:
                await self.adapter.call_listener(Notification(ListenerCall.REVOKED, ()))
        self._subscription.is_subscribed_again = False
        self._known_subscription, self._topics = subscription, subscription.topics
        session.forget_unsubscribed(subscription.topics)
        self._group_subscription = subscription.topics
        self._metadata_snapshot = self._get_metadata_snapshot()
        if is_again and (member_thread := session.membership.member_thread) is not None:
            member_thread.rejoin("subscribed again")
        else:
            session.membership.subscribe(tuple(sorted(subscription.topics)))
        return session

    def _new_session(self) -> AsyncSession:
        membership = Membership(self._settings, self._member_assignors)
        session = AsyncSession(membership, self.adapter, self._traits, self._loop, self.in_flight)
        self.adapter.session = session
        return session

    def _on_metadata_change(self) -> None:
        if self.session is not None and (runtime := self.session.membership.runtime) is not None:
            runtime.watch.refresh_soon()

    # Calls of the adapter

    def complete_join(self, assignment: MutableAssignment | None) -> None:
        """Record the end of a round, and its assignment if it is a new one."""
        if assignment is not None:
            self.start_commit_offsets_refresh_task(assignment)
        if self._rejoin_needed_fut.done():
            self._rejoin_needed_fut = self._loop.create_future()
        if self.session is not None:
            identity = self.session.membership.snapshot.identity
            self.generation, self.member_id = identity.generation, identity.member_id

    async def find_new_topics(self) -> None:
        """Look for topics that match a pattern before a round: its cause may be a new one."""
        if self._subscription.subscribed_pattern is None:
            return
        try:
            async with asyncio.timeout(_TOPICS_S):
                await self._client.force_metadata_update()
        except TimeoutError:
            return
        subscription = self._subscription.subscription
        if self.session is not None and subscription is not None and subscription.active:
            await self._update_member(subscription)

    # The end

    async def _leave(self, *, closes: bool = False) -> None:
        """Revoke everything and leave; everything delivered counts as processed."""
        session = self.session
        if session is None:
            if closes:
                await self._commit_last()
            return
        self.adapter.is_closing = closes
        deadline = time.monotonic() + _LEAVE_S
        if closes:
            await session.leave(deadline, returns=self.returns)
        else:
            await session.finish(deadline)
        await self._close_session()

    async def _commit_last(self) -> None:
        """Commit for the last time for a consumer that chose its partitions."""
        subscription = self._subscription.subscription
        is_groups = self._subscription.partitions_auto_assigned()
        if subscription is None or subscription.assignment is None or is_groups:
            return
        try:
            await self._maybe_do_last_autocommit(subscription.assignment)
        except kafka_errors.KafkaError as error:
            log.warning("the last commit failed: %s", error)

    async def _close_session(self) -> None:
        """Close the session and the runtime of its member."""
        session, self.session = self.session, None
        self._known_subscription, self._group_subscription, self._topics = None, None, frozenset()
        self.in_flight.clear()
        self.adapter.forget()
        self.reset_generation()
        if session is not None:
            await self._loop.run_in_executor(None, session.membership.close)
            session.stop_callbacks()

    def abandon(self) -> None:
        """End the member of a forgotten consumer, on any thread, without notice to the group."""
        if self.session is None or not self.session.membership.process.is_current():
            return
        self.session.membership.close()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._coordination_task.cancel)

    async def close(self) -> None:
        """Revoke, leave, and end the tasks; a cancelled call continues by itself."""
        while True:
            if self._ending is None or was_interrupted(self._ending):
                if not self._closing.done():
                    self._closing.set_result(None)
                self._ending = self._loop.create_task(self._end())
            ending = self._ending
            await asyncio.wait([ending])
            if not was_interrupted(ending):
                ending.result()
                return

    async def _end(self) -> None:
        task = self._coordination_task
        is_running = not task.done()
        try:
            if is_running:
                await asyncio.wait([task])
            await self._leave_if_member()
        except asyncio.CancelledError:  # the program ends, and waits for its tasks
            await self._leave_if_member()
            raise
        await self._stop_commit_offsets_refresh_task()
        if is_running and not is_cut_off(task):
            task.result()

    async def _leave_if_member(self) -> None:
        """Leave if the group's task has not, because it was cancelled, for example."""
        if self.session is not None:
            await self._leave(closes=True)

    def maybe_leave_group(self) -> Any:
        """Leave soon: the application has unsubscribed."""
        self._wants_leave, self._fenced = True, None

    # Offsets

    async def ensure_coordinator_known(self) -> None:
        """Find the coordinator; while closing only once, where aiokafka would not look at all.

        The member has its own connection to it. On aiokafka's the request would wait behind a fetch
        for up to ``fetch_max_wait_ms``.
        """
        if self._connected_session() is not None:
            return
        if self._closing.done() and self.coordinator_id is None:
            lookup = self._client.coordinator_lookup(CoordinationType.GROUP, self.group_id)
            self.coordinator_id = await lookup
            return
        await super().ensure_coordinator_known()

    def _connected_session(self) -> AsyncSession | None:
        """Return the session, once its member is connected."""
        return (
            self.session if self.session is not None and self.session.membership.runtime else None
        )

    async def commit_offsets(
        self, assignment: Any, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None
    ) -> None:
        """Commit ``offsets``, by default all that was delivered, or raise ``CommitFailedError``."""
        session = self._connected_session()
        if session is None:
            named = assignment.all_consumed_offsets() if offsets is None else offsets
            await super().commit_offsets(assignment, named)
            return
        if offsets is not None:
            named = {
                (tp.topic, tp.partition): OffsetToCommit(at.offset, at.metadata or "")
                for tp, at in offsets.items()
            }
            await _commit(session, *session.offsets_to_commit(named))
            return
        session.record_positions()
        if not session.membership.is_member:
            self.raise_loss()
            raise kafka_errors.CommitFailedError(_NOT_A_MEMBER)
        await _commit(
            session, self.adapter.positions(session.subscription_state.active()), CommitOrigin.ALL
        )

    def raise_loss(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Raise the error of lost records (of ``partitions``), if their loss is unreported."""
        session = self._connected_session()
        if session is not None and (lost := session.commits.take_loss(partitions)) is not None:
            raise commit_failed(lost)

    async def _do_fetch_commit_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Request committed offsets; a member waits for open transactions (KIP-447)."""
        session = self._connected_session()
        if session is None:
            committed: dict[TopicPartition, OffsetAndMetadata]
            committed = await super()._do_fetch_commit_offsets(partitions)
            return committed
        try:
            offsets = await session.committed_offsets(
                [(tp.topic, tp.partition) for tp in partitions]
            )
        except HoldfastError as error:
            raise committed_offsets_error(error) from error
        if offsets is None:
            raise kafka_errors.KafkaConnectionError("the assignment has changed: try again")
        known = {TopicPartition(*tp): at for tp, at in offsets.items() if at >= 0}
        return {tp: OffsetAndMetadata(at, "") for tp, at in known.items()}


async def _commit(session: AsyncSession, offsets: Offsets, origin: CommitOrigin) -> None:
    timeout_s = session.settings["request.timeout.ms"] / 1000
    try:
        await asyncio.wrap_future(
            session.commits.commit_async(offsets, origin, timeout_s=timeout_s)
        )
    except HoldfastError as error:
        raise commit_failed(error) from error


def _log_refusal(sent: Future[None]) -> None:
    """Log the refusal of an automatic commit, as aiokafka does."""
    if (error := sent.exception()) is not None:
        log.warning("Auto offset commit failed: %s", error)


def commit_failed(error: HoldfastError) -> Any:
    """Return the error of ``commit``: ``CommitFailedError`` for a refusal."""
    if isinstance(error, RemoteProtocolError):
        if error.error_code not in COMMIT_FAILED | MEMBER_OVER:
            return to_client_error(kafka_errors, error)
        return kafka_errors.CommitFailedError(str(error))
    if isinstance(error, LocalProtocolError):
        return kafka_errors.CommitFailedError(str(error))
    return kafka_errors.RequestTimedOutError(str(error))


def committed_offsets_error(error: HoldfastError) -> Any:
    """Return the error of a request for committed offsets; without a response aiokafka retries."""
    return copy.copy(to_connection_error(kafka_errors, error))
