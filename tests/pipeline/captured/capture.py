"""How the files beside this one were made: groups that lived on a real Kafka 4.3.1, and its log.

``python tests/pipeline/captured/capture.py``. Every member is a process of its own (librdkafka);
``truth.json`` says who was told to do what, ``broker.log`` is what the group coordinator logged at
INFO in the layout that Kafka ships, the rest is a dump.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewPartitions, NewTopic

from holdfast.cluster.cluster import LiveCluster
from holdfast.fleet.pipeline.ingest.dump import write_log
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC
from holdfast.local.broker import broker as brokers

HERE = Path(__file__).parent
MEMBER = """
import json, queue, sys, threading
from confluent_kafka import Consumer
said = queue.Queue()
def listen():
    for line in sys.stdin:
        said.put(json.loads(line))
    said.put(None)
threading.Thread(target=listen, daemon=True).start()
conf, topics = json.loads(sys.argv[1]), json.loads(sys.argv[2])
consumer = Consumer(conf)
consumer.subscribe(topics)
while True:
    message = consumer.poll(0.1)
    if message is not None and message.error() is None:
        consumer.commit(message=message, asynchronous=False)
    try:
        told = said.get_nowait()
    except queue.Empty:
        continue
    if told is None:
        break
    consumer.subscribe(told)
consumer.close()
"""
DESIGN = """
import json, sys, threading
from holdfast import Consumer
said = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), said.set()), daemon=True).start()
conf, topics = json.loads(sys.argv[1]), json.loads(sys.argv[2])
with Consumer(conf) as consumer:
    consumer.subscribe(topics)
    while not said.is_set():
        consumer.poll(0.1)
"""
"""A member of the project's own; it commits by itself."""


