"""How the files beside this one were made: what Kafka's own tools print of the offsets topic.

    python tests/pipeline/printed/capture.py 2.8.2 3.6.2 3.9.1 4.3.1

Starts a broker of each version, lets the groups of ``tests/wire/capture.py`` come and go on it, and
more with odd names, and runs the tools of the same version. ``VERSION/records.jsonl`` is what the
topic holds, ``VERSION/about.json`` its ends; every other file is what a tool printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.local.programs import java
from tests.wire import capture as groups

from holdfast.cluster.cluster import LiveCluster
from holdfast.fleet.pipeline.ingest.offsets_topic import OFFSETS_TOPIC
from holdfast.fleet.pipeline.ingest.topic_reader import TopicReader
from holdfast.local.broker.broker import Broker, BrokerSettings
from holdfast.local.jars import broker_coordinates, broker_jars, kafka_release, resolve

HERE = Path(__file__).parent
ODD = "a, b::c payload: {d=[e-0]}"
"""A group's name that looks like what the tools print around it."""


class KafkaTools:
    """The command line tools of one version of Kafka."""

    def __init__(self, version: str):
        release = kafka_release(version)
        jars = [*broker_jars(version)]
        if release >= (3, 8):
            coordinates = [
                f"org.apache.kafka:kafka-tools:{version}",
                broker_coordinates(version)[1],
            ]
            jars += resolve(coordinates, f"kafka-tools-{version}")
        self._class_path = os.pathsep.join(map(str, jars))
        moved = "org.apache.kafka.tools."
        self.dump_log = f"{moved if release >= (4, 2) else 'kafka.tools.'}DumpLogSegments"
        consumer = f"{moved}consumer." if release >= (3, 8) else "kafka.tools."
        self.console_consumer = f"{consumer}ConsoleConsumer"
        self.consumer_groups = (
            f"{moved}consumer.group.ConsumerGroupCommand"
            if release >= (3, 8)
            else "kafka.admin.ConsumerGroupCommand"
        )
        within = "kafka.coordinator.group.GroupMetadataManager$"
        self.formatters = f"{moved}consumer." if release >= (4, 0) else within

    def run(self, tool: str, *arguments: str) -> str:
        """What a tool prints to stdout; what a pager or a mail would hold."""
        done = subprocess.run(
            java(self._class_path, tool, *arguments, heap_mb=256),
            capture_output=True,
            text=True,
            encoding="utf-8",
            env={**os.environ, "LC_ALL": "C.UTF-8", "JAVA_TOOL_OPTIONS": "-Dfile.encoding=UTF-8"},
            check=False,
            timeout=180,
        )
        print(tool, done.returncode, done.stderr[-400:], file=sys.stderr)
        return done.stdout

    def printed_log(self, folder: Path) -> str:
        """What ``kafka-dump-log --offsets-decoder`` prints of a node's partitions."""
        files = sorted(folder.glob(f"data/{OFFSETS_TOPIC}-*/*.log"))
        named = ",".join(str(file) for file in files if file.stat().st_size)
        return self.run(self.dump_log, "--offsets-decoder", "--files", named)

    def printed_records(self, bootstrap: str, formatter: str, *more: str) -> str:
        """What the console consumer prints with a formatter of the coordinator's records."""
        config = "--consumer-property" if "kafka.tools.Con" in self.console_consumer else None
        config = config or "--consumer-property"
        return self.run(
            self.console_consumer,
            *("--bootstrap-server", bootstrap, "--topic", OFFSETS_TOPIC, "--from-beginning"),
            *("--formatter", f"{self.formatters}{formatter}", "--timeout-ms", "20000"),
            *(config, "exclude.internal.topics=false", *more),
        )

    def described(self, bootstrap: str, *more: str) -> str:
        """What ``kafka-consumer-groups --describe`` prints."""
        return self.run(self.consumer_groups, "--bootstrap-server", bootstrap, "--describe", *more)


def odd_groups(bootstrap: str) -> None:
    """Commits with metadata of several lines, by a group with an odd name."""
    lone = groups.consumer(bootstrap, ODD)
    said = (
        "",
        "plain",
        "two\nlines, metadata=x, commitTimestamp=5",
        "| offset: 3 payload: offset=9",
    )
    for offset, metadata in enumerate(said, 1):
        lone.commit(offsets=[TopicPartition("clicks", 0, offset, metadata)], asynchronous=False)
    lone.close()


