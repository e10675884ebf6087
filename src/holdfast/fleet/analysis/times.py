"""Times of tables: the window that they cover, the age of their source, and durations in words.

**Rules.** Rows of events are those between two moments (:func:`within`). The generation that was
current at the first moment stays, as of that moment, with its members and their partitions: it is
not a rebalance of the window. Lag dates from the moment when log ends were read, so a window that
ends earlier has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from holdfast.core.names import shown_name
from holdfast.fleet.columnar import GroupedTable, codes, ints
from holdfast.fleet.tables.columns.schemas import moment_text, to_us
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.manifest import COMPLETE_AT, N_REFUSED, POLLED, REFUSED, UNPOLLED
from holdfast.fleet.tables.reading import GroupTables, Tables

Since: TypeAlias = Callable[[int], int]
"""Takes the end of a window, and returns its begin, both in UTC milliseconds."""

NONE: Final = "–"
"""Text for an unknown number."""


def window_end_ms(tables: Tables, notes: Mapping[str, Any] | None = None) -> int | None:
    """Return the end of every window, in UTC milliseconds; None for tables of no time.

    ``notes`` are those of a batch that is not committed yet.

    A group without new records is silent until its records were read, so the window ends then, and
    not at the newest record. After a first read in several batches not every record was read yet,
    and in-memory tables have no time of reading: then the newest record is the end, and also if
    the clock of the reading was behind the brokers' clocks.
    """
    named = ("offset_commits", "generations", "rebalances")
    found = [tables.newest_ms(name) for name in named]
    notes = tables.newest_notes() if notes is None else notes
    read_us = to_us(str(notes.get(COMPLETE_AT, notes.get("taken_at"))))
    found.append(None if read_us is None else read_us // 1000)
    return max((ms for ms in found if ms is not None), default=None)


NOT_KNOWN_BY_POLLS = (
    "rebalances between two polls, when a commit was made, and any time more exactly than the "
    "poll interval (so also downtimes) are not known; generations of classic groups are counted "
    "by the polls"
)
"""Text about what tables of polls do not show."""


MOST_NAMED: Final = 10
"""Groups that a line names."""
STALE_S: Final = 300.0
STALE_LOOKS: Final = 3.0
STALE_ONCE_S: Final = 86_400.0
"""Tables are old after so many seconds and poll intervals; after a day, if ``watch`` ran once."""


def polls_text(notes: Mapping[str, Any]) -> str:
    """Return the text about what polls of coordinators do not show; empty for other tables."""
    if not notes.get(POLLED):
        return ""
    every_s = float(notes.get("every_seconds") or 0.0)
    interval = f" every {every_s:g} s" if every_s else ""
    pauses = notes.get(UNPOLLED) or ()
    paused = ""
    if pauses:
        begin, end = (moment_text(to_us(str(text)) or 0) for text in pauses[-1])
        more = f", and {len(pauses) - 1} earlier times" if len(pauses) > 1 else ""
        paused = f" No polls from {begin} to {end}{more}."
    refused: Mapping[str, str] = notes.get(REFUSED) or {}
    text = refused_text(refused, int(notes.get(N_REFUSED, len(refused)))) if refused else ""
    return (
        f"These tables come from polls of the coordinators{interval}, not from the offsets topic: "
        f"{NOT_KNOWN_BY_POLLS}.{paused}{f' Not recorded: {text}.' if text else ''}"
    )


def refused_text(refused: Mapping[str, str], n: int) -> str:
    """Return the names of groups that a poll could not read, each with the reason.

    ``n`` is the number of such groups, of which ``refused`` may have some.
    """
    named = sorted(refused)[:MOST_NAMED]
    shown = ", ".join(f"{shown_name(name)} ({refused[name]})" for name in named)
    return f"{shown}, and {n - len(named):,} more" if n > len(named) else shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """Age of tables."""

    # Seconds since log ends were read, for tables that ``watch`` updates; 0 for others.
    seconds: float = 0.0
    look_every_s: float = 0.0  # poll interval of ``watch``; 0 if it runs once
    # Options with which ``watch`` was started, without its folder and interval; empty if unknown.
    started_with: tuple[str, ...] = ()
    is_updated: bool = False  # whether ``watch`` updates the tables; all others are fixed

    def is_stale(self, later_s: float = 0.0) -> bool:
        """Return whether ``watch`` should have polled again, now or ``later_s`` afterwards."""
        looks_s = STALE_LOOKS * self.look_every_s
        limit_s = max(STALE_S, looks_s) if looks_s else STALE_ONCE_S
        return self.is_updated and self.seconds + later_s > limit_s


NOT_UPDATED = Age()


def read_age(notes: Mapping[str, Any], now_ms: int) -> Age:
    """Return the age of tables, of their newest notes, by the caller's clock in UTC ms."""
    taken_us = to_us(str(notes.get("taken_at"))) if "query" in notes else None
    if taken_us is None:
        return NOT_UPDATED
    seconds = max(now_ms - taken_us / 1000, 0.0) / 1000
    words = notes.get("started_with") or ()
    return Age(
        seconds=seconds,
        look_every_s=float(notes.get("every_seconds") or 0.0),
        started_with=tuple(str(word) for word in words),
        is_updated=True,
    )


