"""The data plane over aiokafka, whose consumer runs on an event loop of its own.

**Rules.** Those of :class:`holdfast.adapters.records.data_plane.DataPlane`. Only the thread of the
loop calls the consumer.

**Strategy.** aiokafka's ``assign()`` replaces the whole set and forgets positions. So every change
of the set assigns all partitions again and seeks each one to its next offset.

References: KIP-429 (partitions that stay keep flowing).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine, Mapping
from typing import Any

from holdfast.adapters.cluster import render
from holdfast.adapters.records.data_plane import TopicPartition, taken
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
        consumer = library.AIOKafkaConsumer(**render.aiokafka_fetch(settings))
        await consumer.start()
        return consumer

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        """See :class:`DataPlane`."""
        self._next.update(positions)
        self._wait(self._assign())

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """See :class:`DataPlane`."""
        for tp in partitions:
            self._next.pop(tp, None)
            self._returned.discard(tp)
            self._paused.discard(tp)
        self._wait(self._assign())

    async def _assign(self) -> None:
        self._consumer.assign([self._part(t, p) for t, p in self._next])
        for (topic, partition), offset in self._next.items():
            self._consumer.seek(self._part(topic, partition), offset)
        if self._paused:
            self._consumer.pause(*(self._part(t, p) for t, p in self._paused))

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
        self._wait(self._assign())

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
