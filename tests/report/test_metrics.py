"""The text of /metrics: names unchanged, labels escaped; the dashboard asks for what is there."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from tests.report.fleet import START_MS, examine_all, rolling_bounce, tables

from holdfast.core.names import visible
from holdfast.fleet.report.metrics import METRICS, exposition
from holdfast.fleet.tables.reading import read_tables

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
RULES = "prometheus-rules.yml"
EVIL = ['a"b', "a\\b", "a\nb", '"} 1\nfake{x="', "\x1b[31m\u202e", "{}", "名前😀", "x" * 5000]


def text_of(*scripts: object) -> str:
    found = read_tables(tables(*scripts))  # type: ignore[arg-type]
    return exposition(found, examine_all(found, last_ms=START_MS + 600_000))


def samples_of(text: str) -> list[Sample]:
    return [s for family in text_string_to_metric_families(text) for s in family.samples]


def value_of(text: str, name: str, labels: dict[str, str]) -> float | None:
    """The value of one series; None without it."""
    found = [s.value for s in samples_of(text) if (s.name, s.labels) == (name, labels)]
    assert len(found) < 2
    return found[0] if found else None


def bounced() -> object:
    script = rolling_bounce()
    lags = {tp: i for i, tp in enumerate(sorted(script.owners))}
    return script.lag(lags, lag_seconds=1.5)


def test_kafka_names_and_labels_are_those_of_the_exporters() -> None:
    found = {(s.name, frozenset(s.labels)) for s in samples_of(text_of(bounced()))}
    tp = frozenset({"consumergroup", "topic", "partition"})
    assert {sample for sample in found if sample[0].startswith("kafka_")} == {
        ("kafka_consumergroup_lag", tp),
        ("kafka_consumergroup_current_offset", tp),
        ("kafka_consumergroup_lag_sum", tp - {"partition"}),
        ("kafka_consumergroup_current_offset_sum", tp - {"partition"}),
        ("kafka_consumergroup_members", frozenset({"consumergroup"})),
    }


def test_lags_may_have_the_client_of_the_owner() -> None:
    script = rolling_bounce()
    script.lag(dict.fromkeys(script.owners, 3), client_id='a "client"')
    script.lag({("orders", 99): 3})  # nobody owns it
    found = read_tables(tables(script))
    text = exposition(found, examine_all(found, last_ms=START_MS + 600_000), client_ids=True)
    owners = {
        (row["group"], row["topic"], str(row["partition"])): row["client_id"] or ""
        for row in found.table("lag").to_pylist()
    }
    samples = samples_of(text)
    lags = [s.labels for s in samples if s.name == "kafka_consumergroup_lag"]
    key = ("consumergroup", "topic", "partition")
    assert {tuple(one[name] for name in key): one["client_id"] for one in lags} == owners
    assert {*owners.values()} - {""}
    others = [s for s in samples if s.name != "kafka_consumergroup_lag"]
    assert others and not any("client_id" in s.labels for s in others)


def test_values_are_those_of_the_tables() -> None:
    text = text_of(bounced())
    at_7 = {"consumergroup": "etl", "topic": "orders", "partition": "7"}
    clicks = {"consumergroup": "etl", "topic": "clicks"}
    assert value_of(text, "kafka_consumergroup_lag", at_7) == 11
    assert value_of(text, "kafka_consumergroup_lag_sum", clicks) == 6
    assert value_of(text, "kafka_consumergroup_current_offset_sum", clicks) == 4000
    assert value_of(text, "kafka_consumergroup_members", {"consumergroup": "etl"}) == 4
    restart = {"cause": "restart"}
    churn = {"code": "HF102", "severity": "warn"}
    for name, labels, value in (
        ("generation", {}, 15),
        ("partitions_moved_total", {}, 24),
        ("downtime_upper_seconds_total", {}, 75.6),
        ("rebalances_total", restart, 4),
        ("findings", churn, 1),
    ):
        assert value_of(text, f"holdfast_group_{name}", {"group": "etl", **labels}) == value


def test_ours_are_in_seconds_and_totals() -> None:
    for name, metric in METRICS.items():
        assert metric.is_counter == name.endswith("_total")
        assert not re.search(r"_(ms|millis|minutes)\b", name)
        ours = ("holdfast_group_", "holdfast_share_group_", "holdfast_tables_")
        assert name.startswith(("kafka_consumergroup_", *ours))


@pytest.mark.parametrize("name", EVIL)
def test_a_name_is_one_label_value_and_nothing_else(name: str) -> None:
    script = rolling_bounce(name, {name: 2}, 2)
    script.lag({(name, 0): 5})
    samples = samples_of(text_of(script))
    assert {s.name for s in samples} <= METRICS.keys()
    for sample in samples:
        shown = sample.labels.get("group", sample.labels.get("consumergroup"))
        assert shown == visible(name)


def test_a_lag_that_is_not_known_has_no_sample() -> None:
    script = rolling_bounce()
    script.lag({("orders", 0): None})
    assert "kafka_consumergroup_lag" not in text_of(script)
    assert "kafka_consumergroup_current_offset" not in text_of(script)


def queries() -> dict[str, list[str]]:
    """Expressions of the dashboard and of the rules, by file."""
    dashboard = json.loads((EXAMPLES / "grafana.json").read_text(encoding="utf-8"))
    asked = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    asked += [v["query"]["query"] for v in dashboard["templating"]["list"] if v["name"] == "group"]
    rules = yaml.safe_load((EXAMPLES / RULES).read_text(encoding="utf-8"))
    return {
        "grafana.json": asked,
        RULES: [rule["expr"] for group in rules["groups"] for rule in group["rules"]],
    }


@pytest.mark.parametrize("file", ["grafana.json", RULES])
def test_the_dashboard_and_the_rules_ask_for_metrics_and_labels_that_exist(file: str) -> None:
    used: set[str] = set()
    for expression in queries()[file]:
        names = re.findall(r"\b(?:kafka|holdfast)_[a-z_]+", expression)
        assert names
        used.update(names)
        for name, selector in re.findall(r"\b(\w+_group_\w+|kafka_\w+)\{([^}]*)\}", expression):
            labels = re.findall(r"(\w+)\s*[=!]", selector)
            assert set(labels) <= set(METRICS[name].labels), expression
        for grouping in re.findall(r"(?:by|on) \(([^)]*)\)", expression):
            known = {label for name in names for label in METRICS[name].labels}
            assert {w.strip() for w in grouping.split(",")} <= known, expression
    assert used <= METRICS.keys()
    assert (used == METRICS.keys()) == (file == "grafana.json")


def test_legends_and_texts_name_labels_that_exist() -> None:
    dashboard = json.loads((EXAMPLES / "grafana.json").read_text(encoding="utf-8"))
    rules = yaml.safe_load((EXAMPLES / RULES).read_text(encoding="utf-8"))
    shown = [(t["expr"], t["legendFormat"]) for p in dashboard["panels"] for t in p["targets"]]
    shown += [(r["expr"], json.dumps(r)) for g in rules["groups"] for r in g["rules"]]
    for expression, text in shown:
        known = {
            label
            for name in re.findall(r"\b(?:kafka|holdfast)_[a-z_]+", expression)
            for label in METRICS[name].labels
        }
        assert set(re.findall(r"\{\{(\w+)\}\}|\$labels\.(\w+)", text)) <= {
            pair for label in known for pair in ((label, ""), ("", label))
        }


def promtool() -> str:
    """The path of promtool, which tools/programs.sh puts beside Python."""
    found = shutil.which("promtool", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, "no promtool found: run tools/programs.sh, or install Debian's prometheus"
    return found


def test_each_alert_fires_where_it_should_and_nowhere_else(tmp_path: Path) -> None:
    for file in (EXAMPLES / RULES, Path(__file__).with_name("prometheus_rules_test.yml")):
        shutil.copy(file, tmp_path)
    for command in (["check", "rules", RULES], ["test", "rules", "prometheus_rules_test.yml"]):
        done = subprocess.run(
            [promtool(), *command], cwd=tmp_path, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_but_those_of_others_is_there() -> None:
    served = {family.name for family in text_string_to_metric_families(text_of(bounced()))}
    without = ("holdfast_share_group_", "holdfast_tables_")  # no share group; no stream, no notes
    known = {name.removesuffix("_total") for name in METRICS if not name.startswith(without)}
    assert served == known


@pytest.mark.parametrize(
    ("partitions", "seconds"),
    [
        ([(5, 12.5, None), (5, 3.0, None)], 12.5),
        ([(5_000, 90_000.0, True), (5, 3.0, False)], 3.0),  # nobody subscribes to the first one
        ([(0, 0.0, None), (5, None, None)], None),  # nobody knows the age of the unread record
        ([(0, 0.0, None), (5, None, None), (5, 7.0, None)], 7.0),
        ([(0, 0.0, None)], 0.0),
    ],
)
def test_lag_in_time_is_that_of_the_worst_partition_that_is_known(
    partitions: list[tuple[int, float | None, bool | None]], seconds: float | None
) -> None:
    script = rolling_bounce()
    for i, (lag, lag_seconds, not_subscribed) in enumerate(partitions):
        more = {} if not_subscribed is None else {"not_subscribed": not_subscribed}
        script.lag({("orders", i): lag}, lag_seconds=lag_seconds, **more)
    text = text_of(script)
    assert value_of(text, "holdfast_group_lag_seconds", {"group": "etl"}) == seconds
    total = {"consumergroup": "etl", "topic": "orders"}
    assert value_of(text, "kafka_consumergroup_lag_sum", total) == sum(p[0] for p in partitions)
