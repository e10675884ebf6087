"""Jobs whose tables are on a store, and who follows them: equal to a folder of this machine."""

from __future__ import annotations

import pytest
from tests.cli.running import run as cli
from tests.pipeline import local, test_live, test_watch
from tests.pipeline.test_watch import everything, stream
from tests.report.served import PATIENCE_S, is_examined
from tests.stores import faulty as relays
from tests.stores.test_dumps import copied
from tests.tables.test_commits import written

from holdfast.fleet.pipeline import steps
from holdfast.fleet.pipeline.batches import history
from holdfast.fleet.pipeline.ingest.decode import Selection
from holdfast.fleet.pipeline.ingest.offsets_topic import KafkaFeed
from holdfast.fleet.pipeline.steps import frame
from holdfast.fleet.report.serving import served_fleet
from holdfast.fleet.report.serving.served_fleet import ServedFleet
from holdfast.fleet.tables.reading import Tables
from holdfast.fleet.tables.storage.paths import storage_path

dump, lived = test_watch.dump, test_live.lived
"""Fixtures."""


@pytest.mark.parametrize("is_remote", [False, True], ids=["folder", "remote"])
def test_what_a_watch_writes_is_served(is_remote, tmp_path, bucket, monkeypatch):
    monkeypatch.setattr(served_fleet, "REMOTE_LOOK_S", 0.2)
    root, said = (storage_path(f"{bucket}/t") if is_remote else tmp_path / "t"), []
    Tables(root).commit(written(root, 0, "a"))
    fleet = ServedFleet(root, said.append)
    fleet.start()
    try:
        assert fleet.wait(is_examined, PATIENCE_S)
        before = fleet.state.version
        Tables(root).commit(written(root, 1, "b"))
        assert fleet.wait(lambda s: s.n_groups == 2 and is_examined(s), PATIENCE_S)
        assert fleet.state.version != before and said == []
    finally:
        fleet.close()


def test_a_stream_on_remote_storage_is_one_run_on_a_disk(dump, bucket, tmp_path):
    whole = local.run(dump.path, tmp_path / "whole")
    root = storage_path(f"{bucket}/tables")
    assert everything(local.stream(dump.path, root, [109_500_000])) == everything(whole)


def test_a_batch_looks_once_at_each_file_that_it_has_sent_and_reads_none(faulty, dump, monkeypatch):
    """What a file held is known; whether it is there still is asked before an entry names it."""
    between, url = faulty
    monkeypatch.setattr(relays, "LATE_S", 0.0)
    between.fault = "late"  # all requests are noted
    local.stream(dump.path, storage_path(url), [109_500_000])
    files = [line for line in between.hits if "/batch-" in line and ".parquet" in line]
    looks = [line for line in files if not line.startswith("PUT")]
    assert looks and len(looks) == len(set(looks)) < len(files) / 2
    assert {line.split()[0] for line in looks} == {"HEAD"}
    assert not [
        line for line in between.hits if line.startswith("PUT") and line.split()[1][-1] == "/"
    ]


@pytest.mark.spark
@pytest.mark.broker
def test_watch_follows_a_broker_and_writes_to_remote_storage(spark, lived, bucket, tmp_path):
    """Twice: the second run goes on from the store, and finds nothing that it has not."""
    cluster, _, group = lived
    place = f"{bucket}/watched"
    for _ in range(2):
        done = cli("watch", "-b", cluster.bootstrap, "--group", group, "-o", place, "-q")
        assert done.code == 0, done.err
    feed = KafkaFeed(cluster=cluster, session=lambda: spark)
    once = history.run(feed.session, feed, tmp_path / "once", selection=Selection(groups=[group]))
    kept = Tables(storage_path(place))
    for name in ("generations", "movements", "rebalances", "ownership_gaps", "offset_commits"):
        assert kept.table(name).equals(once.table(name)), name
    assert kept.rows("generations") and sum("query" in b.notes for b in kept.batches())


@pytest.mark.spark
@pytest.mark.slow
def test_spark_s_tasks_write_and_read_tables_of_remote_storage(
    spark,
    dump,
    bucket,
    tmp_path,
    monkeypatch,
):
    whole = local.run(dump.path, tmp_path / "whole")
    there = copied(dump.path, f"{bucket}/dump").path
    monkeypatch.setattr(steps, "HERE_ROWS", -1)  # all that tasks can do is done by them
    made = history.run(lambda: spark, there, f"{bucket}/tables")
    assert everything(made.tables) == everything(whole)
    rows = frame(spark, made.tables, "generations")
    assert rows.count() == made.tables.rows("generations")


@pytest.mark.spark
@pytest.mark.slow
def test_a_stream_s_batches_on_remote_storage(spark, dump, bucket, tmp_path, monkeypatch):
    whole = everything(history.run(lambda: spark, dump, tmp_path / "whole").tables)
    monkeypatch.setattr(steps, "HERE_ROWS", -1)
    into = stream(dump, storage_path(f"{bucket}/watched"))
    for records in test_watch.batches(spark, dump):
        into.process(records)
    assert everything(into.tables) == whole
