"""The journal of a group's members: lines of what each owned when, and intervals of ownership.

**Rules.** A journal has one line an event, a JSON object with these keys:

==============  =================================================================================
``time``        when, in seconds since 1970
``group``       the group
``topic``       the topic of ``partitions``
``member``      the process or member id: another one after each start
``event``       ``assigned``, ``revoked``, ``lost`` (the callbacks), ``batch`` (records came),
                ``end``; any other is a sign of life
``partitions``  numbers
``first``       of a batch: its first offset, or -1
``last``        of a batch: its last offset, or -1
==============  =================================================================================

Other keys are passed over. Readers sort the lines of all journals by time, so the clocks of the
machines have to agree.

**Strategy.** ``assigned`` opens an interval of ownership of each partition, ``revoked`` and
``lost`` close it, and so does the ``end`` of the process for all that it still held.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import ModelError


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
    group: str = ""
    topic: str = ""

    def to_line(self) -> str:
        """Write it as one line of JSON."""
        line = {
            "time": self.time_seconds,
            "group": self.group,
            "topic": self.topic,
            "member": self.member,
            "event": self.event,
            "partitions": self.partitions,
        }
        if self.first >= 0:
            line |= {"first": self.first, "last": self.last}
        return json.dumps(line)

    @classmethod
    def from_line(cls, line: str) -> Entry:
        """Read what :meth:`to_line` wrote, or another program.

        Raises
        ------
        ModelError
            The line is not such an object; the text says what is wrong.
        """
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ModelError(f"not JSON: {error}") from error
        if not isinstance(found, dict):
            raise ModelError(f"found {type(found).__name__}, expected a JSON object")
        return cls(
            time_seconds=_time(found),
            member=_text(found, "member"),
            event=_text(found, "event"),
            partitions=_partitions(found),
            first=_number(found, "first"),
            last=_number(found, "last"),
            group=_text(found, "group", ""),
            topic=_text(found, "topic", ""),
        )


def _time(line: Mapping[str, Any]) -> float:
    value = line.get("time")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ModelError(f"time: found {value!r}, expected seconds since 1970")
    return float(value)


def _text(line: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = line.get(name, default)
    if not isinstance(value, str):
        raise ModelError(f"{name}: found {value!r}, expected a string")
    return value


def _partitions(line: Mapping[str, Any]) -> tuple[int, ...]:
    values = line.get("partitions", ())
    if not isinstance(values, (list, tuple)) or any(type(value) is not int for value in values):
        raise ModelError(f"partitions: found {values!r}, expected a list of numbers")
    return tuple(values)


def _number(line: Mapping[str, Any], name: str) -> int:
    value = line.get(name, -1)
    if type(value) is not int:
        raise ModelError(f"{name}: found {value!r}, expected an offset")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One member owned one partition from ``start`` until ``stop`` (seconds since the epoch).

    ``closed``: a line says that it ended; else ``stop`` is its end as far as anybody knows.
    """

    partition: int
    member: str
    start: float
    stop: float
    closed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A partition had no owner from ``start`` until ``end``, by the journals.

    ``known``: a line says when the owner before it stopped; else ``start`` is the last sign of it.
    """

    start: float
    end: float
    known: bool


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


def intervals(entries: Sequence[Entry], end_seconds: float | None = None) -> list[Interval]:
    """Ownership of every partition, by partition and start.

    An interval that no line closes stops at ``end_seconds``, or at the last line of its member.
    """
    opened: dict[tuple[int, str], float] = {}
    found: list[Interval] = []
    last_line: dict[str, float] = {}

    def close(partition: int, member: str, stop: float, *, closed: bool = True) -> None:
        start = opened.pop((partition, member), None)
        if start is not None:
            found.append(
                Interval(partition=partition, member=member, start=start, stop=stop, closed=closed)
            )

    for entry in entries:
        last_line[entry.member] = entry.time_seconds
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
        stop = last_line[member] if end_seconds is None else end_seconds
        close(partition, member, stop, closed=False)
    return sorted(found, key=lambda i: (i.partition, i.start, i.stop))


def gaps(found: Sequence[Interval]) -> dict[int, list[Gap]]:
    """Of each partition the time between each two owners; of length 0 where they overlap."""
    between: dict[int, list[Gap]] = {}
    for partition in by_partition(found):
        last = partition[0]
        for interval in partition[1:]:
            free = interval.start > last.stop
            gap = Gap(
                start=last.stop if free else interval.start,
                end=interval.start,
                known=last.closed or not free,
            )
            between.setdefault(interval.partition, []).append(gap)
            if interval.stop > last.stop:
                last = interval
    return between


def overlaps(found: Sequence[Interval]) -> list[tuple[Interval, Interval]]:
    """Pairs of intervals in which one partition had two owners at once."""
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
    """Seconds in which each partition had no owner between two moments."""
    free = [stop - start] * n_partitions
    for partition in by_partition(found):
        covered = start
        for interval in partition:
            first, last = max(interval.start, covered), min(interval.stop, stop)
            if last > first:
                free[interval.partition] -= last - first
                covered = last
    return free


def by_partition(found: Sequence[Interval]) -> Iterator[list[Interval]]:
    """The intervals of each partition, by their start."""
    rows: dict[int, list[Interval]] = {}
    for interval in sorted(found, key=lambda i: (i.partition, i.start, i.stop)):
        rows.setdefault(interval.partition, []).append(interval)
    yield from rows.values()
