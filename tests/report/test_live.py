"""A real broker, looked at directly: report, doctor, and the metrics of ``watch``.

The group's name is one that nobody should have: it reaches the page, the terminal, CSV and
Prometheus from the broker itself.
"""

from __future__ import annotations

import csv
import io
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.cli.running import Done, run
from tests.live.small_group import small_group
from tests.report.test_metrics import samples_of
from tests.report.unpacking import unpack

from holdfast.cluster.cluster import LiveCluster
from holdfast.core.names import visible
from holdfast.fleet.report.metrics import METRICS

if TYPE_CHECKING:
    from tests.live.run_broker import RunBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker]


class Lived(NamedTuple):
    """A topic of two partitions, 4 and 3 records long, whose group has committed 2 and 1."""

    bootstrap: str
    topic: str
    group: str
    go_on: Callable[[], None]
    """One record more in each partition, and one more of the first is committed."""


@pytest.fixture(scope="module")
def lived(broker: RunBroker) -> Any:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    group = f'=1+1|<script>alert(1)</script>"\n\x1b[31m\u202e😀 {uuid.uuid4().hex}'
    with small_group(broker.bootstrap, group) as (topic, produce):
        produce(4)

        def go_on() -> None:
            produce(2)
            first = TopicPartition(topic, 0)
            again = KafkaConsumer(
                group_id=group, bootstrap_servers=broker.bootstrap, enable_auto_commit=False
            )
            again.assign([first])
            again.commit({first: OffsetAndMetadata(3, "", -1)})
            again.close()

        yield Lived(broker.bootstrap, topic, group, go_on)


def looked(lived: Lived, command: str, *options: Any) -> Done:
    done = run(command, "-b", lived.bootstrap, "--group", lived.group, "-q", *options)
    assert done.code == 0, done.err
    return done


def columns_of(page: Path) -> str:
    """The first group's columns in a page."""
    found = re.search(r'id="group-0">([^<]+)<', page.read_text(encoding="utf-8"))
    assert found
    return found[1]


def test_a_report_of_a_broker_is_that_of_its_tables(
    spark: Any, lived: Lived, tmp_path: Path
) -> None:
    direct, kept, folder = tmp_path / "direct.html", tmp_path / "kept.html", tmp_path / "tables"
    looked(lived, "report", "-o", direct)
    looked(lived, "history", "-o", folder, "--format", "jsonl")
    assert run("report", "--input", folder, "-o", kept, "-q").code == 0
    now, later = (unpack(columns_of(page)) for page in (direct, kept))
    assert now[1] == later[1] and now[0].keys() == later[0].keys()
    for name in now[0].keys() - {"lag_seconds"}:  # each window ends when its source was read
        end = -1 if name == "edge" else None
        assert now[0][name][:end].tolist() == later[0][name][:end].tolist(), name
    text = direct.read_text(encoding="utf-8")
    assert "4 records behind in 2 of 2 partitions" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script>alert" not in text
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)


@pytest.mark.every
def test_the_doctor_asks_a_broker(spark: Any, lived: Lived) -> None:
    screen = looked(lived, "doctor").out
    assert visible(lived.group)[:40] in screen
    assert "Empty, classic, " in screen
    assert "0 members, 2 partitions, generation " in screen.replace("\n", "")
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", screen)


def test_lag_of_a_broker_for_a_spreadsheet(spark: Any, lived: Lived) -> None:
    rows = list(csv.DictReader(io.StringIO(looked(lived, "lag", "--format", "csv").out)))
    assert [(r["topic"], r["lag"]) for r in rows] == [(lived.topic, "2"), (lived.topic, "2")]
    assert all(r["group"].startswith("'=1+1") for r in rows)
    assert lived.group in LiveCluster(bootstrap=lived.bootstrap).group_names()


def values_of(metrics: Path) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What a file of metrics says: (name, labels) to value."""
    samples = samples_of(metrics.read_text(encoding="utf-8"))
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples}


def test_metrics_are_of_what_watch_keeps(spark: Any, lived: Lived, tmp_path: Path) -> None:
    tables, metrics = tmp_path / "tables", tmp_path / "m.prom"
    looked(lived, "watch", "-o", tables, "--metrics", metrics)
    first = values_of(metrics)
    shown = visible(lived.group)
    for partition, committed in ((0, 2), (1, 1)):
        tp = (("consumergroup", shown), ("partition", str(partition)), ("topic", lived.topic))
        assert first["kafka_consumergroup_lag", tp] == 2
        assert first["kafka_consumergroup_current_offset", tp] == committed
    both = (("consumergroup", shown), ("topic", lived.topic))
    assert first["kafka_consumergroup_lag_sum", both] == 4
    assert first["kafka_consumergroup_current_offset_sum", both] == 3
    assert first["kafka_consumergroup_members", (("consumergroup", shown),)] == 0
    for name, labels in first:
        assert {key for key, _ in labels} == set(METRICS[name].labels), name
    named = {name for name, _ in first}
    assert {name for name in METRICS if name.startswith("kafka_")} <= named
    assert "holdfast_group_rebalances_total" in named
    lived.go_on()
    looked(lived, "watch", "-o", tables, "--metrics", metrics)
    second = values_of(metrics)
    assert second["kafka_consumergroup_lag_sum", both] == 5
    assert second["kafka_consumergroup_current_offset_sum", both] == 4
