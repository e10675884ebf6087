"""confluent-kafka's asyncio consumers, which exist since 2.13, over :class:`ConfluentConsumer`.

**Rules.** The behaviour is that of confluent-kafka's classes, except for the consumer below them
and for cancelled awaits, which lose nothing. A poll of a member whose await is cancelled ends at
once. Its records go back, and the next poll returns them. A close leaves the group, so that no
member owns partitions without reading them.

**Strategy.** The original makes its consumer itself, which is then replaced. A mock that replaces
``confluent_kafka.Consumer`` stays. The deserializing class of newer versions calls the
constructor of the original by name: so the class here builds the deserializers itself, with
confluent-kafka's own functions. The original deserializes after a poll, and loses the records of a
cancelled deserializer; the class here deserializes inside the poll.

References: confluent-kafka-python, ``aio.AIOConsumer``, ``aio.AsyncDeserializingConsumer``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import GenericAlias
from typing import TYPE_CHECKING, Any, TypeVar

import confluent_kafka
from confluent_kafka import KafkaException, Message, TopicPartition
from confluent_kafka.aio import AIOConsumer as OriginalAIOConsumer
from confluent_kafka.aio._common import AsyncLogger

from holdfast.members.clients.confluent.consumer import (
    ConfluentConsumer,
    call_lock_of,
    until_abandoned,
)
from holdfast.members.clients.confluent.state import ConsumerState
from holdfast.members.clients.librdkafka.recreation import CALLER

if TYPE_CHECKING:
    from holdfast.members.metrics import MemberMetrics

_Original: type = confluent_kafka.cimpl.Consumer
_T = TypeVar("_T")
_CALLBACKS = ("error_cb", "throttle_cb", "stats_cb", "on_commit")


class _CancellablePoll:
    """One poll in a thread of the pool, whose await on the loop may be cancelled."""

    def __init__(self, consumer: ConfluentConsumer):
        self._consumer = consumer
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._result: Any = None

    def read(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make the call, in a thread; records that no caller waits for go back."""
        with call_lock_of(self._consumer):
            result = until_abandoned(
                self._consumer, lambda: self._is_abandoned, lambda: call(*args, **kwargs)
            )
            with self._lock:
                self._result = result
                if not self._is_abandoned:
                    return result
            self.go_back()
            return None

    def abandon(self) -> bool:
        """Stop waiting, on the loop; return whether records were found that no caller has."""
        with self._lock:
            self._is_abandoned = True
            return bool(self._result)

    def go_back(self) -> None:
        """Have the next poll start at the first of the found records, in a thread."""
        result = [self._result] if isinstance(self._result, Message) else self._result or ()
        first: dict[tuple[Any, Any], Any] = {}
        for message in result:
            if message.error() is None:
                first.setdefault((message.topic(), message.partition()), message.offset())
        with call_lock_of(self._consumer):
            for (topic, partition), offset in first.items():
                with suppress(KafkaException):  # it was unassigned
                    self._consumer.seek(TopicPartition(topic, partition, offset))


