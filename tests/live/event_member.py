"""One member of a live group with an event log; SIGTERM closes it.

Arguments: KIND BOOTSTRAP TOPIC GROUP NAME EVENT_LOG STRATEGY MORE, where MORE is JSON. Kinds:

===========  =======================================================================================
``own``      a ``holdfast.Consumer``. STRATEGY is a design's policy, or a value of
             ``partition.assignment.strategy``; MORE has other settings
``worker``   a ``holdfast.Worker``. STRATEGY is JSON of its resources, MORE has settings
``python``   kafka-python's own consumer. STRATEGY is a Python expression over the names of
             ``holdfast.members.clients.kafka.assignors``; the log has each round that it led
===========  =======================================================================================
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer

from holdfast import Consumer, Worker
from holdfast.cli.demo.event_log import EventLogWriter
from holdfast.cli.demo.processes import watch
from holdfast.members.clients.kafka import assignors as kafka_assignors

DESIGNS = ("simple", "deferred", "incremental", "failback")


class EventLog(ConsumerRebalanceListener):
    """A listener of each kind, which writes what it is notified of."""

    def __init__(self, writer: EventLogWriter):
        self._writer = writer

    def write(self, event: str, numbers: Iterable[int] = (), first: int = -1, last: int = -1):
        self._writer.write(event, list(numbers), first=first, last=last)

    def on_partitions_assigned(self, partitions: Any) -> None:
        self.write("assigned", (tp.partition for tp in partitions))

    def on_partitions_revoked(self, partitions: Any) -> None:
        self.write("revoked", (tp.partition for tp in partitions))

    def on_partitions_lost(self, partitions: Any) -> None:
        self.write("lost", (tp.partition for tp in partitions))

    def on_assigned(self, resources: Any) -> None:
        self.write("assigned", (resource.number for resource in resources))

    def on_revoked(self, resources: Any) -> None:
        self.write("revoked", (resource.number for resource in resources))

    def on_lost(self, resources: Any) -> None:
        self.write("lost", (resource.number for resource in resources))


def own(config: dict[str, Any], topic: str, strategy: str, event_log: EventLog, stop: Any) -> None:
    key = "holdfast.policy" if strategy in DESIGNS else "partition.assignment.strategy"
    consumer = Consumer({"auto.offset.reset": "earliest", key: strategy, **config})
    consumer.subscribe([topic], listener=event_log)
    while not stop.is_set():
        for m in consumer.poll(0.1):
            event_log.write("batch", [m.partition()], m.offset(), m.offset())
    consumer.close()


def worker(config: dict[str, Any], _: str, resources: str, event_log: EventLog, stop: Any) -> None:
    with Worker(config, json.loads(resources), event_log) as made:
        while not stop.wait(0.1):
            assert made.generation >= -1


def python(config: dict[str, Any], topic: str, strategy: str, log: EventLog, stop: Any) -> None:
    names = {n: getattr(kafka_assignors, n) for n in kafka_assignors.__all__}
    assignors = eval(f"[{strategy}]", names)
    for assignor in assignors:

        def lead(cluster, members, assign=assignor.assign):
            log.write("led")
            return assign(cluster, members)

        assignor.assign = lead
    words = {key.replace(".", "_"): value for key, value in config.items()}
    own_words = {"auto_offset_reset": "earliest", "partition_assignment_strategy": assignors}
    consumer = KafkaConsumer(**words, **own_words)
    consumer.subscribe([topic], listener=log)
    # A client that leads its first round before its subscription's metadata came joins again,
    # and forgets that join when a call of poll ends within it: it needs no join by then.
    while not consumer.partitions_for_topic(topic):
        pass
    while not stop.is_set():
        for tp, records in consumer.poll(timeout_ms=100).items():
            log.write("batch", [tp.partition], records[0].offset, records[-1].offset)
    consumer.close()


def main(kind, bootstrap, topic, group, name, path, strategy, more) -> None:
    stop = watch()
    config = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": name}
    config |= {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 300, **json.loads(more)}
    kinds: dict[str, Callable[..., None]] = {"own": own, "worker": worker, "python": python}
    with Path(path).open("a", encoding="utf-8") as file:
        event_log = EventLog(EventLogWriter(name, file))
        kinds[kind](config, topic, strategy, event_log, stop)
        event_log.write("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
