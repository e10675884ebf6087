"""The one runner: a step runs here or on Spark, by size, and its rows are the same."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.pipeline import local
from tests.pipeline.test_kill import lived
from tests.pipeline.test_replay import OTHERS

from holdfast.cluster.first_unread import FirstUnread, RecordTime
from holdfast.fleet.pipeline import steps
from holdfast.fleet.pipeline.batches.history import ends_of, topic_names
from holdfast.fleet.pipeline.batches.jobs import Job
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.pipeline.replay.run import REPLAY, Request, replay
from holdfast.fleet.pipeline.replay.trace_builder import traces
from holdfast.fleet.tables.columns.stored import TABLES
from holdfast.fleet.tables.folder.manifest import Batch
from holdfast.fleet.tables.reading import Tables, sort_rows

NUMBERS = pa.schema([("group", pa.string()), ("n", pa.int64())])
SUMS = pa.schema([("group", pa.string()), ("n_sum", pa.int64())])


def held(*rows, cost=None):
    columns = {"group": [group for group, _ in rows], "n": [n for _, n in rows]}
    cost = len(rows) if cost is None else cost
    return steps.InMemoryRows(rows=pa.table(columns, schema=NUMBERS), cost_rows=cost)


def sums(batches):
    """The sum of each group, group after group as they come."""
    rows = pa.Table.from_batches(list(batches), NUMBERS)
    found = rows.group_by("group", use_threads=False).aggregate([("n", "sum")])
    yield from found.select(SUMS.names).cast(SUMS).to_batches()


def doubled(rows):
    return rows.set_column(1, "n", pc.multiply(rows["n"], 2))


def step(*inputs):
    grouped = steps.Grouping(task=sums, out=SUMS, order=("group", "n"))
    return steps.Step(what="numbers", inputs=inputs, schema=NUMBERS, grouped=grouped)


FEW = (
    steps.Input(rows=held(("b", 1), ("a", 2))),
    steps.Input(rows=held(("a", 4), ("b", 8)), into=steps.by_table(doubled)),
)


def no_session():
    raise AssertionError("Spark is started")


def test_few_rows_are_worked_on_here_and_groups_are_whole_and_in_order():
    done = steps.run(no_session, step(*FEW))
    assert done.to_pylist() == [{"group": "a", "n_sum": 10}, {"group": "b", "n_sum": 17}]


@pytest.mark.parametrize("costs", [[1_000_001], [500_000, 500_001], [1, None]])
def test_many_rows_or_rows_that_nobody_has_counted_are_spark_s(costs):
    assert not steps.runs_here(costs)
    inputs = [steps.Input(rows=held(("a", 1), cost=0 if c is None else c)) for c in costs]
    if None not in costs:
        with pytest.raises(AssertionError, match="Spark is started"):
            steps.run(no_session, step(*inputs))


def test_all_that_there_is_runs_here_where_there_is_no_session():
    huge = steps.Input(rows=held(("a", 1), cost=10**9))
    assert steps.run(None, step(huge)).to_pylist() == [{"group": "a", "n_sum": 1}]


def test_rows_of_large_files_are_spark_s_however_few_they_are(tmp_path, monkeypatch):
    file = tmp_path / "rows.parquet"
    pq.write_table(held(("a", 1)).rows, file)
    read = steps.FileRows(files=[str(file)], cost_rows=1, read=iter)
    assert list(read.here()) == [(str(file), 0)]
    monkeypatch.setattr(steps, "HERE_BYTES", 10)
    with pytest.raises(AssertionError, match="Spark is started"):
        steps.run(no_session, step(steps.Input(rows=read)))


@pytest.mark.spark
def test_spark_makes_the_same_rows(spark, monkeypatch):
    here = steps.run(no_session, step(*FEW))
    monkeypatch.setattr(steps, "HERE_ROWS", -1)
    there = steps.run(lambda: spark, step(*FEW))
    assert there.sort_by("group").equals(here)


@pytest.mark.spark
def test_ages_of_records_are_the_same_here_and_on_spark(spark, tmp_path, monkeypatch):
    dump = Dump.open(lived(tmp_path / "dump"))
    ends = ends_of(dump, Selection(), "latest")

    asked = []

    def unread(wanted):
        asked.append(list(wanted))
        return [FirstUnread(RecordTime(1_000 * one.offset, True), True) for one in wanted]

    def tables(name):
        made = Tables(tmp_path / name)
        job = Job(session=lambda: spark, tables=made, batch=0)
        job.tables_of(dump.rows(), Selection(), topic_names(dump), ends, unread=unread)
        made.commit(Batch(id=0, files=job.files))
        return {table: sort_rows(made.table(table), TABLES[table]) for table in TABLES}

    here = tables("here")
    assert here["lag"]["lag_seconds_basis"].to_pylist().count("record") > 0
    monkeypatch.setattr(steps, "HERE_ROWS", -1)
    assert {n: rows.to_pylist() for n, rows in tables("there").items()} == {
        n: rows.to_pylist() for n, rows in here.items()
    }
    here_asked, there_asked = asked
    assert sorted(here_asked) == sorted(there_asked)
    plain = local.run(dump.path, tmp_path / "plain", selection=Selection())
    assert plain.table("ownership_gaps").num_rows == here["ownership_gaps"].num_rows


@pytest.mark.spark
def test_spark_replays_as_the_driver_does(spark, tmp_path, monkeypatch):
    tables = local.run(lived(tmp_path / "dump"), tmp_path / "tables")
    some, request = list(traces(tables, {"t": 2})), Request(settings=OTHERS, seed=2)
    here = replay(None, some, request)
    monkeypatch.setattr(steps, "HERE_ROWS", -1)
    there = replay(lambda: spark, some, request)
    assert here.num_rows > len(OTHERS) and there.schema == REPLAY and there.equals(here)
