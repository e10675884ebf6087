"""Prometheus text of a fleet, from tables: Kafka exporters' own names first, then ours.

**Rules.** ``kafka_consumergroup_*`` have the names and labels of exporters and dashboards. Ours
are ``holdfast_group_*`` (``holdfast_share_group_*`` if only a share group has it) or
``holdfast_tables_*``, in seconds and ``_total``. Label values are names from strangers: they are
made visible, then escaped by prometheus_client. An unknown value has no sample.

References: Prometheus text exposition format 0.0.4; kafka_exporter (danielqsj) for the names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from holdfast.core.names import visible
from holdfast.fleet.analysis.findings.examination import Examination
from holdfast.fleet.analysis.group.lag import lag_sums
from holdfast.fleet.columnar import ArrowTable, ints, words
from holdfast.fleet.tables.columns.holdable import to_us
from holdfast.fleet.tables.reading import Tables

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric: its name, help text and labels."""

    name: str
    text: str
    labels: tuple[str, ...]

    @property
    def is_counter(self) -> bool:
        """Whether it is a counter and not a gauge, by its name."""
        return self.name.endswith("_total")


def _metric(name: str, text: str, *labels: str) -> Metric:
    return Metric(name=name, text=text, labels=labels)


_TP = ("consumergroup", "topic", "partition")
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _metric(
            "kafka_consumergroup_current_offset",
            "Current Offset of a ConsumerGroup at Topic/Partition",
            *_TP,
        ),
        _metric(
            "kafka_consumergroup_lag",
            "Current Approximate Lag of a ConsumerGroup at Topic/Partition",
            *_TP,
        ),
        _metric(
            "kafka_consumergroup_current_offset_sum",
            "Current Offset of a ConsumerGroup at Topic for all partitions",
            "consumergroup",
            "topic",
        ),
        _metric(
            "kafka_consumergroup_lag_sum",
            "Current Approximate Lag of a ConsumerGroup at Topic for all partitions",
            "consumergroup",
            "topic",
        ),
        _metric(
            "kafka_consumergroup_members", "Amount of members in a consumer group", "consumergroup"
        ),
        _metric("holdfast_group_generation", "Last generation, or epoch, of the group.", "group"),
        _metric("holdfast_group_kind", "1 for the kind of the group's members.", "group", "kind"),
        _metric(
            "holdfast_group_assigned",
            "Partitions or tasks of the members, by role; a shared one counts for each reader.",
            "group",
            "role",
        ),
        _metric(
            "holdfast_share_group_delivered",
            "Processed records of a share group behind its start offset; its lag is the rest.",
            "group",
            "topic",
            "partition",
        ),
        _metric("holdfast_group_state", "1 for the state the group is in.", "group", "state"),
        _metric("holdfast_group_rebalances_total", "Rebalances seen.", "group", "cause"),
        _metric(
            "holdfast_group_partitions_moved_total",
            "Partitions that went from one member to another.",
            "group",
        ),
        _metric(
            "holdfast_group_avoidable_moves_total",
            "Moves beyond the least that the same balance needs.",
            "group",
        ),
        _metric(
            "holdfast_group_downtime_lower_seconds_total",
            "Partition-seconds of downtime, lower bound, as the broker saw it.",
            "group",
        ),
        _metric(
            "holdfast_group_downtime_upper_seconds_total",
            "Partition-seconds of downtime, upper bound, as the broker saw it.",
            "group",
        ),
        _metric(
            "holdfast_group_unowned_partitions",
            "Partitions that had an owner and have none now.",
            "group",
        ),
        _metric(
            "holdfast_group_lag_seconds",
            "Age of the group's oldest unread record by its own time; if no broker was queried, "
            "the longest time since a partition with lag reached its position. Without topics "
            "that no member subscribes to.",
            "group",
        ),
        _metric(
            "holdfast_group_last_rebalance_timestamp_seconds",
            "Time of the last rebalance, seconds since 1970.",
            "group",
        ),
        _metric(
            "holdfast_tables_timestamp_seconds",
            "When log ends were read for the tables, seconds since 1970: alert on its age.",
        ),
        _metric(
            "holdfast_group_findings", "Active findings of the doctor.", "group", "code", "severity"
        ),
    )
}


CLIENT_ID = "client_id"
_LAG = "kafka_consumergroup_lag"


class Samples:
    """Samples by metric, as a collector of prometheus_client."""

    def __init__(self, metrics: Iterable[Metric]):
        self._families = {
            metric.name: (CounterMetricFamily if metric.is_counter else GaugeMetricFamily)(
                metric.name, metric.text, labels=metric.labels
            )
            for metric in metrics
        }
        self._visible: dict[str, str] = {}

    def add(self, name: str, sample: Sample) -> None:
        """Add a sample; its labels are those of the metric, in this order."""
        labels, value = sample
        self._families[name].add_metric([self._seen(text) for text in labels.values()], value)

    def add_all(self, samples: Iterable[tuple[str, Sample]]) -> None:
        """Add samples by the names of their metrics."""
        for name, sample in samples:
            self.add(name, sample)

    def _seen(self, text: str) -> str:
        """Return visible text; a name is in many samples."""
        found = self._visible.get(text)
        if found is None:
            found = self._visible[text] = visible(text)
        return found

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the metrics that have samples."""
        return (family for family in self._families.values() if family.samples)

    def text(self) -> bytes:
        """Return the samples as Prometheus text."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)


