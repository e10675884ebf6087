"""confluent-kafka's asyncio consumers over :class:`ConfluentConsumer`; they are there since 2.13.

**Rules.** What confluent-kafka's classes do stays their own; only the consumer below them is ours.

**Strategy.** The original makes its consumer itself, so ours takes its place. What a test has put
in the place of ``confluent_kafka.Consumer`` stays there. The deserializing class, which newer
versions have, calls the constructor of the original by name: so ours builds the deserializers
itself, with confluent-kafka's own functions.

References: confluent-kafka-python, ``aio.AIOConsumer``, ``aio.AsyncDeserializingConsumer``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from contextlib import suppress
from types import GenericAlias
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka.aio import AIOConsumer as OriginalAIOConsumer
from confluent_kafka.aio._common import AsyncLogger

from holdfast.members.drop_in.confluent.consumer import ConfluentConsumer

if TYPE_CHECKING:
    from holdfast.members.member.metrics import MemberMetrics

__all__ = ["ConfluentAIOConsumer", "OriginalAIOConsumer"]

_Original: type = confluent_kafka.cimpl.Consumer
_CALLBACKS = ("error_cb", "throttle_cb", "stats_cb", "on_commit")


class ConfluentAIOConsumer(OriginalAIOConsumer):
    """A drop-in for ``confluent_kafka.aio.AIOConsumer``.

    Parameters
    ----------
    consumer_conf : dict
        As for :class:`ConfluentConsumer`; callbacks may be coroutine functions.
    max_workers : int
        Threads of the pool that is made without ``executor``.
    executor : concurrent.futures.Executor, optional
        Runs the calls; at least two threads where callbacks call the consumer.
    """

    def __init__(
        self,
        consumer_conf: dict[str, Any],
        max_workers: int = 100,
        executor: concurrent.futures.Executor | None = None,
    ):
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

    def __holdfast_metrics__(self) -> MemberMetrics | None:
        made = self._consumer
        return made.__holdfast_metrics__() if isinstance(made, ConfluentConsumer) else None


try:
    from confluent_kafka import _serde_builder as _serdes
    from confluent_kafka.aio import AsyncDeserializingConsumer as OriginalDeserializing
except ImportError:  # confluent-kafka has it since 2.16
    pass
else:
    __all__ += ["ConfluentAsyncDeserializingConsumer", "OriginalDeserializing"]

    class ConfluentAsyncDeserializingConsumer(
        OriginalDeserializing[Any, Any], ConfluentAIOConsumer
    ):
        """A drop-in for ``confluent_kafka.aio.AsyncDeserializingConsumer``; await it.

        Parameters
        ----------
        conf : dict
            As for :class:`ConfluentConsumer`, and the deserializers or their builders.
        **kwargs
            As for :class:`ConfluentAIOConsumer`.
        """

        # As the original's: ``ConfluentAsyncDeserializingConsumer[str, dict]``.
        __class_getitem__: Any = classmethod(GenericAlias)

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
