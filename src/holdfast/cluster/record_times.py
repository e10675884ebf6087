"""Bounds of the age of records, by requests for times: no record is read.

**Rules.** ListOffsets answers for a time with the first record that has this time or a later one.
So DESCRIBE on the topic is enough. The result is exact if a broker named the record itself.
Otherwise it is a bound: the record has this time or an earlier one. The bound holds in every log:
if producers' clocks differ, if consecutive records have equal times, and if compaction has removed
records. If times rise with the offset, the bound is later than the record's time by at most a
hundredth of its age (or 0.1 s). If an earlier record has a time in the future, times give no bound.

**Strategy.** Search by interpolation between the newest record that a broker has named before the
offset, and the earliest time whose first record lies after it; every third step halves the time
between. One request covers all partitions, so a search takes as many requests as its slowest
partition, at most :data:`STEPS`.

References: KIP-79 (ListOffsets by timestamp).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

STEPS: Final = 20
NEAR_MS: Final = 100
NEAR_SHARE: Final = 0.01

TopicPartition = tuple[str, int]
Ask = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, tuple[int, int] | None]]
"""Times in milliseconds to (offset, time) of the first record at or after each, or None. A
partition that has no leader is missing."""


@dataclass(frozen=True, slots=True)
class RecordTime:
    """The time of a record."""

    ms: int  # since 1970
    is_exact: bool  # False: the record has this time or an earlier one


@dataclass(slots=True)
class _RecordSearch:
    """The search for the first record at or after ``offset``; ``low`` lies before it."""

    offset: int
    guess: int
    now_ms: int
    high_ms: int  # no record before ``high_offset`` has this time or a later one, once requested
    high_offset: int = -1
    low_ms: int = -1
    low_offset: int = -1
    bound_ms: int | None = None
    is_exact: bool = False
    over: bool = False
    steps: int = 0

    def take(self, answer: tuple[int, int] | None) -> None:
        """Narrow the search by the record that was found for the guess."""
        self.steps += 1
        repeated = False
        if answer is None:
            self.high_ms, self.high_offset, self.bound_ms = self.guess, -1, self.guess - 1
        elif answer[0] < self.offset:
            self.low_offset, self.low_ms = answer
        else:
            # Records between the offset and the found one are earlier than the guess, and
            # so than the found one's time. Whichever of them is the first, the bound holds for it.
            repeated = answer[0] == self.high_offset
            self.high_ms, (self.high_offset, self.bound_ms) = self.guess, answer
            self.is_exact = answer[0] == self.offset or not self.guess
        self._next(repeated)

    def _next(self, repeated: bool) -> None:
        if self.low_ms < 0:
            self.over = not self.guess
            self.guess = 0
            return
        between = self.high_ms - self.low_ms
        if between <= 1:  # a record with a later time precedes it, or all times were requested
            self.over = True
        elif repeated or self.low_offset == self.offset - 1:
            self.guess = self.low_ms + 1  # nothing may lie between the two records
        else:
            share = 0.5
            if self.steps % 3 and self.high_offset > self.low_offset:
                share = (self.offset - self.low_offset) / (self.high_offset - self.low_offset)
            self.guess = self.low_ms + min(max(round(between * share), 1), between - 1)

    @property
    def ended(self) -> bool:
        """Whether the time is known, or known closely enough."""
        if self.over or self.is_exact:
            return True
        if self.bound_ms is None or self.low_ms < 0:
            return False
        most = max(NEAR_MS, NEAR_SHARE * (self.now_ms - self.bound_ms))
        return self.bound_ms - self.low_ms <= most

    @property
    def found(self) -> RecordTime | None:
        """Return the time, as far as the answers show it."""
        if self.bound_ms is None or self.bound_ms < 0:
            return None
        return RecordTime(self.bound_ms, self.is_exact)


def record_times(
    wanted: Sequence[tuple[str, int, int, int]], ask: Ask, now_ms: int
) -> list[RecordTime | None]:
    """Find the times of records; None if the cluster does not know.

    Parameters
    ----------
    wanted : sequence of (str, int, int, int)
        Topic, partition, offset, and a time that is likely to be near the record's own. If the log
        has no record at the offset, the next one is meant.
    ask : callable
        Sends one request for any number of partitions.
    now_ms : int
        The time of the query, in milliseconds since 1970.

    Notes
    -----
    Two groups may read one partition: each gets a search, and a request covers one of them.
    """
    searches = [
        _RecordSearch(
            offset=offset,
            guess=max(min(near_ms, now_ms), 0),  # below 0 ListOffsets has other meanings
            now_ms=now_ms,
            high_ms=now_ms + 1,
        )
        for _, _, offset, near_ms in wanted
    ]
    for layer in layers([(topic, partition) for topic, partition, _, _ in wanted]):
        for _ in range(STEPS):
            live = {tp: searches[i] for tp, i in layer.items() if not searches[i].ended}
            if not live:
                break
            answers = ask({tp: search.guess for tp, search in live.items()})
            for tp, search in live.items():
                if tp in answers:
                    search.take(answers[tp])
                else:
                    search.over = True
    return [search.found for search in searches]


def layers(tps: Sequence[TopicPartition]) -> list[dict[TopicPartition, int]]:
    """Group indices of ``tps`` into layers, each with every partition at most once."""
    found: list[dict[TopicPartition, int]] = []
    depth: dict[TopicPartition, int] = {}
    for i, tp in enumerate(tps):
        at = depth.get(tp, 0)
        depth[tp] = at + 1
        if at == len(found):
            found.append({})
        found[at][tp] = i
    return found
