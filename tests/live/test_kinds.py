"""Share groups and Streams groups of Kafka's own clients, read from a live broker.

What the tables say is compared with what Kafka's tools say of the same group.
"""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Producer
from tests.live.kinds import ask, members
from tests.live.processes import create_topic
from tests.live.waiting import until
from tests.pipeline import local
from tests.pipeline.kinds import printed
from tests.wire.capture import read_all

from holdfast.adapters.cluster.cluster import LiveCluster
from holdfast.pipeline.ingest.dump import write_log

pytestmark = pytest.mark.broker


def produce(bootstrap, topic, n):
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(n):
        producer.produce(topic, key=str(i), value=str(i % 7))
    producer.flush(60)


def tables_of(bootstrap, folder):
    """Tables of everything that the broker has now."""
    found = read_all(bootstrap)
    columns = {name: [row[name] for row in found] for name in ("partition", "offset")}
    columns["timestamp"] = [row["timestamp_ms"] * 1000 for row in found]
    for name in ("key", "value"):
        columns[name] = [row[name] and bytes.fromhex(row[name]) for row in found]
    write_log(folder / "dump", columns, LiveCluster(bootstrap=bootstrap).snapshot())
    return local.run(folder / "dump", folder / "out", batch_rows=5_000)


def last(tables, group):
    """The last generation of a group."""
    return [row for row in tables.table("generations").to_pylist() if row["group"] == group][-1]


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

    with members(bootstrap, tmp_path) as crew:
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
        tables = tables_of(bootstrap, tmp_path)
    generation = last(tables, group)
    assert (generation["group_type"], generation["n_members"]) == ("share", 3)
    assert generation["n_partitions"] == 2
    given = [
        row
        for row in tables.table("assignments").to_pylist()
        if (row["group"], row["generation"]) == (group, generation["generation"])
    ]
    assert {row["role"] for row in given} == {"shared"}
    assert len({row["member_id"] for row in given}) == 3
    assert len(given) > 2  # somebody shares a partition
    found = [row for row in tables.table("lag").to_pylist() if row["group"] == group]
    said = lags()
    for row in found:
        start, lag = said[row["topic"], row["partition"]]
        assert (str(row["current_offset"]), str(row["lag"])) == (start, lag)
    assert len(found) == 2


def test_a_streams_group(broker, tmp_path):
    bootstrap = broker.bootstrap
    topic = create_topic(bootstrap, 2)
    group = f"streams-{topic}"
    produce(bootstrap, topic, 100)
    own = ("--describe", "--group", group)

    def active():
        """{member: tasks} where what the members have is what they shall have."""
        said = printed(ask("streams", bootstrap, *own, "--members", "--verbose"))
        found = {}
        for row in said:
            now, target = (
                re.findall(rf"(?:^|; ){name}: ((?:\w+:\[[\d,]+\]; )+)", row.get("ASSIGNMENTS", ""))
                for name in ("ACTIVE", "TARGET-ACTIVE")
            )
            if now != target:
                return {}
            found[row["MEMBER"]] = {
                (place, int(number))
                for place, numbers in re.findall(r"(\w+):\[([\d,]+)\]", "".join(now))
                for number in numbers.split(",")
            }
        return found

    with members(bootstrap, tmp_path) as crew:
        for name in ("a", "b"):
            crew.streams(name, group, topic, group_protocol="streams")
        until(
            lambda: sorted(map(len, active().values())) == [2, 2],
            lambda: f"two tasks each; now {active()}; {crew.said('a', 500)}",
        )
        said = active()
        tables = tables_of(bootstrap, tmp_path)
    generation = last(tables, group)
    assert (generation["group_type"], generation["n_members"]) == ("streams", 2)
    found = {}
    for row in tables.table("assignments").to_pylist():
        if (row["group"], row["generation"]) == (group, generation["generation"]):
            found.setdefault(row["member_id"], set()).add((row["topic"], row["partition"]))
    assert found == said
    readers = {
        (row["topic"], row["partition"]): row["member_id"]
        for row in tables.table("lag").to_pylist()
        if row["group"] == group
    }
    for member, tasks in said.items():
        assert {readers[topic, number] for place, number in tasks if place == "0"} <= {member}
