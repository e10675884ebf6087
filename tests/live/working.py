"""Programs that process records while their group rebalances: one shape, each client.

A program is a thread. It reads until it has ``n`` records, then it works until :meth:`go_on`, may
commit, and reads on.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, ClassVar

import confluent_kafka
from tests.live import clients
from tests.live.clients import Place
from tests.live.crew import PollingThread

from holdfast.core.machine.states import MemberState

QUICK = {
    # Only a hand-over commits here, and the loop at no time between.
    "auto.commit.interval.ms": 600_000,
    "partition.assignment.strategy": "range",
}


class Program(PollingThread):
    """One member; a subclass says of which client, and how it is read."""

    kind: ClassVar[type[clients.Client]]
    n_at_once = 3
    keys: ClassVar[dict[str, Any]] = {}

    def __init__(self, bootstrap: str, group: str, topic: str, **config: Any):
        super().__init__()
        self.group, self.topic = group, topic
        keys = {word.replace("_", "."): value for word, value in config.items()}
        self.is_manual = keys.get("enable.auto.commit") is False
        self.client: Any = self.kind(
            topic, {"bootstrap.servers": bootstrap, "group.id": group, **QUICK, **self.keys, **keys}
        )
        self.consumer = self.client.consumer
        self.client.subscribe([topic])
        self.n = 0  # read so many, and work then; 0 never
        self.n_polls = 0
        self.read: list[Place] = []
        self.in_flight: list[Place] = []
        self.works, self.raised = threading.Event(), None
        self._goes_on = threading.Event()

    def take(self) -> list[Place]:
        return self.client.poll(0.1, self.n_at_once)

    def runtime(self) -> Any:
        """Those of the member, None before it has any."""
        return self.client.runtime

    def owns(self) -> set[int]:
        """By the member: a question to librdkafka waits for a gap between two polls."""
        runtime = self.runtime()
        return set() if runtime is None else {p for _, p in runtime.member_thread.snapshot.owned}

    def is_revoking(self) -> bool:
        """Whether its member waits for it."""
        runtime = self.runtime()
        return runtime is not None and runtime.member_thread.snapshot.state is MemberState.REVOKING

    def close(self) -> None:
        self.client.close()

    def poll_once(self) -> None:
        found = self.take()
        self.n_polls += 1
        self.read += found
        if self.n and len(self.read) >= self.n and not self.works.is_set():
            self.in_flight = found
            self._work()

    def _work(self) -> None:
        self.works.set()
        self._goes_on.wait()
        if self.is_manual:
            try:
                self.client.commit()
            except Exception as error:  # the client's
                self.raised = error

    def go_on(self) -> None:
        """The work is done."""
        self._goes_on.set()

    def end(self) -> None:
        self._goes_on.set()
        self.stop()
        assert self.error is None, self.error


class Ours(Program):
    """``holdfast.Consumer``."""

    kind = clients.Consumer
    n_at_once = 1


class Confluent(Program):
    """``holdfast.confluent``, message by message."""

    kind = clients.Confluent

    def take(self) -> list[Place]:
        message = self.consumer.poll(0.1)
        good = [] if message is None or message.error() is not None else [message]
        return [(m.partition(), m.offset()) for m in good]


class ConfluentLists(Program):
    """``holdfast.confluent``, list by list."""

    kind = clients.Confluent


class KafkaPython(Program):
    """``holdfast.kafka``, list by list."""

    kind = clients.KafkaPython


class KafkaPythonLoop(KafkaPython):
    """``holdfast.kafka``, as a loop."""

    keys: ClassVar[dict[str, Any]] = {"consumer.timeout.ms": 100}

    def take(self) -> list[Place]:
        return [(r.partition, r.offset) for r in [next(self.consumer, None)] if r is not None]


class Aiokafka(Program):
    """``holdfast.aiokafka``, on a loop of its own."""

    kind = clients.Aiokafka


def committed(bootstrap: str, group: str, topic: str, n_partitions: int) -> dict[int, int]:
    """Committed offsets, -1001 for none."""
    asker = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}
    )
    wanted = [confluent_kafka.TopicPartition(topic, p) for p in range(n_partitions)]
    try:
        return {p.partition: p.offset for p in asker.committed(wanted, 60)}
    finally:
        asker.close()


def twice(read: list[Place]) -> set[Place]:
    return {place for place, n in Counter(read).items() if n > 1}
