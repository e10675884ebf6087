"""The stream's batches on Spark: equal to one run, done once, killed anywhere."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from unittest.mock import Mock

import pytest
from pyspark.sql import functions as F  # noqa: N812
from tests.pipeline import local
from tests.pipeline.local import everything
from tests.pipeline.stream_that_dies import FixedSnapshot
from tests.pipeline.test_broker_log import preparing
from tests.pipeline.test_kill import lived

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.batches.history import run
from holdfast.fleet.pipeline.batches.watch import Stream
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.offsets_topic import LogPart
from holdfast.fleet.pipeline.ingest.source import RECORDS, Dump
from holdfast.fleet.pipeline.steps import FrameRows, InMemoryRows
from holdfast.fleet.tables.columns.schemas import to_us
from holdfast.fleet.tables.reading import Tables

pytestmark = pytest.mark.spark


@pytest.fixture
def dump(tmp_path):
    return Dump.open(lived(tmp_path / "dump"))


def stream(dump, root):
    return Stream(tables=Tables(root), snapshot=lambda: FixedSnapshot(dump), selection=Selection())


def batches(spark, dump):
    time = F.unix_micros("timestamp")
    edges = [0, 104_500_000, 109_500_000, 2**60]
    frame = dump.records(spark)
    return [frame.where((time >= low) & (time < high)) for low, high in pairwise(edges)]


def take(into, frame, *, on_spark=True):
    """Take a frame in as the next batch."""
    rows = FrameRows(frame=frame, schema=RECORDS, cost_rows=None)
    if not on_spark:
        rows = InMemoryRows(rows=frame.toArrow().cast(RECORDS), cost_rows=0)
    return into.process(LogPart(rows=rows, upto={}), lambda: frame.sparkSession)


@pytest.mark.every
def test_batches_killed_before_the_rename_are_done_anew(spark, dump, tmp_path, monkeypatch):
    log = tmp_path / "server.log"
    log.write_text(preparing("old", 1, "removing member a-1 on LeaveGroup"))
    whole = everything(run(lambda: spark, dump, tmp_path / "whole", broker_logs=[log]).tables)
    assert any("'stated'" in row for row in whole["rebalances"])
    into = stream(dump, tmp_path / "out")
    into.broker_logs = [tmp_path / "rotated.log", log]  # one is not there at the moment
    for batch_id, records in enumerate(batches(spark, dump)):
        into.complete_us = to_us(dump.taken_at) if batch_id == 2 else None  # no record is left
        with monkeypatch.context() as patch:
            patch.setattr(into.tables, "commit", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                take(into, records)
        # Here, on Spark, here again.
        assert take(into, records, on_spark=batch_id == 1) == batch_id
    assert everything(into.tables) == whole
    state = tmp_path / "out" / "_state"
    assert [p.name for p in state.iterdir()] == ["batch-000000002"]
    assert len({batch.notes["query"] for batch in into.tables.batches()}) == 1


def test_a_folder_of_another_run_is_refused(spark, dump, tmp_path):
    made = local.run(dump.path, tmp_path / "out")
    before = everything(made)
    with pytest.raises(SourceError, match="another run"):
        take(stream(dump, tmp_path / "out"), batches(spark, dump)[0])
    assert everything(made) == before


@pytest.mark.every
def test_lag_grows_though_nobody_commits(spark, dump, tmp_path):
    into = stream(dump, tmp_path / "out")
    assert not into.look(lambda: spark)  # there is no batch yet
    for records in batches(spark, dump):
        take(into, records)
    before = everything(into.tables)
    grown = FixedSnapshot(dump)
    grown.offsets = [("t", 0, 0, 9), ("t", 1, 0, 8)]
    grown.taken_at = "2100-01-01T00:00:00+00:00"
    into = replace(into, snapshot=lambda: grown)
    for _ in range(2):
        assert into.look(lambda: spark)
    after = into.tables.table("lag").to_pylist()
    of_lag = {"lag", "lag_history"}
    assert {name: rows for name, rows in everything(into.tables).items() if name not in of_lag} == {
        name: rows for name, rows in before.items() if name not in of_lag
    }
    readings = into.tables.table("lag_history", groups=["old"]).to_pylist()
    found = [(r["lag"], r["n_unknown"], r["resolution_seconds"]) for r in readings]
    assert sorted(found) == [(9 - 2, 1, 0), (9 - 2, 1, 21_600)]
    (row,) = [r for r in after if r["group"] == "old" and r["partition"] == 0]
    assert (row["lag"], row["member_id"], row["log_end_offset"]) == (9 - 2, "b-1", 9)
    assert into.tables.newest_notes()["taken_at"] == grown.taken_at
