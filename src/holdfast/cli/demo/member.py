"""One member of a group of the demo: a program of kafka-python with one import changed.

Run as ``python -m holdfast.cli.demo.member BOOTSTRAP TOPIC GROUP POLICY EVENT_LOG``; SIGTERM
closes it. The process has the name of its event log.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from kafka import ConsumerRebalanceListener, TopicPartition

from holdfast.cli.demo.event_log import EventLogWriter
from holdfast.cli.demo.lifeline import watch
from holdfast.fleet.tables.storage.private import open_private
from holdfast.kafka import KafkaConsumer

HEARTBEAT_MS = 300
SESSION_MS = 10_000
POLL_MS = 100
DELAY_MS = 15 * 60_000
"""Of ``deferred``, above every time for which the demo leaves a member away."""


class _EventRecorder(ConsumerRebalanceListener):  # type: ignore[misc] # the client has no types
    """Writes what the member owns to its event log."""

    def __init__(self, event_log: EventLogWriter):
        self._event_log = event_log

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._event_log.write("assigned", (tp.partition for tp in assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._event_log.write("revoked", (tp.partition for tp in revoked))

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._event_log.write("lost", (tp.partition for tp in lost))


def main(bootstrap: str, topic: str, group: str, policy: str, event_log: str) -> None:
    """Consume until SIGTERM, then leave the group."""
    stop = watch()
    name = Path(event_log).stem
    with open_private(Path(event_log), "a") as file:
        recorder = EventLogWriter(name, file)
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=name.partition(".")[0],
            auto_offset_reset="earliest",
            auto_commit_interval_ms=1_000,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            holdfast_policy=policy,
            scheduled_rebalance_max_delay_ms=DELAY_MS,
        )
        consumer.subscribe([topic], listener=_EventRecorder(recorder))
        while not stop.is_set():
            for tp, records in consumer.poll(timeout_ms=POLL_MS).items():
                offsets = [record.offset for record in records]
                recorder.write("batch", [tp.partition], first=offsets[0], last=offsets[-1])
        consumer.close()
        recorder.write("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
