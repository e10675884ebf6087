"""A stock member that can be held: it works on a batch and does not poll, as slow ones do."""

from __future__ import annotations

import threading
import time
from typing import Any

import confluent_kafka


class StockMember:
    """confluent-kafka's own consumer, polled by a thread of its own until it is held."""

    def __init__(self, bootstrap: str, group: str, topic: str, client_id: str, **config: Any):
        told = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": client_id,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "max.poll.interval.ms": 120_000,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        if told.get("group.protocol") != "consumer":
            told |= {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 500}
        self._consumer = confluent_kafka.Consumer(told)
        self._topic = topic
        self._held, self._end = threading.Event(), threading.Event()
        self.is_held = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self._consumer.subscribe([self._topic])
        while not self._end.is_set():
            self._consumer.poll(0.05)
            while self._held.is_set() and not self._end.is_set():
                self.is_held.set()
                time.sleep(0.02)
        self._consumer.close()

    def __enter__(self) -> StockMember:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)

    def hold(self) -> None:
        """Work on a batch: poll no more."""
        self._held.set()
        assert self.is_held.wait(60)

    def release(self) -> None:
        self._held.clear()
