"""What pages show of a fleet in each time range that was requested.

**Rules.** Every number and every verdict follows the range. A range that has ended shows groups as
of its end, without lag and without answers of coordinators.

**Strategy.** The index of a range is made once for all requests, until newer tables or newer
answers come. Verdicts are made beside the requests
(:mod:`~holdfast.fleet.report.serving.range_verdicts`), those of the usual range elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from holdfast.core.command_lines import GivenSource
from holdfast.errors import ConfigError
from holdfast.fleet.analysis.findings.doctor import Doctor
from holdfast.fleet.analysis.findings.examination import Examination
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroups
from holdfast.fleet.report.serving.group_index import (
    GroupIndex,
    IndexView,
    Verdicts,
    of_range,
    read_index,
    select,
)
from holdfast.fleet.report.serving.live import index_now, verdicts_now
from holdfast.fleet.report.serving.range_verdicts import MOST_RANGES, RangeVerdicts, RangeWords
from holdfast.fleet.report.serving.served_tables import ServedTables, tables_until
from holdfast.fleet.report.serving.time_range import TimeRange, read_range


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ShownIndex:
    """An index, and what it was made of."""

    served: ServedTables
    live: LiveGroups
    index: GroupIndex


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetView:
    """What pages show of a fleet in one time range.

    Parameters
    ----------
    live : LiveGroups
        Present states; none for a range that has ended.
    n_examined : int
        Groups with a verdict on the newest tables in this range.
    """

    index: GroupIndex
    verdicts: Verdicts
    live: LiveGroups
    n_examined: int


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
        self._shown: dict[TimeRange | None, _ShownIndex] = {}
        self._verdicts = RangeVerdicts(lambda: served().number, self._examined_in, notify)

    def start(self) -> threading.Thread:
        """Start examining requested ranges; return the thread."""
        return self._verdicts.start()

    def close(self) -> None:
        """Stop examining after the present group."""
        self._verdicts.close()

    def wake(self) -> None:
        """Look for newer tables."""
        self._verdicts.wake()

    def range_of(self, words: Mapping[str, str]) -> TimeRange | None:
        """Return the time range of a query; None for the usual one."""
        if not (words.get("from") or words.get("to")):
            return None
        served = self._served()
        found = read_range(words, served.read_ms if served.last_ms is None else served.last_ms)
        return None if found == TimeRange(from_ms=served.since_ms) else found

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
                index = of_range(index, found) if within.to_ms is None else found
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
            found, n_examined = self._verdicts.of(_range_words(words))
        verdicts = verdicts_now(found, index, live)
        return FleetView(index=index, verdicts=verdicts, live=live, n_examined=n_examined)

    def wait(self, words: Mapping[str, str], timeout_s: float) -> bool:
        """Wait until every group is examined in a range; False if it is not in time."""
        n_groups = len(self.view(words).index.names)
        return self._verdicts.wait(_range_words(words), n_groups, timeout_s)

    def _examined_in(self, words: RangeWords) -> Iterator[Examination]:
        """Examine the newest tables in a range."""
        served, within = (
            self._served(),
            self.range_of(dict(zip(("from", "to"), words, strict=True))),
        )
        within = within or TimeRange(from_ms=served.since_ms)
        order = select(self.index_in(within), self._usual()[0], IndexView())
        return Doctor(
            tables=tables_until(served.tables, within),
            groups=[self.index_in(within).names[i] for i in order],
            last_ms=served.last_ms if within.to_ms is None else within.to_ms,
            since_ms=within.from_ms,
            source=self._given,
        ).examinations()


def _range_words(words: Mapping[str, str]) -> RangeWords:
    return words.get("from", ""), words.get("to", "")