class Stage:
    """A broker, the members on it, and what they were told."""

    def __init__(self, broker: brokers.Broker):
        self.broker = broker
        (self.log,) = broker.logs
        self.truth: list[dict[str, object]] = []
        self.members: dict[tuple[str, str], subprocess.Popen[str]] = {}

    def say(self, group: str, what: str, client: str) -> None:
        self.truth.append({"group": group, "what": what, "client": client})

    def start(self, group: str, client: str, topics: list[str], **conf: object) -> None:
        """Start a member and wait for what the coordinator says."""
        own = "holdfast.policy" in conf
        conf = {
            "bootstrap.servers": self.broker.bootstrap,
            "group.id": group,
            "client.id": client,
            "auto.offset.reset": "earliest",
            **({} if own else {"enable.auto.commit": False}),
            **({} if own else {"topic.metadata.refresh.interval.ms": 1000}),
            **conf,
        }
        if conf.get("group.protocol") != "consumer":
            conf |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        script = DESIGN if own else MEMBER
        command = [sys.executable, "-c", script, json.dumps(conf), json.dumps(topics)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        self.members[group, client] = process
        self.settles(group, "join", client)

    def settles(self, group: str, what: str, client: str, first: int | None = None) -> None:
        """Note what was done, and wait until the log of the group is still for two seconds."""
        self.say(group, what, client)
        seen, since, limit = -1, time.monotonic(), time.monotonic() + 25
        first = self.lines() if first is None else first
        while time.monotonic() < limit:
            now = self.lines()
            if now != seen:
                seen, since = now, time.monotonic()
            quiet = 7 if what == "crash" else 3
            if seen > first and time.monotonic() - since > quiet:
                return
            time.sleep(0.1)
        print("nothing more was logged after", group, what, client, file=sys.stderr)

    def lines(self) -> int:
        return self.log.read_bytes().count(b"oordinator") if self.log.is_file() else 0

    def leave(self, group: str, client: str) -> None:
        process = self.members.pop((group, client))
        before = self.lines()
        process.stdin.close()
        process.wait(30)
        self.settles(group, "leave", client, before)

    def crash(self, group: str, client: str) -> None:
        process = self.members.pop((group, client))
        process.kill()
        process.wait(30)
        process.stdin.close()
        self.settles(group, "crash", client)

    def resubscribe(self, group: str, client: str, topics: list[str]) -> None:
        stdin = self.members[group, client].stdin
        stdin.write(json.dumps(topics) + "\n")
        stdin.flush()
        self.settles(group, "subscription_change", client)


def live(stage: Stage, admin: KafkaAdminClient) -> None:
    """The lives of four groups, and of one with a name that looks like a line of the log."""
    etl, odd = "etl", "x in state Stable with old generation 7 (reason: y)"
    stage.start(etl, "a", ["t"])
    stage.start(etl, "b", ["t"])
    stage.leave(etl, "b")
    stage.start(etl, "b", ["t"])
    stage.crash(etl, "b")
    stage.resubscribe(etl, "a", ["t", "u"])
    admin.create_partitions({"t": NewPartitions(total_count=6)})
    stage.settles(etl, "partition_count_change", "")
    static = {"partition.assignment.strategy": "cooperative-sticky"}
    stage.start("static", "s0", ["t"], **static, **{"group.instance.id": "i0"})
    stage.start("static", "s1", ["t"], **static, **{"group.instance.id": "i1"})
    stage.leave("static", "s1")
    stage.start("static", "s1", ["t"], **static, **{"group.instance.id": "i1"})
    own = {"holdfast.policy": "deferred", "scheduled.rebalance.max.delay.ms": 4000}
    stage.start("design", "d0", ["t"], **own)
    stage.start("design", "d1", ["t"], **own)
    stage.crash("design", "d1")
    stage.start("design", "d1", ["t"], **own)
    stage.leave("design", "d1")
    stage.leave("design", "d0")
    stage.start("next", "n0", ["t"], **{"group.protocol": "consumer"})
    stage.start("next", "n1", ["t"], **{"group.protocol": "consumer"})
    stage.resubscribe("next", "n1", ["t", "u"])
    stage.leave("next", "n1")
    stage.start(odd, "o", ["t"])
    stage.leave(odd, "o")
    stage.leave("next", "n0")
    stage.leave("static", "s0")
    stage.leave(etl, "a")


def records(bootstrap: str) -> dict[str, list[object]]:
    """Columns of the offsets topic."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    parts = [TopicPartition(OFFSETS_TOPIC, p) for p in consumer.partitions_for_topic(OFFSETS_TOPIC)]
    consumer.assign(parts)
    ends = {p: end for p, end in consumer.end_offsets(parts).items() if end}
    found: dict[str, list[object]] = {
        name: [] for name in ("partition", "offset", "timestamp", "key", "value")
    }
    rows = []
    while any(consumer.position(part) < end for part, end in ends.items()):
        for batch in consumer.poll(500).values():
            rows += [(m.partition, m.offset, m.timestamp * 1000, m.key, m.value) for m in batch]
    consumer.close()
    for row in sorted(rows):
        for name, value in zip(found, row, strict=True):
            found[name].append(value)
    return found


def main() -> None:
    """Live, and write down."""
    settings = brokers.BrokerSettings(properties={"group.initial.rebalance.delay.ms": "0"})
    with brokers.Broker.start(settings=settings) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic("t", 4, 1), NewTopic("u", 2, 1)])
        stage = Stage(broker)
        print(stage.log, sorted(p.name for p in stage.log.parent.iterdir()))
        try:
            live(stage, admin)
        finally:
            for process in stage.members.values():
                process.kill()
        admin.close()
        columns = records(broker.bootstrap)
        write_log(HERE / "dump", columns, LiveCluster(bootstrap=broker.bootstrap).snapshot())
        lines = stage.log.read_text(encoding="utf-8").splitlines(keepends=True)
        wanted = [line for line in lines if re.search(r"GroupMetadataManager|GroupCoord", line)]
        (HERE / "broker.log").write_text("".join(wanted), encoding="utf-8")
    (HERE / "truth.json").write_text(json.dumps(stage.truth, indent=1) + "\n")


if __name__ == "__main__":
    main()
