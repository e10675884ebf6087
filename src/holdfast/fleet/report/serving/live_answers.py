"""What coordinators say of groups now, asked again and again beside the requests.

**Rules.** States of all groups are asked for every :data:`NOW_S`: one request a broker. Members are
asked for of groups that rebalance, and of those whose pages somebody has looked at within
:data:`WANTED_S`; a page that was opened just now is answered at once. An answer that is older than
:data:`OLD_S` says nothing of now. While nobody looks at pages, nobody is asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from holdfast.cluster.seen_groups import SeenGroup
from holdfast.fleet.report.columns.live import NOT_QUERIED, LiveGroups

NOW_S: Final = 5.0
"""Between two questions."""
OLD_S: Final = 30.0
"""So old answers say nothing of now."""
WANTED_S: Final = 60.0
"""So long after a request for a group's page its members are asked for."""
MOST_WANTED: Final = 100
"""Of so many groups at most."""

LiveQuery = Callable[[Callable[[SeenGroup], bool], Collection[str]], LiveGroups]
"""Takes whether the members of a group are wanted, and the groups that are known; asks for states
and returns what is known then."""


class LiveAnswers:
    """Asks the coordinators on a thread; nothing where there is nobody to ask.

    Parameters
    ----------
    known : callable
        Returns the groups of the tables.
    rests : callable
        Returns whether nobody has looked at pages for long.
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
        """Begin to ask."""
        if self._query is not None:
            threading.Thread(target=self._run, daemon=True, name="serve_now").start()

    def close(self) -> None:
        """Ask no more; a question that is open is left to itself."""
        self._closed.set()
        self._wake.set()

    def wake(self) -> None:
        """Ask now, and not at the end of the pause."""
        self._wake.set()

    @property
    def live(self) -> LiveGroups:
        """What coordinators say now; nothing where their last answer is old."""
        live = self._live
        is_old = live.seen is None or time.time_ns() / 1e6 - live.seen.queried_ms > 1000 * OLD_S
        return NOT_QUERIED if is_old else live

    @property
    def mark(self) -> str:
        """Differs where something else is shown than before; empty where nobody is asked."""
        if self._query is None:
            return ""
        return f"-{self._number}{'' if self.live.seen is not None else '-old'}"

    def want(self, group: str) -> None:
        """Ask for the members of a group from now on."""
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
        assert self._query is not None, "somebody to ask"
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
    """Whether two answers differ in what they say of a group."""
    if live.seen is None or before.seen is None:
        return live.seen is not before.seen
    return live.seen.groups != before.seen.groups or live.seen.gone != before.seen.gone
