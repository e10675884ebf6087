"""Share groups and Streams groups of Kafka's own clients, read from a live broker.

The tables are compared with Kafka's tools for the same group.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from tests.live.kinds import (
    Members,
    ask,
    assigned,
    compare_polled,
    rows_of,
    streams_tasks,
    tables_of,
)
from tests.live.processes import create_topic
from tests.live.waiting import until
from tests.pipeline.kinds import printed

from holdfast.fleet.tables.reading import open_tables

pytestmark = pytest.mark.broker


def produce(bootstrap, topic, n):
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(n):
        producer.produce(topic, key=str(i), value=str(i % 7))
    producer.flush(60)


def last(tables, group):
    return rows_of(tables, "generations", group)[-1]


@pytest.mark.every
def test_a_share_group(broker, tmp_path):
    bootstrap = broker.bootstrap
    topic = create_topic(bootstrap, 2)
    group = f"share-{topic}"
    settings = ["--entity-type", "groups", "--entity-name", group, "--alter"]
    ask("configs", bootstrap, *settings, "--add-config", "share.auto.offset.reset=earliest")
    produce(bootstrap, topic, 100)
    own = ("--describe", "--group", group)

    def lags():
        said = printed(ask("share", bootstrap, *own, "--offsets"))
        return {(r["TOPIC"], int(r["PARTITION"])): (r["START-OFFSET"], r["LAG"]) for r in said}

    with Members(bootstrap, tmp_path) as crew:
        for name in ("a", "b", "c"):
            crew.share(name, group, topic)

        def shared():
            said = printed(ask("share", bootstrap, *own, "--members"))
            return [row["ASSIGNMENT"] for row in said if ":" in row.get("ASSIGNMENT", "")]

        until(lambda: len(shared()) == 3, lambda: f"three readers; now {shared()}")
        until(
            lambda: [lag for _, lag in lags().values()] == ["0", "0"], lambda: f"no lag: {lags()}"
        )
        # What the leader of a partition has not written yet is written when its members are gone.
        for name in ("a", "b"):
            crew.kill(name)
        tables = tables_of(bootstrap, tmp_path, group)
        compare_polled(bootstrap, tmp_path, group, tables)
    polled = rows_of(open_tables(tmp_path / "polled"), "lag", group)
    generation = last(tables, group)
    assert (generation["group_type"], generation["n_members"]) == ("share", 3)
    assert generation["n_partitions"] == 2
    given = assigned(tables, generation, "shared")
    assert len(given) == 3
    assert sum(map(len, given.values())) > 2  # somebody shares a partition
    found = rows_of(tables, "lag", group)
    said = lags()
    for row in found:
        start, lag = said[row["topic"], row["partition"]]
        assert (str(row["current_offset"]), str(row["lag"])) == (start, lag)
    assert len(found) == 2
    assert [(r["current_offset"], r["lag"]) for r in polled] == [
        (r["current_offset"], r["lag"]) for r in found
    ]


@pytest.mark.every
def test_a_streams_group(broker, tmp_path):
    bootstrap = broker.bootstrap
    topic = create_topic(bootstrap, 2)
    group = f"streams-{topic}"
    produce(bootstrap, topic, 100)

    def active():
        return streams_tasks(bootstrap, group)

    with Members(bootstrap, tmp_path) as crew:
        for name in ("a", "b"):
            crew.streams(name, group, topic, group_protocol="streams")
        until(
            lambda: sorted(map(len, active().values())) == [2, 2],
            lambda: f"two tasks each; now {active()}; {crew.said('a', 500)}",
        )
        said = active()
        tables = tables_of(bootstrap, tmp_path, group)
        compare_polled(bootstrap, tmp_path, group, tables)
    generation = last(tables, group)
    assert (generation["group_type"], generation["n_members"]) == ("streams", 2)
    assert assigned(tables, generation) == said
    readers = {
        (row["topic"], row["partition"]): row["member_id"] for row in rows_of(tables, "lag", group)
    }
    for member, tasks in said.items():
        assert {readers[topic, number] for place, number in tasks if place == "0"} <= {member}
