"""The table ``findings``: the same findings as an examination now, and only changed groups anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from tests.pipeline import local
from tests.pipeline.stream_that_dies import FixedSnapshot
from tests.report.conftest import CAPTURED
from tests.report.fleet import START_MS, rolling_bounce, tables, verdicts
from tests.report.now import answers, seen
from tests.report.served import PATIENCE_S, following
from tests.suites import further
from werkzeug.test import Client

from holdfast.cluster.snapshot import SeenGroup
from holdfast.core.command_lines import GivenSource, holdfast_line, kafka_line, with_source
from holdfast.core.names import Visible
from holdfast.fleet.analysis.findings import doctor, examination
from holdfast.fleet.analysis.findings.doctor import Doctor, to_json
from holdfast.fleet.analysis.findings.examination import Examined, finding_rows
from holdfast.fleet.analysis.findings.finding import RULES, Symptom
from holdfast.fleet.analysis.group.group_history import GroupHistory, read_groups
from holdfast.fleet.analysis.group.lag import NEVER
from holdfast.fleet.analysis.group.rebalances import CommitTimes
from holdfast.fleet.analysis.times import read_age, window_end_ms
from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.pipeline.batches.jobs import STATE_TABLES
from holdfast.fleet.pipeline.batches.watch import Stream
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.offsets_topic import LogPart
from holdfast.fleet.pipeline.ingest.source import RECORDS, Dump
from holdfast.fleet.pipeline.steps import InMemoryRows
from holdfast.fleet.report.serving.application import ServedPages
from holdfast.fleet.tables.columns.schemas import moment_text, to_us
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables, open_tables, read_tables


def test_findings_of_the_table_are_those_of_an_examination(made: Tables) -> None:
    window = Examined.of(made.newest_notes())
    assert window is not None
    source = GivenSource(path="/tables of mine")
    stored = verdicts(made, source=source)
    # Another begin of the window, before every record, has the groups examined now.
    now = verdicts(made, source=source, since_ms=1)
    assert to_json(stored) == to_json(now)
    assert len(stored) == len(made.groups) > 5
    assert to_json(verdicts(made, 3, source=source)) == to_json(stored[:3])
    assert sum(len(one.findings) for one in stored) == made.rows("findings") > 20


def test_the_clock_of_the_reader_is_joined(made: Tables) -> None:
    groups = sorted(made.groups)[:3]
    old = made.manifest().batches[-1]
    assert "query" not in old.notes  # no stream keeps the tables: they do not get old
    (plain, *_) = Doctor(tables=made, groups=groups).examinations()
    watched = replace(old, notes={**old.notes, "query": "q", "every_seconds": 10.0})
    stale = Tables(made.root, replace(made.folder.newest(), manifest=_with(made, watched)))
    later = 1000 * 86_400 * 30 + (Examined.of(made.newest_notes()) or Examined(end_ms=0)).end_ms
    (found, *_) = Doctor(
        tables=stale, groups=groups, age=read_age(stale.newest_notes(), later)
    ).examinations()
    codes = [one.code for one in plain.findings]
    assert sorted(one.code for one in found.findings) == sorted([*codes, "HF123"])


@pytest.mark.parametrize("described", further([True, False]))
@pytest.mark.parametrize(
    "state", ["as recorded", "Stable", "Empty", "PreparingRebalance", "gone", "not listed"]
)
def test_findings_beside_answers_of_coordinators_are_those_of_an_examination(
    made: Tables, state: str, described: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_ms = (Examined.of(made.newest_notes()) or Examined(end_ms=0)).end_ms
    histories = list(read_groups(made, made.groups, last_ms=end_ms))
    told = (
        [] if state in ("gone", "not listed") else [_told(h, state, described) for h in histories]
    )
    gone = made.groups if state == "gone" else ()
    live = answers(((end_ms - START_MS) / 1000, told), gone=gone)
    anew = Mock(side_effect=examination.examine)
    monkeypatch.setattr(doctor, "examine", anew)
    found = list(Doctor(tables=made, live=live).examinations())
    commits = CommitTimes(made)
    expected = [examination.examine(replace(one.history, commits=commits)) for one in found]
    assert finding_rows(found).equals(finding_rows(expected))
    if state in ("as recorded", "not listed"):
        of_deleted = sum(one.recorded_state == "Dead" for one in histories)
        assert anew.call_count == (of_deleted if state == "as recorded" else 0)
    else:
        assert anew.call_count > 0


def _told(history: GroupHistory, state: str, described: bool) -> SeenGroup:
    """Return a coordinator's answer with as many members as the last generation, if any."""
    names = [f"m-{n}" for n in range(int(history.generations.n_members[history.last]))]
    chosen = history.recorded_state if state == "as recorded" else state
    return seen(history.name, chosen, names if described else None)


