"""``holdfast.AsyncConsumer``: the consumer for programs on an event loop.

**Rules.** As :class:`holdfast.Consumer`; every call that may wait is awaited. The methods of a
listener may be coroutines; they run on the loop that subscribed. A poll that was cancelled loses
nothing: the next poll returns its records, and none of them counts as processed before.

**Strategy.** One thread polls and runs callbacks. Another one commits, seeks, pauses and asks, so
that a callback may await these. The membership does not depend on the loop being free.

References: KIP-429 (callbacks).
"""

from __future__ import annotations

import asyncio
import inspect
import re
import signal
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

from holdfast.adapters.arguments import check_listener
from holdfast.adapters.consumer import Consumer
from holdfast.adapters.member.end_signals import exit_of, is_free
from holdfast.adapters.member.metrics import MemberMetrics
from holdfast.adapters.records.delivery import TopicPartition
from holdfast.errors import AdapterError, LocalProtocolError

_T = TypeVar("_T")
_LOOK_S = 0.5  # how often a callback's thread looks whether the loop still runs


class AsyncConsumer:
    """A consumer of topics in a group, for ``asyncio``.

    Parameters
    ----------
    config : mapping of str to object
        As for :class:`holdfast.Consumer`.

    Attributes
    ----------
    assignors : tuple of Assignor
        As of :class:`holdfast.Consumer`.
    """

    def __init__(self, config: Mapping[str, object]):
        self._consumer = Consumer(config)
        self.assignors = self._consumer.assignors
        self._polling = ThreadPoolExecutor(1, thread_name_prefix="holdfast-async-poll")
        self._calling = ThreadPoolExecutor(1, thread_name_prefix="holdfast-async-call")
        self._is_closed = False
        self._is_polled = False
        self._closed_threads = False
        self._task: asyncio.Task[Any] | None = None  # of the block, if it hears of SIGTERM
        self._caught = False  # SIGTERM has come
        self._poll_going_on: asyncio.Future[list[Any]] | None = None
        self._close_going_on: asyncio.Future[None] | None = None

    async def _do(self, work: Callable[[], _T], *, polls: bool = False) -> _T:
        if self._closed_threads:
            raise AdapterError("the consumer is closed")
        thread = self._polling if polls else self._calling
        return await asyncio.get_running_loop().run_in_executor(thread, work)

    async def subscribe(
        self, topics: Collection[str] | str | re.Pattern[str], listener: Any = None
    ) -> None:
        """See :meth:`Consumer.subscribe`; the listener's methods may be coroutines."""
        check_listener(listener)  # the wrapped one has whatever it is asked for
        loop = asyncio.get_running_loop()
        wrapped = None if listener is None else _OnLoop(listener, loop)
        await self._do(partial(self._consumer.subscribe, topics, wrapped))

    async def unsubscribe(self) -> None:
        """See :meth:`Consumer.unsubscribe`."""
        await self._do(self._consumer.unsubscribe, polls=True)

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Any]:
        """See :meth:`Consumer.poll`; after one that was cancelled, its records come first.

        Raises
        ------
        LocalProtocolError
            If another task is polling.
        """
        if self._is_polled:
            raise LocalProtocolError("another task is polling: one at a time")
        if self._poll_going_on is None:
            self._consumer.is_seen = False
            work = partial(self._consumer.poll, timeout, max_records)
            self._poll_going_on = asyncio.ensure_future(self._do(work, polls=True))
        self._is_polled = True
        try:
            # Cancelled here, the thread polls on: what it finds waits for the next call.
            await asyncio.wait([self._poll_going_on])
        finally:
            self._is_polled = False
        done, self._poll_going_on = self._poll_going_on, None
        self._consumer.is_seen = True
        if self._caught and self._task is not None:
            self._task.cancel()
            await asyncio.sleep(_LOOK_S)  # cancelled here, or by the block
        return done.result()

    async def poll_one(self, timeout: float = 1.0) -> Any:
        """Return the next record, None if none came; the one before it counts as processed."""
        return next(iter(await self.poll(timeout, 1)), None)

    async def __aiter__(self) -> AsyncIterator[list[Any]]:
        """Yield lists of records, never an empty one, until the consumer is closed."""
        while self._caught or not (self._is_closed or self._consumer.is_stopped):
            if batch := await self.poll():
                yield batch

    async def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """See :meth:`Consumer.commit`."""
        await self._do(partial(self._consumer.commit, offsets))

    async def committed(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[TopicPartition, int | None]:
        """See :meth:`Consumer.committed`."""
        return await self._do(partial(self._consumer.committed, partitions))

    async def position(self, partition: tuple[str, int]) -> int | None:
        """See :meth:`Consumer.position`."""
        return await self._do(partial(self._consumer.position, partition))

    async def seek(self, partition: tuple[str, int], offset: int) -> None:
        """See :meth:`Consumer.seek`."""
        await self._do(partial(self._consumer.seek, partition, offset))

    async def pause(self, partitions: Collection[tuple[str, int]]) -> None:
        """See :meth:`Consumer.pause`."""
        await self._do(partial(self._consumer.pause, partitions))

    async def resume(self, partitions: Collection[tuple[str, int]]) -> None:
        """See :meth:`Consumer.resume`."""
        await self._do(partial(self._consumer.resume, partitions))

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """See :meth:`Consumer.seek_to_beginning`."""
        await self._do(partial(self._consumer.seek_to_beginning, *partitions))

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """See :meth:`Consumer.seek_to_end`."""
        await self._do(partial(self._consumer.seek_to_end, *partitions))

    async def seek_to_committed(self, *partitions: tuple[str, int]) -> None:
        """See :meth:`Consumer.seek_to_committed`."""
        await self._do(partial(self._consumer.seek_to_committed, *partitions))

    async def beginning_offsets(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        """See :meth:`Consumer.beginning_offsets`."""
        return await self._do(partial(self._consumer.beginning_offsets, partitions))

    async def end_offsets(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        """See :meth:`Consumer.end_offsets`."""
        return await self._do(partial(self._consumer.end_offsets, partitions))

    async def offsets_for_times(
        self, times: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, int | None]:
        """See :meth:`Consumer.offsets_for_times`."""
        return await self._do(partial(self._consumer.offsets_for_times, times))

    async def list_topics(self) -> dict[str, int]:
        """See :meth:`Consumer.list_topics`."""
        return await self._do(self._consumer.list_topics)

    def subscription(self) -> set[str]:
        """See :meth:`Consumer.subscription`."""
        return self._consumer.subscription()

    def group_metadata(self) -> bytes:
        """See :meth:`Consumer.group_metadata`."""
        return self._consumer.group_metadata()

    def paused(self) -> set[TopicPartition]:
        """See :meth:`Consumer.paused`."""
        return self._consumer.paused()

    def enforce_rebalance(self, reason: str = "requested by the application") -> None:
        """See :meth:`Consumer.enforce_rebalance`."""
        self._consumer.enforce_rebalance(reason)

    @property
    def member_id(self) -> str:
        """See :attr:`Consumer.member_id`."""
        return self._consumer.member_id

    @property
    def generation(self) -> int:
        """See :attr:`Consumer.generation`."""
        return self._consumer.generation

    def assignment(self) -> set[TopicPartition]:
        """See :meth:`Consumer.assignment`."""
        return self._consumer.assignment()

    def metrics(self) -> MemberMetrics:
        """See :meth:`Consumer.metrics`."""
        return self._consumer.metrics()

    def stop(self) -> None:
        """See :meth:`Consumer.stop`."""
        self._consumer.stop()

    async def close(self, timeout: float = 30.0, *, returns: bool = True) -> None:
        """See :meth:`Consumer.close`; cancelled, it goes on, and may be awaited again."""
        if self._close_going_on is None:
            self._is_closed = True
            work = partial(self._consumer.close, timeout, returns=returns)
            self._close_going_on = asyncio.ensure_future(self._close(work))
        await asyncio.shield(self._close_going_on)

    async def _close(self, work: Callable[[], None]) -> None:
        try:
            await self._do(work, polls=True)
        finally:
            self._closed_threads = True
            self._polling.shutdown(wait=False)
            self._calling.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        """Begin a block that ends in order at SIGTERM, as :func:`asyncio.run` does at SIGINT."""
        if self._consumer.handles_signals and is_free(signal.SIGTERM):
            with suppress(NotImplementedError):  # no loop for Unix
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._catch)
                self._task = asyncio.current_task()
        return self

    def _catch(self) -> None:
        """End the block at the next poll; a second signal cancels it where it is."""
        if self._caught and self._task is not None:
            self._task.cancel()
        self._caught = True
        self._consumer.stop()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self._consumer.end_with_error()
        try:
            await self.close()
        finally:
            if self._task is not None:
                asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        if self._caught and (error is None or isinstance(error, asyncio.CancelledError)):
            raise exit_of(signal.SIGTERM)


class _OnLoop:
    """A listener whose methods run on an event loop, called from the consumer's thread.

    It has the methods that the listener has, and no others: a consumer whose listener does not hear
    of a loss raises it.
    """

    def __init__(self, listener: Any, loop: asyncio.AbstractEventLoop):
        self._listener = listener
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[[list[TopicPartition]], None]:
        return partial(self._call, getattr(self._listener, name))

    def _call(
        self, work: Callable[[list[TopicPartition]], object], partitions: list[TopicPartition]
    ) -> None:
        async def run() -> None:
            result = work(partitions)
            if inspect.isawaitable(result):
                await result

        call = asyncio.run_coroutine_threadsafe(run(), self._loop)
        while not call.done():
            wait([call], _LOOK_S)
            if not self._loop.is_running() and not call.done():  # nothing will run it
                call.cancel()
        call.result()
