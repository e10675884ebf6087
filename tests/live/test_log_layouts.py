"""Logs of real brokers of every age, in common layouts, and what is read from them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from tests.live.crew import Topic
from tests.live.offsets_log import columns_of
from tests.live.processes import Processes
from tests.pipeline import local
from tests.pipeline.test_broker_log import causes, truth

from holdfast.cluster.cluster import LiveCluster
from holdfast.fleet.pipeline.history.broker_log import CONTRADICTED, read_logs
from holdfast.fleet.pipeline.ingest.dump import write_log
from holdfast.local import broker as brokers
from holdfast.local import broker_server
from holdfast.local.jars import kafka_release

pytestmark = pytest.mark.broker

PATTERNS = {
    "apache": "[%d] %p %m (%c)%n",
    "strimzi-3": "%d{ISO8601} %p %m (%c) [%t]%n",
    "strimzi-4": "%d{ISO8601} %-5p [%t] %c{1}:%L - %m%n",
    "line": "[%d] %p %m (%c:%L)%n",
    "around": "%d{dd MMM yyyy HH:mm:ss,SSS} [%p] [%c{1}] %m - %c{1} [%t]%n",
    "location": "%d %p %t %m %l%n",
    "bare": "%m%n",
}
COLOURS = "%highlight{%d %p} %m %style{(%c)}{cyan}%n"
NEWEST, OLDER = ("4.3.1",), ("2.8.2", "3.6.2", "3.9.1", "4.0.2")
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
NEW = "group.coordinator.new.enable"
"""Kafka 3.9 has the coordinator of Kafka 4, too, if it is told to use it."""


def log4j_1(folder):
    """Every pattern as a file, of log4j 1."""
    names = "".join(f", {name}" for name in PATTERNS)
    lines = [
        f"log4j.logger.{logger}=INFO{names}"
        for logger in ("kafka.coordinator.group", "org.apache.kafka.coordinator.group")
    ]
    for name, pattern in PATTERNS.items():
        lines += [
            f"log4j.appender.{name}=org.apache.log4j.FileAppender",
            f"log4j.appender.{name}.File={folder}/{name}.log",
            f"log4j.appender.{name}.layout=org.apache.log4j.PatternLayout",
            f"log4j.appender.{name}.layout.ConversionPattern={pattern}",
        ]
    return "\n".join([*lines, ""])


def log4j_2(folder):
    """The same of log4j 2, with colours and JSON."""
    layouts = {
        name: {"type": "PatternLayout", "pattern": pattern} for name, pattern in PATTERNS.items()
    }
    layouts["colours"] = {"type": "PatternLayout", "pattern": COLOURS, "disableAnsi": "false"}
    layouts["json"] = {"type": "JsonLayout", "compact": "true", "eventEol": "true"}
    layouts["lines"] = {"type": "JsonLayout"}
    lines = [
        "logger.groups.name = org.apache.kafka.coordinator.group",
        "logger.groups.level = info",
    ]
    for name, layout in layouts.items():
        own = f"appender.{name}"
        lines += [f"{own}.type = File", f"{own}.name = {name}"]
        lines += [f"{own}.fileName = {folder}/{name}.log"]
        lines += [f"{own}.layout.{key} = {value}" for key, value in layout.items()]
        lines += [f"logger.groups.appenderRef.{name}.ref = {name}"]
    return "\n".join([*lines, ""])


MEMBER = """
import json, sys, threading
from confluent_kafka import Consumer
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
consumer = Consumer(json.loads(sys.argv[1]))
consumer.subscribe(json.loads(sys.argv[2]))
while not ended.is_set():
    message = consumer.poll(0.1)
    if message is not None and message.error() is None:
        consumer.commit(message=message, asynchronous=False)
consumer.close()
"""


class Stage(Processes):
    """Members on a broker, what they were told, and the log that says why they rebalance."""

    def __init__(self, bootstrap: str, folder: Path, log: Path):
        super().__init__(folder)
        self.bootstrap, self.log = bootstrap, log
        self.truth: list[dict[str, object]] = []

    def start(self, group: str, client: str, **conf: object) -> None:
        """Start a member and wait for what the coordinator says."""
        conf = {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "client.id": client,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **conf,
        }
        if conf.get("group.protocol") != "consumer":
            conf |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        self.launch(client, [sys.executable, "-c", MEMBER, json.dumps(conf), json.dumps(["t"])])
        self.settles(group, "join", client)

    def settles(self, group: str, what: str, client: str, first: int | None = None) -> None:
        """Note what was done, and wait until the log of the group is still for two seconds."""
        self.truth.append({"group": group, "what": what, "client": client})
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
        before = self.lines()
        self.running[client].stdin.close()
        self.gone(client)
        self.settles(group, "leave", client, before)

    def crash(self, group: str, client: str) -> None:
        self.kill(client)
        self.settles(group, "crash", client)


def live(stage, *, modern):
    """Members that join, leave, die and come back; the last one leaves nobody behind."""
    stage.start("etl", "a")
    stage.start("etl", "b")
    stage.leave("etl", "b")
    stage.start("etl", "b")
    stage.crash("etl", "b")
    static = {"partition.assignment.strategy": "cooperative-sticky"}
    for name in ("s0", "s1"):
        stage.start("static", name, **static, **{"group.instance.id": name})
    stage.leave("static", "s1")
    if modern:
        for name in ("n0", "n1"):
            stage.start("next", name, **{"group.protocol": "consumer"})
        stage.leave("next", "n1")
        stage.leave("next", "n0")
    stage.leave("etl", "a")


@pytest.mark.parametrize(
    ("version", "more"),
    [
        *(pytest.param(version, {}, marks=pytest.mark.every) for version in NEWEST),
        *(pytest.param(version, {}, marks=pytest.mark.slow) for version in OLDER),
        pytest.param("3.9.1", {NEW: "true"}, marks=pytest.mark.slow),
    ],
)
def test_every_layout_says_what_was_done(tmp_path, monkeypatch, version, more):
    modern = kafka_release(version) >= (4, 0)
    of_version, own = ("_LOG4J_2", log4j_2) if modern else ("_LOG4J_1", log4j_1)
    text = getattr(broker_server, of_version) + own(tmp_path)
    monkeypatch.setattr(broker_server, of_version, text)
    settings = brokers.BrokerSettings(kafka=version, properties=QUICK | more)
    with brokers.Broker.start(settings=settings) as broker:
        Topic(broker.bootstrap, 4, name="t")
        with Stage(broker.bootstrap, tmp_path, tmp_path / "apache.log") as stage:
            live(stage, modern=modern)
        columns = columns_of(broker.bootstrap)
        write_log(tmp_path / "dump", columns, LiveCluster(bootstrap=broker.bootstrap).snapshot())
    logs = sorted(tmp_path.glob("*.log"))
    tables = local.run(tmp_path / "dump", tmp_path / "tables", logs=[tmp_path / "apache.log"])
    assert causes(tables) == truth(stage.truth, log=True)
    assert CONTRADICTED not in tables.table("anomalies")["kind"].to_pylist()
    said = {log.stem: read_logs([log], ("etl", "static", "next"))[0] for log in logs}
    assert len(said) == len(PATTERNS) + 3 * modern
    assert {name for name in said if said[name] != said["apache"]} == set()
