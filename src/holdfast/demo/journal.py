"""The journal of a demo member, and the intervals of ownership computed from all journals.

**Rules.** A journal has one JSON line an event, with the time first. Readers sort the lines of all
journals by time; the processes run on one machine, so they share a clock.

**Strategy.** ``assigned`` opens an interval of ownership of each partition, ``revoked`` and
``lost`` close it, and so does the ``end`` of the process for all that it still held.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line: when (seconds since the epoch), which process, what, and of which partitions.

    ``event`` is ``assigned``, ``revoked``, ``lost``, ``batch`` or ``end``. A batch has one
    partition and the offsets ``first`` to ``last`` that were read.
    """

    time_seconds: float
    member: str
    event: str
    partitions: tuple[int, ...] = ()
    first: int = -1
    last: int = -1

    def to_line(self) -> str:
        """Write it as one line of JSON."""
        return json.dumps(
            [self.time_seconds, self.member, self.event, self.partitions, self.first, self.last]
        )

    @classmethod
    def from_line(cls, line: str) -> Entry:
        """Read what :meth:`to_line` wrote."""
        time_seconds, member, event, partitions, first, last = json.loads(line)
        return cls(
            time_seconds=time_seconds,
            member=member,
            event=event,
            partitions=tuple(partitions),
            first=first,
            last=last,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One member owned one partition from ``start`` until ``stop`` (seconds since the epoch)."""

    partition: int
    member: str
    start: float
    stop: float


class JournalWriter:
    """Adds the lines of one process to its journal, without buffering.

    Parameters
    ----------
    name : str
        Of the process.
    file : text file
        The journal, open for appending; the caller closes it.
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


class JournalReader:
    """Reads what was added to the journals of a folder since the last call."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._position: dict[Path, int] = {}
        self.entries: list[Entry] = []

    def read(self) -> list[Entry]:
        """Everything so far, by time."""
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


def holdings(entries: Iterable[Entry]) -> dict[str, set[int]]:
    """What every running process owns after these entries; an ended process is left out."""
    held: dict[str, set[int]] = {}
    for entry in entries:
        if entry.event == "end":
            held.pop(entry.member, None)
        elif entry.event == "assigned":
            held.setdefault(entry.member, set()).update(entry.partitions)
        elif entry.event in ("revoked", "lost"):
            held.setdefault(entry.member, set()).difference_update(entry.partitions)
    return held


def intervals(entries: Iterable[Entry], end_seconds: float) -> list[Interval]:
    """Ownership of every partition, by partition and start; open intervals stop at ``end``."""
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
    """Pairs of intervals in which one partition had two owners at once."""
    pairs = []
    for partition in _partitions(found):
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
    """Seconds in which each partition had no owner between two moments."""
    free = [stop - start] * n_partitions
    for partition in _partitions(found):
        covered = start
        for interval in partition:
            first, last = max(interval.start, covered), min(interval.stop, stop)
            if last > first:
                free[interval.partition] -= last - first
                covered = last
    return free


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseBounds:
    """How long a partition had no owner as the broker saw it, in seconds, and when that ended."""

    partition: int
    end_seconds: float
    lower_seconds: float
    upper_seconds: float


ROUNDED_SECONDS = 0.01
"""Records have whole milliseconds, and a journal is written a moment after its callback begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPauses:
    """Pauses whose truth the journals have.

    Parameters
    ----------
    n_pauses, n_outside : int
        Compared, and those among them whose true length lies outside the bounds by more than
        :data:`ROUNDED_SECONDS`.
    most_seconds : float
        How far outside, at most.
    """

    n_pauses: int
    n_outside: int
    most_seconds: float


def compare_pauses(found: Sequence[Interval], pauses: Iterable[PauseBounds]) -> ComparedPauses:
    """Compare the gaps between intervals of ownership with what the broker saw of them.

    A gap of a partition is the one of a pause if it ends nearest to the pause's end, and began
    before that. A pause without such a gap is left out.
    """
    gaps: dict[int, list[tuple[float, float]]] = {}
    for partition in _partitions(found):
        stop = partition[0].stop
        for interval in partition[1:]:
            gaps.setdefault(interval.partition, []).append((stop, max(stop, interval.start)))
            stop = max(stop, interval.stop)
    outside = []
    for pause in pauses:
        near = [gap for gap in gaps.get(pause.partition, ()) if gap[0] <= pause.end_seconds]
        if near:
            start, end = min(near, key=lambda gap: abs(gap[1] - pause.end_seconds))
            true = end - start
            outside.append(max(pause.lower_seconds - true, true - pause.upper_seconds, 0.0))
    return ComparedPauses(
        n_pauses=len(outside),
        n_outside=sum(seconds > ROUNDED_SECONDS for seconds in outside),
        most_seconds=max(outside, default=0.0),
    )


def _partitions(found: Sequence[Interval]) -> Iterator[list[Interval]]:
    rows: dict[int, list[Interval]] = {}
    for interval in sorted(found, key=lambda i: (i.partition, i.start, i.stop)):
        rows.setdefault(interval.partition, []).append(interval)
    yield from rows.values()
