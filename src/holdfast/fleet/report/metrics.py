"""Prometheus text of a fleet, from tables: Kafka exporters' own names first, then ours.

**Rules.** ``kafka_consumergroup_*`` have the names and labels of exporters and dashboards. Ours
are ``holdfast_group_*`` (``holdfast_share_group_*`` if only a share group has it) or
``holdfast_tables_*``, in seconds and ``_total``. Label values are names from strangers: they are
made visible, then escaped by prometheus_client. An unknown value has no sample. Groups are in the
order of their names.

**Strategy.** Samples come from whole columns of the tables. Of very many groups the text is written
to a file (:func:`write_metrics`), so the memory does not grow with them: the samples of a metric
are together, as the format requires, so each metric is collected in a file of its own first.

References: Prometheus text exposition format 0.0.4; kafka_exporter (danielqsj) for the names.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import IO, Any, Final

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from holdfast.core.command_lines import NOT_KNOWN
from holdfast.core.kinds import CLASSIC, kind_of
from holdfast.core.model.columns import F64, I64
from holdfast.core.names import visible
from holdfast.fleet.analysis.findings.examination import (
    Examination,
    StoredFindings,
    finding_rows,
    stored_findings,
)
from holdfast.fleet.analysis.group.lag import lag_sums
from holdfast.fleet.analysis.group.live import LiveGroup
from holdfast.fleet.analysis.group.overview import (
    group_sums,
    owned_partitions,
)
from holdfast.fleet.analysis.group.presence import read_generations
from holdfast.fleet.analysis.group.rebalances import downtime_bounds_s
from holdfast.fleet.columnar import ArrowTable, DecodedRows, ints, words
from holdfast.fleet.tables.columns.schemas import to_us
from holdfast.fleet.tables.reading import SomeGroups, Tables

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
    """Return the text of ``/metrics``: samples of the tables, and findings of examinations.

    With ``client_ids`` the lag of a partition is labelled with the client id of its owner, empty
    without one: a new owner starts a new series.
    """
    samples = Samples(shown_metrics(client_ids=client_ids).values())
    samples.add_all(table_samples(tables))
    samples.add_all(lag_samples(tables.stored("lag"), client_ids=client_ids))
    live: dict[str, LiveGroup | None] = {}

    def noted() -> Iterator[Examination]:
        for examination in examinations:
            live[examination.history.name] = examination.history.live
            yield examination

    findings = StoredFindings.of(finding_rows(noted()), NOT_KNOWN)
    for some in tables.parts(sorted(live)):
        samples.add_all(group_samples(some, findings, live))
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


_named_kind = lru_cache(maxsize=1024)(kind_of)


def group_samples(
    some: SomeGroups, findings: StoredFindings, live: Mapping[str, LiveGroup | None]
) -> Iterator[tuple[str, Sample]]:
    """Yield the samples of some groups except those of their lag, each metric by group."""
    yield from _present(some, live)
    yield from _rebalances(some)
    yield from _active(some, findings)


def _present(
    some: SomeGroups, live: Mapping[str, LiveGroup | None]
) -> Iterator[tuple[str, Sample]]:
    """Yield the samples about the last generation of each group."""
    rows, of = some.rows("generations")
    settled = read_generations(rows, of)
    _, last = settled.first_and_last(len(some.groups))
    state, kind = settled.texts("state", last, ""), _kinds(rows, of, len(last))
    assignments, of_assignment = some.rows("assignments")
    index = settled.of_rows(assignments, of_assignment)
    is_now = (index >= 0) & (index == last[of_assignment])
    unowned = owned_partitions(some, index >= 0) - owned_partitions(some, is_now)
    for i in np.flatnonzero(last >= 0).tolist():
        name, at = some.groups[i], last[i]
        group, answer = {"group": name}, live.get(name)
        now = state[i] if answer is None else answer.state_after(state[i])
        at_s = int(settled.at_ms[at]) / 1000
        yield "kafka_consumergroup_members", ({"consumergroup": name}, int(settled.n_members[at]))
        yield "holdfast_group_generation", (group, int(settled.number[at]))
        yield "holdfast_group_kind", ({**group, "kind": kind[i]}, 1)
        yield "holdfast_group_state", ({**group, "state": now}, 1)
        yield "holdfast_group_last_rebalance_timestamp_seconds", (group, at_s)
        yield "holdfast_group_unowned_partitions", (group, int(unowned[i]))
    # A partition or task without a role is active.
    role, roles = assignments.codes("role")
    texts = sorted({"active", *roles})
    code = np.asarray([*map(texts.index, roles), texts.index("active")], np.int64)[role]
    parent, _ = assignments.lists("partitions")
    parent = parent[is_now[parent]]
    for i, text, n in _counted(of_assignment[parent], code[parent], texts):
        yield "holdfast_group_assigned", ({"group": some.groups[i], "role": text}, n)


def _counted(of: I64, code: I64, texts: Sequence[str]) -> Iterator[tuple[int, str, int]]:
    """Yield how often each group has each text, by group and text."""
    keys, counts = np.unique(of * len(texts) + code, return_counts=True)
    for key, n in zip(keys.tolist(), counts.tolist(), strict=True):
        group, at = divmod(key, len(texts))
        yield group, texts[at], n


def _kinds(generations: DecodedRows, of: I64, n: int) -> list[str]:
    """Return the kind of each group, by its last generation with members."""
    order = np.lexsort((generations.ints("log_offset"), generations.times_ms("timestamp"), of))
    peopled = order[generations.ints("n_members", 0)[order] != 0]
    last = np.full(n, -1, np.int64)
    last[of[peopled]] = peopled
    named = last[last >= 0]
    group_type = generations.texts("group_type", "", named)
    others = (generations.texts(name, None, named) for name in ("protocol_type", "protocol"))
    found = np.full(n, CLASSIC.name, object)
    words = zip(group_type, *others, strict=True)
    found[last >= 0] = [_named_kind(*one).name for one in words]
    kinds: list[str] = found.tolist()
    return kinds


def _rebalances(some: SomeGroups) -> Iterator[tuple[str, Sample]]:
    """Yield the samples about the rebalances of each group, of all time."""
    rows, of = some.rows("rebalances")
    n = len(some.groups)
    order = np.lexsort((rows.ints("generation"), rows.times_ms("timestamp"), of))
    of = of[order]
    cause, names = rows.codes("cause")
    for i, text, count in _counted(of, cause[order] + np.int64(1), ["", *names]):
        if text != "first_seen":
            labels = {"group": some.groups[i], "cause": text or "unknown"}
            yield "holdfast_group_rebalances_total", (labels, count)
    moved, gaps, avoidable = (
        _totals(rows.ints(name)[order], of, n)
        for name in ("n_moved", "n_moved_through_gap", "n_avoidable_moves")
    )
    moved = np.where(moved < 0, -1, moved + np.maximum(gaps, 0))
    for name, column in (("partitions_moved", moved), ("avoidable_moves", avoidable)):
        for i in np.flatnonzero(column >= 0).tolist():
            yield f"holdfast_group_{name}_total", ({"group": some.groups[i]}, int(column[i]))
    for bound, column_s in zip(("lower", "upper"), downtime_bounds_s(rows), strict=True):
        total_s = _known_sums(column_s[order], of, n)
        for i in np.flatnonzero(~np.isnan(total_s)).tolist():
            total = round(float(total_s[i]), 3)
            name = f"holdfast_group_downtime_{bound}_seconds_total"
            yield name, ({"group": some.groups[i]}, total)


def _totals(column: I64, of: I64, n: int) -> I64:
    """Return the sum of each group's known counts; -1 if none is known."""
    known = column >= 0
    total = np.zeros(n, np.int64)
    np.add.at(total, of[known], column[known])
    total[np.bincount(of[known], minlength=n) == 0] = -1
    return total


