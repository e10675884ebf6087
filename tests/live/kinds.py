"""Groups of Kafka's own Java clients: Streams of both protocols, share groups, Connect.

Every member is a process. The state of a group comes from Kafka's own command line tools.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.live.disturbed import left_by
from tests.live.processes import Processes
from tests.live.waiting import until
from tests.local.programs import Tools, compiled, java, program
from tests.pipeline import local
from tests.pipeline.kinds import printed
from tests.pipeline.test_kinds import said_partitions
from tests.ports import free_port

from holdfast.cluster.cluster import LiveCluster
from holdfast.errors import HoldfastError
from holdfast.fleet.pipeline.batches.watch import watch
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.polled_feed import feed_of
from holdfast.fleet.tables.reading import Tables, open_tables
from holdfast.local.jars import KAFKA_VERSION, broker_coordinates, resolve

COORDINATES = [
    *(f"org.apache.kafka:{name}:{KAFKA_VERSION}" for name in ("kafka-streams", "kafka-tools")),
    *(f"org.apache.kafka:{name}:{KAFKA_VERSION}" for name in ("connect-runtime", "connect-file")),
    *broker_coordinates(),
]
TOOLS = {
    "consumer": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "share": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "streams": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "configs": "kafka.admin.ConfigCommand",
}
CONNECT = "org.apache.kafka.connect.cli.ConnectDistributed"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@cache
def class_path() -> str:
    """Kafka's clients, Streams, Connect and tools."""
    jars = resolve(COORDINATES, f"kafka-kinds-{KAFKA_VERSION}")
    return os.pathsep.join(map(str, jars))


def fetch_tools() -> None:
    """Have what :func:`tools` needs on this machine; where that fails, a test says why."""
    with suppress(HoldfastError):
        compiled("LiveTools", class_path())


@cache
def tools() -> Tools:
    """Kafka's tools, in one JVM for all questions of a run."""
    return Tools(class_path())


def ask(tool: str, bootstrap: str, *arguments: str) -> str:
    """What one of Kafka's tools prints; it prints no table for a group that is not there yet."""
    code, out, err = tools().ask(TOOLS[tool], "--bootstrap-server", bootstrap, *arguments)
    assert code == 0 or "GroupIdNotFoundException" in out + err, out + err
    return out


def streams_tasks(bootstrap: str, group: str) -> dict[str, set[tuple[str, int]]]:
    """{member: active tasks} of a streams group; none while it changes."""
    own = ("--describe", "--group", group, "--members", "--verbose")
    found = {}
    for row in printed(ask("streams", bootstrap, *own)):
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


def tables_of(bootstrap: str, folder: Path, *groups: str, logs: Sequence[Path] = ()) -> Tables:
    """Tables of groups that a broker has now, or of all; ``logs``: what its coordinators logged."""
    dump = left_by(bootstrap, *groups).dump(folder / "dump")
    return local.run(dump, folder / "out", batch_rows=5_000, logs=list(logs))


def rows_of(tables: Tables, table: str, group: str) -> list[dict[str, Any]]:
    return [row for row in tables.table(table).to_pylist() if row["group"] == group]


def assigned(
    tables: Tables, generation: dict[str, Any], role: str = "active"
) -> dict[str, set[tuple[str, int]]]:
    """{member: {(topic, partition)}} of a row of the table generations."""
    wanted = (generation["generation"], generation["timestamp"], role)
    found: dict[str, set[tuple[str, int]]] = {}
    for row in rows_of(tables, "assignments", generation["group"]):
        if (row["generation"], row["timestamp"], row["role"]) == wanted:
            found.setdefault(row["member_id"], set()).add((row["topic"], row["partition"]))
    return found


def described(bootstrap: str, group: str) -> dict[str, set[tuple[str, int]]]:
    """{member: {(topic, partition)}} as ConsumerGroupCommand says; none while it changes."""
    own = ("--describe", "--group", group, "--members", "--verbose")
    found = {}
    for row in printed(ask("consumer", bootstrap, *own)):
        if row["TARGET-EPOCH"] != "-" and row["TARGET-EPOCH"] != row["CURRENT-EPOCH"]:
            return {}
        found[row["CONSUMER-ID"]] = said_partitions(row["CURRENT-ASSIGNMENT"])
    return found


def await_spread(
    bootstrap: str,
    group: str,
    *counts: int,
    without: Iterable[str] = (),
    said: Callable[[], str] = str,
) -> dict[str, set[tuple[str, int]]]:
    """Wait until other members than these own so many partitions; what is described then."""
    seen: dict[str, set[tuple[str, int]]] = {}

    def is_spread() -> bool:
        nonlocal seen
        seen = described(bootstrap, group)
        all_ = set().union(*seen.values())
        loads = sorted(map(len, seen.values()))
        return loads == sorted(counts) and len(all_) == sum(loads) and not {*without} & {*seen}

    until(is_spread, lambda: f"{counts} partitions in {group}: {seen}; {said()}")
    return seen


