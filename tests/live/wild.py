"""Groups of all kinds in which members start, leave, die, stop and return at random.

Every member is a process. The order of the faults follows from a seed; their outcome depends on the
machine too, so expected values come from the broker and from the members' own event logs.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.live.kinds import Members
from tests.live.processes import event_member

from holdfast.local import broker as brokers

BENCH = Path(__file__).parents[2] / "bench"
SESSION_MS = 8_000
STOPPED_S = SESSION_MS / 1000 + 4
JAVA = "org.apache.kafka.clients.consumer."
CLASSIC = {"session_timeout_ms": str(SESSION_MS), "heartbeat_interval_ms": "1000"}

GROUPS: dict[str, tuple[str, ...]] = {
    "mixed": ("java-coop", "simple", "kafka-python-coop", "confluent-coop"),
    "eager": ("java-range", "kafka-python-range", "confluent-range"),
    "deferred": ("deferred", "deferred", "deferred"),
    "next": ("java-848", "confluent-848", "java-848"),
    "migrating": ("java-848", "java-coop", "java-coop"),
    "share": ("share", "share"),
    "streams": ("streams-1071", "streams-1071"),
    "tasks": ("streams-classic", "streams-classic"),
    "workers": ("worker", "worker", "worker"),
}
"""Group -> what the member of each slot is."""

SESSIONS = {
    f"group.{kind}.{name}.ms": str(value)
    for kind in ("consumer", "share", "streams")
    for name, value in (
        ("session.timeout", SESSION_MS),
        ("min.session.timeout", 6_000),
        ("heartbeat.interval", 1_000),
        ("min.heartbeat.interval", 500),
    )
}


@contextmanager
def broker_with_short_sessions() -> Iterator[brokers.Broker]:
    """A broker to itself, with short sessions."""
    own = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}
    settings = brokers.BrokerSettings(properties=own | SESSIONS)
    with brokers.Broker.start(settings=settings) as broker:
        yield broker


ENDS = ("leave", "kill", "stop")

PYTHON = {
    "simple",
    "deferred",
    "confluent-coop",
    "confluent-range",
    "confluent-848",
    "kafka-python-coop",
    "kafka-python-range",
}
"""Kinds that ``bench/bounce_member.py`` runs; they keep an event log."""


@dataclass
class WildGroup:
    kind: str
    name: str
    topic: str
    crew: Members
    chance: random.Random
    starts: int = 0
    slots: dict[int, str] = field(default_factory=dict)
    """Slot -> the process that fills it now."""
    done: list[tuple[float, str, str]] = field(default_factory=list)

    def act(self) -> None:
        """Do one thing to one slot."""
        slot = self.chance.randrange(len(GROUPS[self.kind]))
        if slot not in self.slots:
            self.start(slot)
            return
        how = self.chance.choice(("leave", "leave", "kill", "kill", "stop"))
        {"leave": self.leave, "kill": self.kill, "stop": self.stop}[how](slot)

    def start(self, slot: int) -> None:
        kind = GROUPS[self.kind][slot]
        self.starts += 1
        name = f"{self.kind}-{slot}-{self.starts}"
        self._note(name, f"start {kind}")
        self.slots[slot] = name
        if kind in PYTHON:
            self.crew.launch(name, self._python(name, kind))
            self.crew.running[name].stdin.close()  # it joins where its standard input ends
        elif kind == "worker":
            self.crew.launch(name, self._worker(name))
        elif kind == "share":
            self.crew.share(name, self.name, self.topic)
        elif kind.startswith("streams"):
            protocol = "streams" if kind.endswith("1071") else "classic"
            more = {} if protocol == "streams" else CLASSIC
            self.crew.streams(name, self.name, self.topic, group_protocol=protocol, **more)
        elif kind.endswith("848"):
            self.crew.consumer(name, self.name, self.topic, group_protocol="consumer")
        else:
            how = {"coop": "CooperativeStickyAssignor", "range": "RangeAssignor"}
            assignor = JAVA + how[kind.rpartition("-")[2]]
            self.crew.consumer(
                name,
                self.name,
                self.topic,
                partition_assignment_strategy=assignor,
                **CLASSIC,
            )

    def _python(self, name: str, kind: str) -> list[str]:
        kafka: dict[str, Any] = {
            "bootstrap.servers": self.crew.bootstrap,
            "group.id": self.name,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
        }
        if not kind.endswith("848"):
            kafka |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1_000}
        task = {"kind": kind, "topic": self.topic, "restore": 0.0, "work": 0.0, "delay_ms": 5_000}
        task |= {"event_log": str(self.crew.folder / f"{name}.jsonl"), "kafka": kafka}
        return [sys.executable, str(BENCH / "bounce_member.py"), json.dumps(task)]

    def _worker(self, name: str) -> list[str]:
        config = {
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 1_000,
        }
        event_log = str(self.crew.folder / f"{name}.jsonl")
        words = (self.crew.bootstrap, "-", self.name, name, event_log, json.dumps({"shard": 6}))
        return event_member("worker", *words, json.dumps(config))

    def leave(self, slot: int) -> None:
        """SIGTERM."""
        name = self.slots.pop(slot)
        self._note(name, "leave")
        self.crew.stop(name)

    def kill(self, slot: int) -> None:
        """SIGKILL."""
        name = self.slots.pop(slot)
        self._note(name, "kill")
        self.crew.kill(name)

    def stop(self, slot: int) -> None:
        """SIGSTOP past its session, and SIGCONT."""
        name = self.slots[slot]
        self._note(name, "stop")
        self.crew.running[name].send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        self._note(name, "wake")
        self.crew.running[name].send_signal(signal.SIGCONT)

    def fill(self) -> None:
        """Start every slot that is empty, or whose process of Kafka's own client has given up."""
        for slot, kind in enumerate(GROUPS[self.kind]):
            name = self.slots.get(slot, "")
            if name and self.crew.running[name].poll() is not None:
                assert kind.startswith("java-"), (name, self.crew.said(name))
                self._note(name, f"gave up: {self.crew.said(name, 500)}")
                self.crew.running.pop(name)
                del self.slots[slot]
            if slot not in self.slots:
                self.start(slot)

    def _note(self, name: str, what: str) -> None:
        self.done.append((time.time(), name, what))

    def last_deed(self, client: str, before: float) -> str:
        """What was done last to a member by that time; its client id begins with its name."""
        found = [
            (at, what)
            for at, name, what in self.done
            if f"{client}-".startswith(f"{name}-") and what in ENDS and at <= before
        ]
        return max(found)[1] if found else ""

    @property
    def has_recordings(self) -> bool:
        """Whether every member writes down what it owns."""
        return all(kind in PYTHON for kind in GROUPS[self.kind])

    def owners(self) -> dict[int, list[str]]:
        """Partition -> the members that said that they got it, in order, repeats left out."""
        lines = [
            (at, path.stem, partition)
            for path in self.crew.folder.glob(f"{self.kind}-*.jsonl")
            for at, what, *more in map(json.loads, whole_lines(path))
            if what == "assigned"
            for partition in more[0]
        ]
        return in_turn((partition, name) for _, name, partition in sorted(lines))


def whole_lines(path: Path) -> list[str]:
    """Lines that were written to their end."""
    text = path.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1].splitlines()


def in_turn(pairs: Iterable[tuple[int, str]]) -> dict[int, list[str]]:
    """Partition -> its names in order, one name only once where it follows itself."""
    found: dict[int, list[str]] = {}
    for partition, name in pairs:
        names = found.setdefault(partition, [])
        if names[-1:] != [name]:
            names.append(name)
    return found


def is_within(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether ``part`` is ``whole`` with some left out."""
    rest = iter(whole)
    return all(name in rest for name in part)