def _known_sums(column: F64, of: I64, n: int) -> F64:
    """Return the sum of each group's known values; NaN if none is known."""
    total = group_sums(of, np.nan_to_num(column, nan=0.0), n)
    total[np.bincount(of[~np.isnan(column)], minlength=n) == 0] = np.nan
    return total


def _active(some: SomeGroups, findings: StoredFindings) -> Iterator[tuple[str, Sample]]:
    """Yield how often each group has each active finding, sorted."""
    labels = ["group", "code", "severity"]
    rows = findings.grouped.of_groups(some.groups).rows
    rows = rows.filter(rows["ended_timestamp"].is_null())
    counted = rows.group_by(labels).aggregate([([], "count_all")])
    row_of = {name: i for i, name in enumerate(some.groups)}
    for row in sorted(
        counted.to_pylist(), key=lambda row: (row_of[row["group"]], row["code"], row["severity"])
    ):
        yield "holdfast_group_findings", ({name: row[name] for name in labels}, row["count_all"])


_PIECE_BYTES: Final = 1 << 16
_HEAD: Final = b"# HELP "


class MetricsFile:
    """A complete text, which is deleted with this object."""

    def __init__(self, file: IO[bytes], n_bytes: int):
        self._file, self.n_bytes = file, n_bytes
        weakref.finalize(self, file.close)

    def pieces(self) -> Iterator[bytes]:
        """Yield the text; several readers may do so at one time."""
        for at in range(0, self.n_bytes, _PIECE_BYTES):
            yield os.pread(self._file.fileno(), min(_PIECE_BYTES, self.n_bytes - at), at)


def write_metrics(
    tables: Tables, groups: Sequence[str], *, client_ids: bool = False
) -> Iterator[MetricsFile | None]:
    """Write the text of groups whose findings are stored; yield None after each part of them.

    The last value is the file. ``client_ids`` as of :func:`exposition`.
    """
    metrics = shown_metrics(client_ids=client_ids)
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(tempfile.TemporaryFile(prefix="holdfast-"))
            for name in metrics
        }
        head = Samples(metrics.values())
        head.add_all(table_samples(tables))
        _append(files, head.text())
        for some in tables.parts(groups):
            _append(files, _part(some, client_ids=client_ids))
            yield None
        yield _joined(list(files.values()))


def _part(some: SomeGroups, *, client_ids: bool) -> bytes:
    samples = Samples(shown_metrics(client_ids=client_ids).values())
    samples.add_all(lag_samples(some.table("lag").rows, client_ids=client_ids))
    samples.add_all(group_samples(some, stored_findings(some, NOT_KNOWN), {}))
    return samples.text()


def _append(files: dict[str, Any], text: bytes) -> None:
    """Append the samples of each metric to its file; the first one keeps its head."""
    for family in text.split(b"\n" + _HEAD):
        lines = family.removeprefix(_HEAD)
        if lines:
            file = files[lines.split(b" ", 1)[0].decode()]
            samples = lines.split(b"\n", 2)[2] if file.tell() else _HEAD + lines
            file.write(samples.removesuffix(b"\n") + b"\n")


def _joined(files: Sequence[IO[bytes]]) -> MetricsFile:
    whole = tempfile.TemporaryFile(prefix="holdfast-")  # noqa: SIM115 - closed with the object
    for file in files:
        file.seek(0)
        while piece := file.read(_PIECE_BYTES):
            whole.write(piece)
    whole.flush()
    return MetricsFile(whole, whole.tell())
