"""What a folder of tables says, as Prometheus text.

**Rules.** Names end in their unit or in ``_total``; totals only grow, because a stream only adds
batches. A label value is data: backslash, quote and line feed are escaped as the format asks.

**Strategy.** A file that a node exporter's text collector reads, replaced by a rename after every
batch: nothing listens on a port.
"""

# mypy: disable-error-code="arg-type, assignment, call-overload, index, union-attr"
# (The stubs inside pyarrow 26 refuse calls that pyarrow takes.)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.pipeline.storage import Tables

_TOTALS: Final = (
    ("holdfast_group_moved_partitions_total", "n_moved", "Partitions that changed members."),
    ("holdfast_group_moved_through_gap_partitions_total", "n_moved_through_gap", "The same, late."),
    ("holdfast_group_lost_partitions_total", "n_lost", "Partitions that lost their owner."),
    (
        "holdfast_group_pause_lower_seconds_total",
        "pause_lower_seconds",
        "Partition-seconds without an owner, at least.",
    ),
    (
        "holdfast_group_pause_upper_seconds_total",
        "pause_upper_seconds",
        "Partition-seconds without an owner, at most.",
    ),
)


def exposition(tables: Tables) -> str:
    """All metrics of a folder of tables as text.

    Returns
    -------
    str
        ``holdfast_group_rebalances_total{group, cause}``, the sums of ``rebalances`` by group,
        ``holdfast_bad_records_total``, and, where the lag table has rows,
        ``kafka_consumergroup_lag{group, topic, partition}`` and ``holdfast_group_lag_seconds``.
    """
    rebalances = tables.table("rebalances")
    counted = rebalances.group_by(["group", "cause"]).aggregate([([], "count_all")])
    lines = _metric(
        "holdfast_group_rebalances_total",
        "counter",
        "Rebalances, by what they were inferred to come from.",
        counted.rename_columns(["group", "cause", "value"]),
    )
    for name, column, text in _TOTALS:
        summed = rebalances.group_by("group").aggregate([(column, "sum")])
        lines += _metric(name, "counter", text, summed.rename_columns(["group", "value"]))
    bad = pa.table({"value": [tables.rows("bad_records")]})
    lines += _metric("holdfast_bad_records_total", "counter", "Records that do not parse.", bad)
    lag = tables.table("lag")
    if lag.num_rows:
        known = lag.filter(pc.is_valid(lag["lag"]))
        rows = known.select(["group", "topic", "partition", "lag"])
        rows = rows.rename_columns(["group", "topic", "partition", "value"])
        lines += _metric("kafka_consumergroup_lag", "gauge", "Records behind the end.", rows)
        longest = lag.group_by("group").aggregate([("lag_seconds", "max")])
        longest = longest.filter(pc.is_valid(longest["lag_seconds_max"]))
        text = "Longest time that a partition with lag has stood at its position."
        named = longest.select(["group", "lag_seconds_max"]).rename_columns(["group", "value"])
        lines += _metric("holdfast_group_lag_seconds", "gauge", text, named)
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, text: str, rows: pa.Table) -> list[str]:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    labels = [n for n in rows.column_names if n != "value"]
    keys: Sequence[tuple[str, str]] = [(n, "ascending") for n in labels]
    ordered = rows.sort_by(list(keys)) if labels else rows
    return lines + [_sample(name, labels, row) for row in ordered.to_pylist()]


def _sample(name: str, labels: Sequence[str], row: Mapping[str, Any]) -> str:
    pairs = ",".join(f'{label}="{_escaped(str(row[label]))}"' for label in labels)
    return f"{name}{{{pairs}}} {row['value']}" if pairs else f"{name} {row['value']}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write_exposition(tables: Tables, target: Path) -> None:
    """Write the metrics to a file, by a rename."""
    draft = target.with_name(f"{target.name}.tmp")
    draft.write_text(exposition(tables), encoding="utf-8")
    draft.replace(target)
