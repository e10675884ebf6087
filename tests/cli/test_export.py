"""The exporter: names unchanged, labels escaped, the dashboard asks for what is there."""

import json
import re
import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.running import run, write_tables
from tests.report.fleet import START_MS, rolling_bounce, tables

from holdfast.cli.commands.export import Metrics, dashboard_text, write_metrics
from holdfast.cli.metrics_server import MetricsServer
from holdfast.names import visible
from holdfast.report.findings.doctor import examine_fleet
from holdfast.report.metrics import METRICS, exposition
from holdfast.tables.reading import read_tables

EVIL = ['a"b', "a\\b", "a\nb", '"} 1\nfake{x="', "\x1b[31m\u202e", "{}", "名前😀", "x" * 5000]


def text_of(*scripts: object) -> str:
    found = read_tables(tables(*scripts))  # type: ignore[arg-type]
    return exposition(found, examine_fleet(found, last_ms=START_MS + 600_000))


def bounced() -> object:
    script = rolling_bounce()
    lags = {tp: i for i, tp in enumerate(sorted(script.owners))}
    return script.lag(lags, lag_seconds=1.5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tables(tables(bounced()), tmp_path)  # type: ignore[arg-type]


def test_kafka_names_and_labels_are_those_of_the_exporters() -> None:
    samples = {
        (s.name, tuple(s.labels)): s.value
        for family in text_string_to_metric_families(text_of(bounced()))
        for s in family.samples
        if s.name.startswith("kafka_")
    }
    tp = ("consumergroup", "topic", "partition")
    assert set(samples) == {
        ("kafka_consumergroup_lag", tp),
        ("kafka_consumergroup_current_offset", tp),
        ("kafka_consumergroup_lag_sum", ("consumergroup", "topic")),
        ("kafka_consumergroup_current_offset_sum", ("consumergroup", "topic")),
        ("kafka_consumergroup_members", ("consumergroup",)),
    }


def test_values_are_those_of_the_tables() -> None:
    text = text_of(bounced())
    assert 'kafka_consumergroup_lag{consumergroup="etl",topic="orders",partition="7"} 11\n' in text
    assert 'kafka_consumergroup_lag_sum{consumergroup="etl",topic="clicks"} 6\n' in text
    assert 'kafka_consumergroup_members{consumergroup="etl"} 4\n' in text
    assert 'holdfast_group_pause_upper_seconds_total{group="etl"} 75.6\n' in text
    assert 'holdfast_group_rebalances_total{group="etl",cause="restart"} 4\n' in text
    assert 'holdfast_group_findings{group="etl",code="HF102",severity="warn"} 1\n' in text


def test_ours_are_in_seconds_and_totals() -> None:
    for name, metric in METRICS.items():
        assert metric.kind == ("counter" if name.endswith("_total") else "gauge")
        assert not re.search(r"_(ms|millis|minutes)\b", name)
        ours = ("holdfast_group_", "holdfast_share_group_", "holdfast_tables_")
        assert name.startswith(("kafka_consumergroup_", *ours))


@pytest.mark.parametrize("name", EVIL)
def test_a_name_is_one_label_value_and_nothing_else(name: str) -> None:
    script = rolling_bounce(name, {name: 2}, 2)
    script.lag({(name, 0): 5})
    families = list(text_string_to_metric_families(text_of(script)))
    samples = [s for family in families for s in family.samples]
    assert {s.name for s in samples} <= METRICS.keys()
    for sample in samples:
        shown = sample.labels.get("group", sample.labels.get("consumergroup"))
        assert shown == visible(name)


def test_a_lag_that_is_not_known_has_no_sample() -> None:
    script = rolling_bounce()
    script.lag({("orders", 0): None})
    assert "kafka_consumergroup_lag{" not in text_of(script)


def test_the_dashboard_asks_for_metrics_and_labels_that_exist() -> None:
    dashboard = json.loads(dashboard_text())
    asked = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    asked += [v["query"]["query"] for v in dashboard["templating"]["list"] if v["name"] == "group"]
    used: set[str] = set()
    for expression in asked:
        names = re.findall(r"\b(?:kafka|holdfast)_[a-z_]+", expression)
        assert names
        used.update(names)
        for name, selector in re.findall(r"\b(\w+_group_\w+|kafka_\w+)\{([^}]*)\}", expression):
            labels = re.findall(r"(\w+)\s*[=!]", selector)
            assert set(labels) <= set(METRICS[name].labels), expression
        for grouping in re.findall(r"by \(([^)]*)\)", expression):
            known = {label for name in names for label in METRICS[name].labels}
            assert {w.strip() for w in grouping.split(",")} <= known, expression
    assert used == METRICS.keys()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            shown = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            known = {
                label
                for name in re.findall(r"\b(?:kafka|holdfast)_[a-z_]+", target["expr"])
                for label in METRICS[name].labels
            }
            assert set(shown) <= known


def test_the_dashboard_in_the_docs_is_the_one_that_ships(tmp_path: Path) -> None:
    assert run("export", "--dashboard").out == dashboard_text()
    out = tmp_path / "d.json"
    assert run("export", "--dashboard", "-o", out).code == 0
    assert out.read_text(encoding="utf-8") == dashboard_text()


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    with MetricsServer(Metrics(folder).text, "127.0.0.1", 0) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def test_metrics_are_served(server: str) -> None:
    with urllib.request.urlopen(f"{server}/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    served = len(list(text_string_to_metric_families(text)))
    without = ("holdfast_share_group_", "holdfast_tables_")  # no share group; no stream, no notes
    assert served == sum(not name.startswith(without) for name in METRICS)
    with pytest.raises(urllib.error.HTTPError, match="404") as told:
        urllib.request.urlopen(f"{server}/other")
    told.value.close()


def test_new_tables_are_seen_and_broken_ones_are_a_503(server: str, folder: Path) -> None:
    urllib.request.urlopen(f"{server}/metrics").close()
    (folder / "lag" / "more.parquet").write_bytes(b"not parquet")
    with pytest.raises(urllib.error.HTTPError, match="503") as told:
        urllib.request.urlopen(f"{server}/metrics")
    told.value.close()
    (folder / "lag" / "more.parquet").unlink()
    with urllib.request.urlopen(f"{server}/metrics") as answer:
        assert b"kafka_consumergroup_lag" in answer.read()


@pytest.mark.parametrize(
    ("failing", "told"), [(False, ""), (True, "error: request of 127.0.0.1: ")]
)
def test_a_scraper_that_left_is_nothing_to_tell_and_a_failure_one_line(
    failing: bool, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, left = threading.Event(), threading.Event()

    def text() -> str:
        asked.set()
        assert left.wait(10)
        if failing:
            raise ValueError("odd")
        return "x" * 10_000_000

    with MetricsServer(text, "127.0.0.1", 0) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        with socket.create_connection(("127.0.0.1", running.server_address[1])) as scraper:
            scraper.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert asked.wait(10)
            scraper.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        left.set()
        running.shutdown()
        thread.join()
    said = capsys.readouterr().err
    assert said == (told and f"{told}ValueError: odd\n")


def test_once_prints_what_would_be_served(folder: Path) -> None:
    done = run("export", "--input", folder, "--once")
    assert done.code == 0
    assert done.out == Metrics(folder).text()


def test_a_file_of_metrics_is_replaced_whole(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "holdfast.prom"
    target.write_text("old", encoding="utf-8")
    write_metrics(folder, target)
    assert target.read_text(encoding="utf-8") == Metrics(folder).text()
    assert [p.name for p in tmp_path.glob("*.prom*")] == ["holdfast.prom"]


def test_lag_in_time_is_that_of_the_worst_partition() -> None:
    script = rolling_bounce()
    script.lag({("orders", 0): 5}, lag_seconds=12.5).lag({("orders", 1): 5}, lag_seconds=3.0)
    assert 'holdfast_group_lag_seconds{group="etl"} 12.5\n' in text_of(script)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "give --input"),
        (("--input", "/nowhere", "--once"), 3, "no such folder"),
        (("--input", "{folder}", "--listen", "9308"), 2, "expected HOST:PORT"),
        (("--input", "{folder}", "--listen", "::1:9308"), 2, "or [::1]:9308"),
        (("--input", "{folder}", "--listen", "[]:9308"), 2, "expected HOST:PORT"),
        (("--input", "{folder}", "--listen", "[2001:db8::1]:9"), 3, "listen on [2001:db8::1]:9"),
        (("--input", "{folder}", "--listen", "192.0.2.1:9"), 3, "cannot listen"),
    ],
)
def test_bad_use(folder: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = run("export", *(a.replace("{folder}", str(folder)) for a in arguments))
    assert done.code == code
    assert words in done.err
