"""Stock members in one process, which read, work and end by their arguments.

:func:`run_members` takes a dict for each member, which has a thread of its own; a single one has
the main thread, so that its exception ends the process. SIGTERM ends all in order; if the process
that started them ends, they end at once.

=============  =================================================================================
client         ``confluent``, ``kafka-python`` or ``aiokafka``
topic, conf    the topic, and settings by the client's own names
batch, work_s  records of a batch at most, and how long the member works on it
every          only each such batch takes so long, the others a twentieth of a second
commits        ``auto`` or ``batch``: by itself, or after each batch
blocks         aiokafka: the work keeps the event loop, and with it the heartbeats
hangs_after_s  after this time from its first batch it works on one for ever
dies_after_s   after this time from its first batch it raises an uncaught exception
closes         whether it closes after such an exception
=============  =================================================================================
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.errors import KafkaError as AioKafkaError
from kafka.errors import KafkaError

ENDED = threading.Event()
FOREVER_S = 86_400.0


@dataclass
class Member:
    client: str
    topic: str
    conf: dict[str, Any]
    batch: int = 50
    work_s: float = 0.05
    every: int = 1
    commits: str = "auto"
    blocks: bool = False
    hangs_after_s: float = FOREVER_S
    dies_after_s: float = FOREVER_S
    closes: bool = True
    n_batches: int = 0
    began: float = field(default=float("inf"))
    """When the first batch was there."""

    def run(self) -> None:
        {"confluent": self._confluent, "kafka-python": self._kafka_python}.get(
            self.client, lambda: asyncio.run(self._aiokafka())
        )()

    def _takes_s(self) -> float:
        """How long the batch takes that was read just now."""
        self.n_batches += 1
        if self.n_batches == 1:
            print("reads", flush=True)
        self.began = min(self.began, time.monotonic())
        if time.monotonic() - self.began > self.hangs_after_s:
            return FOREVER_S
        return 0.05 if self.n_batches % self.every else self.work_s

    def _may_die(self) -> None:
        if time.monotonic() - self.began > self.dies_after_s:
            raise RuntimeError("a record that this program cannot process")

    def _confluent(self) -> None:
        consumer = confluent_kafka.Consumer({"log_level": 0, **self.conf})
        consumer.subscribe([self.topic])
        try:
            while not ENDED.is_set():
                if [m for m in consumer.consume(self.batch, 0.5) if m.error() is None]:
                    ENDED.wait(self._takes_s())
                    if self.commits == "batch":
                        with suppress(confluent_kafka.KafkaException):
                            consumer.commit(asynchronous=False)
                self._may_die()
        except RuntimeError:
            if self.closes:
                consumer.close()
            raise
        consumer.close()

    def _kafka_python(self) -> None:
        consumer = kafka.KafkaConsumer(self.topic, **self.conf)
        try:
            while not ENDED.is_set():
                if consumer.poll(timeout_ms=500, max_records=self.batch):
                    ENDED.wait(self._takes_s())
                    if self.commits == "batch":
                        with suppress(KafkaError):
                            consumer.commit()
                self._may_die()
        except RuntimeError:
            if self.closes:
                consumer.close()
            raise
        consumer.close()

    async def _aiokafka(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(self.topic, **self.conf)
        await consumer.start()
        try:
            while not ENDED.is_set():
                if await consumer.getmany(timeout_ms=500, max_records=self.batch):
                    await self._work(self._takes_s())
                    if self.commits == "batch":
                        with suppress(AioKafkaError):
                            await consumer.commit()
                self._may_die()
        except RuntimeError:
            if self.closes:
                await consumer.stop()
            raise
        await consumer.stop()

    async def _work(self, seconds: float) -> None:
        if self.blocks:
            ENDED.wait(seconds)
        else:
            end = time.monotonic() + seconds
            while not ENDED.is_set() and time.monotonic() < end:
                await asyncio.sleep(0.05)


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def run_members(told: Sequence[dict[str, Any]], out: str) -> None:
    """Be these members until SIGTERM; what is printed goes to a file."""
    signal.signal(signal.SIGTERM, lambda *_: ENDED.set())
    with Path(out).open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    members = [Member(**one) for one in told]
    if len(members) == 1:
        members[0].run()
        return
    threads = [threading.Thread(target=one.run, daemon=True) for one in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
