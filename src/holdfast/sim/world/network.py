"""A network that delays, drops, duplicates and splits, drawn from one generator.

**Rules.** Every message asks :meth:`Network.fate` once, in the order in which messages are sent, so
that a run is a function of its seed. A cut (*split*) severs a client from the coordinator in both
directions; its requests fail after :data:`FAIL_MS`.

**Strategy.** Latencies are drawn in blocks; the fault rates are zero outside the fault phase.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BLOCK = 4096
FAIL_MS = 500  # a broken connection is noticed


@dataclass(slots=True, kw_only=True)
class Rates:
    """Probabilities of one message."""

    drop: float = 0.0
    duplicate: float = 0.0
    slow: float = 0.0  # much later than the rest
    slow_ms: int = 4_000


class Network:
    """Decides what happens to each message.

    Parameters
    ----------
    rng : numpy.random.Generator
        The run's generator for messages.
    latency_ms : int
        One way, on average; drawn evenly from half of it to one and a half.
    """

    def __init__(self, rng: np.random.Generator, latency_ms: int):
        self.rng = rng
        self.latency_ms = latency_ms
        self.rates = Rates()
        self.cut_until: dict[str, int] = {}
        self._latencies: list[int] = []
        self._chances: list[float] = []

    def latency(self) -> int:
        """Return the delay of a message in ms, at least 1."""
        if not self._latencies:
            low, high = self.latency_ms // 2, self.latency_ms + self.latency_ms // 2
            self._latencies = self.rng.integers(max(1, low), max(2, high + 1), BLOCK).tolist()
        return self._latencies.pop()

    def chance(self) -> float:
        """Return a number in [0, 1)."""
        if not self._chances:
            self._chances = self.rng.random(BLOCK).tolist()
        return self._chances.pop()

    def fate(self, client: str, now_ms: int) -> tuple[int, ...]:
        """Return delays after which copies of a message arrive; empty: never."""
        until_ms = self.cut_until.get(client)
        if until_ms is not None:
            if now_ms < until_ms:
                return ()
            del self.cut_until[client]
        rates = self.rates
        first = self._latencies.pop() if self._latencies else self.latency()
        if not (rates.drop or rates.duplicate or rates.slow):
            return (first,)
        if self.chance() < rates.drop:
            return ()
        if self.chance() < rates.slow:
            first += 1 + int(self.chance() * rates.slow_ms)
        if self.chance() < rates.duplicate:
            return (first, first + self.latency())
        return (first,)