class ConfluentAIOConsumer(OriginalAIOConsumer):
    """A drop-in for ``confluent_kafka.aio.AIOConsumer``.

    Parameters
    ----------
    consumer_conf : dict
        As for :class:`holdfast.confluent.Consumer`; callbacks may be coroutine functions.
    max_workers : int
        Threads of the pool, which is made if ``executor`` is not given.
    executor : concurrent.futures.Executor, optional
        Runs the calls; needs at least two threads if callbacks call the consumer.
    """

    def __init__(
        self,
        consumer_conf: dict[str, Any],
        max_workers: int = 100,
        executor: concurrent.futures.Executor | None = None,
    ):
        self._undelivered: deque[_CancellablePoll] = deque()
        kind: object = confluent_kafka.Consumer
        if not (isinstance(kind, type) and issubclass(kind, _Original)):  # a mock, say
            OriginalAIOConsumer.__init__(self, consumer_conf, max_workers, executor)
            return
        OriginalAIOConsumer.__init__(self, {"group.id": "replaced"}, max_workers, executor)
        unused = self._consumer
        loop = asyncio.get_running_loop()
        config = dict(consumer_conf)
        for name in _CALLBACKS:
            if name in config:
                config[name] = self._wrap_callback(loop, config[name])
        if "logger" in config:
            config["logger"] = AsyncLogger(loop, config["logger"])
        self._consumer = ConfluentConsumer(config)
        unused.close()

    async def _call(self, blocking_task: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with suppress(IndexError):
                while True:
                    self._undelivered.popleft().go_back()
            return blocking_task(*args, **kwargs)

        if (state := self._state()) is not None:
            state.calls.process.check()  # a fork has none of the pool's threads
        return await super()._call(call, *args, **kwargs)

    def _state(self) -> ConsumerState | None:
        consumer = self._consumer
        return consumer._holdfast if isinstance(consumer, ConfluentConsumer) else None

    async def __aexit__(self, *_: object) -> None:
        if (state := self._state()) is None or state.calls.process.is_current():
            await self.close()

    async def poll(self, *args: Any, **kwargs: Any) -> Message | None:
        """Return one message, as the original does."""
        return await self._read(self._consumer.poll, *args, **kwargs)

    async def consume(self, *args: Any, **kwargs: Any) -> list[Message]:
        """Return a list of messages, as the original does."""
        return await self._read(self._consumer.consume, *args, **kwargs)

    async def close(self, *args: Any, **kwargs: Any) -> None:
        """Leave the group and close; once begun it completes, even if its await is cancelled.

        In a callback it takes effect when the call that waits for the callback returns. ``returns``
        as for :meth:`holdfast.Consumer.close`.
        """
        if CALLER is not None and CALLER.get() and self._state() is not None:
            await self._call(self._consumer.close, *args, **kwargs)
            asyncio.get_running_loop().run_in_executor(None, self._close_pool)
            return
        try:
            await super().close(*args, **kwargs)
        except asyncio.CancelledError:
            # The pool drops a call that no thread of it has taken yet, and takes no other one.
            if isinstance(self._consumer, ConfluentConsumer):
                close = partial(self._consumer.close, *args, **kwargs)
                threading.Thread(target=close).start()
            raise

    def _close_pool(self) -> None:
        """Wait for a close that a callback has requested; its callbacks have a pool."""
        self._consumer.close()
        self._closed = True
        if self._owns_executor:
            self.executor.shutdown()

    async def _read(self, call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        result: _T
        if not isinstance(self._consumer, ConfluentConsumer):  # a mock, say
            result = await self._call(call, *args, **kwargs)
            return await self._prepared(result)
        reading = _CancellablePoll(self._consumer)
        try:
            result = await self._call(reading.read, call, *args, **kwargs)
            return await self._prepared(result)
        except asyncio.CancelledError:
            if reading.abandon():
                self._undelivered.append(reading)
            raise

    async def _prepared(self, result: _T) -> _T:
        """Return the result of a poll as the application gets it; awaited by the poll."""
        return result

    def __holdfast_metrics__(self) -> MemberMetrics | None:
        consumer = self._consumer
        return consumer.__holdfast_metrics__() if isinstance(consumer, ConfluentConsumer) else None


REPLACEMENTS: dict[type, type] = {OriginalAIOConsumer: ConfluentAIOConsumer}

try:
    from confluent_kafka import _serde_builder as _serdes
    from confluent_kafka.aio import AsyncDeserializingConsumer as OriginalDeserializing
except ImportError:  # confluent-kafka has it since 2.16
    pass
else:

    class ConfluentAsyncDeserializingConsumer(
        OriginalDeserializing[Any, Any], ConfluentAIOConsumer
    ):
        """A drop-in for ``confluent_kafka.aio.AsyncDeserializingConsumer``; await it.

        Parameters
        ----------
        conf : dict
            As for :class:`holdfast.confluent.Consumer`, with the deserializers or their builders.
        **kwargs
            As for :class:`holdfast.confluent.AIOConsumer`.
        """

        # As the original's: ``ConfluentAsyncDeserializingConsumer[str, dict]``.
        __class_getitem__: Any = classmethod(GenericAlias)

        async def _prepared(self, result: Any) -> Any:
            for message in result if isinstance(result, list) else [result]:
                if message is not None and message.error() is None:
                    await super()._deserialize(message)
            return result

        async def _deserialize(self, message: Any) -> Any:
            """Return the message: it was deserialized before the poll ended."""
            return message

        async def __init__(  # type: ignore[misc]  # confluent-kafka makes it a coroutine
            self, conf: dict[str, Any], **kwargs: Any
        ):
            wanted, config = _serdes.pop_serde_props(conf, "key.deserializer", "value.deserializer")
            built, owned, config = await _serdes.async_build_serdes(wanted, config)
            self._owned_serdes = owned
            self._key_deserializer, self._value_deserializer = built
            try:
                ConfluentAIOConsumer.__init__(self, config, **kwargs)
                resolver = _serdes.AsyncSharedClusterIdResolver(self.cluster_id)
                _serdes.propagate_async_cluster_id_resolver(resolver, built)
            except BaseException:
                self._owned_serdes = []
                with suppress(Exception):  # the first error is the one to raise
                    await _serdes.async_close_serdes(owned)
                raise

    REPLACEMENTS[OriginalDeserializing] = ConfluentAsyncDeserializingConsumer
