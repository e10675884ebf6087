"""``holdfast replay``: every format, what the report makes of it, and one clear line when wrong."""

from __future__ import annotations

import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.running import run
from tests.pipeline import fleet, local, worlds
from tests.pipeline.histories import generation

from holdfast.cli.commands.replay import with_dashes
from holdfast.core.model.measure import LOW_FIDELITY
from holdfast.errors import SourceError
from holdfast.fleet.report.drawing.policies import policy_section, read_policies

COLUMNS = (
    "group",
    "policy",
    "assignor",
    "delay_ms",
    "actual",
    "rebalances",
    "moved",
    "moved_to_third",
    "revocations",
    "partition_seconds_awaited",
    "longest_wait_seconds",
    "time_to_balance_seconds",
    "fidelity",
)
"""Columns of the replay's rows that the report reads."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Tables of two small groups, as ``history -o`` keeps them."""
    folder = tmp_path_factory.mktemp("replay")
    runs = [
        worlds.play(group, policy=policy, scenario="scale-down", members=3, partitions=6)
        for group, policy in (("etl", "eager"), ("=1+1", "deferred"))
    ]
    worlds.write(folder / "dump", runs, topics=[("topic", 6)])
    return local.run(folder / "dump", folder / "tables").root


def test_json_has_the_actual_setting_first_and_then_the_requested_ones(tables):
    done = run("replay", "--input", tables, "--policy", "eager,deferred",
               "--delay", "5s,PT1M", "--format", "json")  # fmt: skip
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["schema_version"] == 1
    shown = [(r["group"], r["policy"], r["delay_ms"], r["actual"]) for r in document["rows"]]
    assert shown == [
        ("=1+1", "deferred", 30_000, True),
        ("=1+1", "eager", None, False),
        ("=1+1", "deferred", 5_000, False),
        ("=1+1", "deferred", 60_000, False),
        ("etl", "eager", None, True),
        ("etl", "deferred", 5_000, False),
        ("etl", "deferred", 60_000, False),
    ]
    assert set(COLUMNS) <= set(document["rows"][0])
    assert all(0 < row["fidelity"] <= 1 for row in document["rows"])
    assert "replaying 2 groups under 3 settings" in done.err


def test_every_format_says_the_same(tables, tmp_path):
    ask = ("replay", "--input", tables, "--group", "et*", "--policy", "simple", "-q")
    rows = run(*ask, "--format", "json").rows()
    assert [row["policy"] for row in rows] == ["eager", "simple"]
    lines = run(*ask, "--format", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == rows
    cells = list(csv.DictReader(io.StringIO(run(*ask, "--format", "csv").out)))
    assert [c["policy"] for c in cells] == ["eager", "simple"] and set(cells[0]) == set(rows[0])
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "r.parquet")  # as a job saves its frame
    (tmp_path / "r.json").write_text(run(*ask, "--format", "json").out)
    (tmp_path / "r.jsonl").write_text("\n".join(lines))
    for name in ("r.parquet", "r.json", "r.jsonl"):
        assert read_policies(tmp_path / name) == rows
    table = run(*ask, width=200)
    assert "fidelity" in table.out and "simple" in table.out and table.err == ""


def test_the_report_compares_the_policies(tables, tmp_path):
    replayed = tmp_path / "replay.json"
    assert run("replay", "--input", tables, "--format", "json", "-o", replayed).code == 0
    page = tmp_path / "page.html"
    run("report", "--input", tables, "--replay", replayed, "-o", page).passed()
    html = page.read_text()
    assert "What other policies would have done" in html
    assert html.count("(actual)") == 2


def test_what_is_no_replay_is_refused(tmp_path):
    for name, content in (
        ("a", b"PAR1 but no more"),
        ("b", b"\xff\xfe"),
        ("c", b"{}"),
        ("d", b"["),
        ("e", b"[" * 100_000),
        ("f", b'[{"policy": ' + b"9" * 5_000 + b"}]"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(SourceError, match=str(path)):
            read_policies(path)


def test_numbers_that_are_none_are_shown_as_unknown():
    odd = ["x", None, float("nan"), float("inf"), 10**400, [1], {}]
    words = [c for c in COLUMNS if c not in ("group", "policy", "assignor")]
    rows = [{"group": "g", "policy": "simple", **dict.fromkeys(words, value)} for value in odd]
    section = policy_section(
        [*rows, {"policy": "eager", "partition_seconds_awaited": 8, "moved": 3}]
    )
    assert section is not None
    assert section.count("<tr") == 1 + len(odd) + 1
    assert "nan" not in section and "inf" not in section


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--assignor", "stiky"], "did you mean"),
        (["--policy", "lag"], "is not one of"),
        (["--delay", "soon"], "a number and its unit"),
        (["--batch", "0"], "batch: found 0"),
        (["--group", "elt"], "did you mean etl?"),
        (["--policy", "cooperative-sticky", "--assignor", "lag"], "no cooperative form"),
    ],
)
def test_a_wrong_option(tables, more, said):
    done = run("replay", "--input", tables, *more)
    assert done.code == 2 and done.out == ""
    assert said in " ".join(done.err.split())


def test_people_see_a_dash_where_the_history_does_not_show():
    shown = with_dashes({"group": "g", "moved": 0, "partition_seconds_awaited": None})
    assert shown == {"group": "g", "moved": 0, "partition_seconds_awaited": "-"}


def test_a_low_fidelity_is_marked_and_says_what_not_to_trust(tmp_path):
    """A record of an owner of everything that no range assignor would make: the moves differ."""
    owned = [{"a-1": {"t": [0, 1, 2, 3]}}, {"a-1": {"t": []}, "b-1": {"t": [0, 1, 2, 3]}}]
    records = [
        ("g", at, fleet.classic(generation("g", n, own, at=at)))
        for n, (own, at) in enumerate(zip(owned, (10, 20), strict=True), 1)
    ]
    fleet.write_dump(tmp_path / "dump", records, topics=[("t", 4)])
    path = local.run(tmp_path / "dump", tmp_path / "tables").root
    done = run("replay", "--input", path, "--policy", "simple", width=250)
    assert "g: fidelity 0.60 is low: moves differ from the records: trust no number" in done.err
    assert " low" in done.out


def test_the_report_marks_rows_of_low_fidelity():
    good = {"group": "a", "policy": "eager", "fidelity": LOW_FIDELITY}
    low = {"group": "b", "policy": "eager", "fidelity": 0.02}
    unknown = {"group": "c", "policy": "eager"}
    page = policy_section([good, low, unknown])
    assert page.count("Low fidelity.") == 2
    assert page.count(">low</span>") == page.count(">not known</span>") == 1
    assert "Low fidelity" not in policy_section([good])
