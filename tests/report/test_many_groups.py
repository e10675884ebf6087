"""A fleet that is read in parts: the same figures, findings and pages as of tables in memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from tests.cli.running import run, write_tables
from tests.report.fleet import START_MS, Script, deal, rolling_bounce, tables, verdicts
from tests.report.served import following
from tests.report.test_findings import CASES
from werkzeug.test import Client

from holdfast.core.command_lines import NOT_KNOWN
from holdfast.fleet.analysis.findings import doctor
from holdfast.fleet.analysis.findings.doctor import Doctor, to_json
from holdfast.fleet.analysis.findings.examination import (
    Examination,
    StoredFindings,
    finding_rows,
    worst_first,
)
from holdfast.fleet.analysis.group import lag_over_time
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.analysis.group.lag_over_time import lag_of_fleet, readings_of
from holdfast.fleet.analysis.group.overview import joined, overview
from holdfast.fleet.report.drawing.writing import render
from holdfast.fleet.report.metrics import Sample, group_samples
from holdfast.fleet.report.serving.application import ServedPages
from holdfast.fleet.tables import reading
from holdfast.fleet.tables.columns.stored import NOT_LOADED
from holdfast.fleet.tables.reading import Tables, open_tables, read_tables


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few groups are read and decoded together."""
    monkeypatch.setattr(reading, "ROWS_AT_ONCE", 0)
    monkeypatch.setattr(reading, "GROUPS_AT_ONCE", 3)


def returned() -> Script:
    """A group that was deleted and came back with its first numbers, and has an anomaly."""
    script = Script("returned", {"t": 3}).settle(0, ["a-1"], deal({"t": 3}, ["a-1"]))
    script.settle(60, [], {}, state="Dead")
    script.generation = 0
    script.settle(90, ["b-1", "b-2"], deal({"t": 2}, ["b-1", "b-2"]), gap=(1.0, 2.5))
    now = {"timestamp": START_MS + 90_000, "topic": "t", "partition": 0}
    return script.anomaly("double_owner", "b-1", "b-2", **now)


def worlds() -> Iterator[Tables]:
    yield read_tables({})
    yield read_tables(tables(*(rolling_bounce(f"g-{i}", members=3 + i) for i in range(5))))
    yield read_tables(tables(returned(), rolling_bounce("etl").lag({("orders", 0): 5})))
    for cases in CASES.values():
        for case in cases:
            yield read_tables(tables(case()))


@pytest.mark.parametrize("since_ms", [-1, START_MS + 75_000])
def test_figures_are_those_of_the_histories(made: Tables, since_ms: int) -> None:
    last_ms, n_groups = START_MS + 1_200_000, 0
    for held in (made, *worlds()):
        figures = joined(overview(some, last_ms, since_ms) for some in held.parts(held.groups))
        for i, stored in enumerate(held.each_group(held.groups)):
            history = GroupHistory(stored=stored, last_ms=last_ms, since_ms=since_ms)
            last, n_groups = history.last, n_groups + 1
            recorded, settled = history.rebalances, history.generations
            lag = history.lag.lag[history.lag.lag >= 0]
            expected = {
                "names": history.name,
                "state": history.recorded_state,
                "protocol": settled.protocol[last] if last >= 0 else "",
                "group_type": history.group_type,
                "is_known": last >= 0,
                "generation": settled.number[last] if last >= 0 else 0,
                "n_members": settled.n_members[last] if last >= 0 else 0,
                "first_ms": history.first_ms,
                "end_ms": history.end_ms,
                "n_partitions": history.n_partitions,
                "n_rows": len(history.timeline.row_partition),
                "n_owned": history.n_owned,
                "n_rebalances": history.n_rebalances,
                "n_moved": recorded.total("n_moved") or 0,
                "n_anomalies": history.anomalies.num_rows,
                "downtime_lower_s": recorded.total_downtime_s[0],
                "downtime_upper_s": recorded.total_downtime_s[1],
                "idle_lower_s": recorded.idle_s[0],
                "idle_upper_s": recorded.idle_s[1],
                "lag": int(lag.sum()) if len(lag) else -1,
            }
            assert {name: getattr(figures, name)[i] for name in expected} == expected
    assert n_groups > 100


