"""Event logs of members: what each process owned when and read, and what follows from them.

**Rules.** An event log has one line an event, a JSON object with these keys:

==============  =================================================================================
``time``        when, in seconds since 1970; all processes share the clock of one machine
``member``      the process: another one after each start
``event``       ``assigned``, ``revoked``, ``lost`` (the callbacks), ``batch`` (records came),
                ``end``; any other proves that it runs
``partitions``  numbers
``first``       of a batch: its first offset
``last``        of a batch: its last offset
==============  =================================================================================

Members of the demo and of the tests write event logs, in Python and in Java.

``assigned`` opens an interval of ownership of each partition, ``revoked`` and ``lost`` close it,
and ``end`` closes all intervals of the process. A record is *read* if a batch in a member's event
log covers its offset, and *unread* otherwise: committed offsets do not count as read.

Example: a topic ends at 10, and batches are 0 to 6 and 5 to 8. Of 10 records 9 are read, 2 of them
twice, and 1 is unread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TextIO

from holdfast.errors import ProcessError


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
    """Appends the lines of one process to its open event log, without buffering."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One member owned one partition from ``start`` until ``stop`` (seconds since the epoch)."""

    partition: int
    member: str
    start: float
    stop: float


def holdings(entries: Iterable[Entry]) -> dict[str, set[int]]:
    """Return the partitions that every running process owns after the entries."""
    held: dict[str, set[int]] = {}
    for entry in entries:
        if entry.event == "end":
            held.pop(entry.member, None)
        elif entry.event == "assigned":
            held.setdefault(entry.member, set()).update(entry.partitions)
        elif entry.event in ("revoked", "lost"):
            held.setdefault(entry.member, set()).difference_update(entry.partitions)
    return held


def intervals(entries: Sequence[Entry], end_seconds: float) -> list[Interval]:
    """Return ownership intervals by partition and start, from entries ordered by time.

    An interval that no entry closes stops at ``end_seconds``, in seconds since the epoch.
    """
    opened: dict[tuple[int, str], float] = {}
    found: list[Interval] = []

    def close(partition: int, member: str, stop: float) -> None:
        start = opened.pop((partition, member), None)
        if start is not None:
            found.append(Interval(partition=partition, member=member, start=start, stop=stop))

    for entry in entries:
        if entry.event == "assigned":
            for partition in entry.partitions:
                opened.setdefault((partition, entry.member), entry.time_seconds)
        elif entry.event in ("revoked", "lost"):
            for partition in entry.partitions:
                close(partition, entry.member, entry.time_seconds)
        elif entry.event == "end":
            for partition, member in [key for key in opened if key[1] == entry.member]:
                close(partition, member, entry.time_seconds)
    for partition, member in list(opened):
        close(partition, member, end_seconds)
    return sorted(found, key=lambda i: (i.partition, i.start, i.stop))


def overlaps(found: Sequence[Interval]) -> list[tuple[Interval, Interval]]:
    """Return pairs of intervals in which one partition had two owners at once."""
    pairs = []
    for partition in by_partition(found):
        latest = partition[0]
        for interval in partition[1:]:
            if interval.start < latest.stop and interval.member != latest.member:
                pairs.append((latest, interval))
            if interval.stop > latest.stop:
                latest = interval
    return pairs


def unowned_seconds(
    found: Sequence[Interval], n_partitions: int, start: float, stop: float
) -> list[float]:
    """Return the seconds for which each partition had no owner between two moments."""
    free = [stop - start] * n_partitions
    for partition in by_partition(found):
        covered = start
        for interval in partition:
            first, last = max(interval.start, covered), min(interval.stop, stop)
            if last > first:
                free[interval.partition] -= last - first
                covered = last
    return free


def count_moves(found: Sequence[Interval], start: float, stop: float) -> int:
    """Count the moves of a partition from one member to another between two moments.

    A restarted member is the same member: the name of a process is that of the member and the
    number of its start, ``m0.1``.
    """
    return sum(
        before.member.partition(".")[0] != after.member.partition(".")[0]
        for partition in by_partition(found)
        for before, after in pairwise(partition)
        if start <= after.start <= stop
    )


def by_partition(found: Sequence[Interval]) -> Iterator[list[Interval]]:
    """Yield the intervals of each partition, by their start."""
    rows: dict[int, list[Interval]] = {}
    for interval in sorted(found, key=lambda i: (i.partition, i.start, i.stop)):
        rows.setdefault(interval.partition, []).append(interval)
    yield from rows.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Counts of records over all partitions."""

    produced: int  # sum of the partitions' end offsets
    read: int  # different records that some member read
    read_twice: int  # reads beyond the first of a record

    @property
    def unread(self) -> int:
        """Return the number of records that no member has read."""
        return self.produced - self.read


def count_records(entries: Iterable[Entry], end: Mapping[int, int]) -> Account:
    """Count the records of a topic that the members of one group have read.

    ``end`` has the end offset of every partition; each begins at 0. Raise ProcessError if a member
    read at or beyond the end.
    """
    batches: dict[int, list[tuple[int, int]]] = {partition: [] for partition in end}
    for entry in entries:
        if entry.event != "batch":
            continue
        (partition,) = entry.partitions
        if not 0 <= entry.first <= entry.last < end[partition]:
            raise ProcessError(
                f"{entry.member} read offsets {entry.first} to {entry.last} of partition "
                f"{partition}, which ends at {end[partition]}"
            )
        batches[partition].append((entry.first, entry.last))
    n_reads = n_read = 0
    for spans in batches.values():
        reached = 0  # every batch so far ends before this offset
        for first, last in sorted(spans):
            n_reads += last + 1 - first
            n_read += max(last + 1 - max(first, reached), 0)
            reached = max(reached, last + 1)
    return Account(produced=sum(end.values()), read=n_read, read_twice=n_reads - n_read)
