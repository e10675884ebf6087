"""Which findings are active, which are past, and when those ended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.running import run, write_tables
from tests.report.fleet import START_MS, Script, examine_all, tables
from tests.report.test_findings import (
    AB,
    CASES,
    HALF,
    MINUTES,
    TOPICS,
    deal,
    doubled,
    dropped,
    flapping,
    recorded,
)

from holdfast.fleet.analysis.findings.examination import Examination
from holdfast.fleet.analysis.findings.finding import (
    Evidence,
    Finding,
    Lasts,
    Symptom,
    ended_ms,
)
from holdfast.fleet.report.metrics import exposition
from holdfast.fleet.tables.reading import read_tables

EVENTS = {
    *("HF101", "HF102", "HF103", "HF110", "HF111", "HF112", "HF113", "HF118", "HF119", "HF124"),
    *("HF127", "HF132"),
}
"""Codes of what happened; all others are of how things are."""
OF_A_GENERATION = {"HF108", "HF121", "HF122"}
RECENT_MS = 10 * MINUTES


def examined(script: Script, end_ms: int, since_ms: int | None = None) -> Examination:
    (found,) = examine_all(read_tables(tables(script)), last_ms=end_ms, since_ms=since_ms)
    return found


def finding(script: Script, code: str, end_ms: int, since_ms: int | None = None) -> Finding:
    found = examined(script, end_ms, since_ms).findings
    return next(f for f in found if f.code == code)


@pytest.mark.parametrize("code", CASES)
def test_what_happened_is_past_ten_minutes_after_its_last_evidence(code: str) -> None:
    script = CASES[code][0]()
    first = finding(script, code, START_MS + 20 * MINUTES)
    last_ms = first.evidence.to_ms
    if code not in EVENTS:
        assert (first.is_active, first.ended_ms) == (True, None)
        assert code in OF_A_GENERATION or last_ms == START_MS + 20 * MINUTES
        return
    for end_ms, ended in ((last_ms + RECENT_MS, None), (last_ms + RECENT_MS + 1, last_ms)):
        found = finding(script, code, end_ms)
        assert (found.is_active, found.ended_ms) == (ended is None, ended)


@pytest.mark.parametrize("code", sorted(OF_A_GENERATION))
def test_what_a_record_states_lasts_until_the_next_generation(code: str) -> None:
    script = CASES[code][0]()
    week_ms = START_MS + 7 * 24 * 60 * MINUTES
    assert finding(script, code, week_ms).is_active
    script.settle(1_000, AB, deal(TOPICS, AB))
    for row in script.rows["generations"][-1:]:
        row["record_bytes"] = 1_000
    assert finding(script, code, week_ms).ended_ms == START_MS + 1_000_000


@pytest.mark.parametrize("code", CASES)
def test_of_a_group_that_is_no_more_everything_is_past(code: str) -> None:
    script = CASES[code][0]()
    at_s = max(row["timestamp"] for row in script.rows["generations"]) / 1000 - START_MS / 1000
    script.settle(at_s + 60, [], {}, state="Dead")
    found = examined(script, START_MS + 20 * MINUTES)
    assert found.history.gone_ms == START_MS + round(1000 * (at_s + 60))
    for one in found.findings:
        assert one.ended_ms is not None and one.ended_ms <= found.history.gone_ms, one.code
    assert found.verdict.rank == -1
    assert not any(one.is_active for one in found.verdict.codes)


def test_what_recurs_rarely_is_active_for_as_long_as_twice_its_interval() -> None:
    history = examined(flapping(30), START_MS + 60 * MINUTES).history
    symptom = Symptom(text="", evidence=Evidence(to_ms=START_MS + 30 * MINUTES))
    assert ended_ms(symptom, Lasts.EVIDENCE, history) == START_MS + 30 * MINUTES
    for every_s, is_active in ((901.0, True), (899.0, False)):
        again = replace(symptom, every_s=every_s)
        assert (ended_ms(again, Lasts.EVIDENCE, history) is None) == is_active


def test_active_findings_come_first_whatever_their_severity() -> None:
    script = flapping(10)
    for i in range(12, 40):
        script.settle(10 * i, AB, deal(TOPICS, AB), gap=(1, 2))
    script.lag({("t", p): 900 * (p == 0) + 200 for p in range(4)})
    end_ms = START_MS + 3 * 60 * MINUTES
    found = examined(script, end_ms).findings
    active = [f.is_active for f in found]
    assert active == sorted(active, reverse=True)
    assert {True, False} <= {*active} or not any(active)
    storm = next(f for f in found if f.code == "HF101")
    assert (str(storm.severity), storm.is_active) == ("error", False)


def test_a_window_leaves_out_what_ended_before_it_and_counts_what_is_in_it() -> None:
    script = flapping(30)  # eleven rounds, the last one after 330 s
    end_ms = START_MS + 20 * MINUTES
    whole = examined(script, end_ms)
    assert {f.code for f in whole.findings} == {"HF101"}
    for since_s, n_rebalances, codes in ((0, 11, {"HF101"}), (301, 1, set()), (331, 0, set())):
        part = examined(script, end_ms, START_MS + 1000 * since_s)
        assert part.history.n_rebalances == n_rebalances
        assert {f.code for f in part.findings} == codes
        assert part.history.begin_ms == START_MS + 1000 * since_s


def test_what_began_before_a_window_and_holds_in_it_is_found() -> None:
    end_ms, since_ms = START_MS + 20 * MINUTES, START_MS + 15 * MINUTES
    for script, code in (
        (dropped(), "HF114"),  # its partition lost its owner after 300 s
        (doubled("double_owner"), "HF108"),
        (recorded(HALF + 1), "HF122"),
    ):
        now, whole = finding(script, code, end_ms, since_ms), finding(script, code, end_ms)
        assert now == whole and now.is_active


def test_metrics_count_what_is_active_and_add_up_all_that_was_ever_seen() -> None:
    held = read_tables(tables(flapping(30)))
    texts = [
        exposition(held, examine_all(held, last_ms=START_MS + end * MINUTES, since_ms=since))
        for end, since in ((6, None), (60, None), (60, START_MS + 50 * MINUTES))
    ]
    assert ['code="HF101"' in text for text in texts] == [True, False, False]
    totals = [line for line in texts[0].splitlines() if "_total{" in line]
    assert totals and all(set(totals) <= set(text.splitlines()) for text in texts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storm that ended 54 minutes before the tables were read, beside a double owner."""
    storm, now = flapping(30), doubled("double_owner")
    for row in (row for rows in now.rows.values() for row in rows):
        row["group"] = "now"
    notes = {"taken_at": "2025-11-21T09:00:00+00:00"}
    return write_tables(tables(storm, now), tmp_path_factory.mktemp("t"), **notes)


