"""The table ``findings``: the same findings as an examination now, and only changed groups anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.report.fleet import START_MS, rolling_bounce, tables

from holdfast.core.command_lines import GivenSource, holdfast_line, kafka_line, with_source
from holdfast.core.names import Visible
from holdfast.fleet.analysis.findings import examination
from holdfast.fleet.analysis.findings.doctor import examinations, to_json, worst_of
from holdfast.fleet.analysis.findings.finding import RULES, Limits, Symptom
from holdfast.fleet.analysis.findings.stored import Examined
from holdfast.fleet.analysis.group.group_history import GroupHistory
from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.tables.reading import Tables, open_tables, read_tables

CAPTURED = Path(__file__).parent / "captured" / "dump"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Tables of groups that lived on a broker, with their findings."""
    folder = tmp_path_factory.mktemp("tables")
    run(None, str(CAPTURED), folder)
    return open_tables(folder)


def test_findings_of_the_table_are_those_of_an_examination(made: Tables) -> None:
    window = Examined.of(made)
    assert window is not None
    source = GivenSource(path="/tables of mine")
    stored = worst_of(examinations(made, source=source))
    # Another begin of the window, before every record, has the groups examined now.
    now = worst_of(examinations(made, source=source, since_ms=1))
    assert to_json(stored) == to_json(now)
    assert sum(len(one.findings) for one in stored) == made.rows("findings") > 20


def test_the_clock_of_the_reader_is_joined(made: Tables) -> None:
    groups = sorted(made.groups)[:3]
    old = made.manifest().batches[-1]
    assert "query" not in old.notes  # no stream keeps the tables: they do not get old
    (plain, *_) = examinations(made, groups)
    watched = replace(old, notes={**old.notes, "query": "q", "every_seconds": 10.0})
    stale = Tables(made.root, replace(made.folder.newest(), manifest=_with(made, watched)))
    later = 1000 * 86_400 * 30 + (Examined.of(made) or Examined(end_ms=0)).end_ms
    (found, *_) = examinations(stale, groups, now_ms=later)
    codes = [one.code for one in plain.findings]
    assert sorted(one.code for one in found.findings) == sorted([*codes, "HF123"])


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
    assert Examined.of(held) is None
    found = list(examinations(held, last_ms=START_MS + 600_000))
    assert [one.history.name for one in found] == ["a", "b"]
    assert all(one.findings for one in found)
    assert held.stored("findings").schema.field("figures").type == pa.string()


def test_an_error_in_a_rule_names_the_rule_and_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(history: GroupHistory, limits: Limits) -> Iterator[Symptom]:
        raise ZeroDivisionError

    rule = replace(RULES["HF104"], look=look)
    monkeypatch.setattr(examination, "all_rules", lambda: (rule,))
    with pytest.raises(ZeroDivisionError) as caught:
        list(examinations(read_tables(tables(rolling_bounce("a")))))
    assert caught.value.__notes__ == ["rule HF104 (lag skew), group 'a'"]
