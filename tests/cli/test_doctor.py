"""The doctor at the command line: formats, exit codes, the published schema, odd names."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator as Schema
from tests.cli.running import run, write_tables
from tests.report.fleet import START_MS, Script, deal, rolling_bounce, tables, verdicts
from tests.report.test_findings import CASES, OF_A_FOLDER, OF_NOW, OF_OURSELVES

from holdfast.cli.commands.doctor import SortedTexts
from holdfast.cli.output import json_element, write_json, write_json_list
from holdfast.fleet.analysis.findings.doctor import to_json
from holdfast.fleet.tables.reading import read_tables

PUBLISHED = Path(__file__).parents[2] / "docs" / "doctor.schema.json"
SCHEMA = json.loads(PUBLISHED.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    calm = Script("calm", {"t": 2}).settle(0, ["a-1"], deal({"t": 2}, ["a-1"]))
    fleet = tables(rolling_bounce("etl"), calm, rolling_bounce("=cmd|'/c calc'!A1\x1b[31m"))
    return write_tables(fleet, tmp_path_factory.mktemp("tables"))


@pytest.mark.parametrize("code", CASES)
def test_json_follows_the_published_schema(code: str) -> None:
    for fleet in CASES[code]:
        found = verdicts(read_tables(tables(fleet())), last_ms=START_MS + 1_200_000)
        document = json.loads(json.dumps(to_json(found)))
        assert list(Schema(SCHEMA).iter_errors(document)) == []


def test_the_schema_refuses_what_is_not_a_finding() -> None:
    document: dict[str, Any] = {"schema_version": 1, "groups": [{"group": 5}]}
    assert len(list(Schema(SCHEMA).iter_errors(document))) > 5
    assert list(Schema(SCHEMA).iter_errors({"schema_version": 2, "groups": []}))


def test_json_puts_the_worst_group_first(folder: Path) -> None:
    done = run("doctor", "--input", folder, "--format", "json")
    assert done.code == 0
    document = json.loads(done.out)
    assert list(Schema(SCHEMA).iter_errors(document)) == []
    assert [len(g["findings"]) > 0 for g in document["groups"]] == [True, True, False]
    assert document["groups"][-1]["group"] == "calm"


@pytest.mark.parametrize(
    ("fail_on", "group", "code"),
    [
        ("never", "etl", 0),
        ("warn", "etl", 1),
        ("info", "etl", 1),
        ("error", "etl", 0),
        ("info", "calm", 0),
    ],
)
def test_fail_on(folder: Path, fail_on: str, group: str, code: int) -> None:
    done = run("doctor", "--input", folder, "--group", group, "--fail-on", fail_on)
    assert done.code == code


def test_the_screen_names_code_basis_cost_evidence_and_a_command(folder: Path) -> None:
    out = run("doctor", "--input", folder, "--group", "etl", width=200).out
    assert "Stable, classic, cooperative-sticky, 4 members, 12 partitions, generation 15" in out
    window = "2025-11-21 08:00:00 to 08:07:30 UTC: 15 rebalances, downtime up to 6.3 s a partition"
    assert window in out
    assert "HF102 deploy churn (inferred, up to 6.3 s a partition)" in out
    assert out.count("up to: Kafka does not record when a rebalance starts") == 1
    assert "generations 2-11 and 2 more; 2025-11-21 08:01:00 to 08:04:15; worker-0" in out
    assert (
        "$ holdfast simulate --scenario rolling-bounce --policy cooperative-sticky --static" in out
    )
    assert "nothing found" in run("doctor", "--input", folder, "--group", "calm").out


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_of_the_screen_is_wider_than_the_terminal_but_a_command(
    folder: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.cli.running._Kept.isatty", lambda _: True)
    lines = run("doctor", "--input", folder, width=width).out.splitlines()
    assert any(line.startswith("        $ ") for line in lines)
    assert all(len(line) <= width or line.startswith("        $ ") for line in lines)
    assert all(not line or line.startswith(("  ", "etl", "calm", "=cmd")) for line in lines)


@pytest.mark.parametrize("to_a_file", [True, False])
def test_beside_a_terminal_no_line_is_wrapped_and_none_ends_in_blanks(
    folder: Path, tmp_path: Path, *, to_a_file: bool
) -> None:
    target = tmp_path / "doctor.txt"
    done = run("doctor", "--input", folder, *(["-o", target] if to_a_file else []), width=40)
    lines = (target.read_text() if to_a_file else done.out).splitlines()
    assert any(len(line) > 100 for line in lines)
    assert not any(line.endswith(" ") for line in lines)
    of_group = lines[: lines.index("")]
    assert [line[:2] for line in of_group] == [of_group[0][:2], *["  "] * (len(of_group) - 1)]
    assert sum(line.lstrip().startswith("generations") for line in of_group) == 1


def test_csv_holds_no_formula_and_the_screen_no_control_sequence(folder: Path) -> None:
    out = run("doctor", "--input", folder, "--format", "csv").out
    rows = list(csv.reader(out.splitlines()))
    assert rows[0][:3] == ["group", "code", "name"]
    assert all(cell[:1] not in ("=", "@", "\t") for row in rows for cell in row)
    assert any(row[0].startswith("'=cmd") for row in rows)
    screen = run("doctor", "--input", folder, "--group", "*").out
    assert "\x1b" not in screen
    assert "\\u001b[31m" in screen


@pytest.mark.parametrize(
    ("requested", "shown"),
    [(["e*"], ["etl"]), (["calm", "et?"], ["calm", "etl"]), (["*c*", "calm"], ["=cmd", "calm"])],
)
def test_groups_are_chosen_by_pattern_too(
    folder: Path, requested: list[str], shown: list[str]
) -> None:
    flags = [word for name in requested for word in ("--group", name)]
    done = run("doctor", "--input", folder, "--format", "json", *flags)
    found = sorted(g["group"][:4] for g in json.loads(done.out)["groups"])
    assert found == sorted(name[:4] for name in shown)


def test_an_unknown_group_is_reported_with_the_nearest_name(folder: Path) -> None:
    done = run("doctor", "--input", folder, "--group", "elt")
    assert (done.code, done.out) == (2, "")
    assert "did you mean etl?" in done.err


@pytest.mark.parametrize("code", [*CASES, *OF_A_FOLDER, *OF_NOW, *OF_OURSELVES])
def test_every_code_is_explained(code: str) -> None:
    done = run("explain", code)
    assert done.code == 0
    for heading in ("What", "Why it matters", "How it is detected", "What helps"):
        assert f"\n{heading}\n" in done.out
    assert json.loads(run("explain", code.lower(), "--format", "json").out)["code"] == code
    assert run("explain", code, "--format", "csv").out.startswith("code,name,severity,what,")
    assert json.loads(run("explain", code, "--format", "jsonl").out)["code"] == code


def test_an_explanation_goes_to_a_file(tmp_path: Path) -> None:
    printed = run("explain", "HF104", width=80)
    written = run("explain", "HF104", "-o", tmp_path / "hf104.txt", width=80)
    assert (written.code, written.out) == (0, "")
    assert (tmp_path / "hf104.txt").read_text() == printed.out


def test_explain_without_a_code_lists_all_and_an_unknown_one_suggests() -> None:
    listed = json.loads(run("explain", "--format", "json").out)
    assert [row["code"] for row in listed["rows"]] == sorted(
        {*CASES, *OF_A_FOLDER, *OF_NOW, *OF_OURSELVES}
    )
    assert run("explain", "HF199").code == 2
    assert "HF104" in run("explain", "lag skew").err


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@given(groups=st.lists(VALUES, max_size=3), head=st.text())
def test_a_list_is_written_as_the_whole_document(
    encoding: str, groups: list[object], head: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole, pieces = folder / "whole.json", folder / "pieces.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        write_json({"head": head, "groups": groups}, whole)
        write_json_list({"head": head}, "groups", map(json_element, groups), pieces)
    assert pieces.read_bytes() == whole.read_bytes()
    assert repr(json.loads(whole.read_text("utf-8"))["groups"]) == repr(groups)


def test_texts_come_in_the_order_of_their_keys() -> None:
    texts = SortedTexts(io.BytesIO())
    for key, text in ((2, "zwei, größer"), (1, "one\n"), (2, "later"), (0, "")):
        texts.add(key, text)
    for _ in range(2):
        assert list(texts) == ["", "one\n", "zwei, größer", "later"]