CURRENT_TABLES: Final = ("generations", "members", "assignments")
"""Tables with rows that hold for as long as a generation is current."""


def within(tables: Tables, since_us: int | None, until_us: int | None) -> Tables:
    """Return in-memory tables of a window of time, in microseconds since 1970; None: no limit."""
    if since_us is None and until_us is None:
        return tables
    tables = tables.load()
    # Lag over time stays in its files where it is not in memory: its readers name a range.
    held = {n: tables.stored(n) for n in TABLES if n in tables or n != "lag_history"}
    low = -1 if since_us is None else since_us
    high = np.iinfo(np.int64).max if until_us is None else until_us
    current = _current(held["generations"], low)
    found = {name: _cut(name, rows, low, high, current) for name, rows in held.items()}
    if until_us is not None:
        found["lag"] = found["lag"].slice(0, 0)
    return tables.replacing(found)


def group_since(stored: GroupTables, since_us: int) -> GroupTables:
    """Return the rows of one group since a moment, in microseconds since 1970."""
    current = _current(stored["generations"].arrow, since_us)

    @cache
    def table(name: str) -> GroupedTable:
        rows = stored[name].arrow
        return GroupedTable.of(_cut(name, rows, since_us, np.iinfo(np.int64).max, current))

    return GroupTables(stored.group, table)


_UNCUT: Final = ("lag", "findings")
"""Tables of one moment. Findings name their own window, and a reader with another one does not use
them."""

Settled = tuple[str, int, int]
"""Group, generation, and microseconds."""


def _keys(rows: pa.Table) -> list[Settled]:
    groups, names = codes(rows, "group")
    numbers, times = ints(rows, "generation").tolist(), ints(rows, "timestamp").tolist()
    return [(names[g], n, t) for g, n, t in zip(groups.tolist(), numbers, times, strict=True)]


def _current(generations: pa.Table, low: int) -> frozenset[Settled]:
    """Return the last generation of each group before a moment."""
    last: dict[str, Settled] = {}
    for key in _keys(generations):
        if key[2] < low and (key[0] not in last or last[key[0]][2] <= key[2]):
            last[key[0]] = key
    return frozenset(last.values())


def _cut(name: str, rows: pa.Table, low: int, high: int, current: frozenset[Settled]) -> pa.Table:
    """Return rows in the window, and those of current generations as of its first moment."""
    if name in _UNCUT:
        return rows
    time = ints(rows, "timestamp")
    inside = (time >= low) & (time <= high)
    if current and name in CURRENT_TABLES:
        is_current = np.asarray([key in current for key in _keys(rows)], np.bool_)
        index = rows.schema.get_field_index("timestamp")
        moved = pa.array(np.where(is_current, low, time)).cast(rows.schema.field(index).type)
        rows, inside = rows.set_column(index, rows.schema.field(index), moved), inside | is_current
    return rows.filter(pa.array(inside))


def seconds(value: float | None) -> str:
    """Format seconds with about three significant digits."""
    if value is None or math.isnan(value):
        return NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 1 else f"{value:.1f}"


def span(value_s: float) -> str:
    """Format a duration: ``75 s``, ``12 min``, ``1 h 49 min``."""
    if value_s < 120:
        return f"{value_s:.0f} s" if value_s >= 10 else f"{seconds(value_s)} s"
    minutes = round(value_s / 60)
    if minutes < 60:
        return f"{minutes} min"
    if value_s >= 172_800:
        return f"{value_s / 86_400:.1f} days"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"
