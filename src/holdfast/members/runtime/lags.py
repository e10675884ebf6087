"""Lags for a leader: from the brokers, or from a function of the user, with a time-out.

**Rules.** Only a leader requests lags, once a round. If a source is late, fails, or returns lags
that do not fit, the round is planned by counts (the fall-back of KAFKA-5337). A source that is
still busy with an earlier request gets no new one. The built-in source joins no group and commits
nothing; if an answer is missing it raises an error.

**Strategy.** :class:`TimedLagSource` wraps any source for the leader; :class:`BrokerLags` is the
built-in one. Its begin and end offsets come from the partitions' leaders, committed offsets from
the group's coordinator: a request per broker, whatever the number of partitions.

References: KAFKA-5337; Kafka protocol guide, OffsetFetch and ListOffsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from holdfast.cluster.connections import Connections, TopicPartition
from holdfast.cluster.lookup import EARLIEST, LATEST, Lookup
from holdfast.members.config.own_assignors import TimedFunction
from holdfast.members.config.settings import Settings
from holdfast.members.runtime.coordinator_client import CoordinatorClient
from holdfast.members.runtime.member_log import NAME, Log

if TYPE_CHECKING:
    from holdfast.core.model.columns import I64


Lags = Mapping[str, Sequence[int]]
LagSource = Callable[[Mapping[str, int]], Lags]
"""Takes partition counts; returns lags in messages, one a partition. A leader calls it."""

TIMEOUT_MS = 2_000


class TimedLagSource:
    """A lag source with a time-out; without a source every round is planned by counts.

    The log gets a warning if a round has no lags.
    """

    def __init__(
        self, source: LagSource | None, timeout_ms: int = TIMEOUT_MS, *, log: Log | None = None
    ):
        self.source = source
        self.timeout_ms = timeout_ms
        self._in_time = None if source is None else TimedFunction("lags", source, timeout_ms)
        self._log = log or logging.getLogger(NAME)

    def __call__(self, partitions: Mapping[str, int]) -> Lags:
        """Return the lags of ``partitions`` from the source, all 0 if the source gives none."""
        reason = "no holdfast.lag.source"
        if self._in_time is not None:
            try:
                return self._checked(self._in_time(partitions), partitions)
            except Exception as error:  # whatever the source does, the round continues
                reason = str(error) or type(error).__name__
        self._log.warning("lags are not known (%s): this round is planned by counts", reason)
        return {topic: [0] * count for topic, count in partitions.items()}

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


class BrokerLags:
    """A lag source that queries the brokers: end offset minus the group's committed offset.

    Parameters
    ----------
    coordinator : CoordinatorClient
        For the group's committed offsets; open transactions are not waited for.
    lookup : Lookup
        For begin and end offsets.
    reset : str
        The group's ``auto.offset.reset``: the lag of a partition without a commit.

    References: KAFKA-5337, "lag-based assignor"; a lag is in records.
    """

    def __init__(self, coordinator: CoordinatorClient, lookup: Lookup, reset: str):
        self._coordinator = coordinator
        self._lookup = lookup
        self.reset = reset
        self._connections: Connections | None = None

    @classmethod
    def connect(cls, config: Mapping[str, object]) -> Self:
        """Return a lag source with connections of its own, for the assignors of stock clients.

        Parameters
        ----------
        config : mapping of str to object
            As of :class:`holdfast.Consumer`: ``bootstrap.servers``, ``group.id``, security, and the
            ``auto.offset.reset`` that the group's consumers have.

        Raises
        ------
        ConfigError
            For a key that is unknown or a value that is out of range.
        SourceError
            If no broker answers.
        """
        settings = Settings.parse(config)
        connections = Connections(settings)
        connections.open()
        coordinator = CoordinatorClient(connections, lambda _: None, lambda _: None)
        made = cls(coordinator, Lookup(connections), settings["auto.offset.reset"])
        made._connections = connections
        return made

    def __call__(self, partitions: Mapping[str, int]) -> Lags:
        """Return the lag of each of ``partitions``, in messages; 0 for one without a leader.

        Raises
        ------
        ClientError
            If a broker did not answer.
        RemoteProtocolError
            If a broker refused.
        """
        import numpy as np  # a leader has loaded it by now; nobody else needs it

        from holdfast.core.model.lag import lag_of_columns

        tps = [(topic, p) for topic, n in sorted(partitions.items()) for p in range(n)]
        if not tps:
            return {topic: [] for topic in partitions}
        if self._connections is not None:
            self._coordinator.locate().result()  # the coordinator may have moved
        requests = (
            self._lookup.list_offsets(tps, EARLIEST),
            self._coordinator.committed(tps, stable=False),
            self._lookup.list_offsets(tps, LATEST),
        )
        begin, committed, end = (_column(tps, f.result()) for f in requests)
        lag = lag_of_columns(begin, np.maximum(begin, end), committed, self.reset)
        lag[(begin < 0) | (end < 0)] = 0  # a partition without a leader has no offsets now
        by_topic: dict[str, list[int]] = {topic: [] for topic in partitions}
        for (topic, _), messages in zip(tps, lag.tolist(), strict=True):
            by_topic[topic].append(messages)
        return by_topic

    def close(self) -> None:
        """Close the connections of :meth:`connect`."""
        if self._connections is not None:
            self._connections.close()
            self._connections = None


def lag_source_of(
    settings: Settings, coordinator: CoordinatorClient, lookup: Lookup
) -> LagSource | None:
    """Return the configured lag source, None for ``holdfast.lag.source=none``."""
    given: LagSource | str = settings["holdfast.lag.source"]
    if given == "broker":
        return BrokerLags(coordinator, lookup, settings["auto.offset.reset"])
    return None if isinstance(given, str) else given


def _column(tps: Collection[TopicPartition], found: Mapping[TopicPartition, int]) -> I64:
    import numpy as np

    from holdfast.core.model.lag import NO_COMMIT

    return np.array([found.get(tp, NO_COMMIT) for tp in tps], dtype=np.int64)