def _with(made: Tables, batch: Any) -> Any:
    return replace(made.manifest(), batches=(batch,))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            holdfast_line("lag", "--input", "DUMP", "--group", "--input DUMP"),
            "holdfast lag --input 'a b' --group '--input DUMP'",
        ),
        (
            kafka_line("kafka-consumer-groups.sh", GivenSource(), "--describe"),
            "kafka-consumer-groups.sh --bootstrap-server HOST:PORT --describe",
        ),
        (holdfast_line("explain", "--input DUMP"), "holdfast explain '--input DUMP'"),
    ],
)
def test_a_line_gets_the_source_of_its_reader(line: str, expected: str) -> None:
    found = with_source(line, GivenSource(path="a b"))
    assert found == expected and isinstance(found, Visible)


def test_tables_in_memory_have_no_findings_and_are_examined() -> None:
    held = read_tables(tables(rolling_bounce("a"), rolling_bounce("b")))
    assert Examined.of(held.newest_notes()) is None
    found = list(Doctor(tables=held, last_ms=START_MS + 600_000).examinations())
    assert [one.history.name for one in found] == ["a", "b"]
    assert all(one.findings for one in found)
    assert held.stored("findings").schema.field("figures").type == pa.string()


@pytest.mark.parametrize(
    ("dump", "hours"),
    further(
        product([CAPTURED, Path(local.__file__).parent / "captured" / "dump"], [None, 1]),
        stays=[(CAPTURED, 1)],
    ),
)
def test_findings_of_every_batch_are_those_of_all_groups_examined_then(
    dump: Path, hours: int | None, tmp_path: Path
) -> None:
    """Batches read the dump in slices of time; each one ends its window then."""
    tables, opened = Tables(tmp_path), Dump.open(dump)
    rows = local.records_of(opened)
    at_us = rows["timestamp"].cast(pa.int64()).to_numpy()
    cuts = np.quantile(at_us, [0, 0.3, 0.5, 0.6, 0.9, 1]).astype(int).tolist()
    past: dict[str, Any] = {}
    for batch, (low, high) in enumerate(pairwise([*cuts, cuts[-1] + 1, cuts[-1] + 10**9])):
        job = local.LocalJob(session=None, tables=tables, batch=batch, keep_state=True, past=past)
        fresh = rows.filter(pa.array((at_us >= low) & (at_us < high), pa.bool_()))
        job.make(opened, fresh, Selection(all_groups=True), "latest", ())
        job.amend()
        notes = {"taken_at": moment_text(int(high))}
        notes |= job.examine(notes, None if hours is None else lambda end: end - 3_600_000 * hours)
        past = {name: job.files.pop(name, []) for name in STATE_TABLES}
        made = Batch(id=batch, files=job.files, notes=notes)
        tables.commit(made, anew=["lag", "findings"], without=job.amended)
        window = Examined.of(tables.newest_notes())
        assert window is not None
        since_ms = NEVER if window.since_ms is None else window.since_ms
        span = {"last_ms": window.end_ms, "since_ms": since_ms}
        histories = read_groups(tables, tables.groups, commits=CommitTimes(tables), **span)
        anew = finding_rows(map(examination.examine, histories))
        assert tables.table("findings").to_pylist() == anew.to_pylist()
    assert tables.rows("findings")


