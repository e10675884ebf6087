"""kafka-python's own consumer with an assignor of holdfast, polled as it has to be.

A join of this client that ends between two calls of ``poll`` is discarded, and the client joins
again (kafka-python 3.0.12, ``join_group_async``: a task that is done is replaced, and its answer is
lost). Two clients that one loop polls alternately may thus rebalance for ever. Each client here is
polled by a thread of its own, which is in ``poll`` all the time.
"""

from __future__ import annotations

import threading
from typing import Any

from kafka import KafkaConsumer
from tests.live.crew import QUICK
from tests.live.waiting import until


class Stock:
    """A member of the group from ``with`` on; it commits nothing."""

    def __init__(self, bootstrap: str, group: str, topic: str, assignor: Any, **keys: Any):
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            heartbeat_interval_ms=QUICK["heartbeat.interval.ms"],
            session_timeout_ms=QUICK["session.timeout.ms"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[assignor],
            **keys,
        )
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        # A client that leads before it knows the topic joins again.
        until(lambda: self._consumer.partitions_for_topic(topic), "the topic's metadata")

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self._consumer.poll(1000)
        except BaseException as error:  # raised where the test asks
            self._error = error

    @property
    def owns(self) -> list[int]:
        """Its partitions; an error of its thread is raised here."""
        if self._error is not None:
            raise self._error
        return sorted(tp.partition for tp in self._consumer.assignment())

    def __enter__(self) -> Stock:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._consumer.close()
