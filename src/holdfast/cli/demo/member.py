"""One member of the demo's group: a program of kafka-python with one import changed.

Run as ``python -m holdfast.cli.demo.member BOOTSTRAP TOPIC GROUP NAME JOURNAL``; SIGTERM closes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from kafka import ConsumerRebalanceListener, TopicPartition

from holdfast.cli.demo.journal import JournalWriter
from holdfast.cli.demo.lifeline import watch
from holdfast.fleet.tables.storage.private import open_private
from holdfast.kafka import KafkaConsumer

HEARTBEAT_MS = 300
SESSION_MS = 10_000
POLL_MS = 100


class _Diary(ConsumerRebalanceListener):  # type: ignore[misc] # the client has no types
    """Writes what the member owns to its journal."""

    def __init__(self, journal: JournalWriter):
        self._journal = journal

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._journal.write("assigned", (tp.partition for tp in assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._journal.write("revoked", (tp.partition for tp in revoked))

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._journal.write("lost", (tp.partition for tp in lost))


def main(bootstrap: str, topic: str, group: str, name: str, journal: str) -> None:
    """Consume until asked to stop, then leave the group."""
    stop = watch()
    with open_private(Path(journal), "a") as file:
        diary = JournalWriter(name, file)
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=name.partition(".")[0],
            auto_offset_reset="earliest",
            auto_commit_interval_ms=1_000,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=["cooperative-sticky"],
        )
        consumer.subscribe([topic], listener=_Diary(diary))
        while not stop.is_set():
            for tp, records in consumer.poll(timeout_ms=POLL_MS).items():
                offsets = [record.offset for record in records]
                diary.write("batch", [tp.partition], first=offsets[0], last=offsets[-1])
        consumer.close()
        diary.write("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
