"""Our member in the place of aiokafka's group coordinator.

**Rules.** A consumer that subscribes is a member of ours; one that assigns partitions itself has
aiokafka's own coordinator. Joining never stops a consumer that is cooperative. What an automatic
commit commits was *processed*: handed out, and the application has asked for more. A commit goes
with the identity that the member has now, and only with what it owns now, in the term in which it
was handed out. While a round overtakes a commit, the commit is tried again.

**Strategy.** The class is a subclass of aiokafka's coordinator: questions for offsets, commits, the
refresh of committed offsets and errors for the application are aiokafka's. One task looks after
the member every :data:`LOOK_S` and whenever the subscription changes.

References: KIP-429, KIP-62, KIP-345, KIP-447; Kafka's ``CommitFailedException``.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

import aiokafka.errors as kafka_errors
from aiokafka.client import CoordinationType
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from holdfast.adapters.cluster.connections import Connections, load_client
from holdfast.adapters.drop_in import client_errors
from holdfast.adapters.drop_in.aiokafka.loop_duties import LoopDuties
from holdfast.adapters.drop_in.aiokafka.state import KeepingAssignment, KeepingSubscriptions
from holdfast.adapters.member.assembly import MemberParts
from holdfast.adapters.member.host import Standing
from holdfast.adapters.member.link import NotedOffset
from holdfast.adapters.settings import Settings
from holdfast.errors import HoldfastError, SourceError
from holdfast.machine import actions, events
from holdfast.machine.actions import ListenerCall
from holdfast.machine.codes import ErrorCode, describe
from holdfast.machine.leader.designs import Assignor
from holdfast.machine.states import MemberState
from holdfast.model.partitions import Resource

_T = TypeVar("_T")
log = logging.getLogger(__name__)
LOOK_S = 0.1
_LEAVE_S = 30.0
_AGAIN_S = 0.05
_TOPICS_S = 1.0
_OVERTAKEN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
_REFUSED = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
)


theirs = partial(client_errors.translated, kafka_errors)
_not_ours = partial(client_errors.not_ours, kafka_errors)


class MemberCoordinator(GroupCoordinator):  # type: ignore[misc]  # aiokafka has no types
    """What a consumer of aiokafka asks about its group.

    Parameters
    ----------
    client, subscription
        aiokafka's.
    settings : Settings
        Of the member.
    offered : iterable of Assignor
        What it offers.
    **options
        Those of aiokafka's coordinator.
    """

    # aiokafka has no types
    _subscription: Any
    _commit_refresh_task: Any
    coordinator_id: Any
    _rejoin_needed_fut: Any
    _next_autocommit_deadline: float

    def __init__(
        self,
        client: Any,
        subscription: KeepingSubscriptions,
        *,
        settings: Settings,
        offered: Iterable[Assignor],
        tells_whole: bool = False,
        **options: Any,
    ):
        self._settings = settings
        self._tells_whole = tells_whole
        self._has_told = False  # some assignment
        self._has_taken = False  # the listener heard of a revocation, and of no assignment since
        self._offered = tuple(offered)
        self._loop: asyncio.AbstractEventLoop = client._loop
        self._parts: MemberParts[LoopDuties] | None = None
        self._connecting: Connections | None = None  # what becomes the parts'
        self._topics: frozenset[str] = frozenset()  # as last told to the member
        self._last: KeepingAssignment | None = None  # a hand-over commits from it
        self._wants_leave = False
        self._leaving = False
        self._polled_at = 0.0
        self.in_flight: dict[TopicPartition, int] = {}  # the first offset that is not processed
        self._drains: list[tuple[frozenset[TopicPartition], Callable[[], None]]] = []
        self._in_hand: set[TopicPartition] = set()  # lost since the application polled
        self._had: set[TopicPartition] = set()  # in an earlier term
        self._begins: set[TopicPartition] = set()  # their ASSIGNED callback runs
        self._committed: dict[TopicPartition, int] = {}  # what stands there, as far as is known
        self._callbacks: set[asyncio.Task[Any]] = set()
        self._ending: asyncio.Task[None] | None = None
        super().__init__(client, subscription, **options)

    # Readings, some under aiokafka's names

    @property
    def parts(self) -> MemberParts[LoopDuties] | None:
        """The running member, None for a consumer that is not in its group."""
        return self._parts

    @property
    def generation(self) -> int:
        """Generation of a commit."""
        return -1 if self._parts is None else self._parts.host.standing.identity.generation

    @generation.setter
    def generation(self, value: int) -> None:
        """Leave it to the member."""

    @property
    def member_id(self) -> str:
        """Member id of a commit."""
        return "" if self._parts is None else self._parts.host.standing.identity.member_id

    @member_id.setter
    def member_id(self, value: str) -> None:
        """Leave it to the member."""

    # The application

    def note_poll(self, partitions: Collection[TopicPartition]) -> None:
        """Count as processed what was handed out before: of these, or of all for none given."""
        if partitions:
            for tp in partitions:
                self.in_flight.pop(tp, None)
        else:
            self.in_flight.clear()
        self._in_hand.clear()
        if self._drains:
            self._check_drains()

    def _check_drains(self) -> None:
        over = [d for d in self._drains if not any(tp in self.in_flight for tp in d[0])]
        self._drains = [d for d in self._drains if d not in over]
        for _, drained in over:
            drained()

    def _finish_others(self, topics: Collection[str]) -> None:
        """Count as processed what was handed out of topics that are not subscribed to any more.

        An application that asks for single partitions does not ask for those again.
        """
        self.note_seek([tp for tp in self.in_flight if tp.topic not in topics])
        self._check_drains()

    def note_seek(self, partitions: Iterable[TopicPartition]) -> None:
        """The application goes on elsewhere: that is what a commit commits."""
        for tp in partitions:
            self.in_flight.pop(tp, None)

    def consumed(self, assignment: Any) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions of what the member owns, records in flight included.

        Raises
        ------
        CommitFailedError
            If records were handed out and their partitions were lost before this commit.
        """
        found: dict[TopicPartition, OffsetAndMetadata] = assignment.all_consumed_offsets()
        if self._parts is None:
            return found
        standing = self._parts.host.standing
        lost = self._in_hand or (self._had if standing.identity.generation < 0 else ())
        if lost:
            raise _not_ours(lost)
        owned = standing.owned
        return {tp: at for tp, at in found.items() if tuple(tp) in owned}

    def _processed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self._last is None:
            return {}
        found = {}
        for tp in partitions:
            state = self._last.state_value(tp)
            if self._last.keeps(tp) and state.has_valid_position:
                found[tp] = min(state.position, self.in_flight.get(tp, state.position))
        return found

    # The task

    async def _coordination_routine(self) -> None:
        try:
            while not self._closing.done():
                await self._look()
            await self._leave(closes=True)
        except Exception as error:
            log.exception("the group's task failed")
            told = kafka_errors.KafkaError(f"Unexpected error during coordination {error!r}")
            self._subscription.abort_waiters(told)
            raise told from error

    async def _look(self) -> None:
        subscription = self._subscription.subscription
        if self._wants_leave:
            self._wants_leave = False
            await self._leave()
        elif subscription is None or not subscription.active:
            if subscription is None:
                await self._wait([self._subscription.wait_for_subscription()], LOOK_S)
        elif self._subscription.partitions_auto_assigned():
            await self._look_after_member(subscription)
        else:
            await self._look_after_assignment(subscription)

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

    async def _look_after_assignment(self, subscription: Any) -> None:
        """Commit for a consumer that chose its partitions, as aiokafka does."""
        await self._leave()
        try:
            await self.ensure_coordinator_known()
            wait_s = await self._maybe_do_autocommit(subscription.assignment)
        except kafka_errors.KafkaError as error:
            await self._push_error_to_user(error)
            return
        await self._wait([self._coordinator_dead_fut, subscription.unsubscribe_future], wait_s)

    async def _look_after_member(self, subscription: Any) -> None:
        try:
            await self._tell_member(subscription)
            await self._commit_now_and_then()
        except kafka_errors.KafkaError as error:
            await self._push_error_to_user(error)
            return
        await self._wait([subscription.unsubscribe_future], LOOK_S)
        parts = self._parts
        if parts is None:
            return
        if parts.host.failure is not None:
            failure = parts.host.failure
            await self._forget()
            await self._push_error_to_user(theirs(failure))
            return
        now = time.monotonic()
        if self._subscription.fetcher_idle_time < now - self._polled_at:
            self._polled_at = now
            parts.host.post(events.Polled())

    async def _tell_member(self, subscription: Any) -> None:
        """Begin to be a member, or tell it what is subscribed to now."""
        again = self._subscription.is_subscribed_again or subscription.topics == self._topics
        parts = self._parts
        if parts is None:
            self._leaving = self._has_told = False
            self.request_rejoin()
            parts = self._parts = await self._connect()
            if parts is None:
                return
            if not self._subscription.is_cooperative:
                await self._call_listener("on_partitions_revoked", frozenset())
            self._topics = frozenset()
            again = False
        elif self._told is subscription and not self._subscription.is_subscribed_again:
            return
        self._subscription.is_subscribed_again = False
        self._told, self._topics = subscription, subscription.topics
        self._finish_others(subscription.topics)
        self._group_subscription = subscription.topics
        self._metadata_snapshot = self._get_metadata_snapshot()
        if again:
            parts.host.post(events.RejoinRequested("subscribed again"))
        else:
            parts.subscribe(tuple(sorted(subscription.topics)), None, None)

    _told: Any = None  # the subscription that the member knows

    async def _connect(self) -> MemberParts[LoopDuties] | None:
        """Open the member's connections; None if no broker answers, which is no error here."""
        await self._loop.run_in_executor(None, load_client)  # in the loop it would stall all others
        if self._closing.done() or self._wants_leave:
            return None
        connections = self._connecting = Connections(self._settings)
        try:
            return await self._loop.run_in_executor(None, self._open, connections)
        except SourceError as error:
            if not self._closing.done():
                log.warning("group %s: %s", self.group_id, error)
                await asyncio.sleep(self._retry_backoff_ms / 1000)
            return None
        except HoldfastError as error:
            raise theirs(error) from error
        finally:
            self._connecting = None

    def _open(self, connections: Connections) -> MemberParts[LoopDuties]:
        return MemberParts(
            self._settings, self._offered, lambda _: LoopDuties(self._loop, self), connections
        )

    def _stop_connecting(self) -> None:
        """Nobody wants the member that waits for a broker."""
        if self._connecting is not None:
            self._loop.run_in_executor(None, self._connecting.close)

    def _on_metadata_change(self) -> None:
        if self._parts is not None:
            self._parts.look_again()

    async def _leave(self, *, closes: bool = False) -> None:
        """Hand everything over and leave; what was handed out counts as processed."""
        parts = self._parts
        if parts is None:
            if closes and self._last is None:
                await self._commit_last()
            return
        self._leaving = True
        self.note_poll(())
        if parts.host.failure is None:
            parts.host.leave()
            deadline = time.monotonic() + _LEAVE_S
            while not parts.host.over.is_set() and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
        await self._forget(closes=closes)

    async def _commit_last(self) -> None:
        """The last commit of a consumer that chose its partitions."""
        subscription = self._subscription.subscription
        if subscription is None or subscription.assignment is None:
            return
        if self._subscription.partitions_auto_assigned():
            return
        try:
            await self._maybe_do_last_autocommit(subscription.assignment)
        except kafka_errors.KafkaError as error:
            log.warning("the last commit failed: %s", error)

    async def _forget(self, *, closes: bool = False) -> None:
        """Close the member's parts; it owns nothing, but a closed consumer keeps what it had."""
        parts, self._parts = self._parts, None
        self._told, self._group_subscription, self._topics = None, None, frozenset()
        self._drains.clear()
        self.in_flight.clear()
        if self._last is not None and not closes:
            if self._subscription.partitions_auto_assigned():
                self._subscription.begin_reassignment()
            self._subscription.drop(list(self._last.tps))
        self._last = None
        if parts is not None:
            await self._loop.run_in_executor(None, parts.close)

    async def ensure_coordinator_known(self) -> None:
        """Find the coordinator; at the end once, where aiokafka would not ask at all.

        The member has its own connection to it. On aiokafka's the question would wait behind a
        fetch for as long as ``fetch_max_wait_ms``.
        """
        if self._parts is not None:
            return
        if self._closing.done() and self.coordinator_id is None:
            found = self._client.coordinator_lookup(CoordinationType.GROUP, self.group_id)
            self.coordinator_id = await found
            return
        await super().ensure_coordinator_known()

    async def close(self) -> None:
        """Hand over, leave, and end the tasks; if this is cancelled, that goes on by itself."""
        if self._ending is None:
            if not self._closing.done():
                self._closing.set_result(None)
            self._stop_connecting()
            self._ending = self._loop.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        task = self._coordination_task
        is_running = not task.done()
        try:
            if is_running:
                await asyncio.wait([task])
            await self._leave_alone()
        except asyncio.CancelledError:  # the program ends, and waits for its tasks
            await self._leave_alone()
            raise
        await self._stop_commit_offsets_refresh_task()
        for callback in list(self._callbacks):
            callback.cancel()
        if is_running and not task.cancelled():
            task.result()

    async def _leave_alone(self) -> None:
        """Leave if the group's task has not: it was cancelled, say, with all tasks there are."""
        if self._parts is not None:
            await self._leave(closes=True)

    def maybe_leave_group(self) -> Any:
        """Leave soon: the application has unsubscribed."""
        self._wants_leave = True
        self._stop_connecting()

    # The member's duties, on the loop

    def hold_back(self, resources: tuple[Resource, ...], drained: Callable[[], None]) -> None:
        """See :class:`~holdfast.adapters.drop_in.aiokafka.loop_duties.LoopSide`."""
        tps = _partitions(resources)
        self._subscription.hold_back(tps)
        self.request_rejoin()  # for those who look at aiokafka's future: the member needs no word
        if self._enable_auto_commit:
            self._drains.append((frozenset(tps), drained))
            self._check_drains()
        else:
            drained()

    def lose(self, resources: tuple[Resource, ...]) -> None:
        """See :class:`~holdfast.adapters.drop_in.aiokafka.loop_duties.LoopSide`."""
        tps = _partitions(resources)
        self._in_hand.update(tp for tp in tps if self._was_handed_out(tp))
        self._had.update(tps)
        for tp in tps:
            self.in_flight.pop(tp, None)
        self._check_drains()
        self._subscription.drop(tps)

    def _was_handed_out(self, tp: TopicPartition) -> bool:
        state = None if self._last is None else self._last.state_value(tp)
        return state is not None and state.has_valid_position and state.position != state.began

    def tell(
        self,
        call: ListenerCall,
        resources: tuple[Resource, ...],
        done: Callable[[str | None], None],
    ) -> None:
        """See :class:`~holdfast.adapters.drop_in.aiokafka.loop_duties.LoopSide`."""
        # The listener is due before those who wait for the assignment, as in aiokafka: start().
        self._begin_task(self._tell(call, resources), lambda _: done(None))
        if call is ListenerCall.ASSIGNED:
            self._take(_partitions(resources))

    def _begin_task(
        self, work: Coroutine[Any, Any, _T], answer: Callable[[asyncio.Task[_T]], object]
    ) -> None:
        """Begin a task whose end somebody waits for, also if it is cancelled before it begins."""
        task = self._loop.create_task(work)
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)
        task.add_done_callback(answer)

    def _take(self, tps: list[TopicPartition]) -> None:
        for tp in tps:
            self._committed.pop(tp, None)
        self._subscription.take(tps)
        assignment = getattr(self._subscription.subscription, "assignment", None)
        if isinstance(assignment, KeepingAssignment) and assignment is not self._last:
            self._last = assignment
            self.start_commit_offsets_refresh_task(assignment)
        if self._rejoin_needed_fut.done():
            self._rejoin_needed_fut = self._loop.create_future()

    async def _tell(self, call: ListenerCall, resources: tuple[Resource, ...]) -> None:
        if call is ListenerCall.ASSIGNED and not self._is_news(resources):
            return
        tps = frozenset(_partitions(resources))
        name = f"on_partitions_{call.value}"
        if call is ListenerCall.LOST and not hasattr(self._subscription.listener, name):
            name = "on_partitions_revoked"  # as KIP-429 has it for a listener without
        if call is ListenerCall.ASSIGNED:
            self._begins = set(tps)
        try:
            if not self._leaving:
                await self._call_listener(name, await self._to_tell(call, tps))
            if call is ListenerCall.REVOKED:
                await self._look_for_topics()
        finally:
            self._begins = set()

    async def _look_for_topics(self) -> None:
        """Look for topics that match a pattern before a round: its cause may be a new one."""
        if self._leaving or self._subscription.subscribed_pattern is None:
            return
        try:
            async with asyncio.timeout(_TOPICS_S):
                await self._client.force_metadata_update()
        except TimeoutError:
            return
        subscription = self._subscription.subscription
        if self._parts is not None and subscription is not None and subscription.active:
            await self._tell_member(subscription)

    def _is_news(self, resources: Collection[Resource]) -> bool:
        """Whether the listener hears of an assignment: a cooperative round may change nothing."""
        is_first, self._has_told = not self._has_told, True
        eager = not self._subscription.is_cooperative
        return eager or is_first or bool(resources) or (self._tells_whole and self._has_taken)

    async def _to_tell(
        self, call: ListenerCall, tps: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """What the listener is told; one of an eager program hears of a revocation before."""
        if not (self._tells_whole and self._subscription.is_cooperative):
            return tps
        has_taken, self._has_taken = self._has_taken, call is not ListenerCall.ASSIGNED
        if self._has_taken:
            return tps
        if not has_taken:
            await self._call_listener("on_partitions_revoked", frozenset())
        assignment = getattr(self._subscription.subscription, "assignment", None)
        whole = frozenset(getattr(assignment, "tps", tps))
        return whole.difference(self._subscription.held_back(whole))

    async def _call_listener(self, name: str, tps: frozenset[TopicPartition]) -> None:
        """Call one method of the application's listener; what it raises is logged."""
        method = getattr(self._subscription.listener, name, None)
        if method is None:
            return
        try:
            result = method(set(tps))
            if inspect.isawaitable(result):
                await result
        except Exception:
            log.exception("the listener's %s failed, group %s", name, self.group_id)

    def hand_over(self, action: actions.Commit, done: Callable[[int], None]) -> None:
        """See :class:`~holdfast.adapters.drop_in.aiokafka.loop_duties.LoopSide`."""

        def answer(task: asyncio.Task[int]) -> None:
            done(task.result() if not task.cancelled() and task.exception() is None else -1)

        self._begin_task(self._hand_over(action), answer)

    async def _hand_over(self, action: actions.Commit) -> int:
        try:
            await self._commit_processed(_partitions(action.resources))
        except kafka_errors.RequestTimedOutError:
            return -1
        except kafka_errors.KafkaError as error:
            return getattr(error, "errno", None) or -1
        return 0

    def settle(self, action: actions.JoinCompleted) -> None:
        """See :class:`~holdfast.adapters.drop_in.aiokafka.loop_duties.LoopSide`."""
        if self._parts is not None:
            self._parts.counters.add("rebalance")
        if self._last is None:
            return
        gone = [tp for tp in self._last.tps if tuple(tp) not in action.owned]
        if self._subscription.is_cooperative:
            # What this very round takes away is handed over after this: it is still needed then.
            gone = self._subscription.held_back(gone)
            self._subscription.drop(gone)
        self._had.update(gone)

    # Commits

    async def _commit_now_and_then(self) -> None:
        now = time.monotonic()
        parts = self._parts
        if not self._enable_auto_commit or parts is None or now < self._next_autocommit_deadline:
            return
        standing = parts.host.standing
        if standing.identity.generation < 0 or standing.state is not MemberState.STABLE:
            return
        self._next_autocommit_deadline = now + self._auto_commit_interval_ms / 1000
        try:
            await self._commit_processed(_partitions(standing.owned))
        except kafka_errors.KafkaError as error:
            log.warning("Auto offset commit failed: %s", error)
            self._next_autocommit_deadline = now + self._retry_backoff_ms / 1000
            if not self._is_commit_retriable(error):
                raise

    async def _commit_processed(self, tps: Iterable[TopicPartition]) -> None:
        at = {tp: o for tp, o in self._processed(tps).items() if self._committed.get(tp) != o}
        if not at:
            return
        async with self._commit_lock:
            await self._do_commit_offsets(
                self._last, {tp: OffsetAndMetadata(offset, "") for tp, offset in at.items()}
            )
        self._committed.update(at)

    async def commit_offsets(
        self, assignment: Any, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit, and wait until it is done; see aiokafka.

        Raises
        ------
        CommitFailedError
            If the group refused it, or the member does not own a partition, or did not when the
            record was handed out.
        """
        if self._parts is None:
            await super().commit_offsets(assignment, offsets)
            return
        deadline = time.monotonic() + self._settings["request.timeout.ms"] / 1000
        while True:
            parts = self._parts
            if parts is None:
                raise _not_ours(offsets)
            before = parts.host.standing
            self._refuse(before.owned, offsets)
            try:
                async with self._commit_lock:
                    await asyncio.shield(self._do_commit_offsets(assignment, offsets))
            except kafka_errors.KafkaError as error:
                if time.monotonic() > deadline or not self._goes_on(error, before):
                    raise _said(error) from error
                await asyncio.sleep(_AGAIN_S)
            else:
                self._committed.update({tp: o.offset for tp, o in offsets.items()})
                return

    def _goes_on(self, error: Any, before: Standing) -> bool:
        """Whether a commit that was refused may be tried again."""
        if error.errno not in _OVERTAKEN:
            return bool(error.retriable)
        now = None if self._parts is None else self._parts.host.standing
        return now is not None and (
            error.errno == ErrorCode.REBALANCE_IN_PROGRESS
            or now.state is not MemberState.STABLE
            or now.identity != before.identity
        )

    async def _do_commit_offsets(
        self, assignment: Any, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        parts = self._parts
        if parts is None:
            await super()._do_commit_offsets(assignment, offsets)
            return
        if not offsets:
            return
        identity = parts.host.standing.identity
        asked = parts.link.commit(
            {tuple(tp): NotedOffset.of(o.offset, o.metadata, -1) for tp, o in offsets.items()},
            generation=identity.generation,
            member_id=identity.member_id,
            instance_id=identity.instance_id,
        )
        try:
            code = await asyncio.wrap_future(asked)
        except HoldfastError as error:
            parts.counters.add("commit_failed")
            raise kafka_errors.RequestTimedOutError(str(error)) from error
        parts.counters.add("commit" if code == 0 else "commit_failed")
        if code:
            if code < 0:  # nobody answered: it may be done, or not
                raise kafka_errors.RequestTimedOutError(self.group_id)
            parts.host.post(events.CommitRefused(identity.generation, code))
            kind = kafka_errors.for_code(code)
            raise kind(self.group_id if kind.errno == code else describe(code))

    def _refuse(
        self,
        owned: Collection[Resource],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Refuse what is not owned, and what was handed out in an earlier term."""
        refused = {tp for tp in offsets if tuple(tp) not in owned or tp in self._in_hand}
        for tp in offsets.keys() & self._had - refused - self._begins:
            state: Any = None if self._last is None else self._last.state_value(tp)
            reached = state is not None and state.began is not None and state.has_valid_position
            if not reached or not state.began <= offsets[tp].offset <= state.position:
                refused.add(tp)
        if refused:
            raise _not_ours(refused)

    def reset_generation(self) -> None:
        """Leave it to the member, which is told of a refused commit."""

    async def _do_fetch_commit_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Ask for committed offsets; a member waits for open transactions (KIP-447)."""
        if self._parts is None:
            found: dict[TopicPartition, OffsetAndMetadata]
            found = await super()._do_fetch_commit_offsets(partitions)
            return found
        before = self._states_of(partitions)
        asked = self._parts.link.committed([(tp.topic, tp.partition) for tp in partitions])
        try:
            answer = await asyncio.wrap_future(asked)
            if self._states_of(partitions) != before:  # another member may have committed since
                raise kafka_errors.KafkaConnectionError("the assignment has changed: ask again")
        except HoldfastError as error:
            raised = theirs(error)
            if type(raised) is kafka_errors.KafkaError:  # nobody answered: aiokafka asks again
                raise kafka_errors.KafkaConnectionError(str(error)) from error
            raise copy.copy(raised) from error
        found = {TopicPartition(*tp): offset for tp, offset in answer.items() if offset >= 0}
        for tp, offset in found.items():
            state = None if self._last is None else self._last.state_value(tp)
            if state is not None and not state.has_valid_position:
                self._committed[tp] = offset  # nobody commits again where it began
        return {tp: OffsetAndMetadata(offset, "") for tp, offset in found.items()}

    def _states_of(self, partitions: Iterable[TopicPartition]) -> list[Any]:
        """One object for each partition and term of ownership."""
        last = self._last
        return [] if last is None else [last.state_value(tp) for tp in partitions]


def _partitions(resources: Iterable[Resource]) -> list[TopicPartition]:
    return [TopicPartition(*resource) for resource in sorted(resources)]


def _said(error: Any) -> Any:
    """What aiokafka's commit raises in its place."""
    if error.errno not in _REFUSED and error.errno != ErrorCode.REBALANCE_IN_PROGRESS:
        return error
    return kafka_errors.CommitFailedError(
        "Commit cannot be completed since the group has already rebalanced and may have assigned "
        "the partitions to another member"
    )
