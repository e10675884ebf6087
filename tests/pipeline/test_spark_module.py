"""``holdfast.spark``: the example runs, and frames have the rows of the tables under their keys."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from tests.pipeline import local
from tests.pipeline.test_kill import lived

import holdfast.spark as hs
from holdfast.errors import ConfigError, SourceError
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.reading import sort_rows

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "rebalances_in_spark.py"


@pytest.fixture(scope="module", name="shown")
def what_the_example_makes(spark, tmp_path_factory):
    """Names of the example after its last cell, run in the session of the suite."""
    folder = tmp_path_factory.mktemp("example")
    dump = lived(folder / "dump")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["example", str(dump), str(folder / "out")])
        shown = runpy.run_path(str(EXAMPLE))
    assert shown["spark"] is spark
    return shown


@pytest.fixture(scope="module")
def collected(shown):
    """Every table of the example as Spark gives it, collected once."""
    return {name: frame.toArrow() for name, frame in shown["tables"].items()}


def rows(frame):
    return [row.asDict() for row in frame.collect()]


def test_the_tables_are_those_of_a_run_in_one_process(shown, collected, tmp_path):
    whole = local.run(shown["DUMP"], tmp_path / "whole")
    for name, definition in TABLES.items():
        seen = sort_rows(collected[name], definition)
        assert seen.to_pylist() == whole.table(name).to_pylist(), name
    assert shown["tables"].rows("rebalances") == whole.rows("rebalances") > 0
    with pytest.raises(KeyError, match="rebalance"):
        shown["tables"]["rebalance"]


def test_printed_tables_name_their_folder_their_span_and_their_rows(shown):
    tables = shown["tables"]
    first, *listed = repr(tables).splitlines()
    times = [row["timestamp"] for row in rows(tables["offset_commits"])]
    assert first.startswith(f"Tables in {tables.tables.root}, {min(times).isoformat()[:10]}T")
    assert first.endswith(" UTC")
    assert dict(zip(tables, [line.split() for line in listed], strict=False)) == {
        name: [name, f"{tables.rows(name):,}", "rows"] for name in tables
    }
    (load,) = re.findall(r"spark\.read\S+", listed[-1])
    assert eval(load, {"spark": shown["spark"]}).count() == tables.rows("rebalances")


def test_a_key_is_unique_in_its_table_and_stands_on_the_page(shown, collected):
    page = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    for name, table in collected.items():
        key = shown["tables"].key(name)
        found = [tuple(row[column] for column in key) for row in table.to_pylist()]
        assert len(found) == len(set(found)), name
        assert f"| `{name}` | {', '.join(f'`{column}`' for column in key)} |" in page


def test_every_record_is_decoded_with_kafka_s_names(shown):
    decoded = rows(shown["decoded"].orderBy("partition", "offset"))
    assert len(decoded) == hs.records(shown["spark"], shown["source"]).count()
    commits = [row for row in decoded if (row["name"], row["group"]) == ("OffsetCommit", "old")]
    assert json.loads(commits[0]["value"])["offset"] == 0
    assert json.loads(commits[0]["key"]) == {"group": "old", "topic": "t", "partition": 0}
    (bad,) = [row for row in decoded if row["error"]]
    assert bad["key"] is None and "truncated" in bad["error"]


def test_lag_plan_and_replay_have_one_row_for_each_key(shown):
    behind = {row["group"]: row for row in rows(shown["behind"])}
    assert behind["old"]["n_partitions"] == 2
    assert (behind["old"]["lag"], behind["old"]["n_unknown"]) == (7, 1)
    assert [row["group"] for row in rows(shown["planned"])] == ["new", "old"]
    replayed = rows(shown["replayed"])
    key = ("group", "policy", "assignor", "delay_ms", "actual")
    assert len({tuple(row[c] for c in key) for row in replayed}) == len(replayed)
    assert {row["group"] for row in replayed if row["actual"]} == {"new", "old"}


def test_without_a_source_topics_are_as_large_as_the_lag_shows(shown):
    planned = hs.plan(shown["tables"], "sticky", groups=["old"])
    assert [(row["group"], row["n_partitions"]) for row in rows(planned)] == [("old", 2)]


def test_a_small_frame_is_saved_as_one_file(shown, tmp_path):
    hs.save(shown["planned"], tmp_path / "plan.parquet")
    saved = shown["spark"].read.parquet(str(tmp_path / "plan.parquet"))
    assert rows(saved.orderBy("group")) == rows(shown["planned"])


@pytest.mark.parametrize("setting", ["eager", "eager:range:soon", "eager:range:1:2"])
def test_a_setting_that_is_none_is_refused_before_anything_is_replayed(shown, setting):
    with pytest.raises(ConfigError, match="POLICY:ASSIGNOR"):
        hs.replay(shown["tables"], [setting])


def test_what_is_not_there_is_named(spark, tmp_path):
    with pytest.raises(SourceError, match="no dump at"):
        hs.dump(tmp_path / "none")
    with pytest.raises(SourceError, match="no such folder"):
        hs.open_tables(spark, tmp_path / "none")


def test_a_session_that_would_read_nothing_of_a_cluster_is_refused(spark, tmp_path):
    """Before the cluster is asked anything: nobody listens at this address."""
    source = hs.cluster("127.0.0.1:1", {"client.id": "mine"})
    key = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    before = spark.conf.get(key)
    spark.conf.set(key, "false")
    try:
        for work in (hs.records, lambda *a: hs.history(*a, tmp_path / "out")):
            with pytest.raises(SourceError, match=key):
                work(spark, source)
    finally:
        spark.conf.set(key, before)
