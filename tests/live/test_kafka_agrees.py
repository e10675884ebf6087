"""``kafka-consumer-groups`` compared with ``holdfast lag``, situation by situation."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.cli.running import run
from tests.live.crew import Topic, admin_of, commit_alone, fresh, transaction
from tests.live.kinds import ask
from tests.live.waiting import until
from tests.pipeline.kinds import printed

pytestmark = pytest.mark.broker

SITUATIONS = {
    "live members": 4,
    "a KIP-848 group": 2,
    "an empty group": 1,
    "no commit": 2,
    "committed at the end": 1,
    "a topic deleted": 1,
    "transaction markers": 1,
    "a static member": 2,
}
"""A situation, and how many rows Kafka's tool prints of its group."""

COLUMNS = {
    "CURRENT-OFFSET": "current_offset",
    "LOG-END-OFFSET": "log_end_offset",
    "LAG": "lag",
    "CONSUMER-ID": "member_id",
    "HOST": "client_host",
    "CLIENT-ID": "client_id",
}


class Members:
    """Consumers that own partitions and commit nothing by themselves."""

    def __init__(self, bootstrap):
        self.bootstrap, self.running = bootstrap, []

    def join(self, group, topic, n_each, **settings):
        """Let one more join, and wait until everybody of the group has ``n_each`` partitions."""
        own = {key.replace("_", "."): value for key, value in settings.items()}
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                **own,
            }
        )
        consumer.subscribe([topic])
        self.running.append((group, consumer))
        mates = [one for name, one in self.running if name == group]

        def settled():
            for one in mates:
                one.poll(0.1)
            return all(len(one.assignment()) == n_each for one in mates)

        until(settled, f"{n_each} partitions each")
        return consumer

    def close(self):
        for _, consumer in self.running:
            consumer.close()


def live_members(members, topic, group):
    members.join(group, topic.name, 4, client_id="one")
    members.join(group, topic.name, 2, client_id="two")
    commit_of_owner(members, group, topic.name)


def commit_of_owner(members, group, topic):
    """The members commit 3 of the first partition that each owns, and nothing of the others."""
    for name, consumer in members.running:
        if name == group:
            first = min(consumer.assignment(), key=lambda one: one.partition)
            at = [TopicPartition(topic, first.partition, 3)]
            consumer.commit(offsets=at, asynchronous=False)


def set_up(bootstrap, members, groups):
    four, two, one = (Topic(bootstrap, n, 10) for n in (4, 2, 1))
    live_members(members, four, groups["live members"])
    members.join(groups["a KIP-848 group"], two.name, 2, group_protocol="consumer")
    commit_of_owner(members, groups["a KIP-848 group"], two.name)
    commit_alone(bootstrap, groups["an empty group"], {(one.name, 0): 4})
    members.join(groups["no commit"], two.name, 2)
    commit_alone(bootstrap, groups["committed at the end"], {(one.name, 0): 10})
    gone = Topic(bootstrap, 1, 10)
    commit_alone(bootstrap, groups["a topic deleted"], {(gone.name, 0): 2, (one.name, 0): 2})
    admin_of(bootstrap).delete_topics([gone.name])[gone.name].result(60)
    marked = Topic(bootstrap, 1)
    producer = transaction(bootstrap)
    for _ in range(3):
        producer.produce(marked.name, b"x", partition=0)
    producer.commit_transaction(60)
    commit_alone(bootstrap, groups["transaction markers"], {(marked.name, 0): 3})
    members.join(groups["a static member"], two.name, 2, group_instance_id="pod-0")
    commit_of_owner(members, groups["a static member"], two.name)


@pytest.fixture(scope="module")
def groups(broker) -> Iterator[dict[str, str]]:
    """{situation: group}, each group in its situation."""
    found = {situation: fresh("agrees") for situation in SITUATIONS}
    members = Members(broker.bootstrap)
    try:
        set_up(broker.bootstrap, members, found)
        yield found
    finally:
        members.close()


def told_by_kafka(bootstrap, group):
    """{topic and partition: what Kafka's tool prints of it}, a dash as None."""
    found = {}
    for row in printed(ask("consumer", bootstrap, "--describe", "--group", group)):
        values = [None if row[name] == "-" else row[name] for name in COLUMNS]
        found[row["TOPIC"], int(row["PARTITION"])] = values
    return found


def told_by_us(group, *source):
    done = run("lag", *source, "--group", group, "--format", "json")
    assert done.code == 0, done.err
    return {
        (row["topic"], row["partition"]): [
            None if row[name] is None else str(row[name]) for name in COLUMNS.values()
        ]
        for row in json.loads(done.out)["rows"]
    }


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_live_group_is_as_kafka_prints_it(broker, groups, situation):
    group, n_rows = groups[situation], SITUATIONS[situation]
    # The coordinator learns a moment later that a topic is gone.
    until(lambda: len(told_by_kafka(broker.bootstrap, group)) == n_rows, f"{n_rows} rows")
    assert told_by_us(group, "-b", broker.bootstrap) == told_by_kafka(broker.bootstrap, group)


@pytest.mark.slow
@pytest.mark.spark
def test_a_dump_of_the_groups_is_as_kafka_prints_them(spark, broker, groups, tmp_path):
    wanted = {}
    for situation, group in groups.items():
        n_rows = SITUATIONS[situation]
        until(lambda g=group, n=n_rows: len(told_by_kafka(broker.bootstrap, g)) == n, situation)
        wanted[situation] = told_by_kafka(broker.bootstrap, group)
    words = [word for group in groups.values() for word in ("--group", group)]
    done = run("dump", "-b", broker.bootstrap, "-o", tmp_path / "dump", *words)
    assert done.code == 0, done.err
    found = {s: told_by_us(group, "--input", tmp_path / "dump") for s, group in groups.items()}
    assert found == wanted