def open_transaction(bootstrap: str) -> Producer:
    """A producer whose transaction stays open with a commit in it."""
    reader = groups.consumer(bootstrap, "waiting")
    reader.subscribe(["orders"])
    groups.poll_until_assigned(reader)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition("orders", 0, 5)], reader.consumer_group_metadata(), 60
    )
    reader.close()
    return producer


def write_truth(folder: Path, bootstrap: str) -> None:
    """The records that count and the ends of the topic."""
    cluster = LiveCluster(bootstrap=bootstrap)
    ends = cluster.partition_ends(OFFSETS_TOPIC)
    with cluster.connected() as asked:
        reader = TopicReader(asked, OFFSETS_TOPIC)
        rows = [
            row
            for table in reader.to_end({p: end.begin for p, end in ends.items()})
            for row in table.to_pylist()
        ]
        waiting = reader.transactions.table().num_rows
    lines = []
    for row in sorted(rows, key=lambda one: (one["partition"], one["offset"])):
        blobs = {name: row[name] and row[name].hex() for name in ("key", "value")}
        time_ms = round(row["timestamp"].timestamp() * 1000)
        place = {name: row[name] for name in ("partition", "offset")}
        lines.append(json.dumps({**place, "timestamp_ms": time_ms, **blobs}) + "\n")
    (folder / "records.jsonl").write_text("".join(lines), encoding="utf-8")
    about = {"ends": {p: [end.begin, end.end] for p, end in ends.items()}, "n_waiting": waiting}
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def capture(version: str) -> None:
    """Let the groups come and go on a broker of this version, and run its tools."""
    tools, folder = KafkaTools(version), HERE / version
    folder.mkdir(exist_ok=True)
    settings = BrokerSettings(kafka=version, properties={"offsets.topic.num.partitions": "2"})
    with Broker.start(settings=settings) as broker, ExitStack() as open_:
        bootstrap = broker.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics(
            [NewTopic(n, 3, 1) for n in ("orders", "clicks")]
        ).values():
            future.result(60)
        producer = Producer({"bootstrap.servers": bootstrap})
        for i in range(30):
            producer.produce("orders", str(i), partition=i % 3)
        producer.flush(60)
        groups.classic_group(bootstrap)
        groups.cooperative_group(bootstrap)
        if kafka_release(version) >= (4, 0):
            groups.new_group(bootstrap)
        groups.transactions(bootstrap)
        groups.simple_commits_and_deletions(bootstrap, admin)
        odd_groups(bootstrap)
        members = [
            groups.consumer(bootstrap, "reading", **{"client.id": f"the reader {i}"})
            for i in (1, 2)
        ]
        for member in members:
            open_.callback(member.close)
            member.subscribe(["orders"])
        groups.poll_until_assigned(*members)
        members[0].commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
        for n, words in {
            "describe": ("--group", "reading"),
            "describe-all": ("--all-groups",),
            "describe-members": ("--group", "reading", "--members", "--verbose"),
            "describe-members-all": ("--all-groups", "--members", "--verbose"),
            "describe-state": ("--all-groups", "--state"),
            **(
                {"describe-verbose": ("--all-groups", "--verbose")}
                if kafka_release(version) >= (4, 0)
                else {}
            ),
        }.items():
            for member in members:
                member.poll(0)
            (folder / f"{n}.txt").write_text(tools.described(bootstrap, *words), encoding="utf-8")
        open_.close()
        kept = open_transaction(bootstrap)
        write_truth(folder, bootstrap)
        texts = {
            "dump-log": tools.printed_log(broker.folder / "node-1"),
            "offsets": tools.printed_records(bootstrap, "OffsetsMessageFormatter"),
            "groups": tools.printed_records(bootstrap, "GroupMetadataMessageFormatter"),
        }
        for name, text in texts.items():
            (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        del kept


def main() -> None:
    """Capture."""
    for version in sys.argv[1:]:
        capture(version)


if __name__ == "__main__":
    main()
