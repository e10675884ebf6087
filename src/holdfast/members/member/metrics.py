"""Counters and gauges of one member, as a snapshot and for Prometheus.

**Rules.** A metric of Kafka's consumer keeps Kafka's name and metric group, with underscores; the
names of other metrics begin with ``holdfast_``. Counters end in ``_total``.

References: Kafka documentation, "Consumer Group Metrics" (consumer-coordinator-metrics).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetrics:
    """One member's numbers at one moment.

    ``last_rebalance_seconds_ago`` is -1 before the first round. ``missing_topics`` are the topics
    of the subscription that do not exist; Prometheus gets their number.
    """

    group: str
    client_id: str
    member_id: str
    generation: int
    state: str
    is_leader: bool
    assigned_partitions: int
    rebalance_total: int
    partitions_gained_total: int
    partitions_revoked_total: int
    partitions_lost_total: int
    commit_total: int
    commit_failed_total: int
    records_consumed_total: int
    last_rebalance_seconds_ago: float
    missing_topics: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data."""
        return asdict(self)


class Counters:
    """Counts of a running member; safe from any thread."""

    NAMES = ("rebalance", "gained", "revoked", "lost", "commit", "commit_failed", "records")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(self.NAMES, 0)
        self._last_round_s: float | None = None

    def add(self, name: str, n: int = 1) -> None:
        """Count ``n`` more of one of :attr:`NAMES`."""
        with self._lock:
            self._counts[name] += n
            if name == "rebalance":
                self._last_round_s = time.monotonic()

    def read(self) -> tuple[dict[str, int], float]:
        """Return the counts and the seconds since the last round, -1 for none yet."""
        with self._lock:
            ago = -1.0 if self._last_round_s is None else time.monotonic() - self._last_round_s
            return dict(self._counts), ago


_GAUGES = {
    "assigned_partitions": "kafka_consumer_coordinator_assigned_partitions",
    "last_rebalance_seconds_ago": "kafka_consumer_coordinator_last_rebalance_seconds_ago",
    "generation": "holdfast_member_generation",
    "is_leader": "holdfast_member_is_leader",
    "missing_topics": "holdfast_member_missing_topics",
}
_COUNTERS = {
    "rebalance_total": "kafka_consumer_coordinator_rebalance",
    "commit_total": "kafka_consumer_coordinator_commit",
    "commit_failed_total": "holdfast_member_commit_failed",
    "records_consumed_total": "kafka_consumer_fetch_manager_records_consumed",
    "partitions_gained_total": "holdfast_member_partitions_gained",
    "partitions_revoked_total": "holdfast_member_partitions_revoked",
    "partitions_lost_total": "holdfast_member_partitions_lost",
}


class PrometheusCollector:
    """Register with ``prometheus_client``: ``REGISTRY.register(PrometheusCollector(c.metrics))``.

    Parameters
    ----------
    take : callable
        Returns a :class:`MemberMetrics`; usually the ``metrics`` method of a consumer.
    """

    def __init__(self, take: Callable[[], MemberMetrics]):
        self._take = take

    def collect(self) -> Iterator[Any]:
        """Yield one metric family for each number."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = self._take().to_dict()
        labels = ["group", "client_id"]
        values = [now["group"], now["client_id"]]
        for names, family in ((_GAUGES, GaugeMetricFamily), (_COUNTERS, CounterMetricFamily)):
            for field, name in names.items():
                metric = family(name, f"{field.replace('_', ' ')} of this member", labels=labels)
                value = now[field]
                metric.add_metric(values, float(len(value) if field == "missing_topics" else value))
                yield metric
