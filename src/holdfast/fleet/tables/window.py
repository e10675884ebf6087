"""A part of a history in time: events from one moment to another.

**Rules.** Rows of events are those between the two moments. The generation that was current at the
first moment stays, as of that moment, with its members and their partitions: it is not a rebalance
of the window. Lag dates from the moment when log ends were read, so a window that ends earlier has
none.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.fleet.columnar import GroupedTable, codes, ints
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import GroupTables, Tables

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