@pytest.mark.parametrize(
    ("group", "fail_on", "code"),
    [("g", "info", 0), ("g", "warn", 0), ("now", "error", 1), ("*", "warn", 1)],
)
def test_only_active_findings_fail_a_command(
    folder: Path, group: str, fail_on: str, code: int
) -> None:
    done = run("doctor", "--input", folder, "--group", group, "--fail-on", fail_on)
    assert done.code == code


def test_every_format_says_what_is_past_and_since_when(folder: Path) -> None:
    ended = "2025-11-21T08:05:30.000Z"
    document = json.loads(run("doctor", "--input", folder, "--format", "json").out)
    assert [g["group"] for g in document["groups"]] == ["now", "g"]
    (storm,) = document["groups"][1]["findings"]
    assert (storm["active"], storm["ended_at"]) == (False, ended)
    (double,) = document["groups"][0]["findings"]
    assert (double["active"], double["ended_at"]) == (True, None)
    lines = run("doctor", "--input", folder, "--format", "jsonl").out.splitlines()
    assert [(row["active"], row["ended_at"]) for row in map(json.loads, lines)] == [
        (True, None),
        (False, ended),
    ]
    shown = "  nothing active\n  past  HF101 rebalance storm (warn until 2025-11-21 08:05:30"
    assert shown in run("doctor", "--input", folder, "--group", "g").out
    for words in (["--since", "30m"], ["--since", "2025-11-21T08:30"]):
        assert "HF101" not in run("doctor", "--input", folder, "--group", "g", *words).out
    for words in (["--since", "59m"], ["--until", "2025-11-21T08:06"]):
        assert "HF101" in run("doctor", "--input", folder, "--group", "g", *words).out


def test_pages_show_what_is_past_behind_what_is_active(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert run("report", "--input", folder, "-o", out).code == 0
    page = out.read_text()
    assert page.index("HF108") < page.index("HF101")
    assert 'class="lozenge s-warn past"' in page
    assert "Nothing is active now." in page and "1 finding past" in page
    assert "ended 2025-11-21 08:05:30" in page
    assert run("report", "--input", folder, "-o", out, "--since", "30m").code == 0
    assert "HF101" not in out.read_text()
