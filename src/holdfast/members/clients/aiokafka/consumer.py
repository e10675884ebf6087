"""aiokafka's consumer with a member of holdfast: cooperative rebalances and the designs.

**Rules.** Everything that does not concern the group is aiokafka's own: records, errors, positions,
fetching, a consumer without a group and one that assigns partitions itself. The application's calls
keep their names, arguments, results and errors. ``docs/clients.md`` lists what differs.

**Strategy.** A subclass whose coordinator is
:class:`~holdfast.members.clients.aiokafka.coordinator.MemberCoordinator`.

References: KIP-429, KIP-62; Incremental Cooperative Rebalancing, Designs I, II and III.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any

import aiokafka
from aiokafka.errors import ConsumerStoppedError, IllegalStateError
from aiokafka.structs import TopicPartition
from aiokafka.util import get_running_loop

from holdfast.cluster import kerberos
from holdfast.cluster.client_configs import hide_logins
from holdfast.errors import ConfigError
from holdfast.members.clients.aiokafka.adapter import MutableSubscriptions, RunningCallback
from holdfast.members.clients.aiokafka.config import AiokafkaTokens, settings_of
from holdfast.members.clients.aiokafka.coordinator import MemberCoordinator
from holdfast.members.clients.aiokafka.fetcher import UnblockedFetcher
from holdfast.members.clients.drop_in import DELAY, STRATEGY, ClassReplacement, is_ours, with_login
from holdfast.members.config.settings import Settings
from holdfast.members.runtime.application_calls import MemberProcess
from holdfast.members.runtime.member_status import clear_ready_file

if TYPE_CHECKING:
    from aiokafka import ConsumerRecord

    from holdfast.members.metrics import MemberMetrics

_ORIGINAL_INIT = inspect.signature(aiokafka.AIOKafkaConsumer.__init__)
_ORIGINAL: Any = aiokafka.AIOKafkaConsumer
WHOLE_ASSIGNMENT = "holdfast_whole_assignment"
INSTALLED = ClassReplacement(policy="holdfast_policy", strategy=STRATEGY)
"""Options that :func:`install` gives every consumer of a group."""


class AIOKafkaConsumer(_ORIGINAL):  # type: ignore[misc]  # aiokafka has no types
    """A consumer for ``asyncio``, as aiokafka's.

    Parameters
    ----------
    *topics : str
        Topics to subscribe to.
    **options
        aiokafka's keywords; ``partition_assignment_strategy`` takes names of the registry, too.
        Keywords of holdfast begin with ``holdfast_``: ``holdfast_policy="deferred"`` is Design II,
        and ``scheduled_rebalance_max_delay_ms`` the time that its group waits for a member. With
        ``holdfast_whole_assignment=True`` a cooperative member notifies its listener as an eager
        one: of a revocation, maybe an empty one, and then of the whole assignment; for a listener
        written for eager rebalances, such as Faust's.

    Raises
    ------
    ValueError
        For a value that cannot be honoured.
    TypeError
        For an unknown keyword.

    Examples
    --------
    ::

        consumer = AIOKafkaConsumer("orders", group_id="etl", holdfast_policy="deferred")
        async with consumer:
            async for record in consumer:
                await handle(record)
    """

    _fetcher: Any
    _subscription: Any
    _closed: bool | None

    def __init__(self, *topics: str, **options: Any):
        if options.get("group_id") is not None:
            options = INSTALLED.override(options)
        try:
            options = with_login(options, AiokafkaTokens)
        except ConfigError as error:
            self._closed = None  # it was never open
            raise ValueError(str(error)) from error
        if isinstance(options.get("sasl_kerberos_service_name"), kerberos.Service):
            kerberos.use_in_aiokafka()
        self._reports_full_assignment = bool(options.pop(WHOLE_ASSIGNMENT, False))
        ours = {word: options.pop(word) for word in list(options) if is_ours(word)}
        hide_logins()
        super().__init__(*topics, **options)
        self._is_stopped = False
        self._stopping: asyncio.Task[None] | None = None  # begun by a callback
        self._process = MemberProcess()
        self._member_settings: Settings | None = None
        if self._group_id is None:
            if ours:
                self._closed = None  # it was never open
                raise ValueError(f"{', '.join(sorted(ours))}: without a group_id there is no group")
            return
        try:
            self._become_member(topics, options, ours)
        except BaseException:
            self._closed = None
            raise

    def _become_member(
        self, topics: tuple[str, ...], options: Mapping[str, Any], ours: Mapping[str, Any]
    ) -> None:
        # The leader's code is loaded here, not with the client's module.
        from holdfast.core.machine.leader.assignor_protocol import (
            RebalanceProtocol,
            choose_rebalance_protocol,
        )
        from holdfast.members.config.policy import assignors_of

        whole = {name: p.default for name, p in _ORIGINAL_INIT.parameters.items()} | dict(options)
        self._member_settings = settings_of(
            whole, ours, written=options, loop=self._loop, cluster=self._client.cluster
        )
        try:
            self._member_assignors = assignors_of(self._member_settings)
            clear_ready_file(self._member_settings)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        rebalance_protocol = choose_rebalance_protocol(self._member_assignors)
        self._subscription = MutableSubscriptions(
            self._loop, cooperative=rebalance_protocol is RebalanceProtocol.COOPERATIVE
        )
        if topics:
            self._subscription.subscribe(topics=self._validate_topics(topics))

    async def start(self) -> None:
        """Connect, and join the group if there is a subscription, as aiokafka does."""
        if self._member_settings is None:
            await super().start()
            return
        # The original's two texts: programs and their tests know them.
        assert self._loop is get_running_loop(), (
            "Please create objects with the same loop as running with"
        )
        assert self._fetcher is None, "Did you call `start` twice?"
        await self._client.bootstrap()
        await self._wait_topics()
        self._fetcher = self._make_fetcher()
        self._subscription.fetcher = self._fetcher
        self._coordinator = MemberCoordinator(
            self._client,
            self._subscription,
            settings=self._member_settings,
            member_assignors=self._member_assignors,
            reports_full_assignment=self._reports_full_assignment,
            group_id=self._group_id,
            group_instance_id=self._group_instance_id,
            heartbeat_interval_ms=self._heartbeat_interval_ms,
            session_timeout_ms=self._session_timeout_ms,
            retry_backoff_ms=self._retry_backoff_ms,
            enable_auto_commit=self._enable_auto_commit,
            auto_commit_interval_ms=self._auto_commit_interval_ms,
            assignors=self._partition_assignment_strategy,
            exclude_internal_topics=self._exclude_internal_topics,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            max_poll_interval_ms=self._max_poll_interval_ms,
        )
        weakref.finalize(self, self._coordinator.abandon)
        self._coordinator.begin()
        subscription = self._subscription.subscription
        if subscription is None:
            return
        if self._subscription.partitions_auto_assigned():
            await self._subscription.wait_for_assignment()
        else:
            self._coordinator.start_commit_offsets_refresh_task(subscription.assignment)

    async def stop(self, *, returns: bool | None = None) -> None:
        """Leave the group and close; a call after an interrupted one continues.

        In a callback, or in a task that a callback has started and that runs before its end, it
        takes effect when the callback has ended.

        Parameters
        ----------
        returns : bool, optional
            Whether this member comes back soon; see :meth:`holdfast.Consumer.close`. The first call
            that sets it counts.
        """
        if self._member_settings is not None:
            self._process.check()
            coordinator: Any = self._coordinator  # None before start()
            if coordinator is not None and coordinator.returns is None:
                coordinator.returns = returns
        if self._callback() is not None:
            self._stopping = self._stopping or self._loop.create_task(
                self._stop(), context=Context()
            )
            return
        if self._stopping is not None:
            await asyncio.wait([self._stopping])
        await self._stop()

    async def _stop(self) -> None:
        if self._closed and not self._is_stopped:
            self._closed = False
        await super().stop()
        self._is_stopped = True

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if self._process.is_current():  # a fork leaves its parent's alone
            await self.stop()

    def _callback(self) -> RunningCallback | None:
        """Return the callback of this consumer that made this call, itself or by another task."""
        adapter = getattr(self._coordinator, "adapter", None)
        return None if adapter is None else adapter.running()

    def _is_in_callback(self) -> bool:
        """Return whether a callback makes this call and would wait for itself."""
        callback = self._callback()
        return callback is not None and callback.task is asyncio.current_task()

    def __holdfast_metrics__(self) -> MemberMetrics | None:
        session = getattr(self._coordinator, "session", None)
        return None if session is None else session.membership.metrics()

    def _make_fetcher(self) -> Any:
        rack = {"client_rack": self._client_rack} if hasattr(self, "_client_rack") else {}
        return UnblockedFetcher(
            self._client,
            self._subscription,
            key_deserializer=self._key_deserializer,
            value_deserializer=self._value_deserializer,
            fetch_min_bytes=self._fetch_min_bytes,
            fetch_max_bytes=self._fetch_max_bytes,
            fetch_max_wait_ms=self._fetch_max_wait_ms,
            max_partition_fetch_bytes=self._max_partition_fetch_bytes,
            check_crcs=self._check_crcs,
            fetcher_timeout=self._consumer_timeout,
            retry_backoff_ms=self._retry_backoff_ms,
            auto_offset_reset=self._auto_offset_reset,
            isolation_level=self._isolation_level,
            **rack,
        )

    def subscribe(
        self,
        topics: Any = (),
        pattern: str | None = None,
        listener: aiokafka.ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics or to a pattern, as aiokafka does."""
        super().subscribe(topics, pattern, listener)
        self._listener = listener

    # Records. aiokafka counts a cancelled call as one that waits for ever, so getone and getmany
    # keep its counter themselves.

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """Return the next record, as aiokafka does."""
        if self._member_settings is None:
            return await super().getone(*partitions)
        if self._is_in_callback():
            raise IllegalStateError("getone() in a callback, which may commit and seek")
        self._begin_call(partitions)
        subscription = self._subscription
        subscription._fetch_count += 1
        try:
            record = await self._fetcher.next_record(partitions)
        finally:
            _end_call(subscription)
        self._coordinator.in_flight[TopicPartition(record.topic, record.partition)] = record.offset
        return record

    def _begin_call(self, partitions: tuple[TopicPartition, ...]) -> None:
        assert all(isinstance(tp, TopicPartition) for tp in partitions)
        if self._closed:
            raise ConsumerStoppedError
        coordinator = self._coordinator
        coordinator.check_errors()
        coordinator.record_poll(partitions)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the next records by partition, as aiokafka does."""
        if self._member_settings is None or _is_no_limit(max_records):
            by_partition: dict[TopicPartition, list[ConsumerRecord]] = await super().getmany(
                *partitions, timeout_ms=timeout_ms, max_records=max_records
            )
            return by_partition
        if self._is_in_callback():
            return {}
        self._begin_call(partitions)
        subscription = self._subscription
        subscription._fetch_count += 1
        try:
            by_partition = await self._fetcher.fetched_records(
                partitions, timeout_ms / 1000, max_records=max_records or self._max_poll_records
            )
        finally:
            _end_call(subscription)
        in_flight = self._coordinator.in_flight
        for tp, records in by_partition.items():
            in_flight.setdefault(tp, records[0].offset)
        return by_partition

    # Offsets

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commit, and wait until it is done, as aiokafka does.

        Raises
        ------
        CommitFailedError
            If the group refused it, or the member does not own a partition, or did not when the
            records were delivered. Nothing is committed.
        """
        assignment = getattr(self._subscription.subscription, "assignment", None)
        if self._member_settings is None or assignment is None:
            await super().commit(offsets)
        elif offsets is None:
            await self._coordinator.commit_offsets(assignment, None)
        else:
            try:
                await super().commit(offsets)
            except IllegalStateError:  # not assigned
                self._coordinator.raise_loss(offsets)
                raise

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue a partition at ``offset``, as aiokafka does."""
        super().seek(partition, offset)
        if self._member_settings is not None:
            self._coordinator.record_seek([partition])

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue at the oldest record, as aiokafka does."""
        moved: bool = await self._seek_to(super().seek_to_beginning, partitions)
        return moved

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue after the newest record, as aiokafka does."""
        moved: bool = await self._seek_to(super().seek_to_end, partitions)
        return moved

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Continue at the committed offsets; aiokafka requests each partition's by itself."""
        committed_offsets: dict[TopicPartition, int | None]
        wanted = partitions or self.assignment()
        is_for_aiokafka = self._member_settings is None or not wanted
        if is_for_aiokafka or not all(map(self._subscription.is_assigned, wanted)):
            committed_offsets = await self._seek_to(super().seek_to_committed, partitions)
            return committed_offsets
        committed = await self._coordinator.fetch_committed_offsets(list(wanted))
        committed_offsets = {tp: committed[tp].offset if tp in committed else None for tp in wanted}
        for tp, offset in committed_offsets.items():
            if offset:
                self._fetcher.seek_to(tp, offset)
        self._coordinator.record_seek(wanted)
        return committed_offsets

    async def _seek_to(
        self, seek: Callable[..., Awaitable[Any]], partitions: tuple[TopicPartition, ...]
    ) -> Any:
        moved = await seek(*partitions)
        if self._member_settings is not None and self._coordinator is not None:
            self._coordinator.record_seek(partitions or self.assignment())
        return moved


