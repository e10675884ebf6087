"""Small commands on a small cluster, beside a bare Spark session that counts the same topic.

``python bench/small.py`` starts a broker with 20 groups and prints one JSON line a run: wall and
CPU seconds of the whole process tree, the baseline first, ``--repeat`` rounds of all of them. The
last lines have the least of each and its ratio to the least of the baseline.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.pipeline_cpu import measure

TOPICS = {"orders": 12, "clicks": 6}
N_GROUPS = 20
OFFSETS, PARTITIONS = "offsets.topic.num.partitions", 50
BARE = """
import json, os, sys
from pyspark.sql import SparkSession
from holdfast.local.jars import connector_jars
from holdfast.local.java import find_java
import pyspark
os.environ["JAVA_HOME"] = str(find_java().home)
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
jars = ",".join(str(jar) for jar in connector_jars(pyspark.__version__))
spark = (
    SparkSession.builder.master("local[*]").config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "true")
    .getOrCreate()
)
topic = {"__consumer_offsets": list(range(int(sys.argv[2])))}
reader = spark.read.format("kafka").option("kafka.bootstrap.servers", sys.argv[1])
print(reader.option("assign", json.dumps(topic)).load().count())
"""
COMMANDS = {
    "doctor": ("doctor", "-q"),
    "history": ("history", "-q"),
}


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=sorted(COMMANDS), action="append")
    options = parser.parse_args()
    names = options.only or list(COMMANDS)
    best: dict[str, dict[str, float]] = {}
    with small_cluster() as bootstrap:
        for _ in range(options.repeat):
            for name in ("bare", *names):
                run = seconds_of(line_of(name, bootstrap))
                print(json.dumps({"command": name, **run}), flush=True)
                least = best.setdefault(name, dict(run))
                best[name] = {key: min(value, run[key]) for key, value in least.items()}
    for name in names:
        ratio = {key: round(best[name][key] / best["bare"][key], 2) for key in best[name]}
        print(json.dumps({"command": name, "least": best[name], "to_bare": ratio}))
    return 0


def line_of(name: str, bootstrap: str) -> list[str]:
    """The command line of a name."""
    if name == "bare":
        return [sys.executable, "-c", BARE, bootstrap, str(PARTITIONS)]
    return [sys.executable, "-m", "holdfast", *COMMANDS[name], "-b", bootstrap]


def seconds_of(command: list[str]) -> dict[str, float]:
    """Seconds of a command and of everything that it starts."""
    code, told = measure(command, output=subprocess.DEVNULL)
    if code:
        raise RuntimeError(f"{command} ended with {code}")
    return {"wall_s": told["wall_seconds"], "cpu_s": told["cpu_seconds"]}


@contextmanager
def small_cluster() -> Iterator[str]:
    """A broker with N_GROUPS groups that have joined, read, committed and left."""
    from holdfast.local.broker.broker import Broker, BrokerSettings

    with Broker.start(settings=BrokerSettings(properties={OFFSETS: str(PARTITIONS)})) as broker:
        fill(broker.bootstrap)
        yield broker.bootstrap


def fill(bootstrap: str) -> None:
    """Make the topics and the groups."""
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.admin import NewTopic

    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, n, 1) for name, n in TOPICS.items()])
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for name, n in TOPICS.items():
            for i in range(20 * n):
                producer.send(name, b"x", partition=i % n)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: live(bootstrap, f"group-{i:02d}"), range(N_GROUPS)))


def live(bootstrap: str, group: str) -> None:
    """One group's life."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        *TOPICS, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    try:
        for _ in range(8):
            consumer.poll(timeout_ms=500)
            consumer.commit()
    finally:
        consumer.close()


if __name__ == "__main__":
    sys.exit(main())
