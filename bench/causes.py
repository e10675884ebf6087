"""Measure how often the cause of a rebalance is right: live groups, their history, and the tables.

``python bench/causes.py run FOLDER [--seed S] [--seconds N] [--session MS] [--kinds KIND...]``: a
group of each kind lives on a real broker. Members start, leave (SIGTERM), are killed (SIGKILL), or
are stopped for longer than their session (SIGSTOP, then SIGCONT), at random. An event log records
each step. The folder then has a dump of the cluster, the broker's log and the event log.

``python bench/causes.py read FOLDER...`` makes the tables of each folder with and without the log,
and prints JSON lines: how often each cause was given for each true one, and, of the causes with
each confidence, the fraction of right ones.

**The truth** of a rebalance follows from its members, the previous ones, and the event log: a
departed member had left, if its last step was SIGTERM; else it was silent (killed, stopped, or
alive and too slow for its session). A new member is a restart if its slot was in the group at most
300 s before. The busy machine is part of the runs: an untouched member may lose its session.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bounce_member import KINDS as MEMBER_KINDS

JAVA = {
    "java-range": {
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"
    },
    "java-coop": {
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer."
        "CooperativeStickyAssignor"
    },
    "java-848": {"group.protocol": "consumer"},
}
DEFAULT = (
    "java-coop",
    "java-848",
    "kafka-python-range",
    "confluent-range",
    "confluent-coop",
    "simple",
    "deferred",
)
SLOTS, PARTITIONS = 3, 8
RESTART_SECONDS = 300.0
BATCH_EVERY_SECONDS = 0.1
JAVA_MEMBER = Path(__file__).parent / "peers" / "GroupMember.java"
LOGGERS = """logger.groups.name = org.apache.kafka.coordinator.group
logger.groups.level = info
"""
NOBODY = frozenset(
    {
        "cooperative_follow_up",
        "scheduled_rebalance",
        "subscription_change",
        "partition_count_change",
        "configuration_change",
        "protocol_change",
        "leader_change",
        "rejoin",
        "spurious",
    }
)
RIGHT = {
    "join": {"join", "restart"},
    "restart": {"restart"},
    "leave": {"leave"},
    "session_timeout": {"silence"},
    "rebalance_timeout": {"silence"},
    "sync_timeout": {"silence"},
    "poll_timeout": {"silence"},
    "leave_or_timeout": {"leave", "silence", "leave_and_silence"},
    "leave_and_timeout": {"leave_and_silence"},
    "join_and_leave": {"join_and_leave"},
    **{cause: {"nobody"} for cause in NOBODY},
}
"""True causes under which a cause is right; a restart is a more specific join."""


@dataclass(kw_only=True)
class LiveGroup:
    """One group and its steps."""

    kind: str
    topic: str
    bootstrap: str
    folder: Path
    chance: random.Random
    session_ms: int
    commit_ms: int
    event_log: list[tuple[float, str, str, str]] = field(default_factory=list)
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)

    def live(self, until: float) -> None:
        """Act at random moments; slot 0 is never touched."""
        for slot in range(SLOTS):
            self.start(slot)
            time.sleep(self.chance.uniform(0, 2))
        time.sleep(8)
        while time.time() < until:
            slot = self.chance.randrange(1, SLOTS)
            if slot not in self.running:
                self.start(slot)
            else:
                self.chance.choice((self.leave, self.leave, self.kill, self.kill, self.stop))(slot)
            time.sleep(self.chance.uniform(2, 2.2 * self.session_ms / 1000))

    def note(self, slot: int, what: str) -> None:
        """Record a step."""
        self.event_log.append((time.time(), self.kind, f"{self.kind}-{slot}", what))

    def start(self, slot: int) -> None:
        """Start the member of a slot."""
        name = f"{self.kind}-{slot}"
        kafka = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.kind,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": self.commit_ms,
        }
        if self.kind != "java-848":
            kafka |= {"session.timeout.ms": self.session_ms, "heartbeat.interval.ms": 1_000}
        if self.kind in JAVA:
            from holdfast.local.jars import broker_jars
            from holdfast.local.java import find_java

            settings = [f"{key}={value}" for key, value in (kafka | JAVA[self.kind]).items()]
            path = os.pathsep.join(map(str, broker_jars()))
            options = ["-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path]
            program = [str(JAVA_MEMBER), self.topic, *settings]
            command = [str(find_java().executable), *options, *program]
        else:
            task = {"kind": self.kind, "topic": self.topic, "restore": 0.0, "work": 0.0}
            task |= {"kafka": kafka, "event_log": str(self.folder / f"{name}.jsonl")}
            member = Path(__file__).with_name("bounce_member.py")
            command = [sys.executable, str(member), json.dumps(task)]
        self.note(slot, "start")
        with (self.folder / f"{name}.err").open("ab") as errors:
            self.running[slot] = subprocess.Popen(command, stderr=errors, stdout=errors)

    def leave(self, slot: int) -> None:
        """Send SIGTERM: the member closes in order."""
        self.note(slot, "leave")
        self._end(slot, signal.SIGTERM)

    def kill(self, slot: int) -> None:
        """Send SIGKILL."""
        self.note(slot, "kill")
        self._end(slot, signal.SIGKILL)

    def stop(self, slot: int) -> None:
        """Send SIGSTOP for longer than a session, then SIGCONT."""
        self.note(slot, "stop")
        self.running[slot].send_signal(signal.SIGSTOP)
        time.sleep(self.session_ms / 1000 + self.chance.uniform(3, 8))
        self.note(slot, "wake")
        self.running[slot].send_signal(signal.SIGCONT)

    def _end(self, slot: int, with_signal: signal.Signals) -> None:
        process = self.running.pop(slot)
        process.send_signal(with_signal)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            self.note(slot, "kill")
            process.kill()

    def close(self) -> None:
        """End running members."""
        for slot in list(self.running):
            self.running[slot].send_signal(signal.SIGCONT)
            self.leave(slot)


def run(options: argparse.Namespace) -> None:
    """Run the groups, and write the dump, the log and the event log."""
    from holdfast.local import broker as brokers
    from holdfast.local import broker_server

    broker_server._LOG4J_2 += LOGGERS
    options.folder.mkdir(parents=True, exist_ok=True)
    settings = brokers.BrokerSettings(
        properties={
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.session.timeout.ms": str(options.session),
            "group.consumer.min.session.timeout.ms": "6000",
            "group.consumer.heartbeat.interval.ms": "1000",
            "group.consumer.min.heartbeat.interval.ms": "500",
        }
    )
    chance = random.Random(options.seed)
    with (
        tempfile.TemporaryDirectory() as temporary,
        brokers.Broker.start(settings=settings) as broker,
    ):
        _make_topics(broker.bootstrap)
        halt = threading.Event()
        writer = threading.Thread(target=_write, args=(broker.bootstrap, halt))
        writer.start()
        groups = [
            LiveGroup(
                kind=kind,
                topic=chance.choice(("busy", "busy", "idle")),
                bootstrap=broker.bootstrap,
                folder=Path(temporary),
                chance=random.Random(chance.random()),
                session_ms=options.session,
                commit_ms=chance.choice((1_000, 5_000, 30_000)),
            )
            for kind in options.kinds
        ]
        until = time.time() + options.seconds
        threads = [threading.Thread(target=group.live, args=(until,)) for group in groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lines = sorted(line for group in groups for line in group.event_log)
        for group in groups:
            group.close()
        halt.set()
        writer.join()
        dump = ["dump", "-b", broker.bootstrap, "-o", str(options.folder / "dump"), "-q"]
        subprocess.run([sys.executable, "-m", "holdfast", *dump], check=True)
        log = (broker.folder / "node-1" / "server.log").read_text(errors="replace")
    (options.folder / "server.log").write_text(log)
    about = {group.kind: [group.topic, group.commit_ms] for group in groups}
    told = {"seed": options.seed, "session_ms": options.session, "groups": about, "until": until}
    with (options.folder / "journal.jsonl").open("w") as file:
        file.writelines(json.dumps(line) + "\n" for line in [told, *lines])


def _make_topics(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in ("busy", "idle")])
    for future in made.values():
        future.result(60)


def _write(bootstrap: str, halt: threading.Event) -> None:
    """Write records to every partition of one topic, all the time."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    while not halt.wait(BATCH_EVERY_SECONDS):
        for partition in range(PARTITIONS):
            producer.produce("busy", b"x" * 50, partition=partition)
        producer.poll(0)
    producer.flush(60)


