"""Bounds of pauses as the members' own journals have them, in place of what the broker saw.

**Rules.** Tables are not changed where they are kept: they hold what the broker saw. A journal is
:mod:`holdfast.model.journal`'s, and each line names its group and topic. A pause that no journal
shows keeps its bounds. Of one that a journal shows,

- the length is known if a line says when the old owner stopped: both bounds are that length;
- else (the old owner was killed) the end is that of the new owner's line. The last line of the old
  owner is a sign of it, as its last commit is, so the later of the two gives the upper bound.

Example: the broker has a record at 10.0 s, and the last commit before it at 9.2 s, so the pause
lies between 0 and 0.8 s. The old owner's callback ran at 9.1 s and the new owner's at 10.2 s: the
pause is 1.1 s long, which lies outside of what the broker saw.

**Strategy.** The gap of a pause is the one that ends nearest to the pause's record, if no other
pause of that partition ends nearer to the gap. It may not end before the last sign of the old owner
nor begin after the record, but for :data:`SLACK_SECONDS`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import ModelError, SourceError
from holdfast.model.journal import Entry, Gap, gaps, intervals
from holdfast.tables.columns.pause_sums import add_pauses
from holdfast.tables.columns.rows import conform
from holdfast.tables.columns.schemas import arrow_schema
from holdfast.tables.columns.stored import TABLES
from holdfast.tables.reading import Tables

SLACK_SECONDS: Final = 1.0
"""A callback runs so much before or after the broker's record of it, or clocks differ by it."""

_Place = tuple[str, str, int]
"""Group, topic, and partition."""


class Journaled(NamedTuple):
    """Tables that allow for journals, and how many pauses do so, of how many."""

    tables: Tables
    n_journaled: int
    n_pauses: int


def read_journals(paths: Sequence[Path]) -> list[Entry]:
    """Every line of these files, and of the files ``*.jsonl`` of these folders, by time.

    Raises
    ------
    SourceError
        Nothing is there, or a line cannot be read or names no group or topic.
    """
    found: list[Entry] = []
    for path in paths:
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not files:
            raise SourceError(f"{path}: no file *.jsonl; --journal takes journals of members")
        for file in files:
            found += _entries(file)
    return sorted(found, key=lambda entry: entry.time_seconds)


def _entries(file: Path) -> Iterator[Entry]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{file}: cannot be read: {error}") from error
    whole = text[: text.rfind("\n") + 1]  # a member may be writing its last line
    for number, line in enumerate(whole.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = Entry.from_line(line)
        except ModelError as error:
            raise SourceError(f"{file}, line {number}: {error}") from error
        if not (entry.group and entry.topic):
            raise SourceError(f"{file}, line {number}: expected a group and a topic")
        yield entry


def journaled(tables: Tables, entries: Sequence[Entry]) -> Journaled:
    """The same tables, held in memory; bounds of pauses allow for what journals show."""
    held = tables.hold()
    old = conform(held.stored("pauses"), TABLES["pauses"], "pauses")
    new, change, n_journaled = corrected(old, entries)
    sums = add_pauses(held.stored("rebalances"), change)
    n_pauses = int(pc.sum(pc.list_value_length(old["partitions"])).as_py() or 0)
    return Journaled(held.holding({"pauses": new, "rebalances": sums}), n_journaled, n_pauses)


def corrected(pauses: pa.Table, entries: Sequence[Entry]) -> tuple[pa.Table, pa.Table, int]:
    """Pauses with the bounds that journals show.

    Parameters
    ----------
    pauses : Table
        As the table ``pauses`` is stored: a row has the partitions with the same bounds.
    entries : sequence of Entry
        By time.

    Returns
    -------
    Table
        The same pauses. One that a journal shows has a row of its own.
    Table
        What was changed: rows whose bounds are the new ones less the old ones.
    int
        Partitions of rows that a journal shows.
    """
    between = _gaps(entries)
    is_own = pc.is_in(
        pauses["group"], pa.array(sorted({place[0] for place in between}), pa.string())
    )
    rows = pauses.filter(is_own).to_pylist()
    shown = _matched(rows, between)
    kept: list[dict[str, Any]] = []
    change: list[dict[str, Any]] = []
    for at, row in enumerate(rows):
        rest = [p for p in row["partitions"] if (at, p) not in shown]
        if rest:
            kept.append({**row, "partitions": rest})
        for partition in row["partitions"]:
            if (at, partition) not in shown:
                continue
            lower, upper = _bounds(row, shown[at, partition])
            own = {**row, "partitions": [partition], "is_journaled": True}
            kept.append({**own, "pause_lower_seconds": lower, "pause_upper_seconds": upper})
            less = {
                "pause_lower_seconds": lower - row["pause_lower_seconds"],
                "pause_upper_seconds": upper - row["pause_upper_seconds"],
            }
            change.append({**own, **less})
    schema = arrow_schema("pauses")
    new = pa.Table.from_pylist(kept, schema=schema)
    others = pauses.filter(pc.invert(is_own)).cast(schema)
    return (
        pa.concat_tables([others, new]),
        pa.Table.from_pylist(change, schema=schema),
        len(change),
    )


def _gaps(entries: Sequence[Entry]) -> dict[_Place, list[Gap]]:
    of_topic: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        of_topic[entry.group, entry.topic].append(entry)
    return {
        (group, topic, partition): found
        for (group, topic), own in of_topic.items()
        for partition, found in gaps(intervals(own)).items()
    }


def _matched(
    rows: Sequence[dict[str, Any]], between: dict[_Place, list[Gap]]
) -> dict[tuple[int, int], Gap]:
    """(row, partition) -> the gap of that pause."""
    pauses: dict[_Place, list[int]] = defaultdict(list)
    for at, row in enumerate(rows):
        for partition in row["partitions"]:
            pauses[row["group"], row["topic"], partition].append(at)
    ends = [row["timestamp"].timestamp() for row in rows]
    signs = [row["last_seen"].timestamp() for row in rows]
    found = {}
    for place, own in pauses.items():
        if place not in between:
            continue
        gaps_there = between[place]
        by_end = sorted(own, key=lambda at: ends[at])
        pause_ends = [ends[at] for at in by_end]
        gap_starts = [gap.start for gap in gaps_there]
        gap_ends = [gap.end for gap in gaps_there]
        for number, at in enumerate(by_end):
            first = bisect_left(gap_ends, signs[at] - SLACK_SECONDS)
            stop = bisect_right(gap_starts, ends[at] + SLACK_SECONDS)
            if first < stop:
                nearest = _nearest(gap_ends, ends[at], first, stop)
                if _nearest(pause_ends, gap_ends[nearest], 0, len(pause_ends)) == number:
                    found[at, place[2]] = gaps_there[nearest]
    return found


def _nearest(times: Sequence[float], time: float, first: int, stop: int) -> int:
    """Where in ``times[first:stop]``, which rise, the one nearest to ``time`` stands."""
    after = min(bisect_left(times, time, first, stop), stop - 1)
    before = max(after - 1, first)
    nearer = before if time - times[before] <= times[after] - time else after
    return bisect_left(times, times[nearer], first, stop)


def _bounds(row: dict[str, Any], gap: Gap) -> tuple[float, float]:
    """Lower and upper bound of a pause in seconds."""
    length = round(gap.end - gap.start, 6)
    if gap.known:
        return length, length
    later = gap.end - row["timestamp"].timestamp()
    lower = max(0.0, round(row["pause_lower_seconds"] + later, 6))
    upper = min(length, round(row["pause_upper_seconds"] + later, 6))
    lower = min(lower, length)
    return lower, max(lower, upper)
