"""Dumps on a store: written, read and refused; the store is a server in a process of its own."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from tests.cli.running import run
from tests.pipeline import fleet, local
from tests.pipeline.histories import generation
from tests.pipeline.test_tasks import classics

from holdfast.errors import SourceError
from holdfast.fleet.pipeline.batches import history
from holdfast.fleet.pipeline.ingest.dump import write_log
from holdfast.fleet.pipeline.ingest.source import Dump
from holdfast.fleet.tables.storage.paths import file_system_of

HISTORY = [generation("g", n, {"a": {"t": [n % 2]}, "b": {"t": [1 - n % 2]}}) for n in (1, 2)]
TABLES = ("generations", "assignments", "movements", "rebalances", "lag")


def copied(dump, url):
    """A dump of this machine, written anew somewhere else."""
    found = Dump.open(dump)
    rows = local.records_of(found)
    columns = {name: rows[name].to_pylist() for name in rows.column_names}
    columns["timestamp"] = rows["timestamp"].cast("int64").to_pylist()
    snapshot = SimpleNamespace(
        cluster_id=found.cluster_id,
        taken_at=found.taken_at,
        topics=[tuple(row.values()) for row in found.topics().to_pylist()],
        offsets=[tuple(row.values()) for row in found.offsets().to_pylist()],
        share_state=[],
    )
    return write_log(url, columns, snapshot)


@pytest.fixture
def dump(tmp_path):
    return fleet.write_dump(
        tmp_path / "dump", classics(HISTORY), topics=[("t", 2)], offsets=[("t", 0, 0, 5)]
    )


def test_a_dump_on_remote_storage_is_that_of_a_folder(dump, bucket):
    for _ in range(2):  # the second one replaces the first one
        made = copied(dump, f"{bucket}/dumps/one")
    there = Dump.open(f"{bucket.replace('s3:', 's3a:')}/dumps/one/")
    assert there == made and str(there.path) == f"{bucket}/dumps/one"
    here = Dump.open(dump)
    assert there.topics() == here.topics() and there.offsets() == here.offsets()
    assert there.n_records() == here.n_records() == 2
    assert there.newest_us() == here.newest_us()
    assert there.group_names() == {"g"}
    assert there.partition_counts() == {"t": 2}


def test_files_that_nobody_names_are_not_read(dump, bucket):
    made = copied(dump, f"{bucket}/d")
    late = made.path / "records" / "part-late.parquet"
    file_system_of(late).write(file_system_of(made.path).read("records/part-0.parquet"))
    assert Dump.open(f"{bucket}/d").n_records() == 2


def test_a_dump_is_not_written_beside_what_is_not_ours(dump, bucket):
    file_system_of(f"{bucket}/d/letters").write(b"mine")
    with pytest.raises(SourceError, match="it already holds 'letters'"):
        copied(dump, f"{bucket}/d")
    with pytest.raises(SourceError, match="it is not a folder"):
        copied(dump, f"{bucket}/d/letters")
    assert file_system_of(f"{bucket}/d/letters").read("") == b"mine"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("none", r"no dump at \w+://.*/none: no such folder"),
        ("d/dump.json", "it is not a folder"),
        ("d/records", r"it has no dump\.json"),
    ],
)
def test_what_is_no_dump(dump, bucket, key, said):
    copied(dump, f"{bucket}/d")
    with pytest.raises(SourceError, match=said):
        Dump.open(f"{bucket}/{key}")


def test_a_damaged_dump(dump, bucket):
    made = copied(dump, f"{bucket}/d")
    file_system_of(made.path / "topics" / "part-0.parquet").write(b"PAR1 nonsense")
    with pytest.raises(SourceError, match=r"topics/part-0\.parquet cannot be read: Parquet magic"):
        Dump.open(f"{bucket}/d")
    file_system_of(made.path / "dump.json").write(json.dumps({"schema_version": 7}).encode())
    with pytest.raises(SourceError, match="schema_version 7"):
        Dump.open(f"{bucket}/d")


def test_a_bucket_that_is_not_there(dump, bucket, request):
    if request.node.callspec.params["bucket"] == "moto":  # s3s-fs and HDFS make folders
        with pytest.raises(SourceError, match="NO_SUCH_BUCKET"):
            copied(dump, f"{bucket}-none/d")
    ended = run("history", "--input", f"{bucket}-none/d", width=1000)
    assert ended.code == 3 and ended.err.count("\n") == 1
    assert "no such folder" in ended.err


@pytest.mark.spark
def test_history_of_a_dump_on_remote_storage(spark, dump, bucket, tmp_path):
    copied(dump, f"{bucket}/d")
    assert Dump.open(f"{bucket}/d").records(spark).count() == 2
    made = history.run(lambda: spark, f"{bucket}/d", tmp_path / "out")
    whole = local.run(dump, tmp_path / "whole")
    assert [made.table(n).to_pylist() for n in TABLES] == [
        whole.table(n).to_pylist() for n in TABLES
    ]
