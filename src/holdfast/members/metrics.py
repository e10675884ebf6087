"""Counters and gauges of one member, as a snapshot and for Prometheus.

**Rules.** A metric of Kafka's consumer keeps Kafka's name and metric group, with underscores; the
names of other metrics begin with ``holdfast_``. Counters end in ``_total``. Averages and maxima are
over the member's life, where Kafka takes a window; a time that was never measured is 0.

References: Kafka documentation, "Consumer Group Metrics" (consumer-coordinator-metrics).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.core.machine import actions, events
from holdfast.core.machine.codes import ErrorCode
from holdfast.extras import needed

if TYPE_CHECKING:
    from prometheus_client import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedPartitions:
    """The partitions whose rebalance is delayed for one departed member, by the leader's last plan.

    Parameters
    ----------
    departed : str
        Instance id or member id of the member; its hash if this leader never saw the member.
    partitions : mapping of str to tuple of int
        Partitions by topic, or numbers by kind.
    seconds_left : float
        Seconds until the partitions are assigned to other members; 0 or more.

    References: Incremental Cooperative Rebalancing, Design II.
    """

    departed: str
    partitions: Mapping[str, tuple[int, ...]]
    seconds_left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetrics:
    """The metrics of one member at one moment: counts, and times in ms unless a unit is named.

    ``last_rebalance_seconds_ago`` is -1 before the first one. ``missing_topics`` are the topics of
    the subscription that do not exist; Prometheus gets their number. ``waiting`` and
    ``reassigned_partitions`` (temporarily reassigned ones) are known to a leader alone.
    ``resource_version`` is that of a worker, and ``newest_resource_version`` the newest in the last
    rebalance that it led; -1 for none. The last four numbers are a worker's: its resources by the
    state of their work, and the number of failures.

    References: the names are those of Kafka's ``consumer-coordinator-metrics`` (KIP-429 has the
    later ones), where Kafka has the number.
    """

    group: str
    client_id: str
    member_id: str
    generation: int
    state: str
    is_leader: bool
    assigned_partitions: int
    rebalance_total: int
    failed_rebalance_total: int
    rebalance_latency_avg: float
    rebalance_latency_max: float
    join_total: int
    join_time_avg: float
    join_time_max: float
    sync_total: int
    sync_time_avg: float
    sync_time_max: float
    partitions_gained_total: int
    partitions_revoked_total: int
    partitions_lost_total: int
    commit_total: int
    commit_failed_total: int
    records_consumed_total: int
    last_rebalance_seconds_ago: float
    missing_topics: tuple[str, ...] = ()
    resource_version: int = -1
    newest_resource_version: int = -1
    waiting: tuple[DelayedPartitions, ...] = ()
    reassigned_partitions: int = 0
    running_resources: int = 0
    failed_resources: int = 0
    overdue_resources: int = 0
    resource_failures_total: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics as plain data."""
        return asdict(self)

    def to_kafka(self) -> dict[str, float]:
        """Return the ``consumer-coordinator-metrics`` of Kafka, under Kafka's names."""
        return {
            field.replace("_", "-"): float(getattr(self, field))
            for field, name in (_GAUGES | _COUNTERS).items()
            if name.startswith(_COORDINATOR)
        }


class _Durations(NamedTuple):
    """Durations of one kind; a new value with each, so that any thread reads consistent numbers."""

    n: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0

    def with_one(self, seconds: float) -> _Durations:
        ms = seconds * 1000
        return _Durations(self.n + 1, self.total_ms + ms, max(self.max_ms, ms))

    @property
    def avg_ms(self) -> float:
        return self.total_ms / self.n if self.n else 0.0