def _is_no_limit(max_records: object) -> bool:
    """Return whether aiokafka refuses ``max_records``; its own check raises the error."""
    return max_records is not None and (not isinstance(max_records, int) or max_records < 1)


def _end_call(subscription: Any) -> None:
    subscription._fetch_count -= 1
    if subscription._fetch_count == 0:
        subscription._last_fetch_ended = time.monotonic()


def _signature() -> inspect.Signature:
    """Return aiokafka's own signature, followed by holdfast's keywords."""
    _, *parameters = _ORIGINAL_INIT.parameters.values()
    ours = [
        inspect.Parameter(DELAY, inspect.Parameter.KEYWORD_ONLY, default=None),
        inspect.Parameter("holdfast_options", inspect.Parameter.VAR_KEYWORD),
    ]
    return inspect.Signature([*parameters, *ours])


AIOKafkaConsumer.__signature__ = _signature()


def install(**keywords: Any) -> Callable[[], None]:
    """Replace aiokafka's consumer by holdfast's; the returned function undoes it.

    It replaces the class in every loaded module that has it as a global. Classes already derived
    from it, each with a RuntimeWarning, and existing consumers stay as they are: call it first. The
    keywords override those of every later consumer of a group. With ``holdfast_policy`` the
    ``partition_assignment_strategy`` of a framework is dropped, unless it is given here as well.
    """
    return INSTALLED.install({_ORIGINAL: AIOKafkaConsumer}, keywords)
