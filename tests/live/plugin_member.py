"""One kafka-python consumer in a live group with holdfast's assignors, and an event log.

Arguments: BOOTSTRAP TOPIC GROUP NAME EVENT_LOG STRATEGY. STRATEGY is a Python expression over
the names of holdfast.members.clients.kafka.assignors. SIGTERM closes it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kafka import ConsumerRebalanceListener, KafkaConsumer

from holdfast.cli.demo.event_log import EventLogWriter
from holdfast.cli.demo.lifeline import watch
from holdfast.members.clients.kafka import assignors as kafka_assignors


def main(bootstrap, topic, group, name, event_log, strategy) -> None:
    stop = watch()
    names = {n: getattr(kafka_assignors, n) for n in kafka_assignors.__all__}
    assignors = eval(f"[{strategy}]", names)
    with Path(event_log).open("a", encoding="utf-8") as file:
        writer = EventLogWriter(name, file)

        def write(event, partitions=(), first=-1, last=-1) -> None:
            writer.write(event, [tp.partition for tp in partitions], first=first, last=last)

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned) -> None:
                write("assigned", assigned)

            def on_partitions_revoked(self, revoked) -> None:
                write("revoked", revoked)

            def on_partitions_lost(self, lost) -> None:
                write("lost", lost)

        for assignor in assignors:

            def lead(cluster, members, assign=assignor.assign):
                write("led")
                return assign(cluster, members)

            assignor.assign = lead
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=name,
            auto_offset_reset="earliest",
            session_timeout_ms=30_000,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=assignors,
        )
        consumer.subscribe([topic], listener=Listener())
        # A client that leads its first round before its subscription's metadata came joins again,
        # and forgets that join when a call of poll ends within it: it needs no join by then.
        while not consumer.partitions_for_topic(topic):
            pass
        while not stop.is_set():
            for tp, records in consumer.poll(timeout_ms=100).items():
                write("batch", [tp], records[0].offset, records[-1].offset)
        consumer.close()
        write("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