class Members(Processes):
    """Processes of one broker's groups."""

    def __init__(self, bootstrap: str, folder: Path):
        super().__init__(folder)
        self.bootstrap = bootstrap
        self.urls: dict[str, str] = {}

    def streams(self, name: str, group: str, topic: str, **settings: str) -> None:
        """Start a Streams process; settings by Kafka's names, with ``_`` for a point."""
        given = [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
        state = str(self.folder / f"{name}-state")
        self.program(name, "LiveStreams", topic, group, name, state, *given)

    def share(self, name: str, group: str, topic: str) -> None:
        self.program(name, "LiveShare", topic, group, name)

    def program(self, name: str, source: str, *arguments: str) -> None:
        """Start a program of ``tests/java``."""
        self.launch(name, program(source, class_path(), self.bootstrap, *arguments))

    def consumer(self, name: str, group: str, topic: str, **settings: str) -> None:
        """Start Java's consumer, which reads from the start and commits as it goes."""
        config = {
            "client.id": name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": "500",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        where = ("--bootstrap-server", self.bootstrap, "--topic", topic, "--group", group)
        file = self._properties(name, config)
        self.launch(name, java(class_path(), CONSUMER, *where, "--command-config", file))

    def connect(self, name: str, group: str, **settings: str) -> None:
        """Start a distributed Connect worker, and wait until it answers."""
        port = free_port()
        self.urls[name] = f"http://127.0.0.1:{port}"
        text = "org.apache.kafka.connect.storage.StringConverter"
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "client.id": name,
            "key.converter": text,
            "value.converter": text,
            "listeners": self.urls[name],
            "plugin.discovery": "service_load",
            **{f"{part}.storage.topic": f"{group}-{part}" for part in PARTS},
            **{f"{part}.storage.replication.factor": "1" for part in PARTS},
            "offset.storage.partitions": "2",
            "status.storage.partitions": "1",
            "heartbeat.interval.ms": "500",
            "session.timeout.ms": "6000",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.launch(name, java(class_path(), CONNECT, self._properties(name, config), heap_mb=192))
        until(lambda: self._answers(name), lambda: f"{name} does not answer: {self.said(name)}")

    def request(self, worker: str, path: str, body: object = None) -> Any:
        """Ask the REST interface of a worker: GET, or PUT where there is a body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.urls[worker] + path, data, headers)
        request.method = "GET" if body is None else "PUT"
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def _properties(self, name: str, config: dict[str, str]) -> str:
        file = self.folder / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        return str(file)

    def _answers(self, name: str) -> bool:
        assert self.running[name].poll() is None, self.said(name)
        try:
            self.request(name, "/connectors")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True


PARTS = ("config", "offset", "status")


def compare_polled(bootstrap: str, folder: Path, group: str, tables: Tables) -> None:
    """Compare a group's last generation by the topic with that by polls, which are continued.

    An answer has no time-outs, and no number of a classic generation; but it has the assignor of a
    KIP-848 group, where the topic has only one that a member asked for.
    """
    cluster, into = LiveCluster(bootstrap=bootstrap), folder / "polled"
    chosen, known = Selection(groups=[group]), into.exists()
    for _ in range(2):  # a poll that starts on tables of another one repeats no generation
        before = open_tables(into).rows("generations") if known else 0
        feed = feed_of(cluster, chosen, open_tables(into) if known else None)
        polled, known = watch(feed, into, selection=chosen), True
    assert polled.rows("generations") == before
    by_polls, by_topic = _last_generation(polled, group), _last_generation(tables, group)
    assert by_polls == by_topic, f"{by_polls}\n{by_topic}"
    positions = [
        {(row["topic"], row["partition"]) for row in rows_of(one, "lag", group)}
        for one in (polled, tables)
    ]
    assert positions[0] == positions[1]


def _last_generation(tables: Tables, group: str) -> list[list[dict[str, Any]]]:
    """The last generation of a group with its members and assignments, without times."""
    last = max(rows_of(tables, "generations", group), key=lambda row: row["log_offset"])
    left_out = {"timestamp", "log_partition", "log_offset", "rebalance_timeout_ms", "leader"}
    left_out |= {"session_timeout_ms", "record_bytes"}
    left_out |= {"generation"} if last["group_type"] == "classic" else {"protocol"}
    found = []
    for name in ("generations", "members", "assignments"):
        own = [r for r in rows_of(tables, name, group) if r["generation"] == last["generation"]]
        own = [last] if name == "generations" else own
        kept = [{key: one for key, one in row.items() if key not in left_out} for row in own]
        found.append(sorted(kept, key=repr))
    return found


def settled(records: Any, quiet_s: float = 6, limit_s: float = 90) -> None:
    """Wait until ``records()`` (a number) grows no more for some seconds."""
    seen, since, limit = -1, time.monotonic(), time.monotonic() + limit_s
    while time.monotonic() < limit:
        now = records()
        if now != seen:
            seen, since = now, time.monotonic()
        if seen > 0 and time.monotonic() - since > quiet_s:
            return
        time.sleep(0.3)
    raise TimeoutError(f"still growing: {seen}")
