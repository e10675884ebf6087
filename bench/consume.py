"""Throughput and memory of our consumers beside the clients that they replace, as JSON lines.

``python bench/consume.py [--records 1000000] [--size 100] [--batch 0,500,5000] [--repeat 5]``. The
script starts a broker and fills it once. The clients take turns; every run is a new process and a
new group, and reads all records. A batch of 0 is one record a call: ``poll()`` of confluent-kafka
and of ``holdfast.confluent``, iteration of aiokafka, of kafka-python and of ours like them. The
clock runs from the first batch to the last record, so the join does not count; CPU and the largest
resident size are those of the whole process. The last line of a batch size compares: records per
second of the medians, and memory of the largest runs.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

ORIGINALS = {
    "holdfast": "confluent",
    "facade": "confluent",
    "holdfast.aiokafka": "aiokafka",
    "holdfast.kafka": "kafka-python",
}
"""Each of our consumers, and the client beside which it is measured."""
CLIENTS = (*dict.fromkeys(ORIGINALS.values()), *ORIGINALS)
TOPIC = "records"
LIMIT_SECONDS = 120.0


class OfKafkaPython:
    """A consumer of kafka-python, or holdfast's, that returns lists."""

    def __init__(self, kind: Any, bootstrap: str, group: str):
        self._consumer = kind(
            TOPIC, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
        )
        self.close = self._consumer.close

    def read(self, seconds: float, records: int) -> list[Any]:
        """At most so many records."""
        return [r for b in self._consumer.poll(1000 * seconds, records).values() for r in b]

    def __call__(self, seconds: float) -> Any:
        """One record."""
        return next(self._consumer)


class OfAiokafka:
    """A consumer of aiokafka, or one of ours like it, on a loop that runs while it reads."""

    def __init__(self, kind: Any, bootstrap: str, group: str):
        self._loop = asyncio.new_event_loop()
        self._consumer: Any = None
        self._loop.run_until_complete(self._open(kind, bootstrap, group))

    async def _open(self, kind: Any, bootstrap: str, group: str) -> None:
        self._consumer = kind(
            TOPIC, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
        )
        await self._consumer.start()

    def read(self, seconds: float, records: int) -> list[Any]:
        """At most so many records."""
        found = self._consumer.getmany(timeout_ms=1000 * seconds, max_records=records)
        return [r for b in self._loop.run_until_complete(found).values() for r in b]

    def read_singly(self, n: int, n_records: int) -> int:
        """The rest by ``async for``; return how many there are then."""
        return self._loop.run_until_complete(self._read_singly(n, n_records))

    async def _read_singly(self, n: int, n_records: int) -> int:
        async for _ in self._consumer:
            n += 1
            if n >= n_records:
                break
        return n

    def close(self) -> None:
        """Stop it, and end the loop."""
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


def others(client: str, bootstrap: str, group: str) -> OfKafkaPython | OfAiokafka | None:
    """A consumer that is no ``confluent_kafka.Consumer`` and not ours, None for the rest."""
    if client in ("aiokafka", "holdfast.aiokafka"):
        kind = importlib.import_module(client).AIOKafkaConsumer
        return OfAiokafka(kind, bootstrap, group)
    if client in ("kafka-python", "holdfast.kafka"):
        kind = importlib.import_module(client.replace("kafka-python", "kafka")).KafkaConsumer
        return OfKafkaPython(kind, bootstrap, group)
    return None


def opened(client: str, bootstrap: str, group: str) -> tuple[Any, Any]:
    """The client's ``poll(seconds, records)`` and ``close``, subscribed."""
    config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    if client == "holdfast":
        from holdfast import Consumer

        ours = Consumer(config)
        ours.subscribe([TOPIC])
        return ours.poll, ours.close
    if client == "facade":
        from holdfast.confluent import Consumer as Bare
    else:
        from confluent_kafka import Consumer as Bare

    bare = Bare(config)
    bare.subscribe([TOPIC])
    return lambda seconds, records: bare.consume(records, seconds), bare.close


