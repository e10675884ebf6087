"""``kafka-consumer-groups`` compared with ``holdfast lag``, situation by situation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from tests.cli.running import run
from tests.live.crew import Topic, admin_of, commit_alone, fresh, transaction
from tests.live.kinds import ask
from tests.live.polled import StockMember
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


@dataclass
class Groups:
    """Groups of stock members that commit nothing by themselves, until they are closed."""

    bootstrap: str
    names: Mapping[str, str]
    running: ExitStack

    def join(self, situation: str, topic: Topic, *clients: str, **config: Any) -> list[StockMember]:
        """Have members of these client ids join, and wait until they share the topic."""
        at = self.bootstrap, self.names[situation], topic.name
        config["enable_auto_commit"] = False
        made = [self.running.enter_context(StockMember(*at, name, **config)) for name in clients]
        n = topic.n_partitions // len(made)
        until(lambda: all(len(one.owns) == n for one in made), f"{n} partitions each")
        return made

    def join_and_commit(self, situation: str, topic: Topic, *clients: str, **config: Any) -> None:
        """The same; each commits 3 of the first partition that it owns, and nothing of others."""
        for member in self.join(situation, topic, *clients, **config):
            member.client.commit_at({member.owns[0]: 3})

    def commit(self, situation: str, offsets: Mapping[str, int]) -> None:
        """Commit an offset of partition 0 of each topic, without members."""
        at = {(topic, 0): offset for topic, offset in offsets.items()}
        commit_alone(self.bootstrap, self.names[situation], at)


def set_up(groups: Groups) -> None:
    bootstrap = groups.bootstrap
    four, two, one, gone = (Topic(bootstrap, n, 10) for n in (4, 2, 1, 1))
    groups.join_and_commit("live members", four, "one", "two")
    groups.join_and_commit("a KIP-848 group", two, "new", group_protocol="consumer")
    groups.commit("an empty group", {one.name: 4})
    groups.join("no commit", two, "idle")
    groups.commit("committed at the end", {one.name: 10})
    groups.commit("a topic deleted", {gone.name: 2, one.name: 2})
    admin_of(bootstrap).delete_topics([gone.name])[gone.name].result(60)
    marked = Topic(bootstrap, 1)
    producer = transaction(bootstrap)
    for _ in range(3):
        producer.produce(marked.name, b"x", partition=0)
    producer.commit_transaction(60)
    groups.commit("transaction markers", {marked.name: 3})
    groups.join_and_commit("a static member", two, "static", group_instance_id="pod-0")


@pytest.fixture(scope="module")
def groups(broker) -> Iterator[dict[str, str]]:
    """{situation: group}, each group in its situation."""
    found = {situation: fresh("agrees") for situation in SITUATIONS}
    with ExitStack() as running:
        set_up(Groups(broker.bootstrap, found, running))
        yield found


def told_by_kafka(bootstrap, group):
    """{topic and partition: what Kafka's tool prints of it}, a dash as None."""
    found = {}
    for row in printed(ask("consumer", bootstrap, "--describe", "--group", group)):
        values = [None if row[name] == "-" else row[name] for name in COLUMNS]
        found[row["TOPIC"], int(row["PARTITION"])] = values
    return found


def told_by_us(group, *source):
    done = run("lag", *source, "--group", group, "--format", "json").passed()
    return {
        (row["topic"], row["partition"]): [
            None if row[name] is None else str(row[name]) for name in COLUMNS.values()
        ]
        for row in done.rows()
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
    run("dump", "-b", broker.bootstrap, "-o", tmp_path / "dump", *words).passed()
    found = {s: told_by_us(group, "--input", tmp_path / "dump") for s, group in groups.items()}
    assert found == wanted