class RebalanceTimes:
    """Number and durations of a member's rebalances; written by the member thread alone.

    A rebalance begins with the first JoinGroup and ends with an assignment, whatever was refused
    and sent again between them. A refused or unanswered JoinGroup or SyncGroup counts as a failed
    rebalance, except the answer that gives a member its id (KIP-394).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._requested: tuple[int, bool, float] | None = None  # request, is a join, when
        self._began_s: float | None = None
        self._ended_s: float | None = None
        self.joins = self.syncs = self.rebalances = _Durations()
        self.n_failed = self.n_gained = self.n_revoked = self.n_lost = 0

    def record_request(self, action: actions.Action) -> None:
        """Record that a request is being sent."""
        is_join = isinstance(action, actions.SendJoin)
        if isinstance(action, actions.SendJoin | actions.SendSync):
            now_s = self._clock()
            self._requested = action.request, is_join, now_s
            if is_join and self._began_s is None:
                self._began_s = now_s

    def record_event(self, event: events.Event) -> None:
        """Record the answer to a request."""
        answers = events.JoinAnswered | events.SyncAnswered | events.RequestFailed
        if (
            not isinstance(event, answers)
            or self._requested is None
            or event.request != self._requested[0]
        ):
            return
        (_, is_join, sent_s), self._requested = self._requested, None
        code = -1 if isinstance(event, events.RequestFailed) else event.error
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            return
        if code:
            self.n_failed += 1
        elif is_join:
            self.joins = self.joins.with_one(self._clock() - sent_s)
        else:
            self.syncs = self.syncs.with_one(self._clock() - sent_s)

    def record_completed(self, action: actions.JoinCompleted) -> None:
        """Record the end of a rebalance."""
        self._ended_s = now_s = self._clock()
        began_s = now_s if self._began_s is None else self._began_s
        self._began_s = None
        self.rebalances = self.rebalances.with_one(now_s - began_s)
        self.n_gained += len(action.gained)
        self.n_revoked += len(action.revoked)

    def record_loss(self, action: actions.DropNow) -> None:
        """Record that partitions were lost."""
        self.n_lost += len(action.lost)

    @property
    def since_last_s(self) -> float:
        """Return the seconds since the last rebalance, -1 before the first."""
        return -1.0 if self._ended_s is None else self._clock() - self._ended_s


class Counters:
    """Counts of commits and records; safe from any thread."""

    NAMES = ("commit", "commit_failed", "records")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(self.NAMES, 0)

    def add(self, name: str, n: int = 1) -> None:
        """Increase the counter ``name``, one of :attr:`NAMES`, by ``n``."""
        with self._lock:
            self._counts[name] += n

    def read(self) -> dict[str, int]:
        """Return the counts by name."""
        with self._lock:
            return dict(self._counts)


_COORDINATOR = "kafka_consumer_coordinator_"
_GAUGES = {
    "assigned_partitions": f"{_COORDINATOR}assigned_partitions",
    "last_rebalance_seconds_ago": f"{_COORDINATOR}last_rebalance_seconds_ago",
    "rebalance_latency_avg": f"{_COORDINATOR}rebalance_latency_avg",
    "rebalance_latency_max": f"{_COORDINATOR}rebalance_latency_max",
    "join_time_avg": f"{_COORDINATOR}join_time_avg",
    "join_time_max": f"{_COORDINATOR}join_time_max",
    "sync_time_avg": f"{_COORDINATOR}sync_time_avg",
    "sync_time_max": f"{_COORDINATOR}sync_time_max",
    "generation": "holdfast_member_generation",
    "is_leader": "holdfast_member_is_leader",
    "missing_topics": "holdfast_member_missing_topics",
    "resource_version": "holdfast_member_resource_version",
    "reassigned_partitions": "holdfast_member_reassigned_partitions",
    "newest_resource_version": "holdfast_member_newest_resource_version",
    "running_resources": "holdfast_member_running_resources",
    "failed_resources": "holdfast_member_failed_resources",
    "overdue_resources": "holdfast_member_overdue_resources",
}
_COUNTERS = {
    "rebalance_total": f"{_COORDINATOR}rebalance",
    "failed_rebalance_total": f"{_COORDINATOR}failed_rebalance",
    "join_total": f"{_COORDINATOR}join",
    "sync_total": f"{_COORDINATOR}sync",
    "commit_total": f"{_COORDINATOR}commit",
    "commit_failed_total": "holdfast_member_commit_failed",
    "records_consumed_total": "kafka_consumer_fetch_manager_records_consumed",
    "partitions_gained_total": "holdfast_member_partitions_gained",
    "partitions_revoked_total": "holdfast_member_partitions_revoked",
    "partitions_lost_total": "holdfast_member_partitions_lost",
    "resource_failures_total": "holdfast_member_resource_failures",
}
_LABELS = ("group", "client_id")


class Metered(Protocol):
    """A ``Consumer``, a ``Worker``, or a drop-in's consumer."""

    def __holdfast_metrics__(self) -> MemberMetrics | None:
        """Return the metrics, None while no member of holdfast runs."""


class PrometheusCollector:
    """A custom collector of ``prometheus_client`` for the metrics of members.

    Parameters
    ----------
    *members : Metered
        Members of one process; the label ``client_id`` distinguishes them.

    References: Kafka's JMX names, as Prometheus spells them; times in Kafka's unit, ms.
    """

    def __init__(self, *members: Metered):
        self._members = members

    def collect(self) -> Iterator[Metric]:
        """Yield one metric family for each metric."""
        with needed("members"):
            from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        metrics = [m.__holdfast_metrics__() for m in self._members]
        now = [m for m in metrics if m is not None]
        for names, family in ((_GAUGES, GaugeMetricFamily), (_COUNTERS, CounterMetricFamily)):
            for field, name in names.items():
                text = f"{field.replace('_', ' ')} of this member"
                metric = family(name, text, labels=_LABELS)
                for m in now:
                    value = getattr(m, field)
                    number = float(len(value) if field == "missing_topics" else value)
                    metric.add_metric((m.group, m.client_id), number)
                yield metric
        waits = GaugeMetricFamily(
            "holdfast_member_waiting_partitions",
            "partitions that wait for a departed member, as this leader planned it",
            labels=(*_LABELS, "departed"),
        )
        ends = GaugeMetricFamily(
            "holdfast_member_wait_seconds_left",
            "seconds until they are assigned to other members",
            labels=(*_LABELS, "departed"),
        )
        for m in now:
            for wait in m.waiting:
                labels = (m.group, m.client_id, wait.departed)
                waits.add_metric(labels, sum(map(len, wait.partitions.values())))
                ends.add_metric(labels, wait.seconds_left)
        yield waits
        yield ends


def prometheus_text(*members: Metered) -> str:
    """Return the metrics of members in Prometheus' text format; needs the extra ``members``."""
    with needed("members"):
        from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(PrometheusCollector(*members))
    return str(generate_latest(registry).decode())
