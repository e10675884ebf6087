"""Virtual time: a queue of function calls.

**Rules.** No call happens before its time. Calls of one time happen in the order in which they were
entered. The order also holds for calls that are entered at that very time.

**Strategy.** A heap of times, and for each time the functions to call in order.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Clock:
    """The time of a run in ms, and the calls that are due."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._times: list[int] = []  # a heap
        self._due: dict[int, list[tuple[Callable[[Any], None], Any]]] = {}  # at each of the times

    def at(self, time_ms: int, function: Callable[[Any], None], argument: Any = None) -> None:
        """Call a function at a time, or now if that time has passed."""
        time_ms = max(time_ms, self.now_ms)
        due = self._due.get(time_ms)
        if due is None:
            self._due[time_ms] = [(function, argument)]
            heappush(self._times, time_ms)
        else:
            due.append((function, argument))

    def clear(self) -> None:
        """Drop every call that is due: nothing more happens."""
        for due in self._due.values():
            due.clear()

    def run(self, until_ms: int) -> None:
        """Advance to a time."""
        times = self._times
        while times and times[0] <= until_ms:
            self.now_ms = time_ms = heappop(times)
            for function, argument in self._due[time_ms]:  # the calls may add to this list
                function(argument)
            del self._due[time_ms]
        self.now_ms = max(self.now_ms, until_ms)

    def run_while(self, condition: Callable[[], bool], limit_ms: int, step_ms: int = 250) -> bool:
        """Advance in steps while a condition holds; False if it still holds at the limit."""
        while condition():
            if self.now_ms >= limit_ms:
                return False
            self.run(min(self.now_ms + step_ms, limit_ms))
        return True


class Trace:
    """Lines of what happened when, if a caller wants them.

    Parameters
    ----------
    on : bool
        Whether lines are kept. A caller checks it before it composes a long line.
    """

    def __init__(self, clock: Clock, *, on: bool):
        self.clock, self.on = clock, on
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        """Keep a line with the present time."""
        if self.on:
            self.lines.append(f"{self.clock.now_ms:>9} {text}")