def read(folders: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield the confusion table, and the fraction of right causes by confidence."""
    table: Counter[tuple[bool, str, str]] = Counter()
    given: dict[tuple[bool, str, float], list[bool]] = defaultdict(list)
    for folder in folders:
        for with_log in (False, True):
            for kind, row, truth in judged(folder, with_log=with_log):
                right = truth in RIGHT[row["cause"]]
                table[with_log, row["cause"], truth] += 1
                given[with_log, row["cause"], row["confidence"]].append(right)
                if not right:
                    wrong = {name: row[name] for name in ("generation", "cause", "stated_reason")}
                    yield {
                        "wrong": str(folder),
                        "kind": kind,
                        "log": with_log,
                        "truth": truth,
                    } | wrong
    for (with_log, cause, truth), n in sorted(table.items()):
        yield {"log": with_log, "cause": cause, "truth": truth, "n": n}
    for (with_log, cause, confidence), rights in sorted(given.items()):
        share = {"right": sum(rights), "n": len(rights), "share": sum(rights) / len(rights)}
        yield {"log": with_log, "cause": cause, "confidence": confidence} | share


def judged(folder: Path, *, with_log: bool) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield group, row and true cause of every rebalance of a folder during the steps."""
    from holdfast.fleet.tables.reading import Tables

    told, *lines = map(json.loads, (folder / "journal.jsonl").read_text().splitlines())
    out = folder / ("tables-log" if with_log else "tables")
    command = ["history", "--input", str(folder / "dump"), "-o", str(out), "-q", "--format", "json"]
    command += ["--broker-log", str(folder / "server.log")] if with_log else []
    subprocess.run(
        [sys.executable, "-m", "holdfast", *command], check=True, stdout=subprocess.DEVNULL
    )
    tables = Tables(out)
    present: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    for row in tables.table("members").to_pylist():
        present[row["group"], row["timestamp"]][row["member_id"]] = row["client_id"]
    for kind in told["groups"]:
        done = [(at, name, what) for at, group, name, what in lines if group == kind]
        last_seen: dict[str, float] = {}
        before: dict[str, str] | None = None
        rows = tables.table("rebalances", groups=[kind]).to_pylist()
        for row in rows:
            at = row["timestamp"].timestamp()
            now = present.get((kind, row["timestamp"]), {})
            if before is not None and row["cause"] != "first_seen" and at < told["until"]:
                yield kind, row, _truth(before, now, done, at, last_seen)
            last_seen |= dict.fromkeys((before or {}).values(), at) | dict.fromkeys(
                now.values(), at
            )
            before = now


def _truth(
    before: dict[str, str],
    now: dict[str, str],
    done: Sequence[tuple[float, str, str]],
    at: float,
    last_seen: dict[str, float],
) -> str:
    """Return the true cause, in one word."""
    came = [name for member, name in now.items() if member not in before]
    went = {
        "leave" if _last(done, name, at) == "leave" else "silence"
        for member, name in before.items()
        if member not in now
    }
    if came and all(at - last_seen.get(name, 0.0) <= RESTART_SECONDS for name in came):
        return "restart"
    if came:
        return "join_and_leave" if went else "join"
    return "_and_".join(sorted(went)) or "nobody"


def _last(done: Sequence[tuple[float, str, str]], name: str, at: float) -> str:
    """Return the last step of a member before a moment, except starts."""
    return next((what for time_of, who, what in reversed(done)
                 if who == name and time_of <= at and what != "start"), "")  # fmt: skip


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    live = commands.add_parser("run")
    live.add_argument("folder", type=Path)
    live.add_argument("--seed", type=int, default=1)
    live.add_argument("--seconds", type=float, default=240)
    live.add_argument("--session", type=int, default=10_000)
    live.add_argument("--kinds", nargs="+", choices=[*MEMBER_KINDS, *JAVA], default=DEFAULT)
    reading = commands.add_parser("read")
    reading.add_argument("folders", type=Path, nargs="+")
    options = parser.parse_args()
    if options.command == "run":
        run(options)
        return
    for line in read(options.folders):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
