"""One member of the live group of ``bounce.py``: it logs its batches and callbacks.

``python bench/bounce_member.py '{"kind": ..., "name": ..., "event_log": ..., ...}'``. A line of the
event log is ``[seconds, "read", partition, first offset, last offset]`` or ``[seconds, "assigned" |
"revoked" | "lost" | "joins" | "closed", partitions]``. State is rebuilt for a partition only when
this process does not hold it already. The member joins when standard input has a line, or ends.
SIGTERM closes the member, SIGKILL does not.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.05
MOST_RECORDS = 5000
OURS = ("eager", "simple", "deferred", "incremental", "failback", "damped")
DROP_INS = tuple(
    f"{client}-ours-{policy}"
    for client in ("confluent", "aiokafka", "kafka-python")
    for policy in ("simple", "deferred")
)
"""``holdfast.confluent`` and its kin, the same program with one import changed."""
KINDS = (
    *OURS,
    *DROP_INS,
    "confluent-range",
    "confluent-coop",
    "confluent-848",
    "kafka-python-range",
    "kafka-python-coop",
    "aiokafka-range",
)


class EventRecorder:
    """What happened to this member; also its listener, and its application."""

    def __init__(self, path: str, restore_seconds: float, work_seconds: float):
        self._file = Path(path).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115 (to the end)
        self._restore_seconds = restore_seconds
        self._work_seconds = work_seconds
        self._state: set[int] = set()
        self._given_up: set[int] = set()
        self.over = False
        signal.signal(signal.SIGTERM, self._end)

    def ready(self) -> None:
        """Wait until the group may be joined: a line of standard input, or its end."""
        sys.stdin.readline()
        self.write("joins", [])

    def _end(self, *_: object) -> None:
        self.over = True

    def write(self, what: str, *more: object) -> None:
        """Add a line."""
        self._file.write(json.dumps([time.time(), what, *more]) + "\n")

    def process(self, records: Iterable[tuple[int, int]]) -> None:
        """Note the (partition, offset) of a batch, and work on it."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for partition, offset in records:
            first.setdefault(partition, offset)
            last[partition] = offset
        for partition, offset in first.items():
            self.write("read", partition, offset, last[partition])
        time.sleep(self._work_seconds)

    def on_partitions_assigned(self, partitions: Iterable[Any]) -> None:
        """Rebuild the state of new partitions."""
        numbers = {p.partition for p in partitions}
        self.write("assigned", sorted(numbers))
        time.sleep(self._restore_seconds * len(numbers - self._state))
        self._state -= self._given_up - numbers
        self._state |= numbers
        self._given_up.clear()

    def on_partitions_revoked(self, partitions: Iterable[Any]) -> None:
        """Their state is kept until something else is assigned: an eager client gives up all."""
        numbers = {p.partition for p in partitions}
        self.write("revoked", sorted(numbers))
        self._given_up |= numbers

    def on_partitions_lost(self, partitions: Iterable[Any]) -> None:
        """As if revoked."""
        numbers = {p.partition for p in partitions}
        self.write("lost", sorted(numbers))
        self._given_up |= numbers


def run_ours(task: dict[str, Any], recorder: EventRecorder) -> None:
    """holdfast.Consumer."""
    from holdfast import Consumer

    config = {**task["kafka"], **_policy(task)}
    with Consumer(config) as consumer:
        recorder.ready()
        consumer.subscribe([task["topic"]], recorder)
        while not recorder.over:
            messages = consumer.poll(POLL_SECONDS, MOST_RECORDS)
            recorder.process([(m.partition(), m.offset()) for m in messages])


def _policy(task: dict[str, Any]) -> dict[str, Any]:
    """Our keys: the last word of the kind is the policy."""
    return {
        "holdfast.policy": task["kind"].rpartition("-")[2],
        "scheduled.rebalance.max.delay.ms": task.get("delay_ms", 20_000),
    }


