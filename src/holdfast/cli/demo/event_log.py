"""Event logs of members: lines of what each process owned when, written and read.

**Rules.** An event log has one line an event, a JSON object with these keys:

==============  =================================================================================
``time``        when, in seconds since 1970
``member``      the process: another one after each start
``event``       ``assigned``, ``revoked``, ``lost`` (the callbacks), ``batch`` (records came),
                ``end``; any other proves that it runs
``partitions``  numbers
``first``       of a batch: its first offset
``last``        of a batch: its last offset
==============  =================================================================================

Members of the demo and of the tests write event logs, in Python and in Java.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line: when (seconds since the epoch), which process, what, and of which partitions.

    A batch has one partition and the offsets ``first`` to ``last`` that were read; other events
    have -1.
    """

    time_seconds: float
    member: str
    event: str
    partitions: tuple[int, ...] = ()
    first: int = -1
    last: int = -1

    def to_line(self) -> str:
        """Write it as one line of JSON."""
        line = {
            "time": self.time_seconds,
            "member": self.member,
            "event": self.event,
            "partitions": self.partitions,
        }
        if self.first >= 0:
            line |= {"first": self.first, "last": self.last}
        return json.dumps(line)

    @classmethod
    def from_line(cls, line: str) -> Entry:
        """Read what :meth:`to_line` wrote."""
        found = json.loads(line)
        return cls(
            time_seconds=found["time"],
            member=found["member"],
            event=found["event"],
            partitions=tuple(found["partitions"]),
            first=found.get("first", -1),
            last=found.get("last", -1),
        )


class EventLogWriter:
    """Appends the lines of one process to its event log, without buffering.

    Parameters
    ----------
    file : text file
        The event log, open for appending; the caller closes it.
    """

    def __init__(self, name: str, file: TextIO):
        self._name = name
        self._file = file

    def write(
        self, event: str, partitions: Iterable[int] = (), *, first: int = -1, last: int = -1
    ) -> None:
        """Note what happens now; see :class:`Entry`."""
        entry = Entry(
            time_seconds=time.time(),
            member=self._name,
            event=event,
            partitions=tuple(sorted(partitions)),
            first=first,
            last=last,
        )
        self._file.write(entry.to_line() + "\n")
        self._file.flush()


class EventLogReader:
    """Reads lines added to the event logs of a folder since the last call."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._position: dict[Path, int] = {}
        self.entries: list[Entry] = []

    def read(self) -> list[Entry]:
        """Return all entries so far, by time."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._position.get(path, 0))
                data = file.read()
            whole, newline, _ = data.rpartition(b"\n")
            self._position[path] = self._position.get(path, 0) + len(whole) + len(newline)
            lines = whole.decode().splitlines()
            self.entries.extend(Entry.from_line(line) for line in lines if line)
        self.entries.sort(key=lambda entry: entry.time_seconds)
        return self.entries
