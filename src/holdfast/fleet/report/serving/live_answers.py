"""Present states of groups from coordinators, polled beside the requests.

**Rules.** States of all groups are polled every :data:`NOW_S`: one request a broker. Members are
queried for groups that rebalance, and for those whose pages were requested within
:data:`WANTED_S`; a page that was just opened gets an answer at once. An answer older than
:data:`OLD_S` is ignored. Without requests for pages, coordinators are not queried.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from holdfast.cluster.snapshot import SeenGroup
from holdfast.fleet.analysis.group.live import NOT_QUERIED, LiveGroups

NOW_S: Final = 5.0
"""Between two questions."""
OLD_S: Final = 30.0
"""Age from which answers are ignored."""
WANTED_S: Final = 60.0
"""Time after a request for a group's page in which its members are queried."""
MOST_WANTED: Final = 100
"""Of so many groups at most."""

LiveQuery = Callable[[Callable[[SeenGroup], bool], Collection[str]], LiveGroups]
"""Takes a predicate for groups whose members are wanted, and the known groups; queries states and
returns what is known then."""


class LiveAnswers:
    """Polls the coordinators on a thread; does nothing without a coordinator.

    Parameters
    ----------
    known : callable
        Returns the groups of the tables.
    rests : callable
        Returns whether no page was requested for long.
    """

    def __init__(
        self,
        query: LiveQuery | None,
        every_s: float,
        known: Callable[[], Collection[str]],
        rests: Callable[[], bool],
    ):
        self._query, self._every_s = query, min(every_s, NOW_S)
        self._known, self._rests = known, rests
        self._lock = threading.Lock()
        self._wake, self._closed = threading.Event(), threading.Event()
        self._wanted: dict[str, float] = {}
        self._live, self._number = NOT_QUERIED, 0

    def start(self) -> None:
        """Start polling."""
        if self._query is not None:
            threading.Thread(target=self._run, daemon=True, name="serve_now").start()

    def close(self) -> None:
        """Stop polling; an open query is abandoned."""
        self._closed.set()
        self._wake.set()

    def wake(self) -> None:
        """Poll now, and not at the end of the interval."""
        self._wake.set()

    @property
    def live(self) -> LiveGroups:
        """Present answers of coordinators; none if the last answer is old."""
        live = self._live
        is_old = live.seen is None or time.time_ns() / 1e6 - live.seen.queried_ms > 1000 * OLD_S
        return NOT_QUERIED if is_old else live

    @property
    def mark(self) -> str:
        """Differs after each change of what is shown; empty without polling."""
        if self._query is None:
            return ""
        return f"-{self._number}{'' if self.live.seen is not None else '-old'}"

    def want(self, group: str) -> None:
        """Query the members of a group from now on."""
        with self._lock:
            is_new = group not in self._wanted
            self._wanted[group] = time.monotonic()
            if len(self._wanted) > MOST_WANTED:
                del self._wanted[min(self._wanted, key=self._wanted.__getitem__)]
        if is_new:
            self._wake.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.clear()
            self._query_once()
            self._wake.wait(timeout=None if self._rests() else self._every_s)

    def _query_once(self) -> None:
        assert self._query is not None, "a cluster to query"
        since = time.monotonic() - WANTED_S
        with self._lock:
            self._wanted = {name: at for name, at in self._wanted.items() if at >= since}
            wanted = frozenset(self._wanted)

        def describe(group: SeenGroup) -> bool:
            return group.is_rebalancing or group.group in wanted

        live, before = self._query(describe, self._known()), self._live
        is_new = live.seen is not before.seen
        if is_new and (live.spans or before.spans or _differs(live, before)):
            self._number += 1  # also where only the seconds of a rebalance are others
        self._live = live


def _differs(live: LiveGroups, before: LiveGroups) -> bool:
    """Return whether two answers differ about a group."""
    if live.seen is None or before.seen is None:
        return live.seen is not before.seen
    return live.seen.groups != before.seen.groups or live.seen.gone != before.seen.gone
