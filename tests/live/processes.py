"""Members of a live group as processes, Java's and ours, and what they wrote down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import confluent_kafka
from kafka import KafkaAdminClient
from tests.jvm.programs import program
from tests.live.waiting import PATIENCE_SECONDS, until

from holdfast.cli.demo.journal import JournalReader
from holdfast.cli.demo.ownership import holdings, intervals, overlaps
from holdfast.jvm.jars import broker_jars

HERE = Path(__file__).parent


def create_topic(bootstrap: str, partitions: int, prefix: str = "t") -> str:
    """A topic of its own for one test."""
    name = f"{prefix}-{uuid4().hex[:10]}"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics({name: {"num_partitions": partitions}}, wait_for_metadata=True)
    finally:
        admin.close()
    return name


class Crew:
    """Processes of one group on one topic; journals in a folder."""

    def __init__(self, bootstrap: str, partitions: int, folder: Path):
        self.bootstrap = bootstrap
        self.partitions = partitions
        self.topic = create_topic(bootstrap, partitions)
        self.group = f"g-{self.topic}"
        self.folder = folder
        self.journal = JournalReader(folder)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.n_each = 0  # records in every partition

    def python(self, name: str, strategy: str) -> None:
        """Start kafka-python's; ``strategy`` is an expression such as ``CooperativeSticky()``."""
        arguments = (*self._arguments(name), strategy)
        self._start(name, [sys.executable, str(HERE / "plugin_member.py"), *arguments])

    def own(self, name: str, strategy: str = "cooperative-sticky", **more: object) -> None:
        """Start a holdfast.Consumer; ``more`` are settings, a dot written as ``_``."""
        settings = json.dumps({key.replace("_", "."): value for key, value in more.items()})
        arguments = (*self._arguments(name), strategy, settings)
        self._start(name, [sys.executable, str(HERE / "own_member.py"), *arguments])

    def java(self, name: str, assignors: str) -> None:
        """Start a Java member with classes such as ``CooperativeStickyAssignor``."""
        classpath = os.pathsep.join(map(str, broker_jars()))
        arguments = (*self._arguments(name), assignors)
        self._start(name, program("LiveMember", classpath, *arguments))

    def stop(self, name: str) -> None:
        """SIGTERM, and wait for a clean end."""
        process = self.running[name]
        process.terminate()
        try:
            code = process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # ours write down what every thread is doing
            process.wait()
            raise AssertionError(f"{name} does not end: {self.said(name, 20_000)}") from None
        self.running.pop(name)
        process.stdin.close()
        assert code in (0, 143), self.said(name)

    def kill(self, name: str) -> float:
        """SIGKILL; returns when."""
        process = self.running.pop(name)
        process.kill()
        process.wait()
        process.stdin.close()
        return time.time()

    def holdings(self) -> dict[str, set[int]]:
        """What the living members hold, by their own journals."""
        held = holdings(self.journal.read())
        return {name: held.get(name, set()) for name in self.running}

    def await_holdings(
        self, condition: Callable[[dict[str, set[int]]], object], what: str
    ) -> dict[str, set[int]]:
        """Wait until what members hold fulfils a condition."""

        def check() -> bool:
            for name, process in self.running.items():
                assert process.poll() is None, f"{name} ended by itself: {self.said(name)}"
            return bool(condition(self.holdings()))

        until(check, lambda: f"{what}; now {self.holdings()}")
        return self.holdings()

    def await_balance(self) -> dict[str, set[int]]:
        """Wait until all partitions are owned, loads within one of each other."""
        return self.await_holdings(self._is_balanced, "balance")

    def _is_balanced(self, held: dict[str, set[int]]) -> bool:
        loads = sorted(map(len, held.values()))
        owned = set().union(*held.values())
        return len(owned) == sum(loads) == self.partitions and loads[-1] - loads[0] <= 1

    def led(self) -> list[str]:
        """Names of kafka-python's members that led a round, one for each round."""
        return [entry.member for entry in self.journal.read() if entry.event == "led"]

    def produce(self, n_each: int) -> None:
        """Write so many records to every partition."""
        settings = {"bootstrap.servers": self.bootstrap, "log_level": 0}
        settings |= {"enable.idempotence": True}  # a batch that is sent again counts once
        producer = confluent_kafka.Producer(settings)
        for partition in range(self.partitions):
            for _ in range(n_each):
                producer.produce(self.topic, b"x", partition=partition)
        assert producer.flush(60) == 0
        self.n_each += n_each

    def unread(self) -> int:
        """Records of the topic that no member has read."""
        seen = {
            (entry.partitions[0], offset)
            for entry in self.journal.read()
            if entry.event == "batch"
            for offset in range(entry.first, entry.last + 1)
        }
        return self.n_each * self.partitions - len(seen)

    def overlaps(self) -> list[object]:
        """Two owners of one partition at once, by everybody's journal."""
        return overlaps(intervals(self.journal.read(), time.time()))

    def said(self, name: str, last: int = 2000) -> str:
        """Stderr of a member, its last characters."""
        return (self.folder / f"{name}.stderr").read_text(errors="replace")[-last:]

    def end(self) -> None:
        """Kill what still runs."""
        for name in list(self.running):
            self.kill(name)

    def _arguments(self, name: str) -> tuple[str, ...]:
        journal = self.folder / f"{name}.jsonl"
        return (self.bootstrap, self.topic, self.group, name, str(journal))

    def _start(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.stderr").open("wb") as errors:
            self.running[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
            )


@contextmanager
def crew(bootstrap: str, partitions: int, folder: Path) -> Iterator[Crew]:
    """A crew that is gone afterwards."""
    made = Crew(bootstrap, partitions, folder)
    try:
        yield made
    finally:
        made.end()
