"""A faster fetcher for aiokafka, which does not wait for start offsets.

**Rules.** Records, their order and number of lists, the position after an error of a deserializer,
and all errors are aiokafka's. A partition whose start offset is being looked up delays no fetch of
another one. A call with a time-out returns at that time, whatever a listener does.

**Strategy.** Records that have arrived are taken in one pass of C for each partition. Everything
else, waiting and raising, is left to aiokafka. aiokafka fetches no records from a broker while it
looks up the start offset of one of that broker's partitions, however long the group's coordinator
takes to answer. So partitions without a position are hidden from aiokafka, and looked up by tasks
of their own.

References: aiokafka, ``Fetcher.fetched_records``, ``Fetcher._get_actions_per_node``; KIP-429.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from types import SimpleNamespace
from typing import Any

from aiokafka.consumer.fetcher import (
    UNKNOWN_OFFSET,
    Fetcher,
    FetchResult,
    OffsetResetStrategy,
    PartitionRecords,
)
from aiokafka.errors import NoOffsetForPartitionError
from aiokafka.structs import TopicPartition

_NEXT = PartitionRecords.__next__
_END_S = 2.0


@dataclass(eq=False, slots=True)
class PositionLookup:
    """Partitions of one leader whose positions are looked up."""

    leader: int  # node id
    states: Mapping[TopicPartition, Any]  # aiokafka's, in this term of ownership


class UnblockedFetcher(Fetcher):  # type: ignore[misc]  # aiokafka has no types
    """The fetcher of a consumer of aiokafka."""

    # aiokafka has no types
    _records: dict[TopicPartition, Any]
    _subscriptions: Any
    _wait_consume_future: Any
    _default_reset_strategy: int
    _in_flight: set[Any]
    _pending_tasks: set[asyncio.Task[Any]]
    _fetch_task: asyncio.Task[Any]

    def __init__(self, *arguments: Any, **options: Any):
        self._looking_up: set[Any] = set()  # states of partitions whose positions are looked up
        super().__init__(*arguments, **options)

    async def close(self) -> None:
        """Close, unlike aiokafka, which passes on the cancellation of a fetch that waits to retry.

        An exception of a signal handler inside asyncio may have lost the wake-up of a task.
        """
        self._fetch_task.cancel()  # it would start others
        for task in self._pending_tasks:
            task.cancel()
        await asyncio.wait({self._fetch_task, *self._pending_tasks}, timeout=_END_S)
        self._pending_tasks = {task for task in self._pending_tasks if not is_cut_off(task)}
        if is_cut_off(self._fetch_task):
            self._fetch_task = asyncio.create_task(asyncio.sleep(0))
        await super().close()

    def _get_actions_per_node(self, assignment: Any) -> Any:
        """Look up missing positions, and fetch the other partitions, as aiokafka does."""
        if len(self._in_flight) > len(self._pending_tasks):
            # A task has ended, but its node counts as busy until the loop's next pass. Nothing else
            # would wake aiokafka then, so it would fetch nothing there for 0.2 s.
            asyncio.get_running_loop().call_soon(self._notify, self._wait_consume_future)
        blank = {
            tp: state
            for tp in assignment.tps
            if not (state := assignment.state_value(tp)).has_valid_position
            and tp not in self._records
        }
        if not blank:
            return super()._get_actions_per_node(assignment)
        positioned = SimpleNamespace(
            tps=assignment.tps.difference(blank), state_value=assignment.state_value
        )
        requests, _, timeout, is_stale, resumed = super()._get_actions_per_node(positioned)
        by_leader: dict[int, dict[TopicPartition, Any]] = {}
        for tp, state in blank.items():
            if state not in self._looking_up:
                leader = self._client.cluster.leader_for_partition(tp)
                by_leader.setdefault(-1 if leader is None else leader, {})[tp] = state
        is_stale = is_stale or bool(by_leader.pop(-1, ()))
        searches = {
            PositionLookup(leader, of_leader): list(of_leader)
            for leader, of_leader in by_leader.items()
        }
        self._looking_up.update(state for search in searches for state in search.states.values())
        return requests, searches, timeout, is_stale, resumed

    async def _update_fetch_positions(
        self, assignment: Any, node_id: PositionLookup, tps: list[TopicPartition]
    ) -> bool:
        """Find the positions of ``tps``; aiokafka's own fetches nothing from the node meanwhile."""
        states = node_id.states
        try:
            has_news = await self._use_committed(assignment, states)
            left = [tp for tp in tps if assignment.state_value(tp).awaiting_reset]
            if left:
                await super()._update_fetch_positions(assignment, node_id.leader, left)
        except asyncio.CancelledError:  # aiokafka ends its tasks so
            return False
        finally:
            self._looking_up.difference_update(states.values())
        return has_news

    async def _use_committed(self, assignment: Any, states: Mapping[TopicPartition, Any]) -> bool:
        """Begin at committed offsets, all requested at once; return whether an error is due."""
        requested = {
            tp: state.fetch_committed()
            for tp, state in states.items()
            if not (state.has_valid_position or state.awaiting_reset)
        }
        if requested:
            await asyncio.wait(requested.values())
        has_news = False
        for tp, response in requested.items():
            state, offset = states[tp], response.result().offset
            if state.has_valid_position or state.awaiting_reset:
                continue  # the application has sought
            if offset != UNKNOWN_OFFSET:
                state.reset_to(offset)
            elif self._default_reset_strategy != OffsetResetStrategy.NONE:
                state.await_reset(self._default_reset_strategy)
            elif assignment.state_value(tp) is state:
                self._set_error(tp, NoOffsetForPartitionError(tp))
                has_news = True
        return has_news

    async def fetched_records(
        self,
        partitions: Collection[TopicPartition],
        timeout: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[Any]]:
        """Return the next records by partition; aiokafka's own may wait for a listener."""
        is_waiting = self._subscriptions.reassignment_in_progress
        # A program may have replaced aiokafka's step by its own.
        if not is_waiting and PartitionRecords.__next__ is _NEXT:
            records = self._take(partitions, max_records)
            if records:
                return records
        if is_waiting and not timeout:
            return {}
        waited_for: dict[TopicPartition, list[Any]] = {}
        try:
            # aiokafka waits for an eager reassignment, and so for the listener, however long.
            async with asyncio.timeout(timeout or None) as limit:
                waited_for = await super().fetched_records(partitions, timeout, max_records)
        except TimeoutError:
            if not limit.expired():
                raise
        return (
            waited_for  # also after the time-out: aiokafka awaits nothing when it has taken records
        )

    def _take(
        self, partitions: Collection[TopicPartition], most: int | None
    ) -> dict[TopicPartition, list[Any]]:
        """Return the records that have arrived, up to the first error, which is raised last."""
        taken: dict[TopicPartition, list[Any]] = {}
        for tp in list(self._records):
            if most == 0:
                break
            if partitions and tp not in partitions:
                continue
            result = self._records[tp]
            if type(result) is not FetchResult:
                break
            records = _records_of(result, most)
            if not result.has_more():
                del self._records[tp]
                self._notify(self._wait_consume_future)
            if records:
                taken[tp] = records
                most = None if most is None else most - len(records)
        return taken


def _records_of(result: Any, most: int | None) -> list[Any]:
    """Return at most ``most`` records of one partition, and move its position after them."""
    if not result.check_assignment(result._topic_partition) or not result.has_more():
        return []
    fetched = result._partition_records
    records = list(islice(fetched._records_iterator, most))
    result._update_position()
    if most is None or len(records) < most:
        fetched._records_iterator = None  # it has ended, and would keep its buffer
        result._partition_records = None
    return records


def was_interrupted(task: asyncio.Task[Any]) -> bool:
    """Return whether a task was ended by the exception that has ended the loop's run as well."""
    if not task.done() or task.cancelled():
        return False
    return isinstance(task.exception(), KeyboardInterrupt | SystemExit)


def is_cut_off(task: asyncio.Task[Any]) -> bool:
    """Return whether a task was cancelled or interrupted, or will never wake up."""
    return not task.done() or task.cancelled() or was_interrupted(task)