def test_parts_are_equal_to_tables_in_memory(made: Tables, request: pytest.FixtureRequest) -> None:
    held = made.load(without=NOT_LOADED)
    expected = to_json(verdicts(held))
    request.getfixturevalue("parts")
    sizes = [len(some.groups) for some in made.at_snapshot().parts(made.groups)]
    assert len(sizes) > 2
    assert max(sizes) == 3
    assert to_json(verdicts(made.at_snapshot())) == expected
    assert made.load_few(without=NOT_LOADED) is not held
    assert "rebalances" not in vars(made.load_few(without=NOT_LOADED))["_cuts"]


@pytest.mark.parametrize("fmt", ["json", "jsonl", "csv", "table"])
def test_the_doctor_prints_the_same_of_parts(
    made: Tables, fmt: str, request: pytest.FixtureRequest
) -> None:
    words = ("doctor", "--input", made.root, "--format", fmt, "--fail-on", "warn")
    whole = run(*words)
    request.getfixturevalue("parts")
    assert run(*words) == whole
    assert len(whole.out) > 1_000


def test_the_report_is_the_same_of_parts(
    made: Tables, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    whole, parted = tmp_path / "whole.html", tmp_path / "parts.html"
    assert run("report", "--input", made.root, "-o", whole).code == 0
    request.getfixturevalue("parts")
    assert run("report", "--input", made.root, "-o", parted).code == 0
    assert parted.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_a_fleet_with_more_groups_than_are_listed(
    made: Tables, monkeypatch: pytest.MonkeyPatch, *, is_stored: bool, is_sorted: bool
) -> None:
    since_ms = None if is_stored else 1
    names = None if is_sorted else made.groups[::-1]
    whole = Doctor(tables=made, groups=names, since_ms=since_ms).fleet()
    monkeypatch.setattr(doctor, "MOST_LISTED", 4)
    asked: list[str] = []
    found = Doctor(
        tables=made, groups=names, since_ms=since_ms, track=lambda all_: _noted(all_, asked)
    ).fleet()
    assert sorted(asked) == sorted(made.groups)
    assert found.names == whole.names
    assert [e.history.name for e in found.listed] == whole.names[:4]
    assert [e.findings for e in found.listed] == [e.findings for e in whole.listed[:4]]
    assert found.codes == whole.codes
    assert found.downtime_bounds_s == whole.downtime_bounds_s
    assert found.idle_s == whole.idle_s
    assert found.covered_ms == whole.covered_ms
    worst = min(Doctor(tables=made, since_ms=since_ms).examinations(), key=worst_first).history.name
    assert [one.worst.history.name for one in (found, whole) if one.worst] == [worst, worst]


def _noted(names: object, asked: list[str]) -> Iterator[str]:
    for name in names:  # type: ignore[attr-defined] # a sequence of names
        asked.append(name)
        yield name


def test_the_page_of_a_large_fleet_lists_the_worst_groups(
    made: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "MOST_LISTED", 4)
    page = render(made, "Groups")
    assert f"{len(made.groups) - 4} more have no section of their own here" in page
    assert page.count('class="card group"') >= 4


def test_lag_of_a_fleet_is_added_file_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = []
    for i in range(6):
        script = rolling_bounce(f"g-{i}")
        for hour in range(30):
            lag = None if hour == 3 else hour * i
            script.lag_at(21_600 * hour, {"orders": lag, "clicks": 7}, seconds=i + hour / 2)
        scripts.append(script)
    folder = open_tables(write_tables(tables(*scripts), tmp_path))
    names, shown = folder.groups[:5], ["g-2"]
    rows, lag = readings_of(folder, START_MS + 21_600_000, None, names, names)
    assert lag is None
    monkeypatch.setattr(lag_over_time, "GROUPS_AT_ONCE", 4)
    monkeypatch.setattr(lag_over_time, "MOST_READINGS", 11)
    few, lag = readings_of(folder, START_MS + 21_600_000, None, names, shown)
    assert lag is not None
    chosen = np.isin(rows["timestamp"].cast("int64").to_numpy() // 1000, lag.at_ms)
    expected = lag_of_fleet(rows.filter(chosen))
    assert 5 < len(lag.at_ms) <= 11
    assert lag.at_ms.tolist() == expected.at_ms.tolist()
    for own, whole in zip(lag.lines, expected.lines, strict=True):
        np.testing.assert_array_equal(own.lag, whole.lag)
        np.testing.assert_array_equal(own.seconds, whole.seconds)
    assert set(few["group"].to_pylist()) == {"g-2"}
    assert len(few) == 2 * len(lag.at_ms)


def samples_of(examination: Examination) -> Iterator[tuple[str, Sample]]:
    """Yield the samples of one group as its history has them, except those of its lag."""
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
        labels = {**group, "cause": cause or "unknown"}
        yield "holdfast_group_rebalances_total", (labels, r.cause.count(cause))
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


def test_samples_of_whole_columns(made: Tables) -> None:
    n_samples = 0
    for held in (made, *worlds()):
        examined = {one.history.name: one for one in Doctor(tables=held).examinations()}
        for some in held.parts(held.groups):
            rows = finding_rows([examined[name] for name in some.groups])
            found = list(group_samples(some, StoredFindings.of(rows, NOT_KNOWN), {}))
            expected = [one for name in some.groups for one in samples_of(examined[name])]
            by_metric = itemgetter(0)
            assert sorted(found, key=by_metric) == sorted(expected, key=by_metric)
            n_samples += len(found)
    assert n_samples > 1_000


PATHS = (
    "/",
    "/?sort=lag&order=up&page=2",
    "/?least=warn",
    "/api/groups",
    "/api/groups/{}",
    "/api/groups/{}/rebalances",
    "/api/groups/{}/lag_history",
    "/group?name={}",
    "/group?name={}&from=2026-11-23T00:51:00Z&to=2026-11-23T00:54:00Z",
)


def test_serve_answers_the_same_of_parts(made: Tables, request: pytest.FixtureRequest) -> None:
    group = quote(made.groups[1], safe="")
    answers = []
    for is_whole in (True, False):
        if not is_whole:
            request.getfixturevalue("parts")
        with following(Path(str(made.root))) as fleet:
            assert fleet.served.is_large is not is_whole
            client, found = Client(ServedPages(fleet, is_local=True)), []
            for path in PATHS:
                answer = client.get(path.format(group), base_url="http://localhost")
                found.append((path, answer.status_code, _timeless(answer.get_data(as_text=True))))
            metrics = client.get("/metrics", base_url="http://localhost").get_data(as_text=True)
            ranged = client.get("/api/groups?from=1h", base_url="http://localhost")
        assert ranged.status_code == (200 if is_whole else 400)
        answers.append((found, _families(metrics)))
    assert {status for _, status, _ in answers[0][0]} == {200}
    assert answers[0] == answers[1]
    assert len(answers[0][1]) > 10


def _timeless(text: str) -> str:
    """A page without the time at which it read the tables, and the id of its server."""
    text = re.sub(r'data-version="[^"]*"', "", text)
    return re.sub(r"read 20[^<;]*UTC", "", text)


def _families(text: str) -> list[tuple[str, ...]]:
    """Each metric's lines, head first; its samples sorted, because rows of parts are sorted."""
    found: list[tuple[str, ...]] = []
    for family in text.split("# HELP ")[1:]:
        lines = family.splitlines()
        found.append((*lines[:2], *sorted(lines[2:])))
    return found