def read_all(client: str, bootstrap: str, n_records: int, batch: int) -> dict[str, Any]:
    """Read everything in this process; one record a call if ``batch`` is 0."""
    group = f"{client}-{uuid.uuid4().hex}"
    other = others(client, bootstrap, group)
    poll, close = (other.read, other.close) if other else opened(client, bootstrap, group)
    give_up = time.monotonic() + LIMIT_SECONDS
    first = poll(1.0, batch or 1)
    while not first and time.monotonic() < give_up:
        first = poll(1.0, batch or 1)
    n, n_batches, began, cpu = len(first), 1, time.perf_counter(), time.process_time()
    if batch == 0 and isinstance(other, OfAiokafka):
        n = n_batches = other.read_singly(n, n_records)
    elif batch == 0 and other is not None:
        n = n_batches = read_singly(other, n, n_records, give_up)
    elif batch == 0:
        n = n_batches = read_singly(close.__self__.poll, n, n_records, give_up)
    while n < n_records and time.monotonic() < give_up:
        n += len(poll(1.0, batch))
        n_batches += 1
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    close()
    rest = n - len(first)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "client": client,
        "batch": batch,
        "records": n,
        "polls": n_batches,
        "seconds": round(seconds, 3),
        "records_per_second": round(rest / seconds),
        "cpu_seconds": round(cpu, 3),
        "max_rss_mib": round(usage.ru_maxrss / 1024, 1),
    }


def read_singly(poll: Any, n: int, n_records: int, give_up: float) -> int:
    """Read one record a call; return how many there are."""
    while n < n_records and time.monotonic() < give_up:
        for _ in range(min(1_000, n_records - n)):
            if poll(1.0) is not None:
                n += 1
    return n


def fill(bootstrap: str, n_records: int, size: int, n_partitions: int) -> None:
    """Make the topic and write the records, evenly."""
    import confluent_kafka
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, n_partitions, 1)]).values():
        future.result(60)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    value = b"x" * size
    for i in range(n_records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=i % n_partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if i % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the broker did not take all records")


def run(client: str, bootstrap: str, n_records: int, batch: int) -> dict[str, Any]:
    """Read everything in a process of its own."""
    command = [sys.executable, __file__, "--read", client, "--bootstrap", bootstrap]
    command += ["--records", str(n_records), "--batch", str(batch)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=2 * LIMIT_SECONDS)
    result: dict[str, Any] = json.loads(done.stdout)
    if result["records"] < n_records:
        raise SystemExit(f"{client} read {result['records']} of {n_records} records")
    return result


def compare(runs: list[dict[str, Any]], ours: str, batch: int) -> dict[str, Any]:
    """Medians of one of ours and of its original, side by side."""
    bare = ORIGINALS[ours]
    pair = (bare, ours)
    by = {c: [r for r in runs if r["client"] == c and r["batch"] == batch] for c in pair}
    speed = {c: statistics.median(r["records_per_second"] for r in by[c]) for c in pair}
    cpu = {c: statistics.median(r["cpu_seconds"] for r in by[c]) for c in pair}
    records = by[bare][0]["records"]
    size = {c: max(r["max_rss_mib"] for r in by[c]) for c in pair}
    return {
        "batch": batch,
        "records_per_second": speed,
        "of_bare_percent": round(100 * speed[ours] / speed[bare], 1),
        "cpu_seconds": cpu,
        "cpu_microseconds_per_record": {c: round(1e6 * cpu[c] / records, 3) for c in pair},
        "max_rss_mib": size,
        "above_bare_mib": round(size[ours] - size[bare], 1),
    }


def versions() -> dict[str, Any]:
    """Versions of the packages and the machine."""
    import confluent_kafka

    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, check=False, capture_output=True, text=True).stdout.strip()
    return {
        "commit": commit,
        "python": platform.python_version(),
        "confluent_kafka": confluent_kafka.version()[0],
        "librdkafka": confluent_kafka.libversion()[0],
        "cpus": os.cpu_count(),
    }


def main() -> None:
    """Fill a broker, run one client after the other, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a record")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--batch", default="0,500,5000", help="records a call, one or more")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="which, one or more")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--bootstrap", help="with --read: the broker to read from")
    parser.add_argument("--read", choices=CLIENTS, help="read in this process (for our own use)")
    options = parser.parse_args()
    batches = [int(b) for b in options.batch.split(",")]
    if options.read:
        found = read_all(options.read, options.bootstrap, options.records, batches[0])
        print(json.dumps(found), flush=True)
        return
    from holdfast.local.broker import Broker, BrokerSettings

    print(json.dumps(versions()), flush=True)
    properties = {"group.initial.rebalance.delay.ms": "0"}
    with Broker.start(settings=BrokerSettings(properties=properties)) as broker:
        fill(broker.bootstrap, options.records, options.size, options.partitions)
        for batch in batches:
            runs = []
            clients = [c for c in options.clients.split(",") if batch or c != "holdfast"]
            for _ in range(options.repeat):
                for client in clients:
                    runs.append(run(client, broker.bootstrap, options.records, batch))
                    print(json.dumps(runs[-1]), flush=True)
            for ours in ORIGINALS.keys() & set(clients):
                print(json.dumps(compare(runs, ours, batch)), flush=True)


if __name__ == "__main__":
    main()
