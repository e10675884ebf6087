"""Every version of Kafka: members of every client, a Worker, and every command, on its own broker.

``python -m tests.live.versions --page docs/brokers.md`` runs all pinned versions (`make soak
ARGS="--only versions"`), prints a JSON line for each, and writes them as the page's table.
``--kafka VERSION`` runs one. The exit code is 1 if anything was wrong.

**Rules.** The output of a command about a group is compared with Kafka's Admin API.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import OffsetSpec
from tests.cli.running import run
from tests.live.chaos import cluster
from tests.live.crew import ThreadGroup, admin_of, fresh
from tests.live.cut import Cut
from tests.live.every_command import CODES, run_all
from tests.live.faults import ONE_BROKER, fire
from tests.live.member_group import MemberGroup
from tests.live.waiting import until

from holdfast import Worker
from holdfast.cluster.cluster import LiveCluster
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.tables.reading import read_tables
from holdfast.local import jars
from holdfast.local.broker import Broker

CLIENTS = "consumer+confluent+aiokafka+kafka"
FAULTS = ("rolling bounce", "kill -9, back at once", "kill -9 two")
MARK = "<!-- written by tests.live.versions -->"


def versions() -> list[str]:
    """Versions of Kafka that are pinned, ascending."""
    found = (re.fullmatch(r"kafka_2\.13-(.+)-log4j", folder) for folder in jars.checksums())
    return sorted((one.group(1) for one in found if one), key=lambda v: [*map(int, v.split("."))])


def members(broker: Broker, cut: Cut, folder: Path, faults: Sequence[str], **sizes: int) -> dict:
    """A group under Design II with members of every client, through these faults."""
    folder.mkdir()
    with MemberGroup(
        broker, cut, folder, design="deferred", client=CLIENTS, **sizes
    ) as member_group:
        return fire(
            member_group, {name: ONE_BROKER[name] for name in faults}, note=lambda text: None
        )


def workers(bootstrap: str) -> None:
    """Two Workers share six resources; one goes, and the other has them all."""
    config = {"bootstrap.servers": bootstrap, "group.id": fresh("workers")}
    config |= {"heartbeat.interval.ms": 500, "scheduled.rebalance.max.delay.ms": 0}

    with closing(Worker(config, {"job": 6})) as first:
        first.start()
        with closing(Worker(config, {"job": 6})) as second:
            second.start()
            until(lambda: len(first.owned) == len(second.owned) == 3, "three resources each")
        until(lambda: len(first.owned) == 6, "six resources")


class Kafka:
    """What Kafka's Admin API says of one group."""

    def __init__(self, bootstrap: str, group: str):
        admin = admin_of(bootstrap)
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        committed = asked[group].result(60).topic_partitions
        self.committed = {(tp.topic, tp.partition): tp.offset for tp in committed}
        places = {TopicPartition(*tp): OffsetSpec.latest() for tp in self.committed}
        ends = admin.list_offsets(places)
        self.ends = {(tp.topic, tp.partition): f.result(60).offset for tp, f in ends.items()}
        described = admin.describe_consumer_groups([group])[group].result(60)
        self.owners = {
            (tp.topic, tp.partition): member.member_id
            for member in described.members
            for tp in member.assignment.topic_partitions
        }
        self.groups = {one.group_id for one in admin.list_consumer_groups().result(60).valid}
        self.cluster_id = admin.describe_cluster().result(60).cluster_id


def commands(bootstrap: str, folder: Path) -> None:
    """The commands that read a cluster, while a group is at work on it."""
    with ThreadGroup(bootstrap, 6, 50) as group:
        for _ in range(3):
            group.join()
        group.await_spread()
        group.await_read()
        wanted = {(group.topic.name, partition): 50 for partition in range(6)}
        until(lambda: Kafka(bootstrap, group.name).committed == wanted, "every record is committed")
        compare(bootstrap, group.name, folder)


