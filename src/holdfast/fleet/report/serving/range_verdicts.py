"""The doctor's verdicts on every group in the time ranges that pages were requested for.

**Rules.** A range is examined when a page of it is requested, and again for newer tables as long
as its pages are requested. A group is missing until it was examined once. The usual range is
not here: :mod:`~holdfast.fleet.report.serving.served_fleet` examines it for every batch.

**Strategy.** One thread examines the range that was requested last, group by group. Ranges are
known by their words in the address, because ``6h`` is another time with every batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.fleet.analysis.findings.examination import Examination, GroupVerdict

WANTED_S: Final = 60.0
"""Time after a request in which a range is examined again."""
MOST_RANGES: Final = 16
"""Ranges whose verdicts are kept."""

RangeWords = tuple[str, str]
"""``from`` and ``to`` as an address has them."""
Examine = Callable[[RangeWords], Iterator[Examination]]
"""Yields the groups of the newest tables, examined in a range."""


@dataclass(slots=True)
class _Range:
    """Verdicts in one range; ``number`` is that of the examined tables."""

    verdicts: dict[str, GroupVerdict] = field(default_factory=dict)
    number: int = 0
    n_examined: int = 0
    requested_at: float = 0.0


class RangeVerdicts:
    """Examines ranges on a thread.

    Parameters
    ----------
    number : callable
        Returns the number of the newest tables.
    examine : callable
        Examines the newest tables in a range.
    notify : callable
        Prints one line about an error.
    """

    def __init__(self, number: Callable[[], int], examine: Examine, notify: Callable[[str], None]):
        self._number, self._examine, self._notify = number, examine, notify
        self._changed = threading.Condition()
        self._closed = False
        self._ranges: dict[RangeWords, _Range] = {}

    def start(self) -> threading.Thread:
        """Start examining; return the thread."""
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

    def of(self, words: RangeWords) -> tuple[dict[str, GroupVerdict], int]:
        """Return verdicts in a range, and how many groups of the newest tables have one."""
        with self._changed:
            one = self._ranges.pop(words, None) or _Range()
            one.requested_at = time.monotonic()
            kept = list(self._ranges.items())[1 - MOST_RANGES :]
            self._ranges = dict([*kept, (words, one)])
            self._changed.notify_all()
            return dict(one.verdicts), self._examined(words)

    def _examined(self, words: RangeWords) -> int:
        one = self._ranges.get(words, _Range())
        return one.n_examined if one.number == self._number() else 0

    def wait(self, words: RangeWords, n_groups: int, timeout_s: float) -> bool:
        """Wait until a range has verdicts on so many groups; False if it has not in time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._examined(words) >= n_groups, timeout=timeout_s
            )

    def _run(self) -> None:
        while (words := self._next()) is not None:
            one = self._ranges[words]
            one.number, one.n_examined, here = self._number(), 0, set[str]()
            try:
                for found in self._examine(words):
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
        since, number = time.monotonic() - WANTED_S, self._number()
        late = [
            (one.requested_at, words)
            for words, one in self._ranges.items()
            if one.number < number and one.requested_at >= since and not (unseen and one.verdicts)
        ]
        return max(late)[1] if late else None

    def _unseen(self) -> RangeWords | None:
        return self._waiting(unseen=True)
