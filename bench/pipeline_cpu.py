"""Measure CPU seconds and peak memory of a command and of everything it starts.

``python bench/pipeline_cpu.py COMMAND...`` prints one JSON line on stderr when the command ends.
Processes are followed by their session, so a JVM or a worker that outlives its parent counts too.
The first process is named apart: of a command with Spark it is the driver.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Usage:
    """What a session of processes has used so far."""

    session: int
    cpu_ticks: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    peak_bytes: int = 0

    def look(self) -> None:
        """Read every process of the session once."""
        resident = 0
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                head, _, rest = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            fields = rest.split()
            if int(fields[3]) != self.session:
                continue
            pid = int(entry.name)
            name = head.partition("(")[2]
            self.names[pid] = f"{name} (first)" if pid == self.session else name
            self.cpu_ticks[pid] = int(fields[11]) + int(fields[12])
            resident += int(fields[21]) * PAGE
        self.peak_bytes = max(self.peak_bytes, resident)

    def total(self) -> float:
        """Return CPU seconds of all processes up to now."""
        self.look()
        return sum(self.cpu_ticks.values()) / TICK

    def cpu_seconds(self) -> dict[str, float]:
        """Return CPU seconds by the name of the program; the first process stands for itself.

        Of a command with Spark that is the driver, ``java`` is the JVM, and ``python`` the workers.
        """
        total: dict[str, float] = {}
        for pid, ticks in self.cpu_ticks.items():
            name = self.names[pid]
            total[name] = total.get(name, 0.0) + ticks / TICK
        return {name: round(seconds, 2) for name, seconds in sorted(total.items())}


@dataclass(slots=True)
class Watcher:
    """Polls a session for the peak of its memory."""

    usage: Usage
    every_seconds: float = 0.1
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Watcher:
        """Start polling."""
        self.usage.peak_bytes = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop polling."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(self.every_seconds):
            self.usage.look()


def measure(
    command: list[str], *, every_seconds: float = 0.05, output: int | None = None
) -> tuple[int, dict[str, Any]]:
    """Run a command in a new session; return its exit code, CPU and memory."""
    started = time.monotonic()
    process = subprocess.Popen(command, start_new_session=True, stdout=output)
    usage = Usage(process.pid)
    while process.poll() is None:
        usage.look()
        time.sleep(every_seconds)
    usage.look()
    seconds = usage.cpu_seconds()
    return process.returncode, {
        "command": command[:4],
        "wall_seconds": round(time.monotonic() - started, 2),
        "cpu_seconds": round(sum(seconds.values()), 2),
        "by_program": seconds,
        "peak_mib": round(usage.peak_bytes / 2**20),
    }


if __name__ == "__main__":
    code, used = measure(sys.argv[1:])
    sys.stderr.write(json.dumps(used) + "\n")
    sys.exit(code)
