"""The time of a record by its offset, asked of the brokers without reading the record.

**Rules.** ListOffsets tells the first record at or after a time, and its time. So nothing but
DESCRIBE on the topic is needed, and no record travels. An answer is exact, or too early by at most
a hundredth of the record's age (or 0.1 s). Times of a topic's records are taken to rise with the
offset.

**Strategy.** Search by interpolation between the newest record known to be before the offset and
the oldest known to be after it; every third step halves the time between. One request asks for all
partitions, so a search takes as many requests as its slowest partition, at most :data:`STEPS`.

References: KIP-79 (ListOffsets by timestamp).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MOST_ASKED: Final = 5_000
"""Records whose time is asked for at once: a cluster answers a few thousand of them in a second."""

STEPS: Final = 20
NEAR_MS: Final = 100
NEAR_SHARE: Final = 0.01

Place = tuple[str, int]
Ask = Callable[[Mapping[Place, int]], Mapping[Place, tuple[int, int] | None]]
"""Times in milliseconds to (offset, time) of the first record at or after each, or None."""


def age_seconds(time_ms: int, now_us: int) -> float:
    """How old a record is; one from the future is 0 seconds old."""
    return max(now_us / 1000 - time_ms, 0.0) / 1000


@dataclass(slots=True)
class _RecordSearch:
    """The search for one record: ``low`` is at or before it, ``high`` behind it."""

    offset: int
    guess: int
    high_ms: int
    low_ms: int = -1
    low_offset: int = -1
    high_offset: int = -1
    found: int | None = None
    over: bool = False
    steps: int = 0

    def take(self, answer: tuple[int, int] | None) -> None:
        """Narrow the search by the record that was found for the guess."""
        self.steps += 1
        if answer is not None and answer[0] <= self.offset:
            self.low_offset, self.low_ms = answer
            if self.low_offset == self.offset:
                self.found = self.low_ms
                return
        elif not self.guess:  # the oldest record of all lies behind it, or there is none
            self.found, self.over = None if answer is None else answer[1], True
            return
        else:
            self.high_ms = self.guess
            self.high_offset = -1 if answer is None else answer[0]
        self._next()

    def _next(self) -> None:
        if self.low_ms < 0:
            self.guess = 0
            return
        between = self.high_ms - self.low_ms
        if between <= 1:
            self.found = self.low_ms
            return
        share = 0.5
        if self.steps % 3 and self.high_offset > self.low_offset:
            share = (self.offset - self.low_offset) / (self.high_offset - self.low_offset)
        self.guess = self.low_ms + min(max(round(between * share), 1), between - 1)

    def ended(self, now_ms: int) -> bool:
        """Whether the time is known, or so nearly known that the rest does not matter."""
        if self.over or self.found is not None:
            return True
        between = self.high_ms - self.low_ms
        most = max(NEAR_MS, NEAR_SHARE * (now_ms - self.high_ms))
        return self.low_ms >= 0 and between <= most


def record_times(
    wanted: Sequence[tuple[str, int, int, int]], ask: Ask, now_ms: int
) -> list[int | None]:
    """Times of records in milliseconds since 1970; None where the cluster does not say.

    Parameters
    ----------
    wanted : sequence of (str, int, int, int)
        Topic, partition, offset, and a time that is likely to be near the record's own.
    ask : callable
        Sends one request for any number of partitions.
    now_ms : int
        No record is younger.

    Notes
    -----
    Two groups may read one partition: each gets a search, and a request asks for one of them.
    """
    searches = [
        _RecordSearch(offset=offset, guess=min(near_ms, now_ms), high_ms=now_ms + 1)
        for _, _, offset, near_ms in wanted
    ]
    for layer in _layers([(topic, partition) for topic, partition, _, _ in wanted]):
        for _ in range(STEPS):
            live = {
                place: searches[i] for place, i in layer.items() if not searches[i].ended(now_ms)
            }
            if not live:
                break
            answers = ask({place: search.guess for place, search in live.items()})
            for place, search in live.items():
                search.take(answers.get(place))
    return [
        search.found if search.found is not None else search.low_ms if search.low_ms >= 0 else None
        for search in searches
    ]


def _layers(places: Sequence[Place]) -> list[dict[Place, int]]:
    """Searches by partition, in as many layers as one partition is asked for."""
    layers: list[dict[Place, int]] = []
    depth: dict[Place, int] = {}
    for i, place in enumerate(places):
        at = depth.get(place, 0)
        depth[place] = at + 1
        if at == len(layers):
            layers.append({})
        layers[at][place] = i
    return layers