def test_only_rules_of_the_lag_read_it(made: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [rule for rule in examination.all_rules() if rule.of_lag is None]
    monkeypatch.setattr(GroupHistory, "had_work", lambda *_: True)
    monkeypatch.setattr(GroupHistory, "lag", None)
    for history in read_groups(made, made.groups, last_ms=window_end_ms(made)):
        for rule in others:
            list(rule.find(history))


SICK = "ill-two-owners"


def plant_failing_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rule of HF117 end in an error in one group, after its findings."""

    def look(history: GroupHistory) -> Iterator[Symptom]:
        yield from RULES["HF117"].look(history)
        if history.name == SICK:
            raise ZeroDivisionError("by nothing")

    rules = [replace(one, look=look) if one.code == "HF117" else one for one in RULES.values()]
    monkeypatch.setattr(examination, "all_rules", lambda: tuple(rules))


def stream_of(dump: Dump, folder: Path) -> Stream:
    snapshot: Any = FixedSnapshot(dump)
    complete_us = to_us(dump.taken_at)
    return Stream(
        tables=Tables(folder),
        snapshot=lambda: snapshot,
        selection=Selection(),
        complete_us=complete_us,
    )


def write_history(folder: Path) -> None:
    run(None, str(CAPTURED), folder)


def write_batches(folder: Path) -> None:
    """Write a batch of ``watch``, as ``serve -b`` does, too; and read log ends once more."""
    dump = Dump.open(CAPTURED)
    into = stream_of(dump, folder)
    into.process(LogPart(rows=dump.rows(), upto={}))
    assert into.look()


@pytest.mark.parametrize("write", [write_history, write_batches])
def test_a_rule_that_fails_is_a_finding_of_its_group_alone(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "whole")
    plant_failing_rule(monkeypatch)
    write(tmp_path / "failed")
    whole, found = (open_tables(tmp_path / name).table("findings") for name in ("whole", "failed"))
    (failed,) = [row for row in found.to_pylist() if row["code"] == "HF133"]
    assert failed["group"] == SICK and failed["command"] == "holdfast explain HF117"
    assert failed["text"] == "rule HF117 (uneven loads) failed: ZeroDivisionError: by nothing"
    others = [row for row in found.to_pylist() if row["code"] != "HF133"]
    key = [(row["group"], row["code"], row["text"]) for row in whole.to_pylist()]
    assert [(row["group"], row["code"], row["text"]) for row in others] == [
        one for one in key if one[:2] != (SICK, "HF117")
    ]


def test_a_group_whose_rule_failed_is_examined_again_in_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = Dump.open(CAPTURED)
    into = stream_of(dump, tmp_path)
    with monkeypatch.context() as planted:
        plant_failing_rule(planted)
        into.process(LogPart(rows=dump.rows(), upto={}))
        assert "HF133" in open_tables(tmp_path).table("findings")["code"].to_pylist()
    into.process(LogPart(rows=InMemoryRows(rows=RECORDS.empty_table(), cost_rows=0), upto={}))
    assert "HF133" not in open_tables(tmp_path).table("findings")["code"].to_pylist()


def test_a_server_shows_the_rule_that_failed_and_examines_all_other_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual range has the findings of the table, another one is examined by the server."""
    plant_failing_rule(monkeypatch)
    write_batches(tmp_path)
    said: list[str] = []
    with following(tmp_path, said) as fleet:
        client = Client(ServedPages(fleet, is_local=True))
        said_of = client.get("/metrics", headers={"Host": "localhost:9318"}).text
        assert (
            f'holdfast_group_findings{{code="HF133",group="{SICK}",severity="warn"}} 1' in said_of
        )
        for query in ({}, {"from": "2020-01-01"}):
            if query:
                assert fleet.ranges.wait(query, PATIENCE_S)
            verdicts = fleet.ranges.view(query).verdicts
            codes = {name: {one.code for one in found.codes} for name, found in verdicts.items()}
            assert [name for name, found in codes.items() if "HF133" in found] == [SICK]
            assert len(codes) == fleet.state.n_groups > 10
            words = {"name": SICK, **query}
            page = client.get("/group", query_string=words, headers={"Host": "localhost:9318"})
            assert "rule HF117 (uneven loads) failed: ZeroDivisionError: by nothing" in page.text
    assert said == []
