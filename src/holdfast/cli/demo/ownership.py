"""Who owned which partition when, by the journals of members; pauses compared with it.

**Rules.** Entries come by time. The processes run on one machine, so they share a clock.

**Strategy.** ``assigned`` opens an interval of ownership of each partition, ``revoked`` and
``lost`` close it, and so does the ``end`` of the process for all that it still held. A gap is the
time between two owners of a partition. The broker's bounds of a pause are compared with the gap
that ends nearest to the end of that pause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.cli.demo.journal import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One member owned one partition from ``start`` until ``stop`` (seconds since the epoch)."""

    partition: int
    member: str
    start: float
    stop: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A partition had no owner from ``start`` until ``end`` (seconds since the epoch)."""

    start: float
    end: float


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


def intervals(entries: Sequence[Entry], end_seconds: float) -> list[Interval]:
    """Ownership of every partition, by partition and start; what is open stops at ``end_seconds``.

    Parameters
    ----------
    entries : sequence of Entry
        By time.
    end_seconds : float
        When an interval ends that no entry closes, in seconds since the epoch.
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


def gaps(found: Sequence[Interval]) -> dict[int, list[Gap]]:
    """Of each partition the time between each two owners; of length 0 where they overlap."""
    between: dict[int, list[Gap]] = {}
    for partition in by_partition(found):
        stop = partition[0].stop
        for interval in partition[1:]:
            gap = Gap(start=min(stop, interval.start), end=interval.start)
            between.setdefault(interval.partition, []).append(gap)
            stop = max(stop, interval.stop)
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


def count_moves(found: Sequence[Interval], start: float, stop: float) -> int:
    """Count the hand-overs of a partition from one member to another between two moments.

    A member that was restarted is the same member: the name of a process is that of the member and
    the number of its start, ``m0.1``.
    """
    return sum(
        before.member.partition(".")[0] != after.member.partition(".")[0]
        for partition in by_partition(found)
        for before, after in pairwise(partition)
        if start <= after.start <= stop
    )


def by_partition(found: Sequence[Interval]) -> Iterator[list[Interval]]:
    """The intervals of each partition, by their start."""
    rows: dict[int, list[Interval]] = {}
    for interval in sorted(found, key=lambda i: (i.partition, i.start, i.stop)):
        rows.setdefault(interval.partition, []).append(interval)
    yield from rows.values()


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
    between = gaps(found)
    outside = []
    for pause in pauses:
        near = [gap for gap in between.get(pause.partition, ()) if gap.start <= pause.end_seconds]
        if near:
            gap = min(near, key=lambda gap: abs(gap.end - pause.end_seconds))
            true = gap.end - gap.start
            outside.append(max(pause.lower_seconds - true, true - pause.upper_seconds, 0.0))
    return ComparedPauses(
        n_pauses=len(outside),
        n_outside=sum(seconds > ROUNDED_SECONDS for seconds in outside),
        most_seconds=max(outside, default=0.0),
    )
