"""Tables that were read at one moment, and what pages show of them in each requested time range.

**Rules.** Every number and every verdict follows the range. A range that has ended shows groups as
of its end, without lag and without answers of coordinators.

A range is examined when a page of it is requested, and again for newer tables as long as its pages
are requested. A group has no verdict until it was examined once.

**Strategy.** The index of a range is made once for all requests, until newer tables or newer
answers come. One thread examines the range that was requested last, group by group. Ranges are
known by their words in the address, because ``6h`` is another time with every batch. The usual
range is not examined here: :mod:`~holdfast.fleet.report.serving.served_fleet` does so for every
batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.core.command_lines import GivenSource
from holdfast.errors import ConfigError
from holdfast.fleet.analysis.findings.doctor import Doctor
from holdfast.fleet.analysis.findings.examination import Examination, GroupVerdict
from holdfast.fleet.analysis.group.lag_over_time import read_readings
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroups
from holdfast.fleet.analysis.times import Age, Since, polls_text, read_age, window_end_ms
from holdfast.fleet.analysis.times import within as cut_to
from holdfast.fleet.columnar import ArrowTable
from holdfast.fleet.report.serving.group_index import (
    GroupIndex,
    IndexView,
    TimeRange,
    Verdicts,
    read_index,
    read_range,
    select,
)
from holdfast.fleet.report.serving.live import index_now, verdicts_now
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
        notes = tables.newest_notes()
        last_ms = window_end_ms(tables, notes)
        since_ms = None if since is None or last_ms is None else since(last_ms)
        return cls(
            tables=tables,
            last_ms=last_ms,
            since_ms=since_ms,
            index=read_index(tables, TimeRange(from_ms=since_ms)),
            number=number,
            read_ms=read_ms,
            age=read_age(notes, read_ms),
            polled=polls_text(notes),
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
    return cut_to(tables.load(groups), None, 1000 * within.to_ms)


WANTED_S: Final = 60.0
"""Time after a request in which a range is examined again."""
MOST_RANGES: Final = 16
"""Ranges whose verdicts are kept."""

RangeWords = tuple[str, str]
"""``from`` and ``to`` as an address has them."""


@dataclass(slots=True)
class _Range:
    """Verdicts in one range; ``number`` is that of the examined tables."""

    verdicts: dict[str, GroupVerdict] = field(default_factory=dict)
    number: int = 0
    n_examined: int = 0
    requested_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ShownIndex:
    """An index, and what it was made of."""

    served: ServedTables
    live: LiveGroups
    index: GroupIndex


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetView:
    """What pages show of a fleet in one time range."""

    index: GroupIndex
    verdicts: Verdicts
    live: LiveGroups  # present states; none for a range that has ended
    n_examined: int  # groups with a verdict on the newest tables in this range


class FleetRanges:
    """The time ranges of a fleet.

    Parameters
    ----------
    served, live : callable
        Return the newest tables, and present answers of coordinators.
    usual : callable
        Returns verdicts in the usual range, and how many groups have one.
    given : GivenSource
        Origin of the tables.
    notify : callable
        Prints one line about an error.
    """

    def __init__(
        self,
        served: Callable[[], ServedTables],
        live: Callable[[], LiveGroups],
        usual: Callable[[], tuple[Verdicts, int]],
        given: GivenSource,
        notify: Callable[[str], None],
    ):
        self._served, self._live, self._usual, self._given = served, live, usual, given
        self._notify = notify
        self._shown: dict[TimeRange | None, _ShownIndex] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._ranges: dict[RangeWords, _Range] = {}

    def start(self) -> threading.Thread:
        """Start examining requested ranges; return the thread."""
        thread = threading.Thread(target=self._run, daemon=True, name="serve_ranges")
        thread.start()
        return thread

    def close(self) -> None:
        """Stop examining after the present group."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Look for newer tables."""
        with self._changed:
            self._changed.notify_all()

    def range_of(self, words: Mapping[str, str]) -> TimeRange | None:
        """Return the time range of a query; None for the usual one."""
        if not (words.get("from") or words.get("to")):
            return None
        served = self._served()
        found = read_range(words, served.read_ms if served.last_ms is None else served.last_ms)
        return None if found == served.usual else found

    def index_in(self, within: TimeRange | None) -> GroupIndex:
        """Return the index of a time range, the usual one for None; made once for all requests.

        Raises
        ------
        ConfigError
            The groups are too many to examine them in another range than the usual one.
        """
        served, live, shown = self._served(), self.live_in(within), self._shown.get(within)
        if shown is None or shown.served is not served or shown.live is not live:
            index = served.index
            if within is not None:
                if served.is_large:
                    raise ConfigError(
                        f"of {len(index.names):,} groups only the page of one has a time range"
                    )
                found = read_index(tables_until(served.tables, within), within)
                index = replace(found, has_history=index.has_history)
            shown = _ShownIndex(served=served, live=live, index=index_now(index, live))
            kept = [(key, one) for key, one in self._shown.items() if one.served is served]
            self._shown = dict([*kept[-MOST_RANGES:], (within, shown)])
        return shown.index

    def live_in(self, within: TimeRange | None) -> LiveGroups:
        """Return present answers of coordinators; none for a range that has ended."""
        return NOT_QUERIED if within is not None and within.to_ms is not None else self._live()

    def view(self, words: Mapping[str, str]) -> FleetView:
        """Return what pages show in the time range of a query; it is examined from now on."""
        within = self.range_of(words)
        index, live = self.index_in(within), self.live_in(within)
        if within is None:
            found, n_examined = self._usual()
        else:
            found, n_examined = self._verdicts_in(_range_words(words))
        verdicts = verdicts_now(found, index, live)
        return FleetView(index=index, verdicts=verdicts, live=live, n_examined=n_examined)

    def wait(self, words: Mapping[str, str], timeout_s: float) -> bool:
        """Wait until every group is examined in a range; False if it is not in time."""
        n_groups, named = len(self.view(words).index.names), _range_words(words)
        with self._changed:
            return self._changed.wait_for(
                lambda: self._n_examined(named) >= n_groups, timeout=timeout_s
            )

    def _verdicts_in(self, words: RangeWords) -> tuple[dict[str, GroupVerdict], int]:
        """Return verdicts in a range, and how many groups of the newest tables have one."""
        with self._changed:
            one = self._ranges.pop(words, None) or _Range()
            one.requested_at = time.monotonic()
            kept = list(self._ranges.items())[1 - MOST_RANGES :]
            self._ranges = dict([*kept, (words, one)])
            self._changed.notify_all()
            return dict(one.verdicts), self._n_examined(words)

    def _n_examined(self, words: RangeWords) -> int:
        one = self._ranges.get(words, _Range())
        return one.n_examined if one.number == self._served().number else 0

    def _run(self) -> None:
        while (words := self._next()) is not None:
            one = self._ranges[words]
            one.number, one.n_examined, here = self._served().number, 0, set[str]()
            try:
                for found in self._examined_in(words):
                    with self._changed:
                        one.verdicts[found.history.name] = found.verdict
                        one.n_examined += 1
                        here.add(found.history.name)
                        self._changed.notify_all()
                        if self._closed or self._unseen() is not None:
                            one.number = 0  # the rest of it comes after the other range
                            break
                else:  # groups that are gone have no verdict any more
                    one.verdicts = {n: v for n, v in one.verdicts.items() if n in here}
            except Exception as error:  # a bug of ours in one rule must not end the server
                if not self._closed:
                    self._notify(f"a range cannot be examined: {type(error).__name__}: {error}")

    def _next(self) -> RangeWords | None:
        """Wait for a range whose newest tables were not examined; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting() is not None)
            return None if self._closed else self._unseen() or self._waiting()

    def _waiting(self, *, unseen: bool = False) -> RangeWords | None:
        """Return the range that was requested last, of those with newer tables; None without one.

        ``unseen``: only of those that were never examined.
        """
        since, number = time.monotonic() - WANTED_S, self._served().number
        late = [
            (one.requested_at, words)
            for words, one in self._ranges.items()
            if one.number < number and one.requested_at >= since and not (unseen and one.verdicts)
        ]
        return max(late)[1] if late else None

    def _unseen(self) -> RangeWords | None:
        return self._waiting(unseen=True)

    def _examined_in(self, words: RangeWords) -> Iterator[Examination]:
        """Examine the newest tables in a range."""
        served = self._served()
        within = self.range_of(dict(zip(("from", "to"), words, strict=True))) or served.usual
        index = self.index_in(within)
        names = [index.names[i] for i in select(index, self._usual()[0], IndexView())]
        doctor = replace(served.doctor(within), groups=names, source=self._given)
        return doctor.examinations()


def _range_words(words: Mapping[str, str]) -> RangeWords:
    return words.get("from", ""), words.get("to", "")
