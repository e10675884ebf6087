"""Write ``captured/offsets_topic-VERSION.jsonl``: what a real broker wrote to its offsets topic.

    python tests/wire/capture.py 2.8.2 3.6.2 4.3.1

Starts a broker of each version, and lets groups of every kind that Python clients can join come and
go: a classic group with a static member (kafka-python), a classic cooperative group and, since
Kafka 4.0, a KIP-848 group (librdkafka), plain commits, transactional commits, one of them aborted,
and deletions.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import RebalanceInProgressError

from holdfast.local.broker.broker import Broker, BrokerSettings
from holdfast.local.jars import kafka_release

CAPTURED = Path(__file__).parent / "captured"
OFFSETS_TOPIC = "__consumer_offsets"


def consumer(bootstrap: str, group: str, **config: Any) -> Consumer:
    """A librdkafka consumer."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )


def poll_until_assigned(*members: Consumer, seconds: float = 60) -> None:
    """Poll all of them until each owns something."""
    deadline = time.monotonic() + seconds
    while not all(member.assignment() for member in members):
        for member in members:
            member.poll(0.2)
        if time.monotonic() > deadline:
            raise TimeoutError("no assignment")


def commit_between_rounds(member: KafkaConsumer) -> None:
    """Commit, once no round is under way."""
    while True:
        try:
            return member.commit()
        except RebalanceInProgressError:
            member.poll(200)


def classic_group(bootstrap: str) -> None:
    """A static and a dynamic member of kafka-python; both commit."""
    options = {
        "bootstrap_servers": bootstrap,
        "group_id": "classic",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    first = KafkaConsumer("orders", "clicks", group_instance_id="static-1", **options)
    while not first.assignment():
        first.poll(200)
    first.commit()
    second = KafkaConsumer("orders", client_id="späť", **options)
    while not second.assignment():
        first.poll(200)
        second.poll(200)
    commit_between_rounds(first)
    second.close()
    first.close()


def cooperative_group(bootstrap: str) -> None:
    """Two members of librdkafka that hand over in two rounds."""
    strategy = {"partition.assignment.strategy": "cooperative-sticky"}
    first = consumer(bootstrap, "cooperative", **strategy)
    first.subscribe(["orders"])
    poll_until_assigned(first)
    second = consumer(bootstrap, "cooperative", **strategy)
    second.subscribe(["orders"])
    poll_until_assigned(first, second)
    second.close()
    first.close()


def new_group(bootstrap: str) -> None:
    """Two members under KIP-848; then one leaves."""
    protocol = {"group.protocol": "consumer"}
    first = consumer(bootstrap, "kip-848", **protocol, **{"client.rack": "rack-a"})
    first.subscribe(["orders", "clicks"])
    poll_until_assigned(first)
    second = consumer(bootstrap, "kip-848", **protocol, **{"group.instance.id": "static-848"})
    second.subscribe(["^or.*"])
    poll_until_assigned(first, second)
    first.commit(offsets=[TopicPartition("orders", 0, 3, "métadonnées")], asynchronous=False)
    second.close()
    first.close()


def transactions(bootstrap: str) -> None:
    """Commits inside transactions: one committed, one aborted."""
    reader = consumer(bootstrap, "transactional")
    reader.subscribe(["orders"])
    poll_until_assigned(reader)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "captured"})
    producer.init_transactions(60)
    for offset, end in ((11, producer.commit_transaction), (777, producer.abort_transaction)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition("orders", 0, offset)], reader.consumer_group_metadata(), 60
        )
        end(60)
    reader.close()


def simple_commits_and_deletions(bootstrap: str, admin: AdminClient) -> None:
    """A group without members whose offsets, and a group whose everything is deleted."""
    for group in ("simple", "deleted"):
        lone = consumer(bootstrap, group)
        lone.commit(offsets=[TopicPartition("clicks", 1, 42)], asynchronous=False)
        lone.close()
    for future in admin.delete_consumer_groups(["deleted", "cooperative"]).values():
        future.result(60)


def read_all(bootstrap: str, topic: str = OFFSETS_TOPIC) -> list[dict[str, Any]]:
    """Every record of a topic of the broker's own, aborted ones too, in order."""
    reader = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, exclude_internal_topics=False
    )
    numbers = sorted(reader.partitions_for_topic(topic) or ())
    here = [PythonTopicPartition(topic, number) for number in numbers]
    reader.assign(here)
    reader.seek_to_beginning(*here)
    ends = reader.end_offsets(here)
    rows: list[dict[str, Any]] = []
    while any(reader.position(tp) < ends[tp] for tp in here):
        for records in reader.poll(500).values():
            rows += [
                {
                    "partition": record.partition,
                    "offset": record.offset,
                    "timestamp_ms": record.timestamp,
                    "key": None if record.key is None else record.key.hex(),
                    "value": None if record.value is None else record.value.hex(),
                }
                for record in records
            ]
    reader.close()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def capture(version: str) -> list[dict[str, Any]]:
    """Let the groups come and go on a broker of this version."""
    steps = [classic_group, cooperative_group, new_group, transactions]
    if kafka_release(version) < (4, 0):
        steps.remove(new_group)
    with Broker.start(settings=BrokerSettings(kafka=version)) as broker:
        bootstrap = broker.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [NewTopic("orders", 6, 1), NewTopic("clicks", 2, 1)]
        for future in admin.create_topics(topics).values():
            future.result(60)
        for step in steps:
            step(bootstrap)
        simple_commits_and_deletions(bootstrap, admin)
        return read_all(bootstrap)


def main() -> None:
    """Capture."""
    for version in sys.argv[1:]:
        rows = capture(version)
        target = CAPTURED / f"offsets_topic-{version}.jsonl"
        target.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
