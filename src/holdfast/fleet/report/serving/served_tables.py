"""The tables of a folder as they were read at one moment, and their part up to another moment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.fleet.analysis.findings.doctor import Doctor
from holdfast.fleet.analysis.group.lag_over_time import read_readings
from holdfast.fleet.analysis.source_times import Age, Since, polls_text, read_age, window_end_ms
from holdfast.fleet.columnar import ArrowTable
from holdfast.fleet.report.serving.group_index import GroupIndex, read_index
from holdfast.fleet.report.serving.time_range import TimeRange
from holdfast.fleet.tables import window
from holdfast.fleet.tables.columns.stored import NOT_LOADED
from holdfast.fleet.tables.reading import Tables


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedTables:
    """Tables that were read at one moment."""

    tables: Tables  # in-memory tables; those with very many rows are a snapshot of their folder
    # ``last_ms``, ``since_ms``: end and begin of every window; None without one.
    last_ms: int | None
    since_ms: int | None
    index: GroupIndex
    # 1, 2, ... : later tables have a higher number; 0 before the first batch: either nothing, or
    # the lag from coordinators.
    number: int
    read_ms: int
    age: Age
    polled: str  # text about what polls of coordinators do not show; empty for other tables

    @classmethod
    def of(
        cls, tables: Tables, number: int, read_ms: int, since: Since | None = None
    ) -> ServedTables:
        """Make served tables, with the figures of all groups."""
        last_ms = window_end_ms(tables)
        since_ms = None if since is None or last_ms is None else since(last_ms)
        return cls(
            tables=tables,
            last_ms=last_ms,
            since_ms=since_ms,
            index=read_index(tables, TimeRange(from_ms=since_ms)),
            number=number,
            read_ms=read_ms,
            age=read_age(tables, read_ms),
            polled=polls_text(tables.newest_notes()),
        )

    def doctor(
        self, within: TimeRange | None = None, groups: Sequence[str] | None = None
    ) -> Doctor:
        """Return the doctor of a time range, the usual one for None; of some groups, or of all."""
        chosen = within or self.usual
        return Doctor(
            tables=tables_until(self.tables, within, groups),
            groups=groups,
            last_ms=self.last_ms if chosen.to_ms is None else chosen.to_ms,
            since_ms=chosen.from_ms,
        )

    @property
    def usual(self) -> TimeRange:
        """The time range of an address that names none."""
        return TimeRange(from_ms=self.since_ms)

    def readings(self, within: TimeRange | None, group: str) -> ArrowTable:
        """Return the lag of a group over time in a range, the usual one for None; read now."""
        chosen = within or self.usual
        return read_readings(self.tables, chosen.from_ms, chosen.to_ms, [group])

    @property
    def is_large(self) -> bool:
        """Whether the rows are not in memory, but read when they are used."""
        return not self.tables.is_held

    @property
    def has_findings(self) -> bool:
        """Whether the findings of the window are stored."""
        return self.doctor().has_findings

    @property
    def is_from_coordinators(self) -> bool:
        """Whether the groups come from coordinators, before the first batch."""
        return not self.number and bool(self.index.names)

    @property
    def is_stale(self) -> bool:
        """Whether ``watch``, which updates them, has stopped."""
        return self.age.is_stale(time.time() - self.read_ms / 1000)


def tables_until(
    tables: Tables, within: TimeRange | None, groups: Sequence[str] | None = None
) -> Tables:
    """Return the tables as of the end of a range; for one that ends earlier, of some groups."""
    if within is None or within.to_ms is None:
        return tables if groups is None else tables.load_few(groups, without=NOT_LOADED)
    return window.within(tables.load(groups), None, 1000 * within.to_ms)
