"""Measure ``holdfast lag`` of a live cluster: against Kafka's own tool, and against the pipeline.

``python bench/lag.py`` starts a broker with one group of 24 partitions and runs ``holdfast lag``
and ConsumerGroupCommand alternately, ``--repeat`` times. ``--crossing 100 1000`` makes that many
groups instead, of ``--partitions`` each, and runs ``holdfast lag`` of all of them by the
coordinators and, with ``-o``, by the pipeline. One JSON line a run: wall and CPU seconds of the
process tree; the last line has the median of each, and the ratio of the first to the second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.pipeline_cpu import measure
from tests.live.kinds import TOOLS, class_path
from tests.local.programs import java

TOPIC = "measured"


def fill(bootstrap: str, n_groups: int, n_partitions: int) -> None:
    """Create a topic, and groups that have committed in every partition of it."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, n_partitions, 1)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(10 * n_partitions):
        producer.produce(TOPIC, value=b"x", partition=i % n_partitions)
    producer.flush(60)

    def commit(number: int) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": f"g{number}", "log_level": 0}
        consumer = Consumer(settings)
        commits = [TopicPartition(TOPIC, i, i % 10) for i in range(n_partitions)]
        for pause_s in (1, 2, 4, 8, 0):
            try:
                consumer.commit(offsets=commits, asynchronous=False)
                break
            except KafkaException as error:  # a new coordinator has to load first
                if not error.args[0].retriable() or not pause_s:
                    raise
                time.sleep(pause_s)
        consumer.close()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(commit, range(n_groups)))


def run(name: str, command: list[str], **about: int) -> dict[str, float]:
    """Run a command, and print what it took."""
    code, told = measure(command, output=subprocess.DEVNULL)
    if code:
        raise RuntimeError(f"{command} ended with {code}")
    took = {"wall_s": told["wall_seconds"], "cpu_s": told["cpu_seconds"]}
    print(json.dumps({"command": name, **about, **took}), flush=True)
    return took


def compare(first: list[str], second: list[str], repeat: int, **about: int) -> None:
    """Run two commands alternately, and print their medians and ratio."""
    found: dict[str, list[dict[str, float]]] = {"first": [], "second": []}
    for _ in range(repeat):
        for name, command in (("first", first), ("second", second)):
            found[name].append(run(name, command, **about))
    median = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in found.items()
    }
    ratio = {key: round(median["first"][key] / median["second"][key], 2) for key in median["first"]}
    print(json.dumps({"median": median, "ratio": ratio, **about}), flush=True)


def main() -> int:
    """Measure, and print."""
    from holdfast.local.broker import Broker

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--crossing", type=int, nargs="*", default=[])
    parser.add_argument("--partitions", type=int, default=24)
    options = parser.parse_args()
    holdfast = [sys.executable, "-m", "holdfast", "lag", "-q", "-b"]
    for n_groups in options.crossing or [1]:
        with Broker.start() as broker, tempfile.TemporaryDirectory() as folder:
            at = broker.bootstrap
            fill(at, n_groups, options.partitions)
            if options.crossing:
                asked = [*holdfast, at, "--format", "csv"]
                other = [*asked, "-o", f"{folder}/tables"]
                for _ in range(options.repeat):
                    compare(asked, other, 1, groups=n_groups, partitions=options.partitions)
                    other[-1] += "x"
                continue
            asked = [*holdfast, at, "--group", "g0"]
            tool = java(
                class_path(),
                TOOLS["consumer"],
                "--bootstrap-server",
                at,
                "--describe",
                "--group",
                "g0",
            )
            compare(asked, tool, options.repeat, partitions=options.partitions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
