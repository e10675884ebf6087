"""confluent-kafka's asyncio consumer over :class:`ConfluentConsumer`; it is there since 2.13.

**Rules.** What confluent-kafka's class does stays its own; only the consumer below it is ours.

**Strategy.** The original makes its consumer itself, so ours takes its place.

References: confluent-kafka-python, ``aio.AIOConsumer``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any

from confluent_kafka.aio import AIOConsumer as OriginalAIOConsumer
from confluent_kafka.aio._common import AsyncLogger

from holdfast.adapters.facade.consumer import ConfluentConsumer

__all__ = ["ConfluentAIOConsumer", "OriginalAIOConsumer"]

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
        super().__init__({"group.id": "replaced"}, max_workers, executor)
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
