"""confluent-kafka's other consumers over :class:`ConfluentConsumer`, and a patch for frameworks.

**Rules.** What confluent-kafka's classes do stays theirs; only the consumer below them is ours.

**Strategy.** The deserializing class finds our consumer next in its method resolution order. The
asyncio class makes its consumer itself, so ours takes its place. :func:`install` is for frameworks
that import confluent-kafka's classes and take none from outside.

References: confluent-kafka-python, ``DeserializingConsumer``, ``aio.AIOConsumer``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import confluent_kafka
from confluent_kafka import aio
from confluent_kafka.aio._common import AsyncLogger

from holdfast.adapters.facade.consumer import ConfluentConsumer

_CALLBACKS = ("error_cb", "throttle_cb", "stats_cb", "on_commit")


# The two differ in the return type of __exit__ alone: the original says bool or None.
class ConfluentDeserializingConsumer(  # type: ignore[misc]
    confluent_kafka.DeserializingConsumer, ConfluentConsumer
):
    """A drop-in for ``confluent_kafka.DeserializingConsumer``."""


class ConfluentAIOConsumer(aio.AIOConsumer):
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


_IN_PLACE_OF: dict[type, type] = {
    confluent_kafka.Consumer: ConfluentConsumer,
    confluent_kafka.DeserializingConsumer: ConfluentDeserializingConsumer,
    aio.AIOConsumer: ConfluentAIOConsumer,
}
_OWN = ("holdfast.", "confluent_kafka.")


def install() -> Callable[[], None]:
    """Have everybody who asks confluent-kafka for a consumer get ours.

    It replaces the classes in ``confluent_kafka``, in ``confluent_kafka.aio``, and in every loaded
    module that has one of them as a global. Classes that were derived from the originals before,
    and consumers that exist, stay as they are: call it first.

    Returns
    -------
    callable
        Puts the originals back.
    """
    changed: list[tuple[Any, str, Any]] = []
    for name, module in list(sys.modules.items()):
        is_own = name.startswith(_OWN) and name != "confluent_kafka.aio"
        if is_own or not isinstance(module, ModuleType):  # None where an import is blocked
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, type) and (ours := _IN_PLACE_OF.get(value)) is not None:
                setattr(module, key, ours)
                changed.append((module, key, value))

    def undo() -> None:
        while changed:
            module, key, value = changed.pop()
            setattr(module, key, value)

    return undo
