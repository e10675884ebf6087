"""Members of a live group as processes, Java's and holdfast's, and their event logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from tests.live.crew import Topic, fresh
from tests.live.waiting import PATIENCE_SECONDS, until
from tests.local.programs import program

from holdfast.cli.demo.event_log import EventLogReader, holdings, intervals, overlaps
from holdfast.local.jars import broker_jars

HERE = Path(__file__).parent


def event_member(kind: str, *arguments: str) -> list[str]:
    """The command of a member with an event log (``event_member.py``)."""
    return [sys.executable, str(HERE / "event_member.py"), kind, *arguments]


def create_topic(bootstrap: str, partitions: int, prefix: str = "t") -> str:
    """A topic of its own for one test."""
    return Topic(bootstrap, partitions, name=fresh(prefix)).name


class Processes:
    """Processes by name, gone after the block; what each prints goes to a file in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def launch(self, name: str, command: Sequence[str], cwd: Path | None = None) -> None:
        """Start a process; one that reads its standard input ends when this process does."""
        pipes: Any = {"stdin": subprocess.PIPE, "stderr": subprocess.STDOUT}
        environment = os.environ | {"PYTHONFAULTHANDLER": "1"}  # SIGABRT: what every thread does
        with (self.folder / f"{name}.out").open("ab") as out:
            self.running[name] = subprocess.Popen(
                command, stdout=out, cwd=cwd, env=environment, **pipes
            )

    def gone(self, name: str) -> int:
        """Wait for an end, and forget the process; its exit code."""
        process = self.running[name]
        try:
            code = process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            process.wait()
            raise AssertionError(f"{name} does not end: {self.said(name, 20_000)}") from None
        del self.running[name]
        process.stdin.close()
        return code

    def stop(self, name: str) -> int:
        """SIGTERM; its exit code."""
        self.running[name].terminate()
        return self.gone(name)

    def kill(self, name: str) -> float:
        """SIGKILL; returns when."""
        self.running[name].kill()
        self.gone(name)
        return time.time()

    def said(self, name: str, last: int = 3000) -> str:
        """What a process printed, its last characters."""
        return (self.folder / f"{name}.out").read_text(errors="replace")[-last:]

    def lines(self, name: str) -> list[list[str]]:
        """Words of each line that a process printed."""
        return [line.split() for line in self.said(name, 10**6).splitlines()]

    def check_alive(self, names: Iterable[str] | None = None) -> None:
        """None of these, or of all, has ended by itself."""
        for name in self.running if names is None else names:
            code = self.running[name].poll()
            assert code is None, f"{name} ended by itself ({code}): {self.said(name)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.running):
            self.kill(name)


class Crew(Processes):
    """Processes of one group on one topic, with their event logs."""

    def __init__(self, bootstrap: str, partitions: int, folder: Path):
        super().__init__(folder)
        self.bootstrap = bootstrap
        self.partitions = partitions
        self.records = Topic(bootstrap, partitions)
        self.topic, self.produce = self.records.name, self.records.produce
        self.group = f"g-{self.topic}"
        self.event_log = EventLogReader(folder)

    def python(self, name: str, strategy: str) -> None:
        """Start kafka-python's; ``strategy`` is an expression such as ``CooperativeSticky()``."""
        self._member("python", name, strategy)

    def own(self, name: str, strategy: str = "cooperative-sticky", **more: object) -> None:
        """Start a holdfast.Consumer; ``more`` are settings, a dot written as ``_``."""
        self._member("own", name, strategy, **more)

    def worker(self, name: str, **more: object) -> None:
        """Start a holdfast.Worker, whose resources are as many shards as there are partitions."""
        self._member("worker", name, json.dumps({"shard": self.partitions}), **more)

    def _member(self, kind: str, name: str, strategy: str, **more: object) -> None:
        settings = json.dumps({key.replace("_", "."): value for key, value in more.items()})
        self.launch(name, event_member(kind, *self._arguments(name), strategy, settings))

    def java(self, name: str, assignors: str) -> None:
        """Start a Java member with classes such as ``CooperativeStickyAssignor``."""
        classpath = os.pathsep.join(map(str, broker_jars()))
        arguments = (*self._arguments(name), assignors)
        self.launch(name, program("LiveMember", classpath, *arguments))

    def stop(self, name: str) -> int:
        code = super().stop(name)
        assert code in (0, 143), self.said(name)
        return code

    def holdings(self) -> dict[str, set[int]]:
        """What the living members hold, by their own event logs."""
        held = holdings(self.event_log.read())
        return {name: held.get(name, set()) for name in self.running}

    def await_holdings(
        self, condition: Callable[[dict[str, set[int]]], object], what: str
    ) -> dict[str, set[int]]:
        """Wait until what members hold fulfils a condition."""

        def check() -> bool:
            self.check_alive()
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
        return [entry.member for entry in self.event_log.read() if entry.event == "led"]

    def unread(self) -> int:
        """Records of the topic that no member has read."""
        seen = {
            (entry.partitions[0], offset)
            for entry in self.event_log.read()
            if entry.event == "batch"
            for offset in range(entry.first, entry.last + 1)
        }
        return self.records.sent.total() - len(seen)

    def overlaps(self) -> list[object]:
        """Two owners of one partition at once, by everybody's event log."""
        return overlaps(intervals(self.event_log.read(), time.time()))

    def _arguments(self, name: str) -> tuple[str, ...]:
        event_log = self.folder / f"{name}.jsonl"
        return (self.bootstrap, self.topic, self.group, name, str(event_log))
