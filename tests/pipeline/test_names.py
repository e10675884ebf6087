"""Names from strangers in every command that reads tables: nothing breaks or acts. No Spark."""

from __future__ import annotations

import json

import pytest
from tests.cli.running import run as cli
from tests.pipeline import fleet, local
from tests.pipeline.fleet import classics
from tests.pipeline.test_history import STRANGE, bounce

from holdfast.cli.commands.watch import write_metrics

NAMES = [*STRANGE, "<script>alert(1)</script>", "'; drop table lag; --", "`x`", "--help", "*"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder, records = tmp_path_factory.mktemp("names"), []
    for name in NAMES:
        records += classics(bounce(name, topic=name or "t")[:3])
        records.append((name, 105, fleet.commit(name, name or "t", 0, 1, at=105)))
    records.sort(key=lambda record: record[1])
    topics = [(name or "t", 4) for name in NAMES]
    ends = [(topic, p, 0, 9) for topic, n in topics for p in range(n)]
    local.run(fleet.write_dump(folder / "dump", records, topics=topics, offsets=ends), folder / "t")
    return folder / "t"


COMMANDS = (
    ("plan", "--assignor", "sticky"),
    ("plan", "--assignor", "lag-sticky"),
    ("replay", "--policy", "eager"),
    ("doctor", "--group", "*"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("fmt", ["table", "csv", "json"])
def test_every_name_is_a_row_and_no_more(tables, command, fmt):
    done = cli(*command, "--input", tables, "--format", fmt)
    assert done.code == 0, done.err
    shown = done.out.replace("\r\n", "\n") + done.err
    assert not {c for c in shown if (c < " " and c != "\n") or c in "\x7f\u202e"}
    if fmt == "json":
        rows = json.loads(done.out)
        rows = rows["groups"] if command[0] == "doctor" else rows["rows"]
        assert {row["group"] for row in rows} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_group_is_requested_by_its_name(tables, name):
    plan = ["plan", "--assignor", "range", "--input", tables, "--format", "json", "-q"]
    found = {row["group"] for row in json.loads(cli(*plan, f"--group={name}").out)["rows"]}
    assert found == (set(NAMES) if name == "*" else {name})


def test_a_report_of_them_and_metrics(tables, tmp_path):
    before = set(tables.rglob("*"))
    page = tmp_path / "page.html"
    done = cli("report", "--input", tables, "-o", page)
    assert done.code == 0, done.err
    assert "<script>alert" not in page.read_text()
    metrics = tmp_path / "m.prom"
    write_metrics(tables, metrics)
    assert 'group="../x"' in metrics.read_text()
    assert set(tables.rglob("*")) == before
    assert set(tmp_path.iterdir()) == {page, metrics}
