"""The data plane over aiokafka, whose consumer runs on an event loop of its own.

**Rules.** Those of :class:`holdfast.adapters.records.data_plane.DataPlane`. Only the thread of the
loop calls the consumer.

**Strategy.** aiokafka's ``assign()`` replaces the whole set: it ends every fetch that is under way,
drops what was fetched, and forgets positions. So only the first partitions are assigned so. Later
changes go into the assignment that is there (:func:`change_assignment`), and the other partitions
keep their buffers and their fetches. aiokafka has no call for that. If a version has other private
parts, every change assigns all partitions and seeks each one to its next offset.

References: KIP-429 (partitions that stay keep flowing); KIP-54, "Motivation" (what was fetched is
not fetched again).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine, Mapping
from typing import Any

from holdfast.adapters.cluster import render
from holdfast.adapters.records.data_plane import TopicPartition, clients_own, taken
from holdfast.adapters.settings import Settings
from holdfast.errors import AdapterError


class AiokafkaPlane:
    """aiokafka's consumer with a manual assignment."""

    def __init__(self, settings: Settings):
        try:
            import aiokafka
        except ImportError:
            raise AdapterError(
                "aiokafka is not installed: pip install 'holdfast[aiokafka]'"
            ) from None
        self._part = aiokafka.TopicPartition
        self._next: dict[TopicPartition, int] = {}
        self._returned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="holdfast-aiokafka", daemon=True
        )
        self._thread.start()
        self._consumer: Any = self._wait(self._open(aiokafka, settings))

    async def _open(self, library: Any, settings: Settings) -> Any:
        consumer = clients_own(library.AIOKafkaConsumer)(**render.aiokafka_fetch(settings))
        await consumer.start()
        return consumer

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        """See :class:`DataPlane`."""
        self._next.update(positions)
        self._wait(self._assign(positions))

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """See :class:`DataPlane`."""
        for tp in partitions:
            self._next.pop(tp, None)
            self._returned.discard(tp)
            self._paused.discard(tp)
        self._wait(self._assign({}))

    async def _assign(self, moved: Mapping[TopicPartition, int]) -> None:
        """Fetch exactly the partitions of ``_next``, those of ``moved`` from a new position."""
        wanted = [self._part(t, p) for t, p in self._next]
        paused = self._paused.intersection(moved)
        if not change_assignment(self._consumer, wanted):
            self._consumer.assign(wanted)
            moved, paused = self._next, self._paused
        for tp, offset in moved.items():
            self._consumer.seek(self._part(*tp), offset)
        if paused:
            self._consumer.pause(*(self._part(t, p) for t, p in paused))

    def poll(self, timeout_ms: int, max_records: int) -> list[Any]:
        """See :class:`DataPlane`."""
        if not self._next:
            return []
        return list(self._wait(self._getmany(timeout_ms, max_records)))

    async def _getmany(self, timeout_ms: int, max_records: int) -> list[Any]:
        batches = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
        return taken(batches, self._next, self._returned)

    def positions(self) -> dict[TopicPartition, int]:
        """See :class:`DataPlane`."""
        return {tp: self._next[tp] for tp in self._returned}

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """See :class:`DataPlane`."""
        self._paused.update(partitions)
        self._wait(self._pause(partitions))

    async def _pause(self, partitions: Collection[TopicPartition]) -> None:
        self._consumer.pause(*(self._part(t, p) for t, p in partitions))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """See :class:`DataPlane`."""
        self._paused.difference_update(partitions)
        self._wait(self._resume(partitions))

    async def _resume(self, partitions: Collection[TopicPartition]) -> None:
        self._consumer.resume(*(self._part(t, p) for t, p in partitions))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """See :class:`DataPlane`."""
        self._next[partition] = offset
        self._wait(self._seek(partition, offset))

    async def _seek(self, partition: TopicPartition, offset: int) -> None:
        self._consumer.seek(self._part(*partition), offset)

    def close(self) -> None:
        """See :class:`DataPlane`."""
        self._wait(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


def change_assignment(consumer: Any, wanted: Collection[Any]) -> bool:
    """Let a consumer fetch exactly these partitions; those that it fetches already go on as before.

    All private access to aiokafka's consumer is here: ``_subscription``, its assignment with
    ``_topic_partitions`` and ``_tp_state``, the fetcher's ``_records``, and ``_client.set_topics``.

    Parameters
    ----------
    consumer : aiokafka.AIOKafkaConsumer
        Started, with an assignment of its own.
    wanted : collection of aiokafka.TopicPartition
        Every partition that it shall have from now on. A new one has no position yet: seek.

    Returns
    -------
    bool
        False, and nothing is changed, if there is no assignment yet or aiokafka has other parts.
    """
    try:
        assignment = consumer._subscription.subscription.assignment
        records, states = consumer._fetcher._records, assignment._tp_state
        before, set_topics = assignment._topic_partitions, consumer._client.set_topics
    except AttributeError:
        return False
    after = frozenset(wanted)
    if not states:
        return False
    for tp in before - after:
        states[tp].await_reset(None)  # the answer of a fetch under way finds no position
        records.pop(tp, None)
    for tp in after - before:
        states[tp] = type(next(iter(states.values())))(assignment)
    assignment._topic_partitions = after
    if after:
        set_topics([tp.topic for tp in after])
    return True