def run_confluent(task: dict[str, Any], recorder: EventRecorder) -> None:
    """confluent_kafka.Consumer, or holdfast's."""
    from confluent_kafka import Consumer

    coop = task["kind"].endswith("coop")
    config = dict(task["kafka"])
    if task["kind"] in DROP_INS:
        from holdfast.confluent import Consumer  # type: ignore[assignment]

        config |= _policy(task)
    elif task["kind"].endswith("848"):
        config["group.protocol"] = "consumer"
    else:
        config["partition.assignment.strategy"] = "cooperative-sticky" if coop else "range"
    consumer = Consumer(config)
    recorder.ready()
    consumer.subscribe(
        [task["topic"]],
        on_assign=lambda _, parts: recorder.on_partitions_assigned(parts),
        on_revoke=lambda _, parts: recorder.on_partitions_revoked(parts),
        on_lost=lambda _, parts: recorder.on_partitions_lost(parts),
    )
    while not recorder.over:
        messages = consumer.consume(MOST_RECORDS, POLL_SECONDS)
        recorder.process([(m.partition(), m.offset()) for m in messages if m.error() is None])
    consumer.close()


def run_kafka_python(task: dict[str, Any], recorder: EventRecorder) -> None:
    """kafka.KafkaConsumer with its own assignors, or holdfast's."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc] # the client has no types
        on_partitions_assigned = staticmethod(recorder.on_partitions_assigned)
        on_partitions_revoked = staticmethod(recorder.on_partitions_revoked)
        on_partitions_lost = staticmethod(recorder.on_partitions_lost)

    coop = task["kind"].endswith("coop")
    if task["kind"] in DROP_INS:
        from holdfast.kafka import KafkaConsumer

        strategy = _spelled(_policy(task))
    else:
        kind = CooperativeStickyAssignor if coop else RangePartitionAssignor
        strategy = {"partition_assignment_strategy": [kind]}
    consumer = KafkaConsumer(**_spelled(task["kafka"]), **strategy)
    recorder.ready()
    consumer.subscribe([task["topic"]], listener=Listener())
    while not recorder.over:
        found = consumer.poll(int(POLL_SECONDS * 1000), max_records=MOST_RECORDS)
        recorder.process([(tp.partition, r.offset) for tp, rs in found.items() for r in rs])
    consumer.close()


def run_aiokafka(task: dict[str, Any], recorder: EventRecorder) -> None:
    """aiokafka.AIOKafkaConsumer, whose default is eager, or holdfast's."""
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

    more = {}
    if task["kind"] in DROP_INS:
        from holdfast.aiokafka import AIOKafkaConsumer

        more = _spelled(_policy(task))

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc] # the client has no types
        on_partitions_assigned = staticmethod(recorder.on_partitions_assigned)
        on_partitions_revoked = staticmethod(recorder.on_partitions_revoked)

    async def consume() -> None:
        recorder.ready()
        consumer = AIOKafkaConsumer(**_spelled(task["kafka"]), **more)
        consumer.subscribe([task["topic"]], listener=Listener())
        await consumer.start()
        while not recorder.over:
            found = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
            recorder.process([(tp.partition, r.offset) for tp, rs in found.items() for r in rs])
        await consumer.stop()

    asyncio.run(consume())


def _spelled(config: dict[str, Any]) -> dict[str, Any]:
    """Kafka's keys as the Python clients write them."""
    return {key.replace(".", "_"): value for key, value in config.items()}


RUN: dict[str, Callable[[dict[str, Any], EventRecorder], None]] = {
    **dict.fromkeys(OURS, run_ours),
    "confluent-range": run_confluent,
    "confluent-coop": run_confluent,
    "confluent-848": run_confluent,
    "kafka-python-range": run_kafka_python,
    "kafka-python-coop": run_kafka_python,
    "aiokafka-range": run_aiokafka,
    **{kind: run_confluent for kind in DROP_INS if kind.startswith("confluent")},
    **{kind: run_aiokafka for kind in DROP_INS if kind.startswith("aiokafka")},
    **{kind: run_kafka_python for kind in DROP_INS if kind.startswith("kafka")},
}


def main() -> None:
    """Run until SIGTERM."""
    task = json.loads(sys.argv[1])
    recorder = EventRecorder(task["event_log"], task["restore"], task["work"])
    RUN[task["kind"]](task, recorder)
    recorder.write("closed", [])


if __name__ == "__main__":
    main()
