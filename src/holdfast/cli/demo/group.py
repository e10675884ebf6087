"""The demo's processes: members that are bounced one by one, and a producer.

**Rules.** Every wait has a condition and a time limit. A condition that is not met in time, or a
process that fails, raises an error with the process's last output. No process is left running.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from holdfast.cli.demo.journal import JournalReader
from holdfast.cli.demo.ownership import holdings
from holdfast.errors import AdapterError

PATIENCE_SECONDS = 120.0
_GRACE_SECONDS = 60.0


class MemberProcesses:
    """Members of one consumer group, each a process with a journal.

    Parameters
    ----------
    bootstrap, topic, name : str
        Where the members are and what they read.
    n_partitions : int
        Of the topic.
    folder : Path
        For the journals and what the processes write to stderr.
    """

    def __init__(self, bootstrap: str, topic: str, name: str, n_partitions: int, folder: Path):
        self.name = name
        self.topic = topic
        self.journal = JournalReader(folder)
        self._bootstrap = bootstrap
        self._n_partitions = n_partitions
        self._folder = folder
        self._running: dict[int, subprocess.Popen[str]] = {}
        self._producer: subprocess.Popen[str] | None = None
        self._runs: dict[int, int] = {}

    def start(self, slot: int) -> None:
        """Start member ``slot`` (0, 1, ...) as a new process."""
        run = self._runs.get(slot, 0)
        self._runs[slot] = run + 1
        name = f"m{slot}.{run}"
        journal = self._folder / f"{name}.jsonl"
        arguments = (self._bootstrap, self.topic, self.name, name, str(journal))
        self._running[slot] = self._spawn("member", name, *arguments)

    def stop(self, slot: int) -> None:
        """Stop member ``slot`` with SIGTERM and wait for its end."""
        process = self._running.pop(slot)
        process.terminate()
        self._collect(process, f"m{slot}.{self._runs[slot] - 1}")

    def start_producer(self, rate: float) -> None:
        """Produce ``rate`` records a second over all partitions."""
        arguments = (self._bootstrap, self.topic, str(self._n_partitions), str(rate))
        self._producer = self._spawn("producer", "producer", *arguments)

    def stop_producer(self) -> dict[int, int]:
        """Stop producing; records acknowledged per partition."""
        process, self._producer = self._producer, None
        if process is None:
            raise AdapterError("the producer does not run")
        process.terminate()
        said = self._collect(process, "producer")
        return {int(partition): count for partition, count in json.loads(said).items()}

    def await_balance(self) -> None:
        """Wait until the members own all partitions, loads within one of each other."""
        n_members = len(self._running)

        def is_balanced() -> bool:
            held = holdings(self.journal.read())
            loads = sorted(len(partitions) for partitions in held.values())
            owned = set().union(*held.values()) if held else set()
            return (
                len(loads) == n_members
                and sum(loads) == len(owned) == self._n_partitions
                and loads[-1] - loads[0] <= 1
            )

        self._wait(is_balanced, f"{n_members} members own {self._n_partitions} partitions evenly")

    def work(self, seconds: float) -> None:
        """Let the group work for a while."""
        deadline = time.monotonic() + seconds
        self._wait(lambda: time.monotonic() >= deadline, "the group works")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._running.values(), self._producer):
            if process is not None:
                _kill(process)

    def _spawn(self, module: str, name: str, *arguments: str) -> subprocess.Popen[str]:
        with (self._folder / f"{name}.stderr").open("w", encoding="utf-8") as errors:
            return subprocess.Popen(  # noqa: S603 - our own module, no shell
                [sys.executable, "-m", f"holdfast.cli.demo.{module}", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def _collect(self, process: subprocess.Popen[str], name: str) -> str:
        try:
            code = process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired as error:
            _kill(process)
            raise AdapterError(f"{name} did not end within {_GRACE_SECONDS:.0f} s") from error
        assert process.stdout is not None
        said = process.stdout.read()
        _close(process)
        if code != 0:
            raise AdapterError(f"{name} failed: {self._last_words(name)}")
        return said

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            for slot, process in self._running.items():
                if process.poll() is not None:
                    name = f"m{slot}.{self._runs[slot] - 1}"
                    raise AdapterError(f"{name} ended by itself: {self._last_words(name)}")
            if self._producer is not None and self._producer.poll() is not None:
                raise AdapterError(f"the producer ended by itself: {self._last_words('producer')}")
            if time.monotonic() > deadline:
                raise AdapterError(f"not within {PATIENCE_SECONDS:.0f} s: {what}")
            time.sleep(0.05)

    def _last_words(self, name: str) -> str:
        with suppress(OSError):
            lines = (self._folder / f"{name}.stderr").read_text(encoding="utf-8").splitlines()
            if lines:
                return lines[-1].strip()
        return "it said nothing"


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    _close(process)


def _close(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