def shown_metrics(*, client_ids: bool) -> Mapping[str, Metric]:
    """Return the metrics, with the label of client ids if it is wanted."""
    own = METRICS[_LAG]
    return METRICS | ({_LAG: replace(own, labels=(*own.labels, CLIENT_ID))} if client_ids else {})


def exposition(
    tables: Tables, examinations: Iterable[Examination], *, client_ids: bool = False
) -> str:
    """Return the text of ``/metrics``: lag from the tables, the rest from one examination a group.

    Parameters
    ----------
    client_ids : bool
        Label the lag of a partition with the client id of its owner, empty without one. A new
        owner starts a new series.
    """
    samples = Samples(shown_metrics(client_ids=client_ids).values())
    samples.add_all(table_samples(tables))
    samples.add_all(lag_samples(tables.stored("lag"), client_ids=client_ids))
    ours = {one.history.name: list(group_samples(one)) for one in examinations}
    for _, found in sorted(ours.items()):  # whatever was examined first
        samples.add_all(found)
    return samples.text().decode()


def table_samples(tables: Tables) -> Iterator[tuple[str, Sample]]:
    """Yield the samples of the tables themselves."""
    if (taken_us := to_us(str(tables.newest_notes().get("taken_at")))) is not None:
        yield "holdfast_tables_timestamp_seconds", ({}, taken_us / 1_000_000)


def lag_samples(rows: ArrowTable, *, client_ids: bool) -> Iterator[tuple[str, Sample]]:
    """Yield the samples of rows of the table ``lag``, which has all rows of their groups."""
    names = (words(rows, name) for name in ("group", "topic", CLIENT_ID))
    numbers = ("partition", "current_offset", "lag", "delivered")
    columns = (ints(rows, name).tolist() for name in numbers)
    sums: dict[tuple[str, str, str], int] = {}
    for group, topic, client, partition, offset, lag, done in zip(*names, *columns, strict=True):
        at = {"topic": topic, "partition": str(partition)}
        of_client = {CLIENT_ID: client} if client_ids else {}
        for name, value in (("current_offset", offset), ("lag", lag)):
            if value >= 0:  # a group without commits has neither, and no sum of them either
                key = (name, group, topic)
                sums[key] = sums.get(key, 0) + value
                labels = {"consumergroup": group, **at, **(of_client if name == "lag" else {})}
                yield f"kafka_consumergroup_{name}", (labels, value)
        if done >= 0:
            yield "holdfast_share_group_delivered", ({"group": group, **at}, done)
    for (name, group, topic), total in sums.items():
        both = {"consumergroup": group, "topic": topic}
        yield f"kafka_consumergroup_{name}_sum", (both, total)
    for group, age in oldest_unread_s(rows):
        yield "holdfast_group_lag_seconds", ({"group": group}, round(age, 3))


def oldest_unread_s(rows: ArrowTable) -> Iterator[tuple[str, float]]:
    """Yield the age of each group's oldest unread record; skip a 0 that may be wrong."""
    sums = lag_sums(rows, ["group"]).select(["group", "lag_seconds"]).drop_null()
    yield from sorted(zip(*(column.to_pylist() for column in sums.itercolumns()), strict=True))


def group_samples(examination: Examination) -> Iterator[tuple[str, Sample]]:
    """Yield the samples of one group, except those of its lag."""
    history = examination.history
    group = {"group": history.name}
    r, last = history.recorded, history.last
    if last >= 0:
        g = history.generations
        members = {"consumergroup": history.name}
        yield "kafka_consumergroup_members", (members, int(g.n_members[last]))
        yield "holdfast_group_generation", (group, int(g.number[last]))
        yield "holdfast_group_kind", ({**group, "kind": history.kind.name}, 1)
        for role, count in sorted(history.roles.items()):
            yield "holdfast_group_assigned", ({**group, "role": role}, count)
        yield "holdfast_group_state", ({**group, "state": history.state_now}, 1)
        yield "holdfast_group_last_rebalance_timestamp_seconds", (group, g.at_ms[last] / 1000)
        unowned = int((history.owner_at(last) == -1).sum())
        yield "holdfast_group_unowned_partitions", (group, unowned)
    for cause in sorted(set(r.cause) - {"first_seen"}):
        count = r.cause.count(cause)
        labels = {**group, "cause": cause or "unknown"}
        yield "holdfast_group_rebalances_total", (labels, count)
    if (moved := r.n_moved) is not None:
        yield "holdfast_group_partitions_moved_total", (group, moved)
    if (avoidable := r.total("n_avoidable_moves")) is not None:
        yield "holdfast_group_avoidable_moves_total", (group, avoidable)
    for bound, column in (("lower", r.downtime_lower_s), ("upper", r.downtime_upper_s)):
        if not np.isnan(column).all():
            total = round(float(np.nansum(column)), 3)
            yield f"holdfast_group_downtime_{bound}_seconds_total", (group, total)
    counts = Counter((f.code, str(f.severity)) for f in examination.findings if f.is_active)
    for (code, severity), count in sorted(counts.items()):
        yield "holdfast_group_findings", ({**group, "code": code, "severity": severity}, count)
