"""Lag sources, which a leader calls with a time-out: the broker, or a function of the user.

**Rules.** Only a leader requests lags, once a round. If a source is late, fails, or returns lags
that do not fit, the round is planned by counts (the fall-back of KAFKA-5337). A source that is
still busy with an earlier request gets no new one.

**Strategy.** :class:`TimedLagSource` wraps any source for the leader;
:class:`~holdfast.members.runtime.broker_lags.BrokerLags` is the built-in one. No client is imported
here.

References: KAFKA-5337.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from holdfast.errors import HoldfastError
from holdfast.members.config.timed_call import TimedCall
from holdfast.members.runtime.member_log import NAME, Log

Lags = Mapping[str, Sequence[int]]
LagSource = Callable[[Mapping[str, int]], Lags]
"""Takes partition counts; returns lags in messages, one a partition. A leader calls it."""

TIMEOUT_MS = 2_000


class TimedLagSource:
    """A lag source with a time-out.

    Parameters
    ----------
    source : callable or None
        None: every round is planned by counts.
    timeout_ms : int
        Time-out of one request.
    log : logger, optional
        Gets a warning if a round has no lags; ``holdfast.member`` by default.
    """

    def __init__(
        self, source: LagSource | None, timeout_ms: int = TIMEOUT_MS, *, log: Log | None = None
    ):
        self.source = source
        self.timeout_ms = timeout_ms
        self._in_time: TimedCall[Lags] = TimedCall("holdfast-lags", timeout_ms)
        self._log = log or logging.getLogger(NAME)

    def __call__(self, partitions: Mapping[str, int]) -> Lags:
        """Return the lags of ``partitions`` from the source, all 0 if the source gives none."""
        try:
            return self._checked(self._ask(partitions), partitions)
        except Exception as error:  # whatever the source does, the round continues
            reason = str(error) or type(error).__name__
            self._log.warning("lags are not known (%s): this round is planned by counts", reason)
            return {topic: [0] * count for topic, count in partitions.items()}

    def _ask(self, partitions: Mapping[str, int]) -> Lags:
        source = self.source
        if source is None:
            raise HoldfastError("no holdfast.lag.source")
        if self._in_time.is_busy:
            raise TimeoutError("the source still works on an earlier request")
        return self._in_time(lambda: source(partitions))

    @staticmethod
    def _checked(found: Lags, partitions: Mapping[str, int]) -> Lags:
        """Return the found lags, with 0 for topics that the source does not know."""
        lags: dict[str, Sequence[int]] = {t: [0] * n for t, n in partitions.items()}
        for topic, count in partitions.items():
            if topic not in found:
                continue
            given = [int(n) for n in found[topic]]
            if len(given) != count or min(given, default=0) < 0:
                raise ValueError(f"{topic}: {count} lags of 0 or more expected, found {given}")
            lags[topic] = given
        return lags
