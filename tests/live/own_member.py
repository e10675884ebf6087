"""One holdfast.Consumer in a live group, with an event log.

Arguments: BOOTSTRAP TOPIC GROUP NAME EVENT_LOG STRATEGY MORE. STRATEGY is a design's policy, or a
value of partition.assignment.strategy; MORE has other settings as JSON. SIGTERM closes it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from holdfast import Consumer
from holdfast.cli.demo.event_log import EventLogWriter
from holdfast.cli.demo.lifeline import watch
from holdfast.members.consumer_queries import TopicPartition


def main(bootstrap, topic, group, name, event_log, strategy, more) -> None:
    stop = watch()
    with Path(event_log).open("a", encoding="utf-8") as file:
        writer = EventLogWriter(name, file)

        def write(event, partitions=(), first=-1, last=-1) -> None:
            writer.write(event, [tp.partition for tp in partitions], first=first, last=last)

        class Listener:
            def on_partitions_assigned(self, partitions) -> None:
                write("assigned", partitions)

            def on_partitions_revoked(self, partitions) -> None:
                write("revoked", partitions)

            def on_partitions_lost(self, partitions) -> None:
                write("lost", partitions)

        design = strategy in ("simple", "deferred", "incremental", "failback")
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 300,
                "holdfast.policy" if design else "partition.assignment.strategy": strategy,
                **json.loads(more),
            }
        )
        consumer.subscribe([topic], listener=Listener())
        while not stop.is_set():
            for m in consumer.poll(0.1):
                place = [TopicPartition(m.topic(), m.partition())]
                write("batch", place, m.offset(), m.offset())
        consumer.close()
        write("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
