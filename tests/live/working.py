"""Programs that work on what they have read while their group rebalances: one shape, each client.

A program is a thread. It reads until it has ``n`` records, then it works until :meth:`go_on`, may
commit, and reads on.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import confluent_kafka

from holdfast import Consumer, aiokafka, confluent, kafka
from holdfast.machine.states import MemberState

QUICK = {
    "auto.offset.reset": "earliest",
    "heartbeat.interval.ms": 300,
    "session.timeout.ms": 30_000,
    # Only a hand-over commits here, and the loop at no time between.
    "auto.commit.interval.ms": 600_000,
    "partition.assignment.strategy": "range",
}
Place = tuple[int, int]


class Program(threading.Thread):
    """One member; a subclass says how its client is called."""

    def __init__(self, bootstrap: str, group: str, topic: str, **config: Any):
        super().__init__(daemon=True)
        self.group, self.topic = group, topic
        keys = {word.replace("_", "."): value for word, value in config.items()}
        self.is_manual = keys.get("enable.auto.commit") is False
        self.consumer = self.made(
            {"bootstrap.servers": bootstrap, "group.id": group, **QUICK, **keys}
        )
        self.n = 0  # read so many, and work then; 0 never
        self.read: list[Place] = []
        self.in_hand: list[Place] = []
        self.works, self.raised = threading.Event(), None
        self.error: BaseException | None = None
        self._goes_on, self._ends = threading.Event(), threading.Event()

    def made(self, config: dict[str, Any]) -> Any:
        raise NotImplementedError

    def take(self) -> list[Place]:
        raise NotImplementedError

    def commit(self) -> None:
        self.consumer.commit()

    def parts(self) -> Any:
        """Those of the member, None before it has any."""
        return self.consumer._parts

    def owns(self) -> set[int]:
        """By the member: a question to librdkafka waits for a gap between two polls."""
        parts = self.parts()
        return set() if parts is None else {p for _, p in parts.host.standing.owned}

    def hands_over(self) -> bool:
        """Whether its member waits for it."""
        parts = self.parts()
        return parts is not None and parts.host.standing.state is MemberState.HANDING_OVER

    def close(self) -> None:
        self.consumer.close()

    def run(self) -> None:
        try:
            while not self._ends.is_set():
                found = self.take()
                self.read += found
                if self.n and len(self.read) >= self.n and not self.works.is_set():
                    self.in_hand = found
                    self._work()
        except BaseException as error:  # the test looks at it
            self.error = error
        finally:
            self.close()

    def _work(self) -> None:
        self.works.set()
        self._goes_on.wait()
        if self.is_manual:
            try:
                self.commit()
            except Exception as error:  # the client's
                self.raised = error

    def go_on(self) -> None:
        """The work is done."""
        self._goes_on.set()

    def end(self) -> None:
        """Close in order."""
        self._ends.set()
        self._goes_on.set()
        self.join(120)
        assert not self.is_alive()
        assert self.error is None, self.error


class Ours(Program):
    """``holdfast.Consumer``."""

    def made(self, config: dict[str, Any]) -> Any:
        consumer = Consumer({**config, "holdfast.handle.signals": False})
        consumer.subscribe([self.topic])
        return consumer

    def take(self) -> list[Place]:
        return [(m.partition(), m.offset()) for m in self.consumer.poll(0.1, max_records=1)]


class Confluent(Program):
    """``holdfast.confluent``, message by message."""

    def made(self, config: dict[str, Any]) -> Any:
        consumer = confluent.Consumer({**config, "log_level": 0})
        consumer.subscribe([self.topic])
        return consumer

    def parts(self) -> Any:
        seat = self.consumer._holdfast.seat
        return seat and seat.membership.parts

    def messages(self) -> list[Any]:
        message = self.consumer.poll(0.1)
        return [] if message is None else [message]

    def take(self) -> list[Place]:
        good = [m for m in self.messages() if m.error() is None]
        return [(m.partition(), m.offset()) for m in good]

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)


class ConfluentLists(Confluent):
    """``holdfast.confluent``, list by list."""

    def messages(self) -> list[Any]:
        return self.consumer.consume(3, 0.1)


class KafkaPython(Program):
    """``holdfast.kafka``, list by list."""

    def made(self, config: dict[str, Any]) -> Any:
        words = {key.replace(".", "_"): value for key, value in config.items()}
        words["partition_assignment_strategy"] = ["range"]
        return kafka.KafkaConsumer(self.topic, consumer_timeout_ms=100, **words)

    def parts(self) -> Any:
        seat = self.consumer._coordinator.seat
        return seat and seat.membership.parts

    def take(self) -> list[Place]:
        found = self.consumer.poll(100, max_records=3)
        return [(r.partition, r.offset) for records in found.values() for r in records]


class KafkaPythonLoop(KafkaPython):
    """``holdfast.kafka``, as a loop."""

    def take(self) -> list[Place]:
        return [(r.partition, r.offset) for r in [next(self.consumer, None)] if r is not None]


class Aiokafka(Program):
    """``holdfast.aiokafka``, on a loop of its own."""

    def made(self, config: dict[str, Any]) -> Any:
        self._loop = asyncio.new_event_loop()
        self._runs = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runs.start()
        words = {key.replace(".", "_"): value for key, value in config.items()}
        words["partition_assignment_strategy"] = ["range"]

        async def start() -> Any:
            consumer = aiokafka.AIOKafkaConsumer(self.topic, **words)
            await consumer.start()
            return consumer

        return self._done(start())

    def parts(self) -> Any:
        seat = self.consumer._coordinator.seat
        return seat and seat.membership.parts

    def _done(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    def take(self) -> list[Place]:
        found = self._done(self.consumer.getmany(timeout_ms=100, max_records=3))
        return [(r.partition, r.offset) for records in found.values() for r in records]

    def commit(self) -> None:
        self._done(self.consumer.commit())

    def close(self) -> None:
        self._done(self.consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._runs.join(60)
        self._loop.close()


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


def twice(*programs: Program) -> set[Place]:
    """What was read more than once."""
    return {place for place, n in Counter(p for one in programs for p in one.read).items() if n > 1}