def compare(bootstrap: str, group: str, folder: Path) -> None:
    """What the commands say of a group, and what Kafka says of it."""

    def said(*words: object) -> str:
        done = run(*words, "-q", "--group", group)
        assert done.code == 0, (words, done.err)
        return done.out

    at = ("-b", bootstrap)
    kafka = Kafka(bootstrap, group)
    rows = [json.loads(line) for line in said("lag", *at, "--format", "jsonl").splitlines()]
    here = {(row["topic"], row["partition"]): row for row in rows}
    assert {tp: row["current_offset"] for tp, row in here.items()} == kafka.committed
    assert {tp: row["log_end_offset"] for tp, row in here.items()} == kafka.ends
    assert {tp: row["member_id"] for tp, row in here.items()} == kafka.owners
    assert all(row["lag"] == 0 for row in rows)

    said("history", *at, "-o", folder / "tables")
    tables = read_tables(folder / "tables")
    last = tables.table("generations").to_pylist()[-1]["generation"]
    assigned = [r for r in tables.table("assignments").to_pylist() if r["generation"] == last]
    assert {(r["topic"], r["partition"]): r["member_id"] for r in assigned} == kafka.owners

    said("dump", *at, "-o", folder / "dump")
    dump = Dump.open(folder / "dump")
    assert dump.cluster_id == kafka.cluster_id
    assert dump.group_names() == {group}
    others = LiveCluster(bootstrap=bootstrap).group_names() - kafka.groups
    assert all(name.startswith("workers-") for name in others)  # groups, and not of consumers
    json.loads(said("doctor", *at, "--format", "json"))
    assert group in said("plan", *at, "--assignor", "sticky", "--format", "json")
    said("replay", *at)
    said("report", *at, "-o", folder / "report.html")
    assert group in (folder / "report.html").read_text(encoding="utf-8")


def exit_codes(bootstrap: str, folder: Path) -> dict[str, int]:
    """Exit code of every command that reads a cluster, `watch` too, in a process of their own."""
    nothing = folder / "nothing.properties"
    nothing.touch()
    return run_all(bootstrap, nothing, folder / "every", folder / "log")[0]


def examine(version: str, folder: Path) -> dict:
    row: dict = {"kafka": version}
    with cluster(1, version) as (broker, cut):
        began = time.monotonic()
        try:
            sizes = {"n_members": 8, "n_partitions": 24, "delay_ms": 5_000}
            row |= members(broker, cut, folder / "event-logs", FAULTS, **sizes)
            workers(broker.bootstrap)
            commands(broker.bootstrap, folder)
            codes = exit_codes(broker.bootstrap, folder)
            row["commands"] = sorted(name for name, code in codes.items() if code == CODES[name])
            if codes != CODES:
                row["violations"].append(f"exit codes: {codes}")
        except AssertionError as error:
            row.setdefault("violations", []).append(str(error))
        row["seconds"] = round(time.monotonic() - began)
    return row


def table(rows: list[dict]) -> str:
    """Rows as the page has them."""
    lines = [
        "| Kafka | metadata in | records, read again, lost | two owners | Worker | commands |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        fine = not row["violations"]
        where = "ZooKeeper" if jars.kafka_release(row["kafka"]) < (3, 3) else "KRaft"
        counts = f"{row.get('records', 0):,}, {row.get('read_again', 0):,}"
        lines.append(
            f"| {row['kafka']} | {where} | {counts}, {'0' if fine else '?'} "
            f"| {'never' if fine else '?'} | {'works' if fine else '?'} "
            f"| {len(row.get('commands', ()))} of {len(CODES)} |"
        )
    return "\n".join(lines)


def write_page(page: Path, rows: list[dict]) -> None:
    """Put the table between the page's two marks."""
    before, _, rest = page.read_text(encoding="utf-8").partition(MARK)
    _, _, after = rest.partition(MARK)
    page.write_text(f"{before}{MARK}\n{table(rows)}\n{MARK}{after}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", action="append", choices=versions())
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    rows = []
    for version in options.kafka or versions():
        with tempfile.TemporaryDirectory(prefix="holdfast-versions-") as folder:
            rows.append(examine(version, Path(folder)))
        print(json.dumps(rows[-1]), flush=True)
    if options.page is not None:
        write_page(options.page, rows)
    return int(any(row["violations"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
