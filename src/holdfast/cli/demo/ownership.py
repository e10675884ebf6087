"""Derive who owned which partition when from the event logs of members.

**Rules.** Entries are ordered by time. The processes run on one machine, so they share a clock.

**Strategy.** ``assigned`` opens an interval of ownership of each partition, ``revoked`` and
``lost`` close it, and the ``end`` of the process closes all its open intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.cli.demo.event_log import Entry


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
    """Return ownership intervals by partition and start; an open one stops at ``end_seconds``.

    Parameters
    ----------
    entries : sequence of Entry
        Ordered by time.
    end_seconds : float
        End of an interval that no entry closes, in seconds since the epoch.
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
