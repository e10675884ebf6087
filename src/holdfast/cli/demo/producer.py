"""The demo's producer: a steady stream to every partition.

Run as ``python -m holdfast.cli.demo.producer BOOTSTRAP TOPIC PARTITIONS RATE``. On SIGTERM it waits
until the broker has acknowledged every record.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from kafka import KafkaProducer

from holdfast.cli.demo.lifeline import watch

TICK_SECONDS = 0.05


def main(bootstrap: str, topic: str, partitions: str, rate: str) -> None:
    """Produce until SIGTERM.

    Parameters
    ----------
    partitions, rate : str
        Number of partitions; records per second over all of them.
    """
    stop = watch()
    n_partitions, per_second = int(partitions), float(rate)
    producer: Any = KafkaProducer(bootstrap_servers=bootstrap, client_id="demo-producer")
    sent: list[Any] = []
    began = time.monotonic()
    while not stop.wait(TICK_SECONDS):
        due = int((time.monotonic() - began) * per_second)
        # A machine that was suspended does not catch up with a flood.
        due = min(due, len(sent) + int(per_second))
        for number in range(len(sent), due):
            value = json.dumps({"n": number, "made_at": time.time()}).encode()
            sent.append(producer.send(topic, value, partition=number % n_partitions))
    producer.flush()
    for acknowledged in sent:
        acknowledged.get(30)
    producer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
