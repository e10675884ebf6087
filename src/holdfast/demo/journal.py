"""Journals of the demo's members as they are written and read, and pauses compared with them.

**Rules.** A journal has the lines of :mod:`holdfast.model.journal`. The processes run on one
machine, so they share a clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from holdfast.model.journal import Entry, Interval, gaps


class JournalWriter:
    """Adds the lines of one process to its journal, without buffering.

    Parameters
    ----------
    name : str
        Of the process.
    file : text file
        The journal, open for appending; the caller closes it.
    group, topic : str
        What every line is about.
    """

    def __init__(self, name: str, file: TextIO, *, group: str = "", topic: str = ""):
        self._name = name
        self._file = file
        self._group, self._topic = group, topic

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
            group=self._group,
            topic=self._topic,
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
