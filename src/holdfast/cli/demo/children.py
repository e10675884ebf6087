"""The programs of the demo's processes: members of its groups, and a producer.

Run as ``python -m holdfast.cli.demo.children member BOOTSTRAP TOPIC GROUP POLICY EVENT_LOG`` or
``... producer BOOTSTRAP TOPIC PARTITIONS RATE``. A member is a program of kafka-python with one
import changed, and has the name of its event log.

**Rules.** A process ends in order on SIGTERM, or when the process that started it has ended: that
one holds the other end of standard input and never writes to it, so end of file means its end. The
broker has then probably ended as well, and a client might wait for it for ever: the process has
:data:`LAST_SECONDS` left. It ignores Ctrl-C, which the parent handles.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaProducer, TopicPartition

from holdfast.cli.demo.event_log import EventLogWriter
from holdfast.cluster.signal_safe import Flag
from holdfast.fleet.tables.storage.private import open_private
from holdfast.kafka import KafkaConsumer

HEARTBEAT_MS = 300
SESSION_MS = 10_000
POLL_MS = 100
DELAY_MS = 15 * 60_000
"""Of ``deferred``, above every time for which the demo leaves a member away."""
TICK_SECONDS = 0.05
LAST_SECONDS = 15.0


def watch() -> Flag:
    """Return a flag that is set when this process should end in order."""
    stop = Flag()  # an Event may be locked by the code that its signal interrupts
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def await_parent() -> None:
        sys.stdin.read()
        stop.set()
        time.sleep(LAST_SECONDS)
        os._exit(1)

    threading.Thread(target=await_parent, name="lifeline", daemon=True).start()
    return stop


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


def member(bootstrap: str, topic: str, group: str, policy: str, event_log: str) -> None:
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


def producer(bootstrap: str, topic: str, partitions: str, rate: str) -> None:
    """Produce a steady stream to every partition until SIGTERM, and await every acknowledgement.

    ``rate`` is in records per second over all partitions.
    """
    stop = watch()
    n_partitions, per_second = int(partitions), float(rate)
    client: Any = KafkaProducer(bootstrap_servers=bootstrap, client_id="demo-producer")
    sent: list[Any] = []
    began = time.monotonic()
    while not stop.wait(TICK_SECONDS):
        due = int((time.monotonic() - began) * per_second)
        # A machine that was suspended does not catch up with a flood.
        due = min(due, len(sent) + int(per_second))
        for number in range(len(sent), due):
            value = json.dumps({"n": number, "made_at": time.time()}).encode()
            sent.append(client.send(topic, value, partition=number % n_partitions))
    client.flush()
    for acknowledged in sent:
        acknowledged.get(30)
    client.close()


if __name__ == "__main__":
    run = member if sys.argv[1] == "member" else producer
    run(*sys.argv[2:])
