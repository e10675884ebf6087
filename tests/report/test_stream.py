"""What a stream keeps, batch after batch, is what ``/metrics`` has: names, labels and values."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.pipeline import fleet, local
from tests.pipeline.histories import generation

from holdfast.cli.commands.watch import write_metrics
from holdfast.core.names import visible
from holdfast.fleet.report.metrics import METRICS

GROUP = '=1+1|<script>alert(1)</script>"\n\x1b[31m\u202e😀'


def kept_by_a_stream(folder: Path) -> Path:
    """Tables of a group whose second member joins in a later batch."""
    both = {"a-1": {"t": [0]}, "b-1": {"t": [1]}}
    history = [
        generation(GROUP, n, m, at=10 * n) for n, m in ((1, {"a-1": {"t": [0, 1]}}), (2, both))
    ]
    history.append(generation("silent", 1, {"c-1": {"t": [0, 1]}}, at=22))
    records = [(g["group"], g["timestamp"], fleet.classic(g)) for g in history]
    records += [
        (GROUP, 25 + p, fleet.commit(GROUP, "t", p, offset, at=25 + p))
        for p, offset in ((0, 2), (1, 1))
    ]
    ends = [("t", 0, 0, 4), ("t", 1, 0, 3)]
    dump = fleet.write_dump(folder / "dump", records, topics=[("t", 2)], offsets=ends)
    local.stream(dump, folder / "tables", [15_000_000, 25_500_000])
    return folder / "tables"


def test_metrics_are_of_what_a_stream_keeps(tmp_path: Path) -> None:
    metrics = tmp_path / "m.prom"
    write_metrics(kept_by_a_stream(tmp_path), metrics)
    samples = {
        (s.name, tuple(s.labels.items())): s.value
        for family in text_string_to_metric_families(metrics.read_text(encoding="utf-8"))
        for s in family.samples
    }
    for name, labels in samples:
        assert tuple(key for key, _ in labels) == METRICS[name].labels
    ours, theirs = ("group", visible(GROUP)), ("consumergroup", visible(GROUP))
    both = (theirs, ("topic", "t"))
    assert samples["kafka_consumergroup_lag", (*both, ("partition", "0"))] == 2
    assert samples["kafka_consumergroup_current_offset", (*both, ("partition", "1"))] == 1
    assert samples["kafka_consumergroup_lag_sum", both] == 4
    assert samples["kafka_consumergroup_current_offset_sum", both] == 3
    assert samples["kafka_consumergroup_members", (theirs,)] == 2
    assert samples["holdfast_group_generation", (ours,)] == 2
    assert samples["holdfast_group_rebalances_total", (ours, ("cause", "join"))] == 1
    assert samples["holdfast_group_partitions_moved_total", (ours,)] == 1
    # Who never commits has no lag, and so no sum of lags: 0 would look as if all were read.
    silent = {name for name, labels in samples if ("consumergroup", "silent") in labels}
    assert silent == {"kafka_consumergroup_members"}
    assert {name for name in METRICS if name.startswith("kafka_")} <= {n for n, _ in samples}
