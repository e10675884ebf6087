"""Charts of lag and rebalances over time: what is read, what the axes say, and what pages show."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.running import write_tables
from tests.report.fleet import START_MS, Script, tables
from tests.report.served import bounced, following, quiet
from tests.report.test_serving import LOCAL
from werkzeug.test import Client

from holdfast.fleet.analysis.group.lag_over_time import (
    MOST_READINGS,
    MOST_TOPICS,
    lag_of_fleet,
    lag_of_group,
    read_readings,
)
from holdfast.fleet.columnar import times_ms
from holdfast.fleet.report.drawing.charts import (
    HIGH,
    RECORDS,
    SECONDS,
    UNITS,
    Line,
    ShownTime,
    column_chart,
    line_chart,
)
from holdfast.fleet.report.drawing.writing import render
from holdfast.fleet.report.serving.application import ServedPages
from holdfast.fleet.tables.columns.schemas import LAST_US
from holdfast.fleet.tables.reading import open_tables, read_tables

HOUR_S, DAY_S = 3_600, 86_400
T0 = datetime(2026, 3, 1, 10, tzinfo=UTC)
BEGIN_MS = round(T0.timestamp() * 1000)
SIZES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "s": 1, "min": 60, "h": 3_600, "d": 86_400}


def parsed(chart: str) -> ET.Element:
    """A chart as XML: cells and rows end by what follows them, which XML does not know."""
    figure = ET.fromstring(re.sub(r"<details.*</details>", "", chart, flags=re.DOTALL))
    found = figure.find("svg")
    assert found is not None
    return found


def value_of(label: str) -> float:
    """The value of a label of an axis."""
    number, mark = re.fullmatch(r"([\d.,]+) ?([a-zA-Z]*)", label).groups()
    return float(number.replace(",", "")) * SIZES.get(mark, 1)


def lines_of(*columns: list[float | None], step_s: int = 60) -> str:
    """A chart of lines with a value every ``step_s`` seconds."""
    at_ms = BEGIN_MS + 1000 * step_s * np.arange(len(columns[0]))
    lines = [
        Line(name=f"t{i}" if len(columns) > 1 else "", values=np.array(column, float))
        for i, column in enumerate(columns)
    ]
    shown = ShownTime(begin_ms=BEGIN_MS, end_ms=int(at_ms[-1]))
    return str(line_chart("Lag", at_ms, lines, shown, RECORDS))


@pytest.mark.parametrize("unit", [RECORDS, SECONDS])
@given(most=st.floats(0, 1e14))
def test_an_axis_has_few_round_steps_and_reaches_the_greatest_value(unit, most):
    if unit is SECONDS:
        most = most / 1e6
    shown = ShownTime(begin_ms=BEGIN_MS, end_ms=BEGIN_MS + 60_000)
    values = np.array([0.0, most])
    at_ms = np.array([BEGIN_MS, BEGIN_MS + 60_000])
    svg = parsed(str(line_chart("Lag", at_ms, [Line(name="", values=values)], shown, unit)))
    labels = [value_of(text.text) for text in svg.iter("text") if text.get("class") == "y"]
    assert 2 <= len(labels) <= 6
    assert labels[0] == 0 and labels[-1] >= most * 0.995  # a label has three digits
    assert labels[-2] < most or most < 1
    steps = np.diff(labels)
    assert steps.max() <= steps.min() * 1.02
    if unit is RECORDS:
        assert f"{steps[0]:.0e}"[0] in "125"


def test_a_line_has_a_gap_where_nothing_was_measured():
    known: list[float | None] = [1, 2, 3, 4, None, 4, 3, 2, 1]
    (path,) = (p for p in parsed(lines_of(known)).iter("path") if p.get("class") == "l c0")
    assert path.get("d").count("M") == 2
    at_ms = BEGIN_MS + 1000 * np.array([0, 10, 20, 30, 200, 210])
    shown = ShownTime(begin_ms=BEGIN_MS, end_ms=BEGIN_MS + 210_000)
    text = str(line_chart("Lag", at_ms, [Line(name="", values=np.ones(6))], shown, RECORDS))
    (path,) = (p for p in parsed(text).iter("path") if p.get("class") == "l c0")
    assert [len(part.split("L")) for part in path.get("d").split("M")[1:]] == [4, 2]


def test_a_chart_says_in_words_and_in_a_table_what_it_draws():
    text = lines_of([5, 1500, None], [1, 2, 3])
    svg = parsed(text)
    assert svg.find("title").text == "Lag"
    words = "2026-03-01 10:00:00 to 2026-03-01 10:02:00 UTC, at most 1,500"
    assert svg.find("desc").text == words and svg.get("aria-label") == f"Lag: {words}"
    assert re.findall(r"<td[^>]*>([^<]*)", text) == [
        *("2026-03-01 10:00:00", "5", "1"),
        *("2026-03-01 10:01:00", "1,500", "2"),
        *("2026-03-01 10:02:00", "–", "3"),
    ]
    hints = [rect.find("title").text for rect in svg.iter("rect")]
    assert hints[1] == "2026-03-01 10:01:00 UTC: t0: 1,500; t1: 2"
    assert re.findall(r"<bdi[^>]*>(t\d)</bdi>", text)[:2] == ["t0", "t1"]


@pytest.mark.parametrize(
    ("hours", "labels"),
    [
        (0.01, ["10:00:00", "10:00:10", "10:00:20", "10:00:30"]),
        (0.25, ["10:00", "10:05", "10:10", "10:15"]),
        (24, ["12:00", "18:00", "03-02", "06:00"]),
        (24 * 7, ["03-02", "03-04", "03-06", "03-08"]),
        (24 * 400, ["2026-06-04", "2026-09-24", "2027-01-14"]),
    ],
)
def test_labels_of_time_are_round_and_few(hours, labels):
    shown = ShownTime(begin_ms=BEGIN_MS, end_ms=BEGIN_MS + round(hours * HOUR_S * 1000))
    svg = parsed(str(column_chart("Rebalances", np.zeros(0, np.int64), shown)))
    assert [text.text for text in svg.iter("text") if text.get("class") == "x"] == labels


@pytest.mark.parametrize("last_us", [LAST_US + 1, 2**63 - 1])
@pytest.mark.parametrize("first_us", [0, -(2**63)])
def test_a_chart_of_any_times_has_few_labels_and_columns(first_us, last_us):
    at_ms = np.array([first_us, last_us]) // 1000
    shown = ShownTime(begin_ms=int(at_ms[0]), end_ms=int(at_ms[1]))
    svg = parsed(str(column_chart("Rebalances", at_ms, shown)))
    assert len([text for text in svg.iter("text") if text.get("class") == "x"]) <= 6
    assert len([*svg.iter("rect")]) == 2 and "9999-12-31 23:59:59 UTC" in svg.find("desc").text


def test_columns_count_each_event_once():
    at_ms = BEGIN_MS + 1000 * np.array([0, 1, 59, 60, 3_599, 3_600])
    shown = ShownTime(begin_ms=BEGIN_MS, end_ms=BEGIN_MS + HOUR_S * 1000)
    svg = parsed(str(column_chart("Rebalances", at_ms, shown)))
    bars = list(svg.iter("rect"))
    counts = [int(rect.find("title").text.rpartition(" ")[2]) for rect in bars]
    assert counts == [3, 1, 2] and "in parts of 1 min" in svg.find("desc").text
    tops = [HIGH - float(rect.get("y")) for rect in bars]
    assert tops == pytest.approx([float(rect.get("height")) for rect in bars], abs=0.2)
    assert tops[0] == pytest.approx(3 * tops[1], abs=0.3)
    assert all(0 <= float(r.get("x")) < UNITS for r in bars)


def readings(folder: Path, *written: tuple[int, int, dict[str, int]]) -> Path:
    """A folder with a file a reading: seconds, resolution, and the lag of topics."""
    for at_s, resolution, lags in written:
        script = quiet("g").lag_at(at_s, lags, seconds=at_s)
        for row in script.rows["lag_history"]:
            row["resolution_seconds"] = resolution
        write_tables({"lag_history": script.rows["lag_history"]}, folder)
    return folder


def test_a_range_is_read_in_one_resolution_without_the_files_of_others(tmp_path):
    """The newest reading is there, whatever its resolution."""
    end_s = 3 * DAY_S
    written = [
        *((at, 21_600, {"t": at}) for at in range(0, end_s, 6 * HOUR_S)),
        *((at, 3_600, {"t": at}) for at in range(HOUR_S, end_s, 6 * HOUR_S)),
        (end_s - 500, 0, {"t": 1}),
        (end_s - 100, 0, {"t": 2}),
    ]
    found = open_tables(readings(tmp_path, *written))
    every = read_readings(found, None, None)
    moments = [at for at, resolution, _ in written if resolution >= 3_600] + [end_s - 100]
    assert sorted((times_ms(every, "timestamp") - START_MS) // 1000) == sorted(moments)
    for file in found.data_files("lag_history"):
        if file.highest["resolution_seconds"] == 0 and "499." not in str(file.highest):
            low_ms = datetime.fromisoformat(file.lowest["timestamp"]).timestamp() * 1000
            if low_ms < START_MS + (end_s - 100) * 1000:
                (tmp_path / file.name).unlink()
    again = read_readings(open_tables(tmp_path), None, None)
    assert again.num_rows == every.num_rows
    with pytest.raises(Exception, match="missing file"):
        read_readings(open_tables(tmp_path), START_MS + (end_s - 900) * 1000, None)


def test_many_readings_are_shown_by_a_few_and_the_last_is_among_them():
    script = quiet("g")
    for at in range(1_000):
        script.lag_at(at * 21_600, {"t": at})
    found = lag_of_fleet(read_readings(read_tables(tables(script)), None, None))
    assert MOST_READINGS / 2 <= len(found.at_ms) <= MOST_READINGS
    assert found.lines[0].lag[-1] == 999


def test_a_group_has_a_line_a_topic_and_one_for_all_others():
    topics = {f"t{i:02d}": 10 * i for i in range(MOST_TOPICS + 3)}
    script = quiet("g").lag_at(0, topics, seconds=4.0).lag_at(9, {**topics, "t00": 5}, seconds=6.0)
    found = lag_of_group(read_readings(read_tables(tables(script)), None, None))
    assert [line.name for line in found.lines[:2]] == ["t09", "t08"]
    assert len(found.lines) == MOST_TOPICS + 1
    others = found.lines[-1]
    assert others.name == "3 other topics"
    assert others.lag.tolist() == [0 + 10 + 20, 5 + 10 + 20] and others.seconds.tolist() == [4, 6]
    fleet = lag_of_fleet(read_readings(read_tables(tables(script)), None, None)).lines[0]
    assert fleet.lag.tolist() == [sum(topics.values()), sum(topics.values()) + 5]


def test_a_lag_that_is_not_known_is_no_zero():
    script = quiet("g").lag_at(0, {"a": None, "b": None}).lag_at(9, {"a": None, "b": 3})
    line = lag_of_fleet(read_readings(read_tables(tables(script)), None, None)).lines[0]
    assert math.isnan(line.lag[0]) and line.lag[1] == 3
    assert np.isnan(line.seconds).all()


EVIL = '<script>"&'


def growing(name: str, factor: int) -> Script:
    """A group with a lag that grows for six minutes."""
    script = bounced(name)
    for at in range(0, 360, 30):
        script.lag_at(at, {EVIL: factor * at, "orders": 7}, seconds=at / 2)
    return script


def test_pages_have_charts_of_their_time_range(tmp_path):
    folder = write_tables(tables(growing("etl", 10), growing("b", 1)), tmp_path / "tables")
    with following(folder) as fleet:
        client = Client(ServedPages(fleet, is_local=True))
        index, group = (client.get(path, headers=LOCAL).text for path in ("/", "/group?name=etl"))
        most = 10 * 330 + 330 + 14
        assert f"at most {most:,}, at last {most:,}" in index
        for page in (index, group):
            charts = re.findall(r"<figcaption>([^<]*)", page)
            assert charts == ["Lag, records", "Time lag", "Rebalances"]
            assert EVIL not in page
        assert "at most 3,300" in group and "&lt;script&gt;" in group
        to = f"&to={START_MS + 100_000}"
        earlier = client.get(f"/group?name=etl&from=all{to}", headers=LOCAL).text
        assert "at most 900" in earlier and "08:01:40 UTC, at most" in earlier
        earlier = client.get(f"/?from={START_MS + 20_000}{to}", headers=LOCAL).text
        assert f"at most {990 + 14:,}" in earlier and "08:00:20 to" in earlier
        api = client.get(f"/api/groups/etl/lag_history?size=1000{to}", headers=LOCAL).json
        assert api["total"] == 8 and api["rows"][3]["lag"] == 900


def test_the_report_has_the_charts_of_the_fleet_and_of_each_group():
    held = read_tables(tables(growing("etl", 10), growing("b", 1), quiet("calm")))
    page = render(held, "t")
    assert page.count("<figcaption>Lag, records") == 3  # of the fleet, and of two groups
    assert page.count("<figcaption>Rebalances") == 4
    assert f"at most {10 * 330 + 330 + 14:,}" in page
    (rows,) = {held.stored("lag_history").num_rows}
    assert rows == 48 and not pc.any(held.stored("lag_history")["lag"].is_null()).as_py()
