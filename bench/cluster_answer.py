"""Answers of commands about a real cluster: wall, CPU and peak memory of the whole process tree.

``python -m bench.pipeline_fleet DUMP --commits 200000 --groups 1000 --generations 6 --members 4
--partitions 5``, then ``python -m bench.cluster_answer DUMP [--source OTHER/src] [--repeat 3]``:
starts a broker, produces the records of the dump into its offsets topic, and prints one JSON line
for each run of each command, with the code of this tree and of ``--source`` in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
from bench.pipeline_cpu import measure

COMMANDS = {
    "doctor": ("doctor",),
    "history": ("history", "--format", "csv"),
    "dump": ("dump", "-o", "{folder}/dump"),
}
OURS = Path(__file__).resolve().parent.parent / "src"


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dump", type=Path)
    parser.add_argument("--source", type=Path, action="append", default=[])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=sorted(COMMANDS), action="append")
    options = parser.parse_args()
    with filled_broker(options.dump) as bootstrap:
        for _ in range(options.repeat):
            for name in options.only or COMMANDS:
                for source in (OURS, *options.source):
                    print(json.dumps(answer(name, bootstrap, source)), flush=True)
    return 0


def answer(name: str, bootstrap: str, source: Path) -> dict[str, object]:
    """What one run of a command costs."""
    os.environ["PYTHONPATH"] = str(source.absolute())
    with tempfile.TemporaryDirectory() as folder:
        words = [word.format(folder=folder) for word in COMMANDS[name]]
        command = [sys.executable, "-m", "holdfast", *words, "-b", bootstrap, "-q"]
        code, told = measure(command, output=subprocess.DEVNULL)
    if code:
        raise RuntimeError(f"{command} ended with {code}")
    figures = {key: told[key] for key in ("wall_seconds", "cpu_seconds", "peak_mib")}
    return {"command": name, "source": "this" if source == OURS else str(source), **figures}


@contextmanager
def filled_broker(dump: Path) -> Iterator[str]:
    """A broker whose offsets topic has the records of a dump."""
    from kafka import KafkaConsumer

    from holdfast.local.broker import Broker, BrokerSettings

    settings = BrokerSettings(properties={"offsets.topic.num.partitions": "50"})
    with Broker.start(settings=settings) as broker:
        consumer = KafkaConsumer("t", bootstrap_servers=broker.bootstrap, group_id="first")
        consumer.poll(3000)  # a group makes the broker create the topic
        consumer.close()
        produce(broker.bootstrap, dump)
        yield broker.bootstrap


def produce(bootstrap: str, dump: Path, codec: str = "none") -> None:
    """Write the records of a dump into the offsets topic, in their order.

    A broker lets only Kafka's own admin client write there, and knows it by its client id.
    """
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "__admin_client",
            "compression.type": codec,
            "queue.buffering.max.messages": 10_000_000,
        }
    )
    for file in sorted((dump / "records").glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches():
            for row in batch.to_pylist():
                producer.produce(
                    "__consumer_offsets",
                    key=row["key"],
                    value=row["value"],
                    partition=row["partition"],
                    timestamp=int(row["timestamp"].timestamp() * 1000),
                )
            producer.poll(0)
    if left := producer.flush(300):
        raise RuntimeError(f"{left} records were not written")


if __name__ == "__main__":
    raise SystemExit(main())
